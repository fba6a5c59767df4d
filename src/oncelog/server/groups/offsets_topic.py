"""`__consumer_offsets`: where groups and their offsets live, in the log itself.

The topic is made when the first group needs it. A group's records all go to one partition, found as Kafka finds it.
What one request stores is one batch: after a crash it is there as a whole or not at all.
"""

import logging
from collections.abc import Callable, Collection
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
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        request_flush: Callable[[Partition], None],
        broker_count: Callable[[], int],
        made: Callable[[], None],
    ) -> None:
        """`broker_count` says how many are up; `made` is called when the topic was made here."""
        self._settings = settings
        self._topics = topics
        self._request_flush = request_flush
        self._broker_count = broker_count
        self._made = made
        self._in_trouble: set[int] = set()  # partitions whose last append failed: said once, as clients go on trying
        self.served: dict[int, int] = {}  # partitions whose groups are here, by the epoch that they were read in
        self.loading: set[int] = set()  # those that are being read

    def led(self) -> list[Partition]:
        topic = self._topics.get(OFFSETS_TOPIC)
        return [] if topic is None else [each for each in topic.partitions if each.leads]

    def is_here(self, group_id: str) -> bool:
        """Whether this broker coordinates the group, and has read it back."""
        partition = self.partition_of(group_id)
        if partition is None:
            return not self._topics.is_replicated
        return partition.leads and self.served.get(partition.index) == partition.log.leader_epoch

    def refusal(self, group_id: str) -> ErrorCode:
        """Why nothing can be said of the group, or stored for it: it is elsewhere, on its way here, or damaged."""
        partition = self.partition_of(group_id)
        if self.is_here(group_id):
            is_well = partition is None or partition.log.offline is None
            return ErrorCode.none if is_well else ErrorCode.not_coordinator
        is_coming = partition is not None and partition.leads and partition.index in self.loading
        return ErrorCode.coordinator_load_in_progress if is_coming else ErrorCode.not_coordinator

    def partition_of(self, group_id: str) -> Partition | None:
        """None as long as the topic is not made."""
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
        if not self.is_made and not self._topics.is_replicated:
            at_once(self.making(now))
        partition, refused = self.partition_of(group_id), self.refusal(group_id)
        if partition is None or refused is not ErrorCode.none:
            raise KafkaError(refused)
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
        copies = min(self._settings.offsets_topic_replication_factor, self._broker_count())
        try:
            creating = self._topics.creating(OFFSETS_TOPIC, count, configs, now, is_internal=True, replication=copies)
            return (yield from creating)
        except KafkaError as refusal:
            is_there = refusal.code is ErrorCode.topic_already_exists  # another broker was faster
            if NOT_MADE not in self._in_trouble and not is_there:
                logger.error("%s could not be made: %s", OFFSETS_TOPIC, refusal)
                self._in_trouble.add(NOT_MADE)
            raise KafkaError(ErrorCode.coordinator_not_available, str(refusal)) from refusal
        finally:
            self._made()
