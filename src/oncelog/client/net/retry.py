"""Asking a cluster again while the failure passes: for how long, after which pauses, and what giving up says.

Callers that wait for an answer ask through here: `ask`, `ask_for_each`, and `until_heard` where brokers are to hear of
a change. `Attempts` decides and is pure; the others do what it says, on a clock that can be passed in. Questions for
the leaders of partitions go through `leaders.py`. What asks again elsewhere:

- what has nobody who waits: machines by their tables (`slots/`, `fetching/`, `groups/`), and what looks now and then
  (`consumer/subscription.py`, the runner's engine);
- what each question needs first, a few times in a row: metadata (`refreshing.py`), a connection or a coordinator
  (`brokers.py`), a high watermark (`saving/look_up.py`);
- `consumer/ranges.py`: as long as records come, its time begins anew;
- `spark/source/broker_offsets.py`: two questions together, where a topic went away between them;
- `cli/parts/replicas.py`: waits for work that goes on in brokers, and shows how far it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, is_retriable
from oncelog.clock import monotonic_s

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")
# The outcome of each question: the answer, or the KafkaException that says why there is none.
Outcomes = dict[Key, Any]
GaveUp = Callable[[KafkaError | None], KafkaException]

PAUSE_S: Final = 0.1
TOTAL_S: Final = 60.0
GRACE_S: Final = 0.05  # for those that did answer in time, where another did not
# A broker may not have heard of a topic yet: `lag_s` says for how long that is believed.
UNKNOWN: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})
# After these nobody knows whether the broker did what it was asked to do.
UNANSWERED: Final = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION}
)


class _AskAtOnce:
    """The outcome that is known to be another one when asked for again: no pause, nothing to refresh."""


ASK_AT_ONCE: Final = _AskAtOnce()
_LEFT_OUT: Final = object()


class NoAnswer(KafkaException):
    """Given up. Whatever asked for this does not ask again by itself: its time was counted in."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The time that all attempts together may take (`inf`: no end), and the pauses between them, which double up to
    `most_pause_s`."""

    total_s: float = TOTAL_S
    pause_s: float = PAUSE_S
    most_pause_s: float = 0.0
    lag_s: float = inf
    lagging: frozenset[int] = UNKNOWN

    def pause_after(self, attempt: int) -> float:
        return min(self.pause_s * 2.0 ** min(attempt, 30), max(self.pause_s, self.most_pause_s))

    def over(self, trouble: KafkaError | None, about: str = "") -> NoAnswer:
        why = "" if trouble is None else f": {trouble.str()}"
        return NoAnswer(KafkaError(KafkaError._TIMED_OUT, f"no answer{about} in {self.total_s:g} s{why}"))


class Clock(NamedTuple):
    now_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


CLOCK: Final = Clock(monotonic_s, asyncio.sleep)


def passes(error: KafkaError) -> bool:
    return error.retriable() or is_retriable(error.code())


class Attempts(Generic[Key]):
    """The questions, and their outcomes so far. Pure: answers and times are passed in.

    `done_already` is the refusal that says that there is nothing to do any more. After an attempt without an answer it
    may be that very attempt which did it, so it counts as done. `is_whole`: one failure that does not pass ends all.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        patience: Patience,
        began_s: float,
        *,
        done_already: int = 0,
        gave_up: GaveUp | None = None,
        is_whole: bool = False,
    ) -> None:
        self.left = list(dict.fromkeys(keys))
        self.outcomes: Outcomes[Key] = {}
        self._patience = patience
        self._began_s = began_s
        self._done_already = done_already
        self._gave_up = gave_up
        self._is_whole = is_whole
        self._count = 0
        self._in_doubt: set[Key] = set()
        self._trouble: dict[Key, KafkaException] = {}

    def left_s(self, now_s: float) -> float:
        return max(0.0, self._began_s + self._patience.total_s - now_s)

    def take(self, found: Mapping[Key, object], now_s: float) -> float | None:
        """Take in the results of one attempt; a key that it leaves out is asked for again. The pause before the next
        one, or None where there is none."""
        pause_s = self._patience.pause_after(self._count)
        self._count += 1
        is_late = now_s >= self._began_s + self._patience.lag_s
        is_at_once = True
        for key in self.left:
            outcome = found.get(key, _LEFT_OUT)
            if outcome is ASK_AT_ONCE:
                continue
            if self._is_final(key, outcome, is_late=is_late):
                is_done = _code(outcome) == self._done_already and self._done_already
                self.outcomes[key] = None if is_done and key in self._in_doubt else outcome
                continue
            is_at_once = False
            self._note(key, outcome)
        self.left = [key for key in self.left if key not in self.outcomes]
        if self._is_whole and any(isinstance(each, KafkaException) for each in self.outcomes.values()):
            return None
        if self.left and self.left_s(now_s) <= pause_s:
            self._give_up()
        if not self.left:
            return None
        return 0.0 if is_at_once else pause_s

    def _is_final(self, key: Key, outcome: object, *, is_late: bool) -> bool:
        if not isinstance(outcome, KafkaException):
            return outcome is not _LEFT_OUT
        if isinstance(outcome, NoAnswer) or not passes(outcome.error):
            return True
        return is_late and outcome.error.code() in self._patience.lagging

    def _note(self, key: Key, outcome: object) -> None:
        if isinstance(outcome, KafkaException):
            self._trouble[key] = outcome
        if outcome is _LEFT_OUT or _code(outcome) in UNANSWERED:
            self._in_doubt.add(key)

    def _give_up(self) -> None:
        for key in self.left:
            trouble = self._trouble.get(key)
            # With less patience than a broker may lag, its last word is all that there will be.
            is_answer = self._patience.lag_s < inf and _code(trouble) in self._patience.lagging
            if self._gave_up is not None and not is_answer:
                self.outcomes[key] = self._gave_up(None if trouble is None else trouble.error)
            else:
                self.outcomes[key] = trouble or self._patience.over(None)
        self.left = []


