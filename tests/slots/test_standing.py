"""Where it is decided that a record stands in the log already: whatever a leader remembers and has replicated, H is
what lies below the high watermark, or it is asked for again."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any
from unittest.mock import patch

import pytest

from oncelog.producers.sequences import NO_SEQUENCE, SEQUENCES, sequence_after
from oncelog.slots import HighWater, Identity, Place, standing
from oncelog.slots.errors import CannotTell
from oncelog.slots.messages import Found, LookUp, StoredSpan
from oncelog.slots.questions import Ask, End, Says
from oncelog.slots.standing import TABLE, LookingUp, Reach, SpansRead

PLACE = Place("t", 0)
PID, GENERATION = 1 << 32, 3


@dataclass(frozen=True)
class Leader:
    """Of a partition in which an identity has filled slots from `first` on, one in each batch."""

    first: int
    filled: int
    replicated: int  # of those
    done: int  # slots that are known to be stored when it is asked
    generation: int = GENERATION
    remembers: bool = True
    has_moved: bool = False

    def sequence(self, slot: int) -> int:
        return sequence_after(self.first, slot)

    @property
    def high_water(self) -> HighWater | None:
        if not self.remembers or not self.filled:
            return None
        return HighWater(self.generation, self.sequence(self.filled - 1))

    def spans(self, from_offset: int) -> SpansRead:
        numbers = range(max(0, from_offset), self.replicated)
        return SpansRead([StoredSpan(self.sequence(at), self.sequence(at), at) for at in numbers])

    def question(self, *, is_placed: bool, says_done: bool, must_fence: bool = False) -> LookUp:
        acknowledged = self.sequence(self.done) if says_done else -1
        from_offset = self.done if is_placed else -1
        return LookUp(PLACE, Identity(PID, GENERATION), from_offset, must_fence, acknowledged)

    def answer(self, ask: Ask, asked: LookUp) -> HighWater | SpansRead | Reach | None:
        if ask is Ask.FENCE:
            known = self.high_water
            fenced = known and known._replace(generation=GENERATION + 1)
            return fenced or (HighWater(GENERATION + 1, NO_SEQUENCE) if self.remembers else None)
        if ask is Ask.MEMORY:
            return self.high_water
        if ask is Ask.WATERMARK:
            high = self.filled if self.has_moved else self.replicated  # another's log is as long, by other records
            return Reach(self.filled, high, not self.has_moved)
        return self.spans(asked.from_offset)


def looked_up(leader: Leader, asked: LookUp) -> LookingUp:
    looking = LookingUp(asked)
    while isinstance(looking.asks, Ask):
        looking.answered(leader.answer(looking.asks, asked))
    return looking


def check_memory() -> None:
    """All that can be with up to three slots, on Kafka's pids."""
    for first, filled in product((0, SEQUENCES - 2), range(4)):
        for is_placed, says_done, moved in product((False, True), repeat=3):
            for replicated, done in combinations_with_replacement(reversed(range(filled + 1)), 2):
                leader = Leader(first, filled, replicated, done, has_moved=moved)
                looking = looked_up(leader, leader.question(is_placed=is_placed, says_done=says_done))
                if moved and not is_placed and filled:
                    assert looking.asks is End.ASK_AGAIN, f"{leader}: another one's high watermark says nothing"
                elif replicated == filled:
                    assert looking.asks is End.FOUND, leader
                elif says_done or replicated > done or not is_placed:
                    assert looking.asks is End.ASK_AGAIN, f"{leader}: the followers may still lose it"
                if looking.asks is End.FOUND and replicated == filled > done:
                    assert looking.found.last_sequence == leader.sequence(filled - 1)
                    assert looking.found.generation == GENERATION


def check_forgotten() -> None:
    leader = Leader(0, 3, 3, 1, remembers=False)
    found = looked_up(leader, leader.question(is_placed=True, says_done=True)).found
    assert found == Found(2, GENERATION, [StoredSpan(1, 1, 1), StoredSpan(2, 2, 2)])


