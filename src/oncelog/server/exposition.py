"""The metrics as Prometheus text. Names are those of kafka_exporter where it has them, so that its dashboards work.

Text is made family by family in an iterator: a server with ten thousand partitions serves others in between.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oncelog.metrics.text import Family, Sample, labels, lines_of
from oncelog.replication.leadership import Leadership
from oncelog.security.operations import Operation, Resource
from oncelog.server.access import EVERY_RIGHT, Rights
from oncelog.server.api import apis
from oncelog.server.broker import Broker
from oncelog.server.fetch_sessions import FetchSessions
from oncelog.server.process import PROCESS
from oncelog.server.topics import Partition, Topic


@dataclass(frozen=True, slots=True)
class Seen:
    """A broker, by somebody who may see some of its topics and groups."""

    broker: Broker
    rights: Rights = EVERY_RIGHT

    def topic(self, name: str) -> bool:
        return self.rights.may(Operation.DESCRIBE, Resource.TOPIC, name)

    def group(self, name: str) -> bool:
        return self.rights.may(Operation.DESCRIBE, Resource.GROUP, name)


Samples = Callable[[Seen], Iterator[Sample]]


def exposition(broker: Broker, rights: Rights = EVERY_RIGHT) -> Iterator[str]:
    """The metrics of a living server: each line is true, two lines may be a moment apart."""
    return lines_of(FAMILIES, Seen(broker, rights))


def _of_topics(tell: Callable[[Broker, Topic], Iterator[Sample]]) -> Samples:
    def samples(seen: Seen) -> Iterator[Sample]:
        for topic in seen.broker.topics.all():
            yield None
            if seen.topic(topic.name):
                yield from tell(seen.broker, topic)

    return samples


def _of_groups(tell: Callable[[Seen, str], Iterator[Sample]]) -> Samples:
    def samples(seen: Seen) -> Iterator[Sample]:
        for group in list(seen.broker.groups.groups):
            yield None
            if seen.group(group):
                yield from tell(seen, group)

    return samples


# The server


def _brokers(seen: Seen) -> Iterator[Sample]:
    yield "", len(seen.broker.cluster.members)


def _broker_info(seen: Seen) -> Iterator[Sample]:
    yield labels(id=seen.broker.node_id, address=seen.broker.addresses()), 1


def _partitions_offline(seen: Seen) -> Iterator[Sample]:
    offline = 0
    for topic in seen.broker.topics.all():
        yield None
        offline += sum(each.log.offline is not None for each in topic.open_partitions)
    yield "", offline


def _damaged(broker: Broker, topic: Topic) -> Iterator[Sample]:
    """The damage of those partitions that have any: most never rot."""
    for partition in topic.open_partitions:
        if partition.log.damage:
            yield labels(topic=topic.name, partition=partition.index), len(partition.log.damage)


def _requests(seen: Seen) -> Iterator[Sample]:
    names = {key: api.name for key, api in apis().items()}
    for key, count in sorted(seen.broker.metrics.requests.items()):
        yield labels(api=names.get(key, str(key))), count


def _counter(name: str) -> Samples:
    def samples(seen: Seen) -> Iterator[Sample]:
        yield "", getattr(seen.broker.metrics, name)

    return samples


def _by_quota(name: str, unit: float = 1) -> Samples:
    def samples(seen: Seen) -> Iterator[Sample]:
        for quota, value in sorted(getattr(seen.broker.metrics, name).items()):
            yield labels(quota=quota), value * unit

    return samples


def _connections(seen: Seen) -> Iterator[Sample]:
    yield "", seen.broker.metrics.connections_open


def _of_sessions(name: str, text: str, value: Callable[[FetchSessions], int]) -> Family[Seen]:
    def samples(seen: Seen) -> Iterator[Sample]:
        yield "", value(seen.broker.fetch_sessions)

    return Family(name, "counter" if name.endswith("_total") else "gauge", text, samples)


# Topics


def _topic_partitions(broker: Broker, topic: Topic) -> Iterator[Sample]:
    yield labels(topic=topic.name), len(topic.partitions)


def _each_partition(value: Callable[[Broker, Partition], float]) -> Samples:
    def tell(broker: Broker, topic: Topic) -> Iterator[Sample]:
        for partition in topic.open_partitions:
            yield labels(topic=topic.name, partition=partition.index), value(broker, partition)

    return _of_topics(tell)


def _lags(broker: Broker, topic: Topic) -> Iterator[Sample]:
    """The lags, by the leader alone: another broker that has the partition cannot know them."""
    for partition in topic.open_partitions:
        for follower, lag in ({} if partition.replica is None else partition.replica.lags).items():
            yield labels(topic=topic.name, partition=partition.index, broker=follower), lag


def _state(broker: Broker, partition: Partition) -> Leadership:
    """The state that brokers have agreed on; of a server that stands alone, what that comes to."""
    if partition.leadership is not None:
        return partition.leadership
    in_sync = () if partition.log.offline is not None else (broker.node_id,)
    return Leadership((broker.node_id,), broker.node_id, partition.log.leader_epoch, in_sync)


def _each_topic_with_producers(value: Callable[[Topic], float]) -> Samples:
    """A value of those topics that have something to say: most never see such a producer."""

    def tell(broker: Broker, topic: Topic) -> Iterator[Sample]:
        found = value(topic)
        if found:
            yield labels(topic=topic.name), found

    return _of_topics(tell)


def _producers(name: str) -> Callable[[Topic], float]:
    def total(topic: "Topic") -> float:
        return float(sum(getattr(partition.log.producers, name) for partition in topic.open_partitions))

    return total


# Groups


def _members(seen: Seen, group: str) -> Iterator[Sample]:
    known = seen.broker.groups.groups.get(group)
    if known is not None:  # it may have gone since the last line
        yield labels(consumergroup=group), len(known.members)


def _committed(seen: Seen, group: str) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, committed offset, and how many records lie behind it."""
    broker = seen.broker
    for topic, indexes in broker.groups.committed_topics(group).items():
        for index in indexes if seen.topic(topic) else ():
            committed = broker.groups.committed(group, topic, index)
            partition = broker.topics.open_partition(topic, index)
            if committed is not None and partition is not None:
                lag = max(0, partition.log.high_watermark - committed.offset)
                yield topic, index, committed.offset, lag


