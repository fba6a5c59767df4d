"""The producer's state machine: told the time and what arrived, it answers what to do."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from oncelog.client.sending.actions import (
    Action,
    Answer,
    Boundary,
    Delivered,
    Failed,
    Found,
    NeedIdentity,
    NeedMetadata,
    Produce,
)
from oncelog.client.sending.batch import Batch, Identity, Place, Split, split_batch
from oncelog.client.sending.limits import SenderLimits


class _Partition:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.waiting: deque[Batch] = deque()
        self.flying: deque[Batch] = deque()
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.acknowledged = 0
        self.next_offset = -1
        self.expires_at_ms: int | None = None
        self.resume_at_ms = 0
        self.is_asked = False


class Sender:
    def __init__(self, limits: SenderLimits, random: Callable[[], float], split: Split = split_batch) -> None:
        self._limits = limits
        self._random = random
        self._split = split
        self._partitions: dict[Place, _Partition] = {}
        self._leaders: dict[Place, int] = {}
        self._requests: dict[int, list[Batch]] = {}
        self._last_request_id = 0
        self._actions: list[Action] = []
        self._shared: Identity | None = None

    def add(self, batch: Batch, now_ms: int) -> None:
        self._partition((batch.topic, batch.partition)).waiting.append(batch)

    def backlog(self, place: Place) -> int:
        partition = self._partitions.get(place)
        return len(partition.waiting) if partition else 0

    def leaders(self, leaders: Mapping[Place, int | None], now_ms: int) -> None:
        for place, node_id in leaders.items():
            if node_id is None or node_id < 0:
                self._leaders.pop(place, None)
            else:
                self._leaders[place] = node_id

    def granted(self, places: Iterable[Place], identity: Identity, expires_at_ms: int | None, now_ms: int) -> None:
        if expires_at_ms is None:
            self._shared = identity
        for place in places:
            partition = self._partition(place)
            partition.identity, partition.expires_at_ms, partition.next_sequence = identity, expires_at_ms, 0

    def not_granted(self, places: Iterable[Place], code: int, message: str | None, now_ms: int) -> None:
        for place in places:
            partition = self._partition(place)
            while partition.waiting:
                self._actions.append(Failed(partition.waiting.popleft(), code, message, False))

    def answered(self, request_id: int, answers: Iterable[Answer] | None, now_ms: int) -> None:
        batches = {(batch.topic, batch.partition): batch for batch in self._requests.pop(request_id)}
        for answer in answers if answers is not None else [Answer(*place, 0) for place in batches]:
            batch = batches[answer.topic, answer.partition]
            partition = self._partition((batch.topic, batch.partition))
            partition.flying.remove(batch)
            if answer.error_code == 0:
                partition.acknowledged += batch.record_count
                partition.next_offset = answer.base_offset + batch.record_count
                self._actions.append(Delivered(batch, answer.base_offset, answer.append_time_ms, batch.in_doubt))
            else:
                self._again(partition, batch, now_ms)

    def lost(self, request_id: int, now_ms: int, *, code: int, was_sent: bool = True) -> None:
        for batch in self._requests.pop(request_id):
            partition = self._partition((batch.topic, batch.partition))
            partition.flying.remove(batch)
            batch.in_doubt = batch.in_doubt or was_sent
            self._again(partition, batch, now_ms)

    def _again(self, partition: _Partition, batch: Batch, now_ms: int) -> None:
        partition.resume_at_ms = now_ms + self._limits.retry_backoff_ms
        partition.waiting.append(batch)
        partition.waiting = deque(sorted(partition.waiting, key=lambda each: each.created_ms))

    def looked_up(self, place: Place, found: Found | None, now_ms: int) -> None:
        raise ValueError(f"nobody asked for {place}")

    def resume(
        self,
        place: Place,
        identity: Identity,
        next_sequence: int,
        *,
        expires_at_ms: int | None = None,
        next_offset: int = -1,
        is_shared: bool = False,
    ) -> None:
        partition = self._partition(place)
        partition.identity, partition.expires_at_ms, partition.next_sequence = identity, expires_at_ms, next_sequence
        partition.acknowledged, partition.next_offset = next_sequence, next_offset

    def throttled(self, node_id: int, until_ms: int) -> None:
        pass

    def give_up(self, now_ms: int, code: int, places: Iterable[Place] | None = None, *, in_flight: bool = True) -> None:
        for place in list(self._partitions) if places is None else places:
            self.not_granted([place], code, None, now_ms)

    def boundary(self, place: Place) -> Boundary | None:
        partition = self._partitions.get(place)
        if partition is None or partition.identity is None or partition.flying or partition.waiting:
            return None
        return Boundary(partition.identity, partition.acknowledged, partition.next_offset, partition.expires_at_ms)

    def tick(self, now_ms: int) -> None:
        pass

    def next_due_ms(self) -> int | None:
        due = [partition.resume_at_ms for partition in self._partitions.values() if partition.waiting]
        return min(due, default=None)

    def actions(self, now_ms: int) -> list[Action]:
        for partition in self._partitions.values():
            while (
                partition.waiting
                and now_ms >= partition.resume_at_ms
                and len(partition.flying) < self._limits.max_in_flight
            ):
                if not self._may_send(partition):
                    break
                self._send(partition, partition.waiting.popleft())
        done, self._actions = self._actions, []
        return done

    def _may_send(self, partition: _Partition) -> bool:
        place = partition.place
        if place not in self._leaders:
            self._actions.append(NeedMetadata([place[0]]))
            return False
        if self._limits.is_idempotent and partition.identity is None:
            partition.identity = self._shared
            if partition.identity is None:
                if not partition.is_asked:
                    partition.is_asked = True
                    self._actions.append(NeedIdentity([place]))
                return False
        return True

    def _send(self, partition: _Partition, batch: Batch) -> None:
        if partition.identity is not None and batch.first_sequence < 0:
            batch.stamp(partition.identity, partition.next_sequence)
            partition.next_sequence = (partition.next_sequence + batch.record_count) & 0x7FFFFFFF
        self._last_request_id += 1
        self._requests[self._last_request_id] = [batch]
        partition.flying.append(batch)
        self._actions.append(Produce(self._leaders[partition.place], self._last_request_id, [batch]))

    def _partition(self, place: Place) -> _Partition:
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = _Partition(place)
        return partition
