"""Asking again while a failure passes: what is decided after each attempt, on a clock that the test turns."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.net.retry import ASK_AT_ONCE, Attempts, Clock, NoAnswer, Patience, ask, ask_for_each, until_heard

PASSING, LASTING, UNKNOWN = KafkaError.NOT_COORDINATOR, KafkaError.TOPIC_EXCEPTION, 3
PATIENCE = Patience(10, 1)


class Turned:
    """A clock on which only pauses take time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    async def _sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self._sleep)


@pytest.fixture
def turned() -> Turned:
    return Turned()


def failing(*codes: int, then: object = "answer") -> Callable[[], Awaitable[object]]:
    left = list(codes)

    async def question() -> object:
        if left:
            raise exception_of(left.pop(0))
        return then

    return question


async def test_a_failure_that_passes_is_followed_by_a_pause_and_another_attempt(turned: Turned) -> None:
    assert await ask(failing(PASSING, PASSING), PATIENCE, clock=turned.clock) == "answer"
    assert turned.pauses == [1, 1]


async def test_pauses_double_up_to_the_most(turned: Turned) -> None:
    await ask(failing(*[PASSING] * 5), Patience(inf, 1, 5), clock=turned.clock)
    assert turned.pauses == [1, 2, 4, 5, 5]


async def test_a_failure_that_does_not_pass_is_raised_at_once(turned: Turned) -> None:
    with pytest.raises(KafkaException) as failed:
        await ask(failing(LASTING), PATIENCE, clock=turned.clock)
    assert failed.value.error == LASTING
    assert turned.pauses == []


async def test_where_the_time_is_over_the_last_failure_stands(turned: Turned) -> None:
    with pytest.raises(KafkaException) as failed:
        await ask(failing(*[PASSING] * 99), PATIENCE, clock=turned.clock)
    assert failed.value.error == PASSING
    assert turned.now == 109  # another pause would have ended with the patience


async def test_giving_up_may_have_words_of_its_own(turned: Turned) -> None:
    with pytest.raises(NoAnswer, match=r"no answer about it in 10 s: .*coordinator"):
        await ask(
            failing(*[PASSING] * 99), PATIENCE, gave_up=lambda why: PATIENCE.over(why, " about it"), clock=turned.clock
        )


async def test_what_gave_up_is_not_asked_again_from_outside(turned: Turned) -> None:
    async def question() -> None:
        raise PATIENCE.over(None)

    with pytest.raises(NoAnswer):
        await ask(question, PATIENCE, clock=turned.clock)
    assert turned.pauses == []


async def test_an_unknown_topic_is_believed_unknown_once_it_had_time_to_settle(turned: Turned) -> None:
    with pytest.raises(KafkaException) as failed:
        await ask(failing(*[UNKNOWN] * 99), Patience(10, 1, lag_s=3), clock=turned.clock)
    assert failed.value.error == UNKNOWN
    assert turned.pauses == [1, 1, 1]


async def test_an_unknown_topic_is_believed_unknown_by_who_has_less_patience_than_it_has_time_to_settle(
    turned: Turned,
) -> None:
    patience = Patience(2, 1, lag_s=3)
    with pytest.raises(KafkaException) as failed:
        await ask(failing(*[UNKNOWN] * 99), patience, gave_up=patience.over, clock=turned.clock)
    assert failed.value.error == UNKNOWN


async def test_what_is_stale_is_refreshed_before_every_attempt_but_the_first(turned: Turned) -> None:
    heard: list[object] = []

    async def refresh() -> None:
        heard.append("refresh")

    await ask(failing(PASSING), PATIENCE, refresh=refresh, failed=heard.append, clock=turned.clock)
    assert heard == [PASSING, "refresh"]


async def test_an_answer_may_be_anything(turned: Turned) -> None:
    failure = exception_of(PASSING)
    assert await ask(failing(then=failure), PATIENCE, clock=turned.clock) is failure


async def test_only_the_keys_that_are_left_are_asked_for_again(turned: Turned) -> None:
    rounds: list[Mapping[str, Any]] = [{"a": 1, "b": exception_of(PASSING)}, {"b": 2}, {"c": exception_of(LASTING)}]
    asked: list[list[str]] = []

    async def once(left: list[str]) -> Mapping[str, Any]:
        asked.append(left)
        return rounds[len(asked) - 1]

    found = await ask_for_each("abc", once, PATIENCE, clock=turned.clock)
    assert asked == [["a", "b", "c"], ["b", "c"], ["c"]]
    assert (found["a"], found["b"], found["c"].error) == (1, 2, LASTING)


async def test_one_failure_may_end_all(turned: Turned) -> None:
    async def once(left: list[str]) -> Mapping[str, Any]:
        return {"a": exception_of(LASTING)}

    found = await ask_for_each("ab", once, PATIENCE, is_whole=True, clock=turned.clock)
    assert (list(found), turned.pauses) == (["a"], [])


def test_what_is_known_to_have_another_answer_is_asked_for_without_a_pause() -> None:
    attempts = Attempts("ab", PATIENCE, 0)
    assert attempts.take({"a": ASK_AT_ONCE, "b": 1}, 0) == 0
    assert attempts.take({"a": exception_of(PASSING)}, 0) == 1
    assert attempts.take({"a": 2}, 0) is None
    assert attempts.outcomes == {"a": 2, "b": 1}


async def test_an_attempt_that_hangs_ends_with_the_patience() -> None:
    async def hang(left: list[str]) -> Mapping[str, Any]:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    found = await ask_for_each("a", hang, Patience(0.01))
    assert found["a"].error == KafkaError._TIMED_OUT


async def test_brokers_are_looked_at_until_they_have_heard(turned: Turned) -> None:
    seen = iter([1, 2, 3])

    async def look() -> int:
        return next(seen)

    assert await until_heard(look, lambda number: number == 3, PATIENCE, clock=turned.clock) == 3
    assert turned.pauses == [1, 1]


async def test_what_they_have_not_heard_in_time_is_no_failure_and_what_does_not_pass_is_one(turned: Turned) -> None:
    assert await until_heard(failing(then=1), lambda number: False, PATIENCE, clock=turned.clock) == 1
    assert turned.now == 100 + PATIENCE.total_s
    looks = iter([1, exception_of(LASTING)])

    async def look() -> object:
        found = next(looks)
        if isinstance(found, KafkaException):
            raise found
        return found

    with pytest.raises(KafkaException) as failed:
        await until_heard(look, lambda number: False, PATIENCE, clock=turned.clock)
    assert failed.value.error == LASTING