def _each_commit(column: int) -> Samples:
    def tell(seen: Seen, group: str) -> Iterator[Sample]:
        for found in _committed(seen, group):
            topic, index = found[:2]
            yield labels(consumergroup=group, topic=topic, partition=index), int(found[column])

    return _of_groups(tell)


def _sum_of_commits(column: int) -> Samples:
    def tell(seen: Seen, group: str) -> Iterator[Sample]:
        sums: dict[str, int] = {}
        for found in _committed(seen, group):
            yield None
            sums[found[0]] = sums.get(found[0], 0) + int(found[column])
        for topic, value in sums.items():
            yield labels(consumergroup=group, topic=topic), value

    return _of_groups(tell)


def _process_family(name: str, is_counter: bool, text: str, value: Callable[[], float]) -> Family[Seen]:
    return Family(name, "counter" if is_counter else "gauge", text, lambda seen: [("", value())])


_OFFSET, _LAG = 2, 3

FAMILIES: tuple[Family[Seen], ...] = (
    Family("kafka_brokers", "gauge", "Number of brokers.", _brokers),
    Family("kafka_broker_info", "gauge", "Where clients reach this node; the value says nothing.", _broker_info),
    Family("kafka_topic_partitions", "gauge", "Number of partitions of this topic.", _of_topics(_topic_partitions)),
    Family(
        "kafka_topic_partition_current_offset",
        "gauge",
        "Offset that the next record to be read will have: the high watermark.",
        _each_partition(lambda broker, partition: partition.log.high_watermark),
    ),
    Family(
        "kafka_topic_partition_oldest_offset",
        "gauge",
        "Offset of the oldest record that is there.",
        _each_partition(lambda broker, partition: partition.log.log_start_offset),
    ),
    Family(
        "kafka_topic_partition_leader",
        "gauge",
        "Node that leads this partition.",
        _each_partition(lambda broker, partition: _state(broker, partition).leader),
    ),
    Family(
        "kafka_topic_partition_leader_is_preferred",
        "gauge",
        "1 if the preferred node leads.",
        _each_partition(lambda broker, partition: _state(broker, partition).is_as_preferred),
    ),
    Family(
        "kafka_topic_partition_replicas",
        "gauge",
        "Number of replicas of this partition.",
        _each_partition(lambda broker, partition: len(_state(broker, partition).replicas)),
    ),
    Family(
        "kafka_topic_partition_in_sync_replica",
        "gauge",
        "Number of replicas that are in sync; 0 for a partition that is offline.",
        _each_partition(lambda broker, partition: len(_state(broker, partition).in_sync)),
    ),
    Family(
        "kafka_topic_partition_under_replicated_partition",
        "gauge",
        "1 if fewer replicas are in sync than there are.",
        _each_partition(lambda broker, partition: _state(broker, partition).is_incomplete),
    ),
    Family(
        "oncelog_follower_lag_records",
        "gauge",
        "Records that this follower lacks of the partition's log; told by the node that leads it.",
        _of_topics(_lags),
    ),
    Family(
        "oncelog_elections_total",
        "counter",
        "How often this node was elected to lead a partition.",
        _counter("elections"),
    ),
    Family("kafka_consumergroup_members", "gauge", "Members of this group.", _of_groups(_members)),
    Family("kafka_consumergroup_current_offset", "gauge", "Committed offset of this group.", _each_commit(_OFFSET)),
    Family(
        "kafka_consumergroup_current_offset_sum",
        "gauge",
        "Committed offsets of this group over all partitions of the topic.",
        _sum_of_commits(_OFFSET),
    ),
    Family("kafka_consumergroup_lag", "gauge", "Records that this group has not committed yet.", _each_commit(_LAG)),
    Family(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "Records that this group has not committed yet, over all partitions of the topic.",
        _sum_of_commits(_LAG),
    ),
    Family(
        "oncelog_topic_partition_size_bytes",
        "gauge",
        "Bytes of log on the disk.",
        _each_partition(lambda broker, partition: partition.log.size_bytes),
    ),
    _of_sessions("oncelog_fetch_sessions", "Fetch sessions that are kept.", len),
    _of_sessions(
        "oncelog_fetch_session_partitions", "Partitions of all fetch sessions.", lambda sessions: sessions.partitions
    ),
    _of_sessions(
        "oncelog_fetch_session_evictions_total",
        "Fetch sessions that gave way to another one.",
        lambda sessions: sessions.evictions,
    ),
    Family(
        "oncelog_partitions_offline",
        "gauge",
        "Partitions that take no more records because their disk failed; the server's log says why.",
        _partitions_offline,
    ),
    Family(
        "oncelog_topic_partition_damaged_places",
        "gauge",
        "Places of the log found not to be what was written; readers get CORRUPT_MESSAGE there.",
        _of_topics(_damaged),
    ),
    Family(
        "oncelog_scrubbed_bytes_total",
        "counter",
        "Bytes of log that were read again in the background to find rot.",
        _counter("bytes_scrubbed"),
    ),
    Family(
        "oncelog_producer_duplicates_refused_total",
        "counter",
        "Batches that were in the log already, wholly, and were not appended again. Topics with none are left out.",
        _each_topic_with_producers(_producers("duplicates")),
    ),
    Family(
        "oncelog_producer_batches_trimmed_total",
        "counter",
        "Batches of which the first records were in the log already; only the rest was appended.",
        _each_topic_with_producers(_producers("trimmed")),
    ),
    Family(
        "oncelog_producer_fenced_total",
        "counter",
        "Batches refused because a newer generation of their producer has written.",
        _each_topic_with_producers(_producers("fenced")),
    ),
    Family(
        "oncelog_producer_out_of_order_total",
        "counter",
        "Batches refused because records before them are missing.",
        _each_topic_with_producers(_producers("out_of_order")),
    ),
    Family(
        "oncelog_producer_unknown_total",
        "counter",
        "Batches refused because their producer is not known, or not any longer.",
        _each_topic_with_producers(_producers("unknown")),
    ),
    Family(
        "oncelog_producer_refused_for_room_total",
        "counter",
        "Batches of new producers refused until the table of Kafka's producers has room.",
        _each_topic_with_producers(_producers("full")),
    ),
    Family(
        "oncelog_leases_live",
        "gauge",
        "Leased producers that this topic's partitions remember.",
        _each_topic_with_producers(_producers("leases_live")),
    ),
    Family(
        "oncelog_producers_live",
        "gauge",
        "Producers with a pid of InitProducerId that this topic's partitions remember.",
        _each_topic_with_producers(_producers("kafka_live")),
    ),
    Family("oncelog_requests_total", "counter", "Requests by API.", _requests),
    Family("oncelog_connections", "gauge", "Connections that are open.", _connections),
    Family("oncelog_connections_accepted_total", "counter", "Connections opened.", _counter("connections_accepted")),
    Family(
        "oncelog_connections_refused_total",
        "counter",
        "Connections closed by the server for what they sent, or over max.connections.",
        _counter("connections_refused"),
    ),
    Family(
        "oncelog_throttled_total",
        "counter",
        "Requests after which a client had to wait, and connections refused, by the quota: produce, fetch, request or "
        "connection.",
        _by_quota("throttled"),
    ),
    Family(
        "oncelog_throttled_seconds_total",
        "counter",
        "How long they were told to wait.",
        _by_quota("throttled_ms", 0.001),
    ),
    Family(
        "oncelog_authentications_total",
        "counter",
        "Proofs of who a client is that were good.",
        _counter("authentications"),
    ),
    Family(
        "oncelog_authentications_failed_total",
        "counter",
        "Proofs that failed, and what came in the place of one.",
        _counter("authentications_failed"),
    ),
    Family(
        "oncelog_authentications_barred_total",
        "counter",
        "Proofs that were not looked at, since their hosts had failed too often.",
        _counter("authentications_barred"),
    ),
    Family(
        "oncelog_strangers_closed_total",
        "counter",
        "Connections closed because they had not proven who they are: too late, or others wanted in.",
        _counter("strangers_closed"),
    ),
    Family(
        "oncelog_sessions_ended_total",
        "counter",
        "Connections closed because the time of their proofs was over.",
        _counter("sessions_ended"),
    ),
    Family("oncelog_received_bytes_total", "counter", "Bytes received.", _counter("bytes_received")),
    Family("oncelog_sent_bytes_total", "counter", "Bytes sent.", _counter("bytes_sent")),
    Family(
        "oncelog_storage_errors_total",
        "counter",
        "Writes that the disk refused: it is full, read-only or failing.",
        _counter("storage_errors"),
    ),
    *(_process_family(*about) for about in PROCESS),
)
