"""Offsets that were committed in transactions which have not ended: nobody's until then."""

from collections.abc import Callable, Iterator, Mapping

from oncelog.server.groups.offsets import TopicPartition, size_bytes_of
from oncelog.server.groups.records import CommittedOffset

Committed = Mapping[TopicPartition, CommittedOffset]


class PendingOffsets:
    def __init__(self) -> None:
        self._of_pid: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        self._pids_of: dict[str, set[int]] = {}  # by group
        self.held_bytes = 0  # about

    def growth_bytes(self, pid: int, group_id: str, committed: Committed) -> int:
        """How many bytes more would be held with these."""
        known = self._of_pid.get(pid, {}).get(group_id, {})
        return sum(size_bytes_of(each) - size_bytes_of(known.get(at)) for at, each in committed.items())

    def put(self, pid: int, group_id: str, committed: Committed) -> None:
        of_group = self._of_pid.setdefault(pid, {}).setdefault(group_id, {})
        for at, each in committed.items():
            self.held_bytes += size_bytes_of(each) - size_bytes_of(of_group.get(at))
            of_group[at] = each
        self._pids_of.setdefault(group_id, set()).add(pid)

    def take(self, pid: int, belongs: Callable[[str], bool]) -> Iterator[tuple[str, Committed]]:
        """What the producer's transaction has committed for those groups, which has ended. Others may change what is
        here between two groups."""
        for group_id in [each for each in self._of_pid.get(pid, ()) if belongs(each)]:
            if group_id in self._of_pid.get(pid, ()):
                yield group_id, self._remove(pid, group_id)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        at = TopicPartition(topic, partition)
        return any(at in self._of_pid[pid][group_id] for pid in self._pids_of.get(group_id, ()))

    def has_any(self, group_id: str) -> bool:
        return group_id in self._pids_of

    def groups(self) -> list[str]:
        return list(self._pids_of)

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
        self.held_bytes -= sum(map(size_bytes_of, committed.values()))
        return committed
