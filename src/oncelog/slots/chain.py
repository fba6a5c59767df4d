"""The chain of spans of one partition: what a saved producer says of it.

A partition holds a chain rather than one identity, because a lease can end between two saves. Then the span of the old
lease is closed (its records were found in the log) and an open one under the new lease follows it. A replay from the
same input position drops the records of the closed spans and then those that the open one already has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oncelog.producers.sequences import records_behind, sequence_after
from oncelog.slots.errors import CannotTell
from oncelog.slots.identity import Identity, Span
from oncelog.slots.messages import Boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPartition:
    next_offset: int  # nothing that belongs to a later slot stands below it
    spans: tuple[Span, ...]

    @property
    def drops(self) -> tuple[Span, ...]:
        """The closed spans: a replay brings their records first, and none of them is sent."""
        return self.spans[:-1]

    @property
    def records_to_drop(self) -> int:
        return sum(span.records or 0 for span in self.drops)

    @property
    def last(self) -> Span:
        """The open span: under its identity the producer goes on."""
        return self.spans[-1]


def opened(identity: Identity, next_sequence: int, next_offset: int) -> SavedPartition:
    """A chain that begins: of one span, which is open."""
    return SavedPartition(next_offset=next_offset, spans=(Span(identity, next_sequence),))


def as_it_stands(boundary: Boundary | None) -> SavedPartition | None:
    """A running producer that is to be saved from here on; None where it has written nothing, and so needs an
    identity that is saved before its first record."""
    if boundary is None or boundary.next_offset < 0:
        return None
    return opened(*boundary)


def behind(spans: tuple[Span, ...], records: int) -> tuple[Span, ...]:
    """The chain without its first `records`."""
    while records:
        first = spans[0]
        if first.records is None:
            return (first._replace(next_sequence=sequence_after(first.next_sequence, records)), *spans[1:])
        step = min(records, first.records)
        records -= step
        if step == first.records:
            spans = spans[1:]
        else:
            left = first.records - step
            spans = (Span(first.identity, sequence_after(first.next_sequence, step), left), *spans[1:])
    if not spans:
        raise CannotTell("a chain has no open span: this is a defect of the client")
    return spans


def changed(partition: SavedPartition, stands: Span, identity: Identity) -> SavedPartition:
    """The chain as it goes on under another identity, once the open span stands there: what was stored in between
    becomes a closed one."""
    last = partition.last
    since = records_behind(stands.next_sequence - 1, last.next_sequence)
    done = (last._replace(records=since),) if since else ()
    return replace(partition, spans=(*partition.drops, *done, Span(identity, 0)))


def closed(spans: Sequence[Span], identity: Identity, records: int) -> tuple[Span, ...]:
    """The chain with its open span closed behind `records`, which identity has filled: empty ones left out, and
    neighbours of one pid as one, so that a chain does not grow with resumes."""
    joined: list[Span] = []
    for span in (*spans[:-1], Span(identity, spans[-1].next_sequence, records)):
        last = joined[-1] if joined else None
        assert span.records is not None
        if (
            last is not None
            and last.records is not None
            and last.identity.pid == span.identity.pid
            and sequence_after(last.next_sequence, last.records) == span.next_sequence
        ):
            joined[-1] = Span(span.identity, last.next_sequence, last.records + span.records)
        elif span.records:
            joined.append(span)
    return tuple(joined)
