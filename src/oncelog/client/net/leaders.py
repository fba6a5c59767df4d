"""Questions about partitions go to those who lead them, all leaders at once, and again while the failure passes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of
from oncelog.client.net.retry import ASK_AT_ONCE, GaveUp, Outcomes, Patience, ask_for_each, time_limit
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

# A topic and a partition's number; a named tuple of the caller's comes back as it was.
PlaceT = TypeVar("PlaceT", bound=AnyPlace)

MOST_NAMED: Final = 3


async def ask_nodes(
    by_node: Mapping[int, list[Any]],
    ask_node: Callable[[int, list[Any]], Awaitable[Mapping[Any, Any]]],
    limit_s: float,
) -> Outcomes[Any]:
    """All nodes at once. Where one fails, the keys that it was asked for have its failure; where one is too late, they
    are left out."""

    async def ask_one(node_id: int, keys: list[Any]) -> Mapping[Any, Any]:
        try:
            async with time_limit(limit_s):
                return await ask_node(node_id, keys)
        except TimeoutError:
            return {}
        except KafkaException as failure:
            return dict.fromkeys(keys, failure)

    outcomes: Outcomes[Any] = {}
    asked = (ask_one(node_id, keys) for node_id, keys in by_node.items())
    for found in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found
        outcomes.update(found)
    return outcomes


async def ask_leaders(
    brokers: "Brokers",
    places: Iterable[PlaceT],
    ask_node: Callable[[int, list[PlaceT]], Awaitable[Mapping[PlaceT, Any]]],
    patience: Patience,
    *,
    began_s: float | None = None,
    is_fresh: bool = False,
    gave_up: GaveUp | None = None,
    is_whole: bool = False,
    no_partition: int = KafkaError.UNKNOWN_TOPIC_OR_PART,
) -> Outcomes[PlaceT]:
    """An outcome for every place: an answer, or why not. `ask_node` asks one leader; a place that it leaves out, or
    whose failure passes, is asked about again, once its topic's metadata was. `is_fresh`: what is known of the leaders
    is not to be believed to begin with. `no_partition`: the code of a partition that the topic does not have."""
    asked = list(places)
    due_s = (monotonic_s() if began_s is None else began_s) + patience.total_s
    stale = {topic for topic, _ in asked} if is_fresh else set()

    async def once(left: list[PlaceT]) -> Outcomes[PlaceT]:
        metadata = brokers.metadata
        doubtful = stale | {place[0] for place in left if metadata.leader(*place)[0] < 0}
        doubtful &= {place[0] for place in left}
        if doubtful:
            await brokers.refresh(doubtful)
        stale.clear()
        by_leader: dict[int, list[PlaceT]] = {}
        outcomes: Outcomes[PlaceT] = {}
        for place in left:
            leader = _leader(brokers, place, no_partition)
            if isinstance(leader, KafkaException):
                outcomes[place] = leader
            else:
                by_leader.setdefault(leader, []).append(place)
        outcomes |= await ask_nodes(by_leader, ask_node, due_s - monotonic_s())
        stale.update(place[0] for place in left if outcomes.get(place) is not ASK_AT_ONCE)
        return outcomes

    return await ask_for_each(asked, once, patience, began_s=began_s, gave_up=gave_up, is_whole=is_whole)


def _leader(brokers: "Brokers", place: AnyPlace, no_partition: int) -> int | KafkaException:
    topic, index = place
    known = brokers.metadata.topics.get(topic)
    if known is None or (known.error_code and not known.partitions):
        code = KafkaError.UNKNOWN_TOPIC_OR_PART if known is None else known.error_code
        return exception_of(code, f"topic {topic}")
    if index not in known.partitions:
        words = f"{topic} has partitions 0 to {len(known.partitions) - 1}, not {index}"
        return exception_of(no_partition, words)
    leader = known.partitions[index].leader
    return leader if leader >= 0 else exception_of(KafkaError.LEADER_NOT_AVAILABLE, f"{topic} [{index}]")


async def answers_of_leaders(
    brokers: "Brokers",
    places: Iterable[PlaceT],
    ask_node: Callable[[int, list[PlaceT]], Awaitable[Mapping[PlaceT, Any]]],
    patience: Patience,
) -> dict[PlaceT, Any]:
    """An answer for every place, or the first failure that does not pass."""
    asked = list(places)

    def gave_up(trouble: KafkaError | None) -> KafkaException:
        return patience.over(trouble, f" about {named(asked)}")

    outcomes = await ask_leaders(brokers, asked, ask_node, patience, gave_up=gave_up, is_whole=True)
    for outcome in outcomes.values():
        if isinstance(outcome, KafkaException):
            raise outcome
    return outcomes


def refusal(code: int, place: AnyPlace, message: str | None = None) -> KafkaException | None:
    """The failure that a code stands for; None where all went well."""
    if not code:
        return None
    error = error_of(int(code), message)
    words = f"{place[0]}-{place[1]}: {error.str()}"
    return KafkaException(KafkaError(int(code), words, retriable=error.retriable()))


def named(places: Iterable[AnyPlace]) -> str:
    names = [f"{topic}-{index}" for topic, index in sorted(places)]
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def by_topic(places: Iterable[AnyPlace]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return topics
