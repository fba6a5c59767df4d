"""The producer's state machine: told the time and what arrived, it answers what to do.

Here is what concerns several partitions: who leads them, what goes into one request, one question for all that need an
identity. What happens to one partition's batches is in `table`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots.arriving import answered, ended, fail_waiting, give_up, looked_up, next_batch, time_passed
from oncelog.slots.batch import Batch, Split, split_batch
from oncelog.slots.context import Counters, SenderContext
from oncelog.slots.identity import NEVER, NOBODY, AnyPlace, Identity, Place
from oncelog.slots.lease import FOREVER_MS
from oncelog.slots.limits import SenderLimits
from oncelog.slots.messages import (
    Action,
    BatchAnswer,
    Boundary,
    Found,
    NeedIdentity,
    NeedMetadata,
    PartitionStatistics,
    Produce,
)
from oncelog.slots.partition import NO_LEADER, Partition
from oncelog.slots.states import SENDING, STOPPED, Event
from oncelog.slots.table import happen
from oncelog.slots.tenure import Tenure

# Beside the batches a request holds names and lengths: for the first of a topic and for each further one.
REQUEST_BYTES = 128
BATCH_BYTES = 32
LEAST_PAUSE_MS = 10  # between two questions for metadata

_new: Final = tuple.__new__


Sent = tuple[int, list[Partition], list[Batch]]  # to which node, and one batch of each


class Sender:
    def __init__(self, limits: SenderLimits, random: Callable[[], float], split: Split = split_batch) -> None:
        self._limits = limits
        self.context = SenderContext(limits, random, split)
        self._partitions: dict[AnyPlace, Partition] = {}
        self._leaders: dict[Place, int] = {}  # also of partitions that nothing was added for yet
        self._requests: dict[int, Sent] = {}
        self._last_request_id = 0
        self._ready: list[Partition] = []  # something may have to be sent there
        self._throttled: dict[int, int] = {}  # until when, by node
        self._metadata_asked_ms: dict[str, int] = {}
        self.is_shared = False  # whether other processes may fill slots of ours
        self._everybody: Identity | None = None  # by InitProducerId: one identity for all partitions
        self._timeout_ms = limits.patience_ms

    @property
    def counters(self) -> Counters:
        return self.context.counters

    def set_wall_clock(self, wall_ms: int, now_ms: int) -> None:
        """Records' timestamps are wall time, all else here is not; said at the start and now and then."""
        self.context.wall_ahead_ms = wall_ms - now_ms

    def forgotten_after(self, forget_after_ms: int) -> None:
        """The broker's producer.id.expiration.ms, once that is known; until then that of the limits."""
        self.context.forgotten_after(forget_after_ms)

    # What arrives

    def add(self, batch: Batch, now_ms: int) -> None:
        partition = self._partitions.get((batch.topic, batch.partition)) or self._partition(batch.place)
        if partition.state is STOPPED:
            code, message = partition.stopped_by
            self.context.fail(batch, code, message, False)
            return
        partition.waiting.append(batch)
        due_ms = batch.created_ms + self._timeout_ms
        if due_ms < self.context.due_ms:
            self.context.due_ms = due_ms
        if not partition.is_ready:
            partition.is_ready = True
            self._ready.append(partition)

    def leaders(self, leaders: Mapping[Place, int | None], now_ms: int) -> None:
        for place, node_id in leaders.items():
            known = NO_LEADER if node_id is None or node_id < 0 else node_id
            self._leaders[place] = known
            partition = self._partitions.get(place)
            if partition is not None and known != partition.leader:
                if known not in (NO_LEADER, partition.failed_leader):
                    partition.not_before_ms = now_ms  # the backoff was meant for the old one
                partition.leader = known
                self._wake(partition)

    def granted(self, places: Iterable[Place], identity: Identity, now_ms: int) -> None:
        """A lease says when it ends; without an end it is a Kafka pid, which serves all partitions."""
        self.context.counters.identities += 1
        is_leased = identity.expires_at_ms != NEVER
        if not is_leased:
            self._everybody = identity
        for place in places:
            partition = self._partition(place)
            partition.is_asked = False
            tenure = Tenure(identity, 0, now_ms, self.context.wall_ahead_ms, is_leased=is_leased)
            if partition.tenure is None:
                partition.tenure = tenure
            elif is_leased:
                partition.renewed = tenure
            self._wake(partition)
        self.context.wake_at(now_ms)

    def not_granted(self, places: Iterable[Place], code: int, message: str | None, now_ms: int) -> None:
        for place in places:
            partition = self._partition(place)
            partition.is_asked = False
            if partition.tenure is None:
                fail_waiting(partition, code, message, now_ms)
            else:  # the lease that is to be renewed goes on until its end
                partition.tenure.renew_at_ms = now_ms + self._limits.retry_backoff_max_ms
                self.context.wake_at(partition.tenure.renew_at_ms)

    def answered(
        self, request_id: int, answers: Sequence[BatchAnswer] | None, now_ms: int, *, throttle_ms: int = 0
    ) -> None:
        node_id, partitions, batches = self._requests.pop(request_id)
        if throttle_ms > 0:
            self.throttled(node_id, now_ms + throttle_ms)
        if answers is not None and len(batches) == 1 and len(answers) == 1 and answers[0][:2] == partitions[0].place:
            partition = partitions[0]
            answered(partition, batches[0], answers[0], now_ms)
            if not partition.is_ready:
                partition.is_ready = True
                self._ready.append(partition)
            return
        by_place = {(answer[0], answer[1]): answer for answer in answers or ()}
        for partition, batch in zip(partitions, batches, strict=True):
            answer = by_place.get(partition.place)
            if answer is None:
                # Without acks nobody answers. Of an answer without one of its partitions nothing would be known.
                answer = BatchAnswer(batch.topic, batch.partition, 0 if answers is None else Code.REQUEST_TIMED_OUT)
            answered(partition, batch, answer, now_ms)
            if not partition.is_ready:
                partition.is_ready = True
                self._ready.append(partition)

    def lost(
        self,
        request_id: int,
        now_ms: int,
        *,
        code: int = Code._TRANSPORT,
        message: str | None = None,
        was_sent: bool = True,
    ) -> None:
        """No answer will come. What was sent may be stored, or come to be stored even now."""
        self.context.counters.requests_lost += 1
        self._ended(request_id, Event.LOST if was_sent else Event.UNSENT, code, now_ms, message)

    def unchecked(self, request_id: int, now_ms: int) -> None:
        """A request was not sent: the connection that it was for is a new one, and what is known of its slots is
        older."""
        self._ended(request_id, Event.UNCHECKED, Code._TRANSPORT, now_ms)

    def _ended(self, request_id: int, event: Event, code: int, now_ms: int, message: str | None = None) -> None:
        _, partitions, batches = self._requests.pop(request_id)
        for partition, batch in zip(partitions, batches, strict=True):
            ended(partition, batch, event, code, now_ms, message)
            if event is not Event.UNCHECKED:
                self._want_metadata(batch.topic, now_ms)
            self._wake(partition)

    def looked_up(self, place: Place, found: Found | None, now_ms: int) -> None:
        partition = self._partitions[place]
        looked_up(partition, found, now_ms)
        self._wake(partition)

    def resume(
        self,
        place: Place,
        identity: Identity,
        next_sequence: int,
        now_ms: int,
        *,
        next_offset: int = -1,
        is_leased: bool = False,
        is_shared: bool = False,
        cuts: bool = True,
        known_at_ms: int | None = None,
    ) -> None:
        """Go on where a saved producer stood. `is_shared`: other processes may fill the same slots with the same
        records, so none is ever moved, and the identity is never changed here. Without `cuts` a batch is stored as a
        whole or not at all. `known_at_ms`: when it was known last that the next slot is free, if that is not now."""
        partition = self._partition(place)
        if not partition.is_idle:
            raise ValueError(f"{place} has batches of its own still: each is to be stored or failed before")
        wall_ahead_ms = self.context.wall_ahead_ms
        tenure = Tenure(identity, next_sequence, now_ms, wall_ahead_ms, is_leased=is_leased, is_shared=is_shared)
        if known_at_ms is not None:
            tenure.known_at_ms = known_at_ms
        happen(partition, Event.RESUMED, now_ms, tenure, next_offset)
        partition.cuts = cuts
        self.is_shared = self.is_shared or is_shared
        self.context.wake_at(now_ms)

    def pin(self, place: Place) -> None:
        """The identity changes only in `boundary` from now on: what was saved names what later records carry."""
        partition = self._partition(place)
        partition.is_pinned = True
        self._wake(partition)

    def has_renewal(self, place: Place) -> bool:
        """Whether the next `boundary` changes the lease."""
        partition = self._partitions.get(place)
        return partition is not None and partition.renewed is not None

    def throttled(self, node_id: int, until_ms: int) -> None:
        self._throttled[node_id] = max(until_ms, self._throttled.get(node_id, 0))
        self.context.wake_at(self._throttled[node_id])

    def give_up(self, now_ms: int, code: int, places: Iterable[Place] | None = None, *, in_flight: bool = True) -> None:
        """Reports everything as failed that was not sent yet, and with `in_flight` all the rest as well."""
        named = None if places is None else [self._partition(place) for place in places]
        for partition in self._partitions.values() if named is None else named:
            give_up(partition, code, in_flight, now_ms)
            self._wake(partition)

    # Views

    def backlog(self, place: Place) -> int:
        partition = self._partitions.get(place)
        return len(partition.waiting) if partition is not None else 0

    @property
    def identity(self) -> Identity:
        """The one that serves all partitions, if there is one."""
        return self._everybody or NOBODY

    def statistics(self, place: Place) -> PartitionStatistics:
        partition = self._partitions.get(place)
        if partition is None:
            return PartitionStatistics()
        tenure, waiting = partition.tenure, tuple(partition.waiting)
        return PartitionStatistics(
            sum(batch.record_count for batch in waiting),
            sum(len(batch.data) for batch in waiting),
            sum(batch.record_count for batch in partition.open if batch.is_flying),
            0 if tenure is None else tenure.acknowledged,
            NOBODY if tenure is None else tenure.identity,
        )

    def boundary(self, place: Place) -> Boundary | None:
        """The boundary of the stored records, where no batch is open. A pinned partition changes its lease here."""
        partition = self._partitions.get(place)
        if partition is None or not partition.is_idle or partition.state is not SENDING:
            return None
        tenure = partition.adopt_renewed()
        if tenure is None:
            return None
        self.context.wake_at(tenure.renew_at_ms)  # a lease that begins here is to be renewed in its turn
        return Boundary(tenure.identity, tenure.acknowledged, partition.next_offset)

    def next_due_ms(self) -> int | None:
        return self.context.due_ms if self.context.due_ms < FOREVER_MS else None

    # What to do

    def tick(self, now_ms: int) -> None:
        """Looks at everything that has a time: timeouts, backoffs, leases."""
        context = self.context
        if now_ms < context.due_ms:
            return
        context.due_ms = FOREVER_MS
        self._throttled = {node: until for node, until in self._throttled.items() if until > now_ms}
        soonest_ms = min(self._throttled.values(), default=FOREVER_MS)
        renewals: list[Partition] = []
        for partition in self._partitions.values():
            if not partition.is_idle:
                time_passed(partition, now_ms)
                self._wake(partition)
            if partition.is_due_for_renewal(now_ms):
                renewals.append(partition)
                partition.is_asked = True
            soonest_ms = partition.due_ms(now_ms, soonest_ms)
        self._ask_identity(renewals)
        context.wake_at(soonest_ms)

    def actions(self, now_ms: int) -> list[Action]:
        context = self.context
        if now_ms >= context.due_ms:
            self.tick(now_ms)
        if self._ready:
            self._send_ready(now_ms)
        done = context.actions
        if done:
            context.actions = []
        return done

    def _send_ready(self, now_ms: int) -> None:
        ready, self._ready = self._ready, []
        by_node: dict[int, list[Partition]] = {}
        nameless: list[Partition] = []
        for partition in ready:
            partition.is_ready = False
            if partition.tenure is None and self._is_nameless(partition, now_ms):
                nameless.append(partition)
            if partition.state or (not partition.waiting and partition.flying == len(partition.open)):
                continue
            if partition.leader == NO_LEADER:
                self._want_metadata(partition.place.topic, now_ms)
            elif now_ms < partition.not_before_ms:
                self.context.wake_at(partition.not_before_ms)
            elif partition.leader in self._throttled:
                self.context.wake_at(self._throttled[partition.leader])
            else:
                by_node.setdefault(partition.leader, []).append(partition)
        for node_id, partitions in by_node.items():
            nameless += self._fill_requests(node_id, partitions, now_ms)
        self._ask_identity(nameless)

    def _fill_requests(self, node_id: int, partitions: list[Partition], now_ms: int) -> list[Partition]:
        """One batch of each partition, then the next of each, since a request holds one batch of a partition. The
        answer are those that turned out to need an identity."""
        limits = self._limits
        nameless: list[Partition] = []
        while partitions:
            more: list[Partition] = []
            sent: list[Partition] = []
            batches: list[Batch] = []
            size_bytes = REQUEST_BYTES
            for partition in partitions:
                batch = next_batch(partition, now_ms)
                if batch is None:
                    if partition.tenure is None and self._is_nameless(partition, now_ms):
                        nameless.append(partition)
                    continue
                if partition.waiting or partition.flying < len(partition.open):
                    more.append(partition)
                batch_bytes = len(batch.data) + BATCH_BYTES
                if batches and (
                    size_bytes + batch_bytes > limits.max_request_bytes or len(batches) >= limits.max_request_batches
                ):
                    self._produce(node_id, sent, batches, now_ms)
                    sent, batches, size_bytes = [], [], REQUEST_BYTES
                sent.append(partition)
                batches.append(batch)
                size_bytes += batch_bytes
            if batches:
                self._produce(node_id, sent, batches, now_ms)
            partitions = more
        return nameless

    def _produce(self, node_id: int, partitions: list[Partition], batches: list[Batch], now_ms: int) -> None:
        request_id = self._last_request_id = self._last_request_id + 1
        self._requests[request_id] = node_id, partitions, batches
        context = self.context
        counters = context.counters
        counters.requests += 1
        counters.batches_sent += len(batches)
        until_ms, is_checked = FOREVER_MS, False
        for partition, batch in zip(partitions, batches, strict=True):
            tenure = partition.tenure
            if tenure is None:
                continue
            known_until_ms = tenure.expires_at_ms
            if tenure.is_shared or batch.in_doubt:
                known_until_ms = partition.sent_until_ms(batch, now_ms)
                is_checked = is_checked or tenure.is_shared
            if known_until_ms < until_ms:
                until_ms = known_until_ms
        context.actions.append(_new(Produce, (node_id, request_id, batches, until_ms, is_checked)))

    def _is_nameless(self, partition: Partition, now_ms: int) -> bool:
        """Whether an identity must be asked for. Where one serves all partitions, it is taken."""
        if not partition.is_idempotent or partition.tenure is not None or partition.renewed is not None:
            return False
        if partition.state or not (partition.waiting or partition.is_pinned):
            return False
        if self._everybody is not None and self._everybody.pid != partition.spent_pid:
            partition.tenure = Tenure(self._everybody, 0, now_ms)
            self._wake(partition)
            return False
        if partition.is_asked:
            return False
        partition.is_asked = True
        return True

    def _ask_identity(self, partitions: list[Partition]) -> None:
        if partitions:
            self.context.actions.append(NeedIdentity([partition.place for partition in partitions]))

    def _want_metadata(self, topic: str, now_ms: int) -> None:
        """Asks, unless it was asked so short a time ago that the answer may be under way."""
        asked_ms = self._metadata_asked_ms.get(topic)
        pause_ms = max(self._limits.retry_backoff_ms, LEAST_PAUSE_MS)
        if asked_ms is None or now_ms - asked_ms >= pause_ms:
            self._metadata_asked_ms[topic] = asked_ms = now_ms
            self.context.actions.append(NeedMetadata([topic]))
        self.context.wake_at(asked_ms + pause_ms)

    def _wake(self, partition: Partition) -> None:
        if not partition.is_ready:
            partition.is_ready = True
            self._ready.append(partition)

    def _partition(self, place: Place) -> Partition:
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = Partition(place, self.context)
            partition.leader = self._leaders.get(place, NO_LEADER)
        return partition
