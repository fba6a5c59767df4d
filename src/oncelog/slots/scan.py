"""One producer's slots among fetched batches. Pure: bytes go in, what they hold of the producer comes out.

A batch's header says which slots it fills: sequences from its base sequence on, as many as its last offset delta says,
also where compaction took records out. So H(P) is found without unfolding anything, and a slot's sequence is its
batch's base sequence plus its distance from the base offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.producers.sequences import is_newer_generation, records_behind, sequence_after
from oncelog.records.header import BatchHeader, Buffer, headers
from oncelog.records.read import records_of
from oncelog.slots.errors import CannotTell
from oncelog.slots.identity import Identity, Place
from oncelog.slots.replay import Slot
from oncelog.slots.standing import filled_since, gone


def belongs_to(header: BatchHeader, identity: Identity, *, any_generation: bool) -> bool:
    """Whether a batch fills slots of this identity. A leased pid goes on through newer generations, so that its batches
    may be of any; a Kafka pid begins anew with a newer epoch."""
    is_of_it = any_generation or header.producer_epoch == identity.generation
    return is_of_it and header.producer_id == identity.pid and header.base_sequence >= 0 and not header.is_control


class Filled(NamedTuple):
    """A batch of the producer as it lies in the log."""

    base_offset: int
    last_offset: int
    first: int  # of its slots, counted from the one that was due when the walk began


@dataclass(slots=True)
class SlotScan:
    """Walks a partition from the place that belongs to `next_sequence`, in the order of offsets."""

    topic: str
    partition: int
    identity: Identity
    next_sequence: int  # the slot that is due next; moves on with what is found
    any_generation: bool
    has_holes: bool = False  # compaction takes whole batches: what comes behind them is taken as it is
    records: int = 0  # slots found so far, holes included
    _is_cut: bool = False
    _place: int = -1  # where the walk has got to
    _gone: CannotTell | None = None  # where nothing is found

    def count(self, buffer: Buffer, up_to: int) -> int:
        """Take in whole batches that begin below `up_to`, by their headers alone; the offset to go on from, or -1."""
        for _, header, known in self._own(buffer, up_to):
            self._fill(header.last_offset_delta + 1 - known)
        return self._place

    def batches(self, buffer: Buffer, up_to: int) -> list[Filled]:
        """As `count`, with the batches; also those that stand twice."""
        found = []
        for _, header, known in self._own(buffer, up_to):
            found.append(Filled(header.base_offset, header.last_offset, self.records - known))
            self._fill(header.last_offset_delta + 1 - known)
        return found

    def begins_at(self, log_start_offset: int, offset: int, up_to: int | None) -> None:
        """The log begins there by now, and the walk was to go on at `offset`. Slots are filled in order: where the one
        that is due is found behind the beginning, nothing before it is gone."""
        found = gone(Place(self.topic, self.partition), offset, up_to, log_start_offset)
        if self.records or log_start_offset <= offset:
            raise found
        self._gone = self._gone or found

    def ended(self) -> None:
        """All that is there was walked."""
        if self._gone is not None and not self.records:
            raise self._gone

    def cut(self) -> None:
        """Retention has taken the records that would come next. The next batch begins at any slot, and none is missing
        behind."""
        self._is_cut = True

    def slots(self, buffer: Buffer, up_to: int) -> tuple[list[Slot], int]:
        """As `count`, with the records themselves."""
        found: list[Slot] = []
        for at, header, known in self._own(buffer, up_to):
            if known <= header.last_offset_delta:
                found += self._read(buffer, at, header, known)
        return found, self._place

    def _own(self, buffer: Buffer, up_to: int) -> Iterator[tuple[int, BatchHeader, int]]:
        """This producer's batches: where each stands, and how many slots, from its first on, were filled before."""
        self._place = -1
        for at, header in headers(buffer):
            if header.base_offset >= up_to:
                self._place = up_to
                return
            self._place = header.last_offset + 1
            known = self._known(header)
            if known is not None:
                yield at, header, known

    def _known(self, header: BatchHeader) -> int | None:
        """None: it is none of this producer's."""
        if not belongs_to(header, self.identity, any_generation=self.any_generation):
            self._refuse_newer_epoch(header)
            return None
        behind = filled_since(self.next_sequence - 1, header.base_sequence)
        if behind is not None:
            return behind
        if not self.has_holes and not self._is_cut:
            raise self._hole(header.base_sequence, header.base_offset)
        self._fill(records_behind(header.base_sequence - 1, self.next_sequence))
        return 0

    def _refuse_newer_epoch(self, header: BatchHeader) -> None:
        is_of_pid = belongs_to(header, self.identity, any_generation=True)
        if is_of_pid and is_newer_generation(self.identity.generation, header.producer_epoch):
            raise CannotTell(
                f"{self.topic}-{self.partition}: at offset {header.base_offset} producer {header.producer_id} goes on "
                f"with epoch {header.producer_epoch}, and was saved with {self.identity.generation}: somebody took it "
                "over with InitProducerId, and its sequences began anew",
                "Find out who, and start from a known position",
            )

    def _read(self, buffer: Buffer, at: int, header: BatchHeader, known: int) -> list[Slot]:
        found = []
        for record in records_of(buffer, at):
            distance = record.offset - header.base_offset
            if distance < known:
                continue
            sequence = sequence_after(header.base_sequence, distance)
            if sequence != self.next_sequence:
                raise self._hole(sequence, record.offset)
            found.append(
                Slot(
                    Identity(header.producer_id, header.producer_epoch),
                    sequence,
                    record.offset,
                    record.key,
                    record.value,
                    record.headers,
                    record.timestamp_ms,
                    header.has_log_append_time,
                )
            )
            self._fill(1)
        return found

    def _fill(self, records: int) -> None:
        if records > 0:
            self.next_sequence = sequence_after(self.next_sequence, records)
            self.records += records
            self._is_cut = False

    def _hole(self, sequence: int, offset: int) -> CannotTell:
        return CannotTell(
            f"{self.topic}-{self.partition}: slot {self.next_sequence} of producer {self.identity.pid} is due, and the "
            f"next that the log holds is {sequence} at offset {offset}. What lies between is gone by retention or "
            "compaction, or the saved producer is not of this log: it cannot be told what was written",
            "Start from an input position whose outputs are all there, without a saved producer",
        )
