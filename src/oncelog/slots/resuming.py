"""The decision of a resume: go on in place, read the log first, go on under another lease, or not at all. Pure.

A saved producer says of a partition that all slots before the due one are filled. How many were filled since is asked
for, question by question: `TABLE` has, for each question, what the answer may say and what follows. The engine
(`client/saving/resume.py`, for a copy `spark/copying/lane_resuming.py`) asks and is told; it decides nothing.

    FENCE -> IN_PLACE                        resume_pid keeps out who else may write, and answers H, in one step
    FENCE -> LOG_OF_LEASE -> ANOTHER_LEASE   no broker knows the lease any more
    MEMORY -> IN_PLACE                       nothing was filled since. Nobody is kept out, and need not be: a slot is
    MEMORY -> LOG -> IN_PLACE                filled once, and who races for it brings the same record
    MEMORY -> WATERMARK -> LOG -> IN_PLACE   a copy, which compares what was filled since: all of it must count

A broker that has forgotten the producer takes any slot of it, also one that was filled long since. So it may remember a
late batch of a process that slept, and nothing of what others have filled behind it. Such a batch is as old as the
sleep; what is remembered of a batch that should be forgotten by now proves nothing (`STALE`), and the log is read.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.producers.sequences import NO_SEQUENCE, is_newer_generation, sequence_after
from oncelog.slots.chain import SavedPartition, closed
from oncelog.slots.errors import CannotTell
from oncelog.slots.identity import HighWater, Identity, Place, Span
from oncelog.slots.lease import ends_by
from oncelog.slots.questions import Ask, End, Says
from oncelog.slots.standing import Reach, filled_since

TABLE: Final[Mapping[Ask, Mapping[Says, Ask | End]]] = {
    Ask.FENCE: {
        Says.LEVEL: End.IN_PLACE,
        Says.AHEAD: End.IN_PLACE,
        Says.LEASE_OVER: End.ANOTHER_LEASE,
        Says.UNKNOWN: Ask.LOG_OF_LEASE,
        Says.BEHIND: End.REFUSED,
    },
    Ask.MEMORY: {
        Says.LEVEL: End.IN_PLACE,
        Says.AHEAD: Ask.LOG,  # only what is below the high watermark counts
        Says.TO_COMPARE: Ask.WATERMARK,
        Says.STALE: Ask.LOG,
        Says.UNKNOWN: Ask.LOG,
        Says.BEHIND: End.REFUSED,
        Says.OTHER_EPOCH: End.REFUSED,
    },
    Ask.WATERMARK: {
        Says.COUNTS: Ask.LOG,
        Says.MAY_VANISH: End.ASK_AGAIN,
    },
    Ask.LOG: {
        Says.LEVEL: End.IN_PLACE,
        Says.AHEAD: End.IN_PLACE,
        Says.CUT: End.REFUSED,
        Says.GONE: End.REFUSED,
        Says.MAY_VANISH: End.ASK_AGAIN,
    },
    Ask.LOG_OF_LEASE: {
        Says.LEVEL: End.ANOTHER_LEASE,
        Says.AHEAD: End.ANOTHER_LEASE,
        Says.CUT: End.REFUSED,
    },
}


class LogRead(NamedTuple):
    """The slots that the log has from the due one on, in its order."""

    records: int
    end_offset: int  # up to where it was read
    begins_behind: int = -1  # the saved offset: where the log was found to begin


Answer = HighWater | LogRead | Reach | None  # None: the producer is not known there


class Resuming:
    """One partition of a saved producer. `asks` is the next question, or how it ended.

    `compares`: a copy, which has written down what fills each slot before it was sent, and reads back what was filled
    since. So what retention took of that is not missed, where it is known how much it was, or that there was nothing
    (`is_at_rest`).
    """

    def __init__(
        self,
        place: Place,
        saved: SavedPartition,
        wall_ms: int,
        *,
        is_leased: bool,
        remembered_ms: int = 0,
        compares: bool = False,
        is_at_rest: bool = False,
    ) -> None:
        self.place = place
        self.saved = saved
        self.asks: Ask | End = Ask.FENCE if is_leased else Ask.MEMORY
        self._wall_ms = wall_ms
        self._remembered_since_ms = wall_ms - remembered_ms
        self._compares = compares
        self._is_at_rest = is_at_rest
        self._identity = saved.last.identity  # with the generation that is ours now
        self._filled = 0  # slots, since the save
        self._counting = 0  # slots that are remembered, and lie below the high watermark

    def answered(self, answer: Answer) -> None:
        """The answer to what it asks. Raises CannotTell where it ends as refused."""
        assert isinstance(self.asks, Ask)
        asked, says = self.asks, self._says(answer)
        self.asks = TABLE[asked][says]
        if self.asks is End.REFUSED:
            raise refusal(says, self.place, self.saved, answer)

    def _says(self, answer: Answer) -> Says:
        if isinstance(answer, LogRead):
            return self._read(answer)
        if isinstance(answer, Reach):
            return Says.COUNTS if answer.is_reached else Says.MAY_VANISH
        return self._remembered(answer) if self.asks is Ask.MEMORY else self._fenced(answer)

    def _read(self, read: LogRead) -> Says:
        self._filled = read.records
        if ends_before(self.saved, read.end_offset):
            return Says.CUT
        if read.begins_behind >= 0 and not read.records:
            self._filled = self._counting
            return Says.AHEAD if self._filled else Says.LEVEL if self._is_at_rest else Says.GONE
        return Says.MAY_VANISH if read.records < self._counting else _level_or_ahead(read.records)

    def _remembered(self, known: HighWater | None) -> Says:
        last = self.saved.last
        says = memory_says(last, known, self._remembered_since_ms)
        if says is not Says.AHEAD or not self._compares:
            return says
        assert known is not None
        self._counting = filled_since(known.last_sequence, last.next_sequence) or 0
        return Says.TO_COMPARE

    def _fenced(self, known: HighWater | None) -> Says:
        last = self.saved.last
        if known is None or (known.last_sequence == NO_SEQUENCE and last.next_sequence):
            return Says.UNKNOWN
        filled = filled_since(known.last_sequence, last.next_sequence)
        if filled is None:
            return Says.BEHIND
        self._identity, self._filled = last.identity._replace(generation=known.generation), filled
        return Says.LEASE_OVER if ends_by(last.identity, self._wall_ms) else _level_or_ahead(filled)

    def resumed(self, fresh: Identity | None = None) -> SavedPartition:
        """The value to go on from, and to save as long as no record of the replay has come. `fresh`: the other
        lease."""
        spans = closed(self.saved.spans, self._identity, self._filled)
        if self.asks is End.ANOTHER_LEASE:
            assert fresh is not None
            opened = Span(fresh, 0)
        else:
            assert self.asks is End.IN_PLACE
            opened = Span(self._identity, sequence_after(self.saved.last.next_sequence, self._filled))
        return SavedPartition(next_offset=self.saved.next_offset, spans=(*spans, opened))


def ends_before(saved: SavedPartition, end_offset: int) -> bool:
    """Whether something that was acknowledged is missing. Its broker may have forgotten the producer as well, and would
    take what comes next without it."""
    return end_offset < saved.next_offset


def check_end(place: Place, saved: SavedPartition, end_offset: int) -> None:
    """Raises CannotTell. For those that ask for the end before anything else."""
    if ends_before(saved, end_offset):
        raise refusal(Says.CUT, place, saved, LogRead(0, end_offset))


def memory_says(span: Span, known: HighWater | None, remembered_since_ms: int) -> Says:
    """The answer in a broker's memory about an open span. It may forget a producer that wrote nothing since then."""
    if known is None:
        return Says.UNKNOWN
    if known.generation != span.identity.generation:
        return Says.OTHER_EPOCH
    filled = filled_since(known.last_sequence, span.next_sequence)
    if filled is None:
        return Says.BEHIND
    return Says.STALE if not filled and known.last_timestamp_ms <= remembered_since_ms else _level_or_ahead(filled)


