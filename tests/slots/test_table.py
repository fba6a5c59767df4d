"""The table of a partition: every row is reached, what is not in it is refused, and the page shows it as it is."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots import resuming, standing, table
from oncelog.slots.batch import split_batch
from oncelog.slots.context import SenderContext
from oncelog.slots.limits import SenderLimits
from oncelog.slots.messages import LookUp, Produce, StoredSpan
from oncelog.slots.partition import Partition
from oncelog.slots.states import Event, State
from oncelog.slots.table import TABLE, Row, happen
from tests.slots.flavours import NAMES
from tests.slots.history import tell
from tests.slots.stage import PLACE, STOCK, Stage
from tests.slots.table_page import on_the_page, rendered, rendered_questions

SEEDS = 20
Pair = tuple[State, Event]
ANSWERS = (
    Code.NO_ERROR,
    Code.NOT_ENOUGH_REPLICAS,
    Code.REQUEST_TIMED_OUT,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.INVALID_PRODUCER_EPOCH,
    Code.MSG_SIZE_TOO_LARGE,
    Code.INVALID_RECORD,
    Code.UNKNOWN,
)


class Watched(dict[Event, Row]):
    def __init__(self, state: State, rows: Mapping[Event, Row], seen: set[Pair]) -> None:
        super().__init__(rows)
        self._state, self._seen = state, seen

    def __getitem__(self, event: Event) -> Row:
        self._seen.add((self._state, event))
        return super().__getitem__(event)


@contextmanager
def watched() -> Iterator[set[Pair]]:
    seen: set[Pair] = set()
    with patch.object(table, "TABLE", {state: Watched(state, rows, seen) for state, rows in TABLE.items()}):
        yield seen


# --- what histories do not come to


def shared(max_in_flight: int = 5) -> Stage:
    stage = Stage(forget_after_ms=100_000, max_in_flight=max_in_flight)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    return stage


def in_company(stage: Stage) -> tuple[Produce, Produce]:
    """Two requests in flight."""
    stage.add("a")
    stage.answer(stage.sent()[0], base_offset=1)
    stage.add("b")
    stage.add("c", "d")
    first, second = stage.sent()
    return first, second


def second_ends(first_code: int, end: Callable[[Stage, Produce], object]) -> None:
    """Two are in flight, the first comes to something, and then the second to something else."""
    stage = Stage(max_in_flight=2)
    first, second = in_company(stage)
    stage.answer(first, first_code)
    end(stage, second)


ENDS: list[Callable[[Stage, Produce], object]] = [
    *(lambda stage, request, code=code: stage.answer(request, code, 9) for code in ANSWERS),
    lambda stage, request: stage.lose(request),
    lambda stage, request: stage.lose(request, was_sent=False),
    lambda stage, request: stage.sender.unchecked(request.request_id, stage.now_ms),
]


def alone() -> None:
    for end in ENDS:
        stage = Stage()
        stage.add("a")
        end(stage, stage.sent()[0])


def behind_a_failure() -> None:
    for end in ENDS:
        second_ends(Code.NOT_ENOUGH_REPLICAS, end)
    second_ends(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, lambda stage, request: stage.answer(request))


def behind_a_fence() -> None:
    for end in ENDS:
        second_ends(Code.INVALID_PRODUCER_EPOCH, end)
    stage = Stage()
    stage.add("a")
    stage.answer(stage.sent()[0], Code.INVALID_PRODUCER_EPOCH)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms)


def late() -> None:
    for first_code in (Code.NO_ERROR, Code.NOT_ENOUGH_REPLICAS, Code.INVALID_PRODUCER_EPOCH):
        stage = shared()
        first, second = in_company(stage)
        stage.pass_ms(200_000)
        stage.answer(first, first_code, 2)
        stage.answer(second, base_offset=3)


def twice() -> None:
    stage = shared()
    stage.pass_ms(200_000)
    stage.add("a")
    stage.tell(19, None, StoredSpan(10, 19, 0), StoredSpan(10, 10, 30))


def purged(stage: Stage) -> None:
    """What waits gives its slots up."""
    stage.add("x")
    stage.sender.give_up(stage.now_ms, Code._PURGE_QUEUE, in_flight=False)


def slots_that_stay_empty() -> None:
    purged(shared(max_in_flight=1))
    stage = shared(max_in_flight=2)
    first, _ = in_company(stage)
    stage.answer(first, Code.NOT_ENOUGH_REPLICAS)
    purged(stage)
    stage = shared()
    stage.pass_ms(200_000)
    stage.add("a")
    assert len(stage.take(LookUp)) == 1
    purged(stage)


def resumed_while_the_log_is_asked() -> None:
    stage = shared()
    stage.pass_ms(200_000)
    stage.add("a")
    assert len(stage.take(LookUp)) == 1
    stage.sender.give_up(stage.now_ms, Code._PURGE_INFLIGHT)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)


SCENES = (
    alone,
    behind_a_failure,
    behind_a_fence,
    late,
    twice,
    slots_that_stay_empty,
    resumed_while_the_log_is_asked,
)


def test_every_row_is_reached() -> None:
    with watched() as seen:
        for name in NAMES:
            for seed in range(SEEDS):
                tell(seed, name=name)
        for scene in SCENES:
            scene()
    never = {(state, event) for state, rows in TABLE.items() for event in rows} - seen
    assert not never


@pytest.mark.parametrize("state", State, ids=lambda state: str(state.name))
def test_what_is_not_in_the_table_is_refused(state: State) -> None:
    for event in Event:
        if event not in TABLE[state]:
            partition = Partition(PLACE, SenderContext(SenderLimits(), lambda: 0.5, split_batch))
            partition.state = state
            with pytest.raises(KeyError):
                happen(partition, event, 0)


def test_every_state_follows_from_something() -> None:
    assert {after for rows in TABLE.values() for _, after in rows.values()} == set(State)


def test_the_page_shows_the_table_as_it_is() -> None:
    words = "run `python -m tests.slots.table_page`"
    assert on_the_page() == rendered(), words
    assert on_the_page("resume ") == rendered_questions(resuming.TABLE), words
    assert on_the_page("look-up ") == rendered_questions(standing.TABLE), words
