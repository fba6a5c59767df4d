"""Asking the one who may answer, and again while the answer is a passing one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")
# What came of one thing that was asked for: what was answered, or why not.
Outcomes = dict[Key, Any]

PAUSE_S: Final = 0.1
GRACE_S: Final = 0.05  # for those that did answer in time, where another did not
# After these nobody knows whether the broker did what it was asked to do.
UNANSWERED: Final = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION}
)
_LEFT_OUT: Final = object()
# Of what concerns the topic or the partition itself, no repetition makes another answer.
LASTING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long all tries together may take, from now on, and the broker each single one."""

    request_timeout_ms: int
    operation_timeout_ms: int = 0
    began_s: float = field(default_factory=monotonic_s)

    @property
    def left_s(self) -> float:
        return max(0.0, self.began_s + self.request_timeout_ms / 1000 - monotonic_s())

    async def spend_on(self, doing: Awaitable[T], *, grace_s: float = 0) -> T:
        try:
            async with asyncio.timeout(self.left_s + grace_s):
                return await doing
        except TimeoutError:
            raise self.over() from None

    def over(self) -> KafkaException:
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer in {self.request_timeout_ms} ms"))

    @property
    def operation_timeout(self) -> timedelta:
        return timedelta(milliseconds=self.operation_timeout_ms or self.request_timeout_ms)


async def ask(
    keys: Iterable[Key],
    patience: Patience,
    once: Callable[[list[Key]], Awaitable[Outcomes[Key]]],
    *,
    done_already: int = 0,
) -> Outcomes[Key]:
    """An outcome for every key. `once` is asked about those that are left; what it leaves out is asked about again.

    `done_already` is the refusal that says that there is nothing to do any more. After a try without an answer it may
    be that very try which did it, so it counts as done.
    """
    left = list(dict.fromkeys(keys))
    outcomes: Outcomes[Key] = {}
    in_doubt: set[Key] = set()
    while True:
        try:
            found = await patience.spend_on(once(left), grace_s=GRACE_S)
        except KafkaException as failure:
            found = dict.fromkeys(left, failure)
        is_late = patience.left_s <= PAUSE_S
        for key in left:
            outcome = found.get(key, _LEFT_OUT)
            if done_already and key in in_doubt and _code(outcome) == done_already:
                outcomes[key] = None
            elif outcome is not _LEFT_OUT and (is_late or not _is_passing(outcome)):
                outcomes[key] = outcome
            elif outcome is _LEFT_OUT or _code(outcome) in UNANSWERED:
                in_doubt.add(key)
        left = [key for key in left if key not in outcomes]
        if not left:
            return outcomes
        if is_late:
            return outcomes | dict.fromkeys(left, patience.over())
        await asyncio.sleep(PAUSE_S)


def _code(outcome: object) -> int:
    return outcome.error.code() if isinstance(outcome, KafkaException) else 0


def _is_passing(outcome: object) -> bool:
    code = _code(outcome)
    return is_retriable(code) and code not in LASTING


def refusal(code: int, message: str | None = None) -> KafkaException | None:
    """The failure that a code stands for; None where all went well."""
    return KafkaException(error_of(int(code), message)) if code else None


async def ask_controller(brokers: "Brokers", name: str, build: Callable[[Any], Any], patience: Patience) -> Any:
    node_id = await brokers.controller()
    return await brokers.request(node_id, name, build, timeout_ms=patience.request_timeout_ms)


async def ask_each(
    by_node: Mapping[int, list[Key]],
    patience: Patience,
    ask_node: Callable[[int, list[Key]], Awaitable[Outcomes[Key]]],
) -> Outcomes[Key]:
    """All nodes at once; where one fails, the keys that it was asked for have its failure."""

    async def ask_one(node_id: int, keys: list[Key]) -> Outcomes[Key]:
        try:
            return await patience.spend_on(ask_node(node_id, keys))
        except KafkaException as failure:
            return dict.fromkeys(keys, failure)

    outcomes: Outcomes[Key] = {}
    for found in await asyncio.gather(*(ask_one(node_id, keys) for node_id, keys in by_node.items())):
        outcomes |= found
    return outcomes
