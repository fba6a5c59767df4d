"""Asking the one who may answer, and again while the answer is a passing one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

Key = TypeVar("Key", bound=Hashable)
# What came of one thing that was asked for: what was answered, or why not.
Outcomes = dict[Key, Any]

PAUSE_S: Final = 0.1
# Of what concerns the topic or the partition itself, no repetition makes another answer.
LASTING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long all tries together may take, and the broker each single one."""

    request_timeout_ms: int
    operation_timeout_ms: int = 0

    @property
    def operation_timeout(self) -> timedelta:
        return timedelta(milliseconds=self.operation_timeout_ms or self.request_timeout_ms)


async def ask(
    keys: Iterable[Key], patience: Patience, once: Callable[[list[Key]], Awaitable[Outcomes[Key]]]
) -> Outcomes[Key]:
    """An outcome for every key. `once` is asked about those that are left; what it leaves out is asked about again."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + patience.request_timeout_ms / 1000
    left = list(dict.fromkeys(keys))
    outcomes: Outcomes[Key] = {}
    while True:
        try:
            found = await once(left)
        except KafkaException as failure:
            found = dict.fromkeys(left, failure)
        is_late = loop.time() + PAUSE_S >= give_up_s
        for key, outcome in found.items():
            if is_late or not _is_passing(outcome):
                outcomes[key] = outcome
        left = [key for key in left if key not in outcomes]
        if not left:
            return outcomes
        if is_late:
            words = f"no answer in {patience.request_timeout_ms} ms"
            return outcomes | dict.fromkeys(left, KafkaException(KafkaError(KafkaError._TIMED_OUT, words)))
        await asyncio.sleep(PAUSE_S)


def _is_passing(outcome: object) -> bool:
    if not isinstance(outcome, KafkaException):
        return False
    code = outcome.error.code()
    return is_retriable(code) and code not in LASTING


def refusal(code: int, message: str | None = None) -> KafkaException | None:
    """The failure that a code stands for; None where all went well."""
    return KafkaException(error_of(int(code), message)) if code else None


async def ask_controller(brokers: "Brokers", name: str, build: Callable[[Any], Any], patience: Patience) -> Any:
    node_id = await brokers.controller()
    return await brokers.request(node_id, name, build, timeout_ms=patience.request_timeout_ms)


async def ask_each(
    brokers: "Brokers",
    by_node: Mapping[int, list[Key]],
    ask_node: Callable[[int, list[Key]], Awaitable[Outcomes[Key]]],
) -> Outcomes[Key]:
    """All nodes at once; where one fails, the keys that it was asked for have its failure."""

    async def ask_one(node_id: int, keys: list[Key]) -> Outcomes[Key]:
        try:
            return await ask_node(node_id, keys)
        except KafkaException as failure:
            return dict.fromkeys(keys, failure)

    outcomes: Outcomes[Key] = {}
    for found in await asyncio.gather(*(ask_one(node_id, keys) for node_id, keys in by_node.items())):
        outcomes |= found
    return outcomes
