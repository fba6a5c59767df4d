"""Every log of up to three slots that a copy may come back to: what is replicated of it, what retention took, what its
leader remembers. Each slot is a batch at the offset of its number."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

from oncelog.producers.sequences import SEQUENCES, sequence_after
from oncelog.records.build import build_batch
from oncelog.slots import HighWater, Identity, Place
from oncelog.slots.chain import opened
from oncelog.slots.errors import CannotTell
from oncelog.slots.questions import Ask, End
from oncelog.slots.resuming import Answer, LogRead, Resuming
from oncelog.slots.scan import SlotScan
from oncelog.slots.standing import Reach

PLACE = Place("copy", 0)
COPY = Identity(1 << 32, 0)
MOST = 3
NOW_MS, REMEMBERED_MS = 1_000_000, 1_000


@dataclass(frozen=True)
class Left:
    """Slots from `first` on; those before `done` are written down as filled."""

    first: int
    done: int
    filled: int
    replicated: int
    begins: int  # the log: only what was replicated is ever taken
    is_known: bool = True  # to the leader
    age_ms: int = 0
    has_moved: bool = False
    ends: int = MOST  # where an unclean election cuts it before it is read

    def sequence(self, slot: int) -> int:
        return sequence_after(self.first, slot)

    def answer(self, ask: Ask) -> Answer:
        if ask is Ask.MEMORY:
            last = self.sequence(self.filled - 1)
            return HighWater(COPY.generation, last, NOW_MS - self.age_ms) if self.is_known and self.filled else None
        if ask is Ask.WATERMARK:
            return Reach(self.filled, self.replicated, not self.has_moved)
        return self.read()

    def read(self) -> LogRead:
        scan = SlotScan(*PLACE, COPY, self.sequence(self.done), any_generation=False)
        if self.begins > self.done:
            scan.cut()
        end = min(self.replicated, self.ends)
        numbers = range(max(self.begins, self.done), end)
        data = b"".join(
            bytes(
                build_batch(
                    [(None, b"", (), 0)],
                    base_offset=number,
                    producer_id=COPY.pid,
                    producer_epoch=COPY.generation,
                    base_sequence=self.sequence(number),
                )
            )
            for number in numbers
        )
        assert [each.first + self.done for each in scan.batches(data, end)] == list(numbers)
        return LogRead(scan.records, self.replicated, self.begins if self.begins > self.done else -1)


def resumed(left: Left, *, is_at_rest: bool) -> int | None:
    """How many slots are filled, of all; None: to be asked again."""
    saved = opened(COPY, left.sequence(left.done), left.done)
    resuming = Resuming(
        PLACE, saved, NOW_MS, is_leased=False, remembered_ms=REMEMBERED_MS, compares=True, is_at_rest=is_at_rest
    )
    while isinstance(resuming.asks, Ask):
        resuming.answered(left.answer(resuming.asks))
    return left.done + resuming.resumed().records_to_drop if resuming.asks is End.IN_PLACE else None


def logs() -> Iterator[Left]:
    for first, numbers in product((0, SEQUENCES - 2), combinations_with_replacement(range(MOST + 1), 4)):
        for done, begins, replicated, filled in {numbers, (numbers[1], numbers[0], *numbers[2:])}:
            yield Left(first, done, filled, replicated, begins)


def check_copies() -> None:
    for left in logs():
        is_at_rest = left.filled == left.done
        found = resumed(left, is_at_rest=is_at_rest)
        if left.replicated == left.filled:
            assert found == left.filled, left
        else:
            assert found is None, f"{left}: what the leader alone has may vanish"


def check_other_leaders() -> None:
    for left in (Left(0, 0, 2, 2, 0, has_moved=True), Left(0, 0, 2, 2, 0, ends=1)):
        assert resumed(left, is_at_rest=False) is None, left


def check_forgotten() -> None:
    """A leader forgets what was replicated long since, and may remember what is older yet."""
    for left in logs():
        if left.replicated < left.filled:
            continue
        stale = Left(left.first, left.done, left.filled, left.filled, left.begins, is_known=False)
        is_gone = left.begins == left.filled > left.done
        try:
            found = resumed(stale, is_at_rest=False)
        except CannotTell as refused:
            assert is_gone, f"{left}: refused without need: {refused}"
            assert "nobody can tell any more what was written since" in refused.what
        else:
            assert found == left.filled, left
            assert not is_gone, left
    assert resumed(Left(0, 1, 1, 3, 3, is_known=False), is_at_rest=True) == 1, "others wrote there, and are gone"
    aged = Left(0, 2, 2, 2, 0, age_ms=REMEMBERED_MS)
    assert resumed(aged, is_at_rest=False) == 2


def check_lost() -> None:
    """Acknowledged slots are missing, and what is left is not known to the leader."""
    for at_rest in (False, True):
        try:
            resumed(Left(0, 3, 2, 2, 0, is_known=False), is_at_rest=at_rest)
        except CannotTell as refused:
            assert "ends at offset 2, and the producer was saved at 3" in refused.what
        else:
            raise AssertionError("what was acknowledged is missing")


CHECKS = (check_copies, check_other_leaders, check_forgotten, check_lost)