def _level_or_ahead(filled: int) -> Says:
    return Says.AHEAD if filled else Says.LEVEL


def refusal(says: Says, place: Place, saved: SavedPartition, answer: Answer) -> CannotTell:
    where, span = f"{place.topic}-{place.partition}", saved.last
    if isinstance(answer, LogRead) and says is Says.GONE:
        return CannotTell(
            f"{where} begins at offset {answer.begins_behind} now, and the producer was saved at {saved.next_offset}: "
            "nobody can tell any more what was written since"
        )
    if isinstance(answer, LogRead):
        return CannotTell(
            f"{where} ends at offset {answer.end_offset}, and the producer was saved at {saved.next_offset}: what was "
            "acknowledged is missing (an unclean leader election, a restored disk)",
            "Start without a saved producer, from an input position whose outputs are all there",
        )
    assert isinstance(answer, HighWater)
    if says is Says.OTHER_EPOCH:
        word = "newer" if is_newer_generation(span.identity.generation, answer.generation) else "other"
        return CannotTell(
            f"{where}: producer {span.identity.pid} was saved with epoch {span.identity.generation}, and the broker "
            f"knows the {word} epoch {answer.generation}: somebody called InitProducerId for it, and its sequences "
            "began anew",
            "Find out who shares this producer id, and start without a saved producer from an input position of which "
            "you know what was written",
        )
    return CannotTell(
        f"{where}: the saved producer {span.identity.pid} goes on at sequence {span.next_sequence}, and the broker "
        f"knows it only up to {answer.last_sequence}: records that were acknowledged before the save are missing (an "
        "unclean leader election, a restored disk, or the saved value is not of this log)",
        "Start without a saved producer, from an input position whose outputs are all there",
    )
