"""The map from records of the source to slots of a lane. Pure.

A copy is one to one, so slots (the lane's records, counted from 0) follow the source's offsets; only where offsets have
holes they fall apart. So the map is a few stretches, each "from this slot on these offsets, one after another". One
whose end is open goes on for as long as the source has no hole.

A stretch is written down before its first record is sent. A later run finds by it where the last filled slot
stood, also when compaction has taken more records from the source since.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from oncelog.records.column_types import Int64s

OPEN: Final = -1


class NotMapped(Exception):
    """A slot was filled of which nobody wrote down what would stand in it."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"it was not written down which record fills slot {slot}")


class Stretch(NamedTuple):
    slot: int
    offset: int
    records: int = OPEN

    def end_slot(self, at_most: int) -> int:
        return at_most if self.records == OPEN else min(at_most, self.slot + self.records)

    def is_behind(self, slot: int) -> bool:
        """Whether all of it lies before a slot."""
        return self.records != OPEN and self.slot + self.records <= slot


@dataclass(frozen=True, slots=True)
class Mapping:
    """Stretches in the order of slots, without gaps between them; only the last may be open."""

    stretches: tuple[Stretch, ...] = ()

    def offset_of(self, slot: int) -> int:
        for each in reversed(self.stretches):
            if each.slot <= slot and not each.is_behind(slot):
                return each.offset + slot - each.slot
        raise NotMapped(slot)

    def offsets(self, first_slot: int, count: int) -> Int64s:
        """The offsets of `count` slots, one after another."""
        found: list[Int64s] = []
        slot, end = first_slot, first_slot + count
        for each in self.stretches:
            stop = each.end_slot(end)
            if each.slot <= slot < stop:
                start = each.offset + slot - each.slot
                found.append(np.arange(start, start + stop - slot, dtype=np.int64))
                slot = stop
        if slot < end:
            raise NotMapped(slot)
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def says(self, slot: int, runs: Iterable[tuple[int, int]]) -> bool:
        """Whether it is written down that these runs of offsets fill the slots from this one on."""
        try:
            for offset, count in runs:
                is_so = self._goes_through(slot, offset, count)
                if not is_so and not np.array_equal(self.offsets(slot, count), np.arange(offset, offset + count)):
                    return False
                slot += count
        except NotMapped:
            return False
        return True

    def _goes_through(self, slot: int, offset: int, count: int) -> bool:
        """Whether the run lies in the last stretch as a whole, as nearly all do."""
        last = self.stretches[-1] if self.stretches else None
        return (
            last is not None
            and last.slot <= slot
            and last.end_slot(slot + count) == slot + count
            and last.offset - last.slot == offset - slot
        )

    def agrees(self, other: "Mapping", first_slot: int) -> bool:
        """Whether no slot from this one on is another record here than there."""
        mine, others = deque(self.since(first_slot).stretches), deque(other.since(first_slot).stretches)
        while mine and others:
            one, two = mine[0], others[0]
            slot = max(one.slot, two.slot)
            if one.is_behind(slot):
                mine.popleft()
            elif two.is_behind(slot):
                others.popleft()
            elif one.offset - one.slot != two.offset - two.slot:
                return False
            elif one.records == OPEN and two.records == OPEN:
                break
            elif two.records == OPEN or (one.records != OPEN and one.slot + one.records <= two.slot + two.records):
                mine.popleft()
            else:
                others.popleft()
        return True

    def since(self, slot: int) -> "Mapping":
        """The mapping without what lies before a slot."""
        kept = []
        for each in self.stretches:
            if each.slot >= slot:
                kept.append(each)
            elif not each.is_behind(slot):
                past = slot - each.slot
                kept.append(Stretch(slot, each.offset + past, OPEN if each.records == OPEN else each.records - past))
        return Mapping(tuple(kept))

    def with_runs(self, slot: int, runs: Sequence[tuple[int, int]], *, is_open: bool) -> "Mapping":
        """The map as it is before the slot, and these runs from it on; with `is_open` the last of them goes on."""
        kept = [Stretch(each.slot, each.offset, each.end_slot(slot) - each.slot) for each in self.stretches]
        kept = [each for each in kept if each.records > 0]
        for offset, count in runs:
            kept.append(Stretch(slot, offset, count))
            slot += count
        if is_open and kept:
            kept[-1] = kept[-1]._replace(records=OPEN)
        return Mapping(tuple(kept))

    def certain(self, end_slot: int) -> "Mapping":
        """An open stretch goes on only as far as this slot."""
        kept = [each._replace(records=each.end_slot(end_slot) - each.slot) if each.records == OPEN else each
                for each in self.stretches]  # fmt: skip
        return Mapping(tuple(each for each in kept if each.records > 0))

    # --- as JSON: slot, offset and length of the first stretch, then the hole before each other one and its length

    def to_value(self) -> list[int]:
        value: list[int] = []
        end_offset = 0
        for each in self.stretches:
            value += (each.offset - end_offset, each.records) if value else each
            end_offset = each.offset + each.records
        return value

    @classmethod
    def from_value(cls, value: Any) -> "Mapping":
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise ValueError("a map is a list of whole numbers")
        if not value:
            return cls()
        if len(value) < len(Stretch._fields) or len(value) % 2 == 0 or min(value[:2]) < 0:
            raise ValueError("a map begins with a slot, an offset and a length")
        stretches = [Stretch(*value[:3])]
        for hole, count in zip(value[3::2], value[4::2], strict=True):
            last = stretches[-1]
            if last.records == OPEN or hole < 0:
                raise ValueError("stretches follow one another, and only the last one is open")
            stretches.append(Stretch(last.slot + last.records, last.offset + last.records + hole, count))
        if not all(each.records > 0 or each.records == OPEN for each in stretches):
            raise ValueError("no stretch is empty")
        return cls(tuple(stretches))
