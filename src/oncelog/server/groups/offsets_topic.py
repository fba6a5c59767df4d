"""`__consumer_offsets`: where groups and their offsets live, in the log itself.

The topic is made when the first group needs it. A group's records all go to one partition, found as Kafka finds it.
What one request stores is one batch: after a crash it is there as a whole or not at all.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache

from oncelog.clock import Now
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate
from oncelog.log.steps import Steps, at_once
from oncelog.records.build import build_batch
from oncelog.records.header import read_header
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.records import KeyValue, bytes_of_record
from oncelog.server.high_watermark import when_settled
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.replay import records_in
from oncelog.server.settings import Settings
from oncelog.server.topics import Partition, Topic, Topics

logger = logging.getLogger(__name__)

NOT_MADE = -1  # among the partitions in trouble: there is none yet

OnSettled = Callable[[ErrorCode], None]


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, in 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@lru_cache(maxsize=4096)
def partition_of_group(group_id: str, partition_count: int) -> int:
    """Kafka's choice; its abs() turns the one number without a positive counterpart into 0."""
    value = java_hash(group_id)
    return (0 if value == -(2**31) else abs(value)) % partition_count


class OffsetsTopic:
    def __init__(self, settings: Settings, topics: Topics, request_flush: Callable[[Partition], None]) -> None:
        self._settings = settings
        self._topics = topics
        self._request_flush = request_flush
        self._in_trouble: set[int] = set()  # partitions whose last append failed: said once, as clients go on trying

    def replay(self) -> Iterator[KeyValue]:
        topic = self._topics.get(OFFSETS_TOPIC)
        for partition in topic.open_partitions if topic is not None else ():
            if partition.log.offline is not None:
                logger.error("%s-%d is offline: %s", OFFSETS_TOPIC, partition.index, partition.log.offline)
                continue
            try:
                yield from ((each.key, each.value) for each in records_in(partition.log) if each.key is not None)
            except LogStorageError as damage:
                # Half of what groups stored would be told as if it were all.
                partition.log.go_offline(
                    f"{damage}. Its groups are told to try again later, until the file is restored from a copy. To go "
                    f"on without what they stored, stop the server and empty the folder {partition.log.folder}"
                )

    @property
    def has_lost_any(self) -> bool:
        topic = self._topics.get(OFFSETS_TOPIC)
        return topic is not None and any(each.log.offline is not None for each in topic.open_partitions)

    def is_lost(self, group_id: str) -> bool:
        """Whether what the group stored cannot be known, or added to, until the partition is well again."""
        partition = self.partition_of(group_id)
        return partition is not None and (not partition.leads or partition.log.offline is not None)

    def partition_of(self, group_id: str) -> Partition | None:
        """None as long as nothing was ever stored."""
        topic = self._topics.get(OFFSETS_TOPIC)
        return None if topic is None else topic.partitions[partition_of_group(group_id, len(topic.partitions))]

    @property
    def is_made(self) -> bool:
        return self._topics.get(OFFSETS_TOPIC) is not None

    def check_size(self, group_id: str, held_bytes: int) -> None:
        """Of one batch, or of a part of it that is known before the batch is made."""
        partition = self.partition_of(group_id)
        settings = self._settings
        limit_bytes = settings.message_max_bytes if partition is None else partition.topic.log_config.max_message_bytes
        if held_bytes > limit_bytes:
            raise KafkaError(
                ErrorCode.invalid_commit_offset_size,
                f"{held_bytes} bytes for the group {group_id} are more than max.message.bytes={limit_bytes}",
            )

    def append(self, group_id: str, records: Collection[KeyValue], now: Now) -> tuple[Partition, End]:
        """Where the records end; to be sure of them, wait with `when_settled`."""
        topic = self._topics.get(OFFSETS_TOPIC) or at_once(self.making(now))
        partition = topic.partitions[partition_of_group(group_id, len(topic.partitions))]
        self.check_size(group_id, sum(map(bytes_of_record, records)))
        batch = build_batch([(key, value, (), None) for key, value in records], timestamp_ms=now.wall_ms)
        try:
            staged = partition.log.append(batch, read_header(batch), now)
        except LogStorageError as refusal:
            if partition.index not in self._in_trouble:
                logger.warning("the group %r, and maybe others, could not be stored: %s", group_id, refusal)
            self._in_trouble.add(partition.index)
            # What a client takes as: ask again who coordinates the group, and then try again.
            raise KafkaError(ErrorCode.not_coordinator, str(refusal)) from refusal
        self._in_trouble.discard(partition.index)
        partition.appended()
        if partition.fate(staged.end) is Fate.WAITS:
            self._request_flush(partition)
        return partition, staged.end

    def when_settled(self, partition: Partition, end: End, settled: OnSettled) -> None:
        """Call back when it is safe: at once, unless answers wait for the disk."""
        when_settled(
            partition,
            end,
            lambda fate: settled(ErrorCode.none if fate is Fate.SAFE else ErrorCode.not_coordinator),
        )

    def making(self, now: Now) -> Steps[Topic]:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._settings.offsets_topic_segment_bytes),
        }
        count = self._settings.offsets_topic_num_partitions
        try:
            return (yield from self._topics.creating(OFFSETS_TOPIC, count, configs, now, is_internal=True))
        except KafkaError as refusal:
            if NOT_MADE not in self._in_trouble:
                logger.error("%s could not be made: %s", OFFSETS_TOPIC, refusal)
            self._in_trouble.add(NOT_MADE)
            raise KafkaError(ErrorCode.coordinator_not_available, str(refusal)) from refusal
