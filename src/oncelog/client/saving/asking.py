"""The questions that resuming asks. Each goes to the leaders, and again while the answer is a passing one."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable
from oncelog.slots import HighWater, Place

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

T = TypeVar("T")

PATIENCE_MS: Final = 60_000
PAUSE_MS: Final = 100
LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1  # is told of what is below the high watermark
WHOLE_LOG: Final = -2  # Kafka's replica id for debugging: is told of the rest, too


# Of the places that one leader was asked about, those that are answered, and whether the others may be asked at once.
Asked = tuple[Mapping[Place, T], bool]


async def ask_leaders(
    brokers: "Brokers",
    places: Iterable[Place],
    ask: Callable[[int, Sequence[Place]], Awaitable[Asked[T]]],
    *,
    patience_ms: int = PATIENCE_MS,
) -> dict[Place, T]:
    """An answer for every place. `ask` asks one leader; a place that it leaves out is asked about again."""
    give_up_s = asyncio.get_running_loop().time() + patience_ms / 1000
    answers: dict[Place, T] = {}
    left = set(places)
    trouble = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
    while left:
        by_leader, leaderless = _by_leader(brokers, left)
        found = await asyncio.gather(
            *(ask(node_id, places) for node_id, places in by_leader.items()), return_exceptions=True
        )
        at_once = not leaderless
        for each in found:
            if isinstance(each, KafkaException) and each.error.retriable():
                trouble, at_once = each.error, False
            elif isinstance(each, BaseException):
                raise each
            else:
                answers.update(each[0])
                left -= each[0].keys()
                at_once = at_once and each[1]
        if not left or at_once:
            continue
        if asyncio.get_running_loop().time() > give_up_s:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"no answer about {_named(left)} in {patience_ms} ms: {trouble}")
            )
        await asyncio.sleep(PAUSE_MS / 1000)
        await _refresh(brokers, {place.topic for place in left})
    return answers


def _by_leader(brokers: "Brokers", places: Collection[Place]) -> tuple[dict[int, list[Place]], bool]:
    by_leader: dict[int, list[Place]] = defaultdict(list)
    is_one_missing = False
    for place in sorted(places):
        leader, _ = brokers.metadata.leader(*place)
        if leader < 0:
            is_one_missing = True
        else:
            by_leader[leader].append(place)
    return by_leader, is_one_missing


async def _refresh(brokers: "Brokers", topics: Collection[str]) -> None:
    try:
        await brokers.refresh(list(topics))
    except KafkaException as failure:
        if not failure.error.retriable():
            raise


def _named(places: Collection[Place]) -> str:
    names = [f"{place.topic}-{place.partition}" for place in sorted(places)[:3]]
    return ", ".join(names) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for place in places:
        topics[place.topic].append(place.partition)
    return topics


def passing(place: Place, code: int, message: str | None = None) -> bool:
    """Whether a code of a partition means "ask again"; raises where it is a refusal."""
    if is_retriable(code):
        return True
    error = error_of(code, message)
    raise KafkaException(KafkaError(code, f"{place.topic}-{place.partition}: {error.str()}"))


async def end_offsets(
    brokers: "Brokers", places: Iterable[Place], timestamp: int = LATEST, *, replica_id: int = CONSUMER
) -> dict[Place, int]:
    """The high watermarks; or what else ListOffsets has a number for."""

    async def ask(node_id: int, places: Sequence[Place]) -> Asked[int]:
        def build(schema: Any) -> Any:
            topics = tuple(
                schema.new(
                    "ListOffsetsTopic",
                    name=name,
                    partitions=tuple(
                        schema.new(
                            "ListOffsetsPartition", partition_index=index, current_leader_epoch=-1, timestamp=timestamp
                        )
                        for index in indexes
                    ),
                )
                for name, indexes in by_topic(places).items()
            )
            return schema.new("ListOffsetsRequest", replica_id=replica_id, isolation_level=0, topics=topics)

        answer = await brokers.request(node_id, "list_offsets", build, versions=(1, 7))
        found: dict[Place, int] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                place = Place(topic.name, each.partition_index)
                if each.error_code == 0:
                    found[place] = each.offset
                else:
                    passing(place, int(each.error_code))
        return found, False

    return await ask_leaders(brokers, places, ask)


async def remembered(brokers: "Brokers", pids: Mapping[Place, int]) -> dict[Place, HighWater | None]:
    """What the leaders remember of each place's pid (KIP-664); None where that is nothing."""

    async def ask(node_id: int, places: Sequence[Place]) -> Asked[HighWater | None]:
        def build(schema: Any) -> Any:
            topics = tuple(
                schema.new("TopicRequest", name=name, partition_indexes=tuple(indexes))
                for name, indexes in by_topic(places).items()
            )
            return schema.new("DescribeProducersRequest", topics=topics)

        answer = await brokers.request(node_id, "describe_producers", build, versions=(0, 0))
        found: dict[Place, HighWater | None] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                place = Place(topic.name, each.partition_index)
                if each.error_code == 0:
                    found[place] = _of_pid(each.active_producers, pids[place])
                else:
                    passing(place, int(each.error_code), each.error_message)
        return found, False

    return await ask_leaders(brokers, pids, ask)


def _of_pid(producers: Iterable[Any], pid: int) -> HighWater | None:
    for each in producers:
        if each.producer_id == pid:
            return HighWater(each.producer_epoch, each.last_sequence)
    return None


def milliseconds(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)
