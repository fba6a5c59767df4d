"""The committed offsets of all groups, in memory: a plain map, and what may be forgotten of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.group import Group
from oncelog.server.groups.records import CommittedOffset

NO_OFFSET = -1
ENTRY_BYTES = 320  # what one offset takes in memory beside its text, about


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Offsets:
    def __init__(self) -> None:
        self._of_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}  # by topic
        self.held_bytes = 0  # about

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._of_group.get(group_id, {}).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        partitions = self._of_group.setdefault(group_id, {}).setdefault(topic, {})
        if not partitions:
            self._groups_of.setdefault(topic, {})[group_id] = None
        self.held_bytes += size_bytes_of(committed) - size_bytes_of(partitions.get(partition))
        partitions[partition] = committed

    def put_all(self, group_id: str, committed: Mapping[TopicPartition, CommittedOffset], end_offset: int) -> None:
        """Put what one batch has stored, which ends there: as `put` of each, in half the time, as there may be 10,000
        at once."""
        topics = self._of_group.setdefault(group_id, {})
        new, held_bytes = tuple.__new__, 0
        last, partitions = None, dict[int, CommittedOffset]()
        for (topic, partition), (offset, epoch, metadata, commit_wall_ms, expire_wall_ms, _) in committed.items():
            if topic != last:
                last, partitions = topic, topics.setdefault(topic, {})
                if not partitions:
                    self._groups_of.setdefault(topic, {})[group_id] = None
            former = partitions.get(partition)
            held_bytes += len(metadata) + (ENTRY_BYTES if former is None else -len(former.metadata))
            values = (offset, epoch, metadata, commit_wall_ms, expire_wall_ms, end_offset)
            partitions[partition] = new(CommittedOffset, values)
        self.held_bytes += held_bytes

    def growth_bytes(self, group_id: str, committed: Mapping[TopicPartition, CommittedOffset]) -> int:
        """The bytes that these would add."""
        topics = self._of_group.get(group_id, {})
        none: dict[int, CommittedOffset] = {}
        return sum(
            size_bytes_of(each) - size_bytes_of(topics.get(topic, none).get(partition))
            for (topic, partition), each in committed.items()
        )

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._of_group.get(group_id, {})
        partitions = topics.get(topic, {})
        self.held_bytes -= size_bytes_of(partitions.pop(partition, None))
        if not partitions and topics.pop(topic, None) is not None:
            self._leave(group_id, topic)
        if not topics:
            self._of_group.pop(group_id, None)

    def forget(self, group_id: str) -> None:
        for topic, partitions in self._of_group.pop(group_id, {}).items():
            self.held_bytes -= sum(map(size_bytes_of, partitions.values()))
            self._leave(group_id, topic)

    def _leave(self, group_id: str, topic: str) -> None:
        groups = self._groups_of[topic]
        del groups[group_id]
        if not groups:
            del self._groups_of[topic]

    def groups(self) -> list[str]:
        return list(self._of_group)

    def has_any(self, group_id: str) -> bool:
        return group_id in self._of_group

    def of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._of_group.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def pieces(self, group_id: str, size: int) -> Iterator[list[TopicPartition]]:
        """The places where the group has committed something, some at a time. Others may change them in between."""
        for topic in list(self._of_group.get(group_id, ())):
            partitions = list(self._of_group.get(group_id, {}).get(topic, ()))
            for start in range(0, len(partitions), size):
                yield [TopicPartition(topic, each) for each in partitions[start : start + size]]

    def topics_of(self, group_id: str) -> dict[str, list[int]]:
        return {topic: sorted(partitions) for topic, partitions in self._of_group.get(group_id, {}).items()}

    def topics(self) -> list[str]:
        return list(self._groups_of)

    def of_topic(self, topic: str) -> Iterator[tuple[str, dict[int, CommittedOffset]]]:
        """The offsets that each group has committed for the topic, as they are when its turn comes."""
        for group_id in list(self._groups_of.get(topic, ())):
            committed = self._of_group.get(group_id, {}).get(topic)
            if committed:
                yield group_id, dict(committed)


def size_bytes_of(committed: CommittedOffset | None) -> int:
    return 0 if committed is None else ENTRY_BYTES + len(committed.metadata)


def expired(
    group: Group | ConsumerGroup, offsets: Offsets, among: Iterable[TopicPartition], retention_ms: int, wall_ms: int
) -> list[TopicPartition]:
    """The offsets of this group that `offsets.retention.minutes` removes (KIP-211).

    The offsets of a group without members age from when the last member left; those of consumers that manage
    themselves, and of topics that a stable group is no longer subscribed to, from when they were committed. Where
    both times are known the later counts, so that what an administrator sets on an idle group has its full time.
    """
    has_members = not group.is_empty
    if has_members and not group.tells_topics:
        return []
    idle_since_ms = 0 if has_members or group.is_simple else group.state_since_wall_ms
    among = tuple(among)
    is_read = {topic: has_members and group.is_subscribed_to(topic) for topic in {each.topic for each in among}}
    found = []
    for partition in among:
        committed = offsets.get(group.group_id, *partition)
        if committed is None or is_read[partition.topic]:
            continue
        if committed.expire_wall_ms >= 0:
            is_over = wall_ms >= committed.expire_wall_ms
        else:
            is_over = wall_ms - max(committed.commit_wall_ms, idle_since_ms) >= retention_ms
        if is_over:
            found.append(partition)
    return found