def check_epochs() -> None:
    older = Leader(0, 3, 0, 0, generation=GENERATION - 1)
    looking = looked_up(older, older.question(is_placed=True, says_done=True))
    assert (looking.asks, looking.found.last_sequence) == (End.FOUND, NO_SEQUENCE), "an older epoch's are not ours"
    newer = Leader(0, 3, 3, 0, generation=GENERATION + 1)
    try:
        looked_up(newer, newer.question(is_placed=True, says_done=True))
    except CannotTell as refused:
        assert "the broker knows epoch 4, ours is 3" in refused.what
    else:
        raise AssertionError("somebody took it over")


def check_fences() -> None:
    for filled, remembers in product(range(3), (False, True)):
        leader = Leader(0, filled, filled, 0, remembers=remembers)
        looking = looked_up(leader, leader.question(is_placed=True, says_done=False, must_fence=True))
        assert looking.asks is End.FOUND
        last = filled - 1 if filled else NO_SEQUENCE
        assert looking.found[:2] == (last, GENERATION + remembers)
        assert len(looking.found.spans) == filled, "their offsets are reported"


CHECKS = (check_memory, check_forgotten, check_epochs, check_fences)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_h_is_what_lies_below_the_high_watermark(check: Any) -> None:
    check()


def test_where_nobody_says_what_is_done_nothing_can_be_told_of_what_was_not_read() -> None:
    leader = Leader(0, 3, 1, 1)
    looking = looked_up(leader, leader.question(is_placed=True, says_done=False))
    assert (looking.asks, looking.found.last_sequence) == (End.FOUND, NO_SEQUENCE)


def test_every_row_of_the_table_is_reached() -> None:
    seen: set[tuple[Ask, Says]] = set()

    class Watched(dict[Says, Ask | End]):
        def __init__(self, asked: Ask, rows: Mapping[Says, Ask | End]) -> None:
            super().__init__(rows)
            self._asked = asked

        def __getitem__(self, says: Says) -> Ask | End:
            seen.add((self._asked, says))
            return super().__getitem__(says)

    with patch.object(standing, "TABLE", {asked: Watched(asked, rows) for asked, rows in TABLE.items()}):
        for check in CHECKS:
            check()
    assert seen == {(asked, says) for asked, rows in TABLE.items() for says in rows}


def _follows(asked: Ask, says: Says, what: Ask | End) -> Any:
    return patch.dict(TABLE[asked], {says: what})


MUTANTS: Mapping[str, Any] = {
    "what the leader alone has is not there": _follows(Ask.LOG, Says.MAY_VANISH, End.FOUND),
    "what the leader alone has is stored": _follows(Ask.WATERMARK, Says.MAY_VANISH, End.FOUND),
    "its memory alone counts": _follows(Ask.MEMORY, Says.UNPLACED, End.FOUND),
    "who is not known wrote nothing": _follows(Ask.MEMORY, Says.UNKNOWN, End.FOUND),
    "a newer epoch is read past": _follows(Ask.MEMORY, Says.NEWER_EPOCH, Ask.LOG),
    "a lease that nobody knows wrote nothing": _follows(Ask.FENCE, Says.UNKNOWN, End.FOUND),
    "where a lease wrote is not asked": _follows(Ask.FENCE, Says.FILLED, End.FOUND),
    "any leader's high watermark counts": patch.object(
        Reach, "is_reached", property(lambda self: self.high_watermark >= self.end_offset)
    ),
    "an older epoch is ours": patch.object(standing, "is_newer_generation", lambda *given: True),
    "what was read is all": patch.object(standing, "filled_since", lambda *given: 0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_it_is_caught_when(name: str) -> None:
    with MUTANTS[name], pytest.raises((AssertionError, CannotTell)):
        for check in CHECKS:
            check()
