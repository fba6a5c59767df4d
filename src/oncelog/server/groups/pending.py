"""Offsets that were committed in transactions which have not ended: nobody's until then.

As in Kafka, what takes an offset away takes away too what open transactions have committed for its place before.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from oncelog.server.groups.offsets import ENTRY_BYTES, TopicPartition, size_bytes_of
from oncelog.server.groups.records import CommittedOffset

Committed = Mapping[TopicPartition, CommittedOffset]


class PendingOffsets:
    def __init__(self) -> None:
        self._of_pid: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        self._pids_of: dict[str, set[int]] = {}  # by group
        self._counts: Counter[str] = Counter()  # by topic
        # Where offsets were taken away while anything was pending, by group: up to where in the log nothing counts.
        self._void: dict[str, dict[TopicPartition, int]] = {}
        self.held_bytes = 0  # about

    def growth_bytes(self, pid: int, group_id: str, committed: Committed) -> int:
        """The bytes that these would add."""
        known = self._of_pid.get(pid, {}).get(group_id, {})
        return sum(size_bytes_of(each) - size_bytes_of(known.get(at)) for at, each in committed.items())

    def put(self, pid: int, group_id: str, committed: Committed) -> None:
        of_group = self._of_pid.setdefault(pid, {}).setdefault(group_id, {})
        for at, each in committed.items():
            self._counts[at.topic] += at not in of_group
            self.held_bytes += size_bytes_of(each) - size_bytes_of(of_group.get(at))
            of_group[at] = each
        self._pids_of.setdefault(group_id, set()).add(pid)

    def take(self, pid: int, belongs: Callable[[str], bool]) -> Iterator[tuple[str, Committed]]:
        """The offsets that a transaction of the producer, now over, has committed for those groups. Others may change
        what is here between two groups."""
        for group_id in [each for each in self._of_pid.get(pid, ()) if belongs(each)]:
            if group_id in self._of_pid.get(pid, ()):
                void = self._void.get(group_id)
                committed = self._remove(pid, group_id)
                yield (
                    group_id,
                    {at: each for at, each in committed.items() if void is None or _is_valid(at, each, void)},
                )

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        at, void = TopicPartition(topic, partition), self._void.get(group_id, {})
        found = (self._of_pid[pid][group_id].get(at) for pid in self._pids_of.get(group_id, ()))
        return any(each is not None and _is_valid(at, each, void) for each in found)

    def has_any(self, group_id: str) -> bool:
        return group_id in self._pids_of

    def groups(self) -> list[str]:
        return list(self._pids_of)

    def topics(self) -> list[str]:
        return list(self._counts)

    def of_topic(self, topic: str, most: int) -> Iterator[tuple[str, list[TopicPartition]]]:
        """The places of the topic for which a group has anything pending, as it is when its turn comes, `most` at a
        time; none where a transaction has nothing for it. Others may change what is here in between."""
        for pid in list(self._of_pid) if topic in self._counts else ():
            for group_id in list(self._of_pid.get(pid, ())):
                committed, void = self._of_pid.get(pid, {}).get(group_id, {}), self._void.get(group_id, {})
                found = [at for at, each in committed.items() if at.topic == topic and _is_valid(at, each, void)]
                for start in range(0, max(len(found), 1), most):
                    yield group_id, found[start : start + most]

    def taking_away(self, group_id: str, most: int) -> Iterator[list[TopicPartition]]:
        """All places of the group, `most` at a time. What is pending in a transaction is gone once the next is asked
        for: by then nothing in the log brings it back."""
        for pid in list(self._pids_of.get(group_id, ())):
            committed = self._of_pid.get(pid, {}).get(group_id)
            places = list(committed or ())
            for start in range(0, len(places), most):
                yield places[start : start + most]
            if committed is not None and self._of_pid.get(pid, {}).get(group_id) is committed:
                self._remove(pid, group_id)

    def take_away(self, group_id: str, places: Collection[TopicPartition], end_offset: int) -> None:
        """Offsets of the group were taken away, as the log says before `end_offset`."""
        if group_id in self._pids_of:
            void = self._void.setdefault(group_id, {})
            before = len(void)
            void.update(dict.fromkeys(places, end_offset))
            self.held_bytes += ENTRY_BYTES * (len(void) - before)

    def forget(self, group_id: str) -> None:
        for pid in list(self._pids_of.get(group_id, ())):
            self._remove(pid, group_id)

    def _remove(self, pid: int, group_id: str) -> Committed:
        of_pid, pids = self._of_pid[pid], self._pids_of[group_id]
        committed = of_pid.pop(group_id)
        pids.discard(pid)
        if not of_pid:
            del self._of_pid[pid]
        if not pids:
            del self._pids_of[group_id]
            self.held_bytes -= ENTRY_BYTES * len(self._void.pop(group_id, ()))
        self.held_bytes -= sum(map(size_bytes_of, committed.values()))
        _take_off(self._counts, (at.topic for at in committed))
        return committed


def _is_valid(at: TopicPartition, each: CommittedOffset, void: Mapping[TopicPartition, int]) -> bool:
    """Whether it was committed behind all that took it away."""
    return each.end_offset > void.get(at, each.end_offset - 1)


def _take_off(counts: Counter[str], topics: Iterable[str]) -> None:
    for topic in topics:
        counts[topic] -= 1
        if not counts[topic]:
            del counts[topic]