def _code(outcome: object) -> int:
    return outcome.error.code() if isinstance(outcome, KafkaException) else 0


async def ask_for_each(
    keys: Iterable[Key],
    once: Callable[[list[Key]], Awaitable[Mapping[Key, Any]]],
    patience: Patience,
    *,
    began_s: float | None = None,
    done_already: int = 0,
    gave_up: GaveUp | None = None,
    is_whole: bool = False,
    clock: Clock = CLOCK,
) -> Outcomes[Key]:
    """An outcome for every key. `once` is asked about those that are left; `gave_up` has the words where the time is
    over, otherwise the last failure stands."""
    began_s = clock.now_s() if began_s is None else began_s
    attempts = Attempts(keys, patience, began_s, done_already=done_already, gave_up=gave_up, is_whole=is_whole)
    while attempts.left:
        try:
            async with time_limit(attempts.left_s(clock.now_s()) + GRACE_S):
                found = await once(attempts.left)
        except TimeoutError:
            found = {}
        except KafkaException as failure:
            found = dict.fromkeys(attempts.left, failure)
        pause_s = attempts.take(found, clock.now_s())
        if pause_s is None:
            break
        if pause_s:
            await clock.sleep(pause_s)
    return attempts.outcomes


async def ask(
    question: Callable[[], Awaitable[T]],
    patience: Patience,
    *,
    refresh: Callable[[], Awaitable[object]] | None = None,
    failed: Callable[[KafkaError], None] | None = None,
    gave_up: GaveUp | None = None,
    clock: Clock = CLOCK,
) -> T:
    """The answer to one question. `refresh` brings up to date what may be stale, before each attempt but the first;
    `failed` hears of every failure."""
    is_first = True

    async def once(_: list[None]) -> Outcomes[None]:
        nonlocal is_first
        is_again, is_first = not is_first, False
        try:
            if is_again and refresh is not None:
                await refresh()
            return {None: _Answer(await question())}
        except KafkaException as failure:
            if failed is not None:
                failed(failure.error)
            raise

    outcome = (await ask_for_each([None], once, patience, gave_up=gave_up, clock=clock))[None]
    if isinstance(outcome, KafkaException):
        raise outcome
    return outcome.value  # type: ignore[no-any-return]


class _NotYet(KafkaException):
    """Brokers have not heard of it."""


async def until_heard(
    look: Callable[[], Awaitable[T]], is_so: Callable[[T], bool], patience: Patience, *, clock: Clock = CLOCK
) -> T:
    """The last look: the one at which it is so, or the one when the time is over. Brokers hear of a change a moment
    after it was made. It was made in any case, so this gives up without a word; failures are as in `ask`."""
    seen = await look()
    if is_so(seen):
        return seen

    async def again() -> None:
        nonlocal seen
        seen = await look()
        if not is_so(seen):
            raise _NotYet(KafkaError(KafkaError._IN_PROGRESS, "brokers have not heard of it", retriable=True))

    try:
        await clock.sleep(patience.pause_s)
        await ask(again, patience, clock=clock)
    except (_NotYet, NoAnswer):
        pass
    return seen


class _Answer(NamedTuple):
    """An answer in a wrapping, so that it is not taken for a failure, whatever it is."""

    value: Any


def time_limit(limit_s: float) -> "asyncio.Timeout":
    return asyncio.timeout(None if limit_s == inf else limit_s)
