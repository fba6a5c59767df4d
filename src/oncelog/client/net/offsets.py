"""The offsets at which a log begins and ends, at which a time is, and at which an epoch ended: asked of its leader."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.fetching.values import LATEST, EpochEndFound, OffsetFound
from oncelog.client.net.leaders import answers_of_leaders, ask_leaders, refusal
from oncelog.client.net.retry import Outcomes, Patience
from oncelog.slots import AnyPlace
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

PlaceT = TypeVar("PlaceT", bound=AnyPlace)
T = TypeVar("T")

# Replica ids: a consumer sees the log below the high watermark; Kafka's id for debugging sees the rest, too.
CONSUMER: Final = -1
WHOLE_LOG: Final = -2

PATIENCE: Final = Patience()
LIST_OFFSETS_VERSIONS: Final = (1, 10)
EPOCH_VERSIONS: Final = (2, 4)  # before, brokers do not say which epoch they mean
LIST_TIMEOUT: Final = timedelta(seconds=30)


def with_topics(partitions: Iterable[tuple[AnyPlace, T]]) -> dict[str, list[tuple[int, T]]]:
    """The items by topic, as requests carry them."""
    found: dict[str, list[tuple[int, T]]] = {}
    for (topic, index), more in partitions:
        found.setdefault(topic, []).append((index, more))
    return found


async def end_offsets(
    brokers: "Brokers",
    places: Iterable[PlaceT],
    time: int = LATEST,
    *,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
    patience: Patience = PATIENCE,
) -> dict[PlaceT, int]:
    """The end of each place's log, or what else ListOffsets has a number for; -1 where no record is of that time or
    later. An answer for every place, or the first failure that does not pass."""

    async def ask_node(node_id: int, asked: list[PlaceT]) -> Outcomes[PlaceT]:
        return await _asked_of_leader(
            brokers, node_id, dict.fromkeys(asked, time), read_committed=read_committed, replica_id=replica_id
        )

    found = await answers_of_leaders(brokers, places, ask_node, patience)
    return {place: each.offset for place, each in found.items()}


async def offsets_at(
    brokers: "Brokers",
    times: Mapping[PlaceT, int],
    patience: Patience,
    *,
    read_committed: bool,
    no_partition: int = KafkaError.UNKNOWN_TOPIC_OR_PART,
) -> dict[PlaceT, OffsetFound]:
    """The offset of each time. `no_partition`: the code for a partition that its topic does not have."""

    async def ask_node(node_id: int, asked: list[PlaceT]) -> Outcomes[PlaceT]:
        wanted = {place: times[place] for place in asked}
        return await _asked_of_leader(brokers, node_id, wanted, read_committed=read_committed)

    found = await ask_leaders(brokers, times, ask_node, patience, is_whole=True, no_partition=no_partition)
    for outcome in found.values():
        if isinstance(outcome, KafkaException):
            raise outcome
    return found


async def _asked_of_leader(
    brokers: "Brokers",
    node_id: int,
    times: Mapping[PlaceT, int],
    *,
    read_committed: bool,
    replica_id: int = CONSUMER,
) -> Outcomes[PlaceT]:
    leader = brokers.metadata.leader
    questions = [(place, leader(*place)[1], time) for place, time in times.items()]
    found = await list_offsets(brokers, node_id, questions, read_committed=read_committed, replica_id=replica_id)
    by_place = {each.partition: refusal(each.error_code, each.partition) or each for each in found}
    return {place: by_place[place] for place in times if place in by_place}


async def list_offsets(
    brokers: "Brokers",
    node_id: int,
    asked: Iterable[tuple[AnyPlace, int, int]],
    *,
    read_committed: bool,
    replica_id: int = CONSUMER,
    timeout_ms: int | None = None,
) -> list[OffsetFound]:
    """Ask one leader, once; each partition comes with its leader's epoch and a time."""
    topics = with_topics((partition, (epoch, time)) for partition, epoch, time in asked)

    def build(spoken: RequestSchema) -> Any:
        return spoken.new(
            "ListOffsetsRequest",
            replica_id=replica_id,
            isolation_level=int(read_committed),
            timeout=LIST_TIMEOUT,
            topics=tuple(
                spoken.new(
                    "ListOffsetsTopic",
                    name=topic,
                    partitions=tuple(
                        spoken.new(
                            "ListOffsetsPartition", partition_index=index, current_leader_epoch=epoch, timestamp=time
                        )
                        for index, (epoch, time) in partitions
                    ),
                )
                for topic, partitions in topics.items()
            ),
        )

    answer = await brokers.request(
        node_id, "list_offsets", build, versions=LIST_OFFSETS_VERSIONS, timeout_ms=timeout_ms
    )
    return [
        OffsetFound(
            (str(topic.name), int(each.partition_index)),
            int(each.error_code),
            int(each.offset),
            int(getattr(each, "leader_epoch", -1)),
            int(each.timestamp),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


async def epoch_ends(
    brokers: "Brokers", node_id: int, asked: Iterable[tuple[AnyPlace, int, int]]
) -> list[EpochEndFound]:
    """Ask one leader, once; each partition comes with its leader's epoch and the epoch in question."""
    topics = with_topics((partition, (leader_epoch, epoch)) for partition, leader_epoch, epoch in asked)

    def build(spoken: RequestSchema) -> Any:
        return spoken.new(
            "OffsetForLeaderEpochRequest",
            replica_id=CONSUMER,
            topics=tuple(
                spoken.new(
                    "OffsetForLeaderTopic",
                    topic=topic,
                    partitions=tuple(
                        spoken.new(
                            "OffsetForLeaderPartition",
                            partition=index,
                            current_leader_epoch=leader_epoch,
                            leader_epoch=epoch,
                        )
                        for index, (leader_epoch, epoch) in partitions
                    ),
                )
                for topic, partitions in topics.items()
            ),
        )

    answer = await brokers.request(node_id, "offset_for_leader_epoch", build, versions=EPOCH_VERSIONS)
    return [
        EpochEndFound(
            (str(topic.topic), int(each.partition)),
            int(each.error_code),
            int(each.leader_epoch),
            int(each.end_offset),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
