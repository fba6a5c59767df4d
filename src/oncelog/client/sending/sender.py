"""The producer's state machine: told the time and what arrived, it answers what to do.

Here is what concerns several partitions: who leads them, what goes into one request, one question for all that need an
identity. What happens to one partition's batches is in `partition`, how its doubts are settled in `settling`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from oncelog.client.error_codes import ErrorCodes as Code
from oncelog.client.sending import settling
from oncelog.client.sending.actions import (
    Action,
    Answer,
    Boundary,
    Found,
    NeedIdentity,
    NeedMetadata,
    Produce,
    Standing,
)
from oncelog.client.sending.batch import Batch, Split, split_batch
from oncelog.client.sending.context import Context, Counters
from oncelog.client.sending.limits import FOREVER_MS, SenderLimits
from oncelog.client.sending.partition import NO_LEADER, Partition
from oncelog.client.sending.states import State
from oncelog.client.sending.tenure import Tenure
from oncelog.slots import NOBODY, Identity, Place

# Beside the batches a request holds names and lengths: for the first of a topic and for each further one.
REQUEST_BYTES = 128
BATCH_BYTES = 32
LEAST_PAUSE_MS = 10  # between two questions for metadata


class Sender:
    def __init__(self, limits: SenderLimits, random: Callable[[], float], split: Split = split_batch) -> None:
        self._limits = limits
        self._context = Context(limits, random, split)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._leaders: dict[Place, int] = {}  # also of partitions that nothing was added for yet
        self._requests: dict[int, tuple[int, list[Batch]]] = {}  # node, and what it was sent
        self._last_request_id = 0
        self._ready: list[Partition] = []  # something may have to be sent there
        self._throttled: dict[int, int] = {}  # until when, by node
        self._metadata_asked_ms: dict[str, int] = {}
        self.is_shared = False  # whether other processes may fill slots of ours
        self._everybody: Identity | None = None  # by InitProducerId: one identity for all partitions
        self._timeout_ms = limits.patience_ms

    @property
    def counters(self) -> Counters:
        return self._context.counters

    def set_wall_clock(self, wall_ms: int, now_ms: int) -> None:
        """Records' timestamps are wall time, all else here is not; said at the start and now and then."""
        self._context.wall_ahead_ms = wall_ms - now_ms

    def forgotten_after(self, forget_after_ms: int) -> None:
        """The broker's producer.id.expiration.ms, once that is known; until then that of the limits."""
        self._context.forgotten_after(forget_after_ms)

    # What arrives

    def add(self, batch: Batch, now_ms: int) -> None:
        lane = self._partitions.get((batch.topic, batch.partition)) or self._partition(batch.place)
        batch.home = lane
        if lane.state == State.STOPPED:
            code, message = lane.stopped_by
            self._context.fail(batch, code, message, False)
            return
        lane.waiting.append(batch)
        due_ms = batch.created_ms + self._timeout_ms
        if due_ms < self._context.due_ms:
            self._context.due_ms = due_ms
        if not lane.is_ready:
            lane.is_ready = True
            self._ready.append(lane)

    def leaders(self, leaders: Mapping[Place, int | None], now_ms: int) -> None:
        for place, node_id in leaders.items():
            known = NO_LEADER if node_id is None or node_id < 0 else node_id
            self._leaders[place] = known
            lane = self._partitions.get(place)
            if lane is not None and known != lane.leader:
                if known not in (NO_LEADER, lane.failed_leader):
                    lane.not_before_ms = now_ms  # the backoff was meant for the old one
                lane.leader = known
                self._wake(lane)

    def granted(self, places: Iterable[Place], identity: Identity, expires_at_ms: int | None, now_ms: int) -> None:
        self._context.counters.identities += 1
        if expires_at_ms is None:
            self._everybody = identity
        for place in places:
            lane = self._partition(place)
            lane.is_asked = False
            tenure = Tenure(identity, 0, expires_at_ms, now_ms)
            if lane.tenure is None:
                lane.tenure = tenure
            elif tenure.is_leased:
                lane.renewed = tenure
            self._wake(lane)
        self._context.wake_at(now_ms)

    def not_granted(self, places: Iterable[Place], code: int, message: str | None, now_ms: int) -> None:
        for place in places:
            lane = self._partition(place)
            lane.is_asked = False
            if lane.tenure is None:
                lane.fail_waiting(code, message)
            else:  # the lease that is to be renewed goes on until its end
                lane.tenure.renew_at_ms = now_ms + self._limits.retry_backoff_max_ms
                self._context.wake_at(lane.tenure.renew_at_ms)

    def answered(self, request_id: int, answers: Sequence[Answer] | None, now_ms: int, *, throttle_ms: int = 0) -> None:
        node_id, batches = self._requests.pop(request_id)
        if throttle_ms > 0:
            self.throttled(node_id, now_ms + throttle_ms)
        if answers is None:
            for batch in batches:
                batch.home.stored(batch, -1, -1)
                self._wake(batch.home)
        elif len(batches) == 1 and len(answers) == 1 and answers[0][:2] == batches[0].home.place:
            lane = batches[0].home
            lane.answered(batches[0], answers[0], now_ms)
            if not lane.is_ready:
                lane.is_ready = True
                self._ready.append(lane)
        else:
            by_place = {(answer[0], answer[1]): answer for answer in answers}
            for batch in batches:
                lane = batch.home
                answer = by_place.get(lane.place)
                if answer is None:  # no broker does this; if one did, nothing would be known
                    answer = Answer(batch.topic, batch.partition, Code.REQUEST_TIMED_OUT)
                lane.answered(batch, answer, now_ms)
                self._wake(lane)

    def lost(self, request_id: int, now_ms: int, *, code: int = Code._TRANSPORT, was_sent: bool = True) -> None:
        self._context.counters.requests_lost += 1
        _, batches = self._requests.pop(request_id)
        for batch in batches:
            batch.home.lost(batch, code, was_sent, now_ms)
            self._want_metadata(batch.topic, now_ms)
            self._wake(batch.home)

    def looked_up(self, place: Place, found: Found | None, now_ms: int) -> None:
        lane = self._partitions[place]
        settling.looked_up(lane, found, now_ms)
        self._wake(lane)

    def resume(
        self,
        place: Place,
        identity: Identity,
        next_sequence: int,
        now_ms: int,
        *,
        expires_at_ms: int | None = None,
        next_offset: int = -1,
        is_shared: bool = False,
    ) -> None:
        """Go on where a saved producer stood. `is_shared`: other processes may fill the same slots with the same
        records, so none is ever moved, and the identity is never changed here."""
        lane = self._partition(place)
        if not lane.is_idle:
            raise ValueError(f"{place} has batches of its own already")
        lane.tenure = Tenure(identity, next_sequence, expires_at_ms, now_ms, is_shared=is_shared)
        lane.renewed = None
        lane.next_offset = lane.from_offset = next_offset
        lane.is_pinned = lane.is_pinned or is_shared
        self.is_shared = self.is_shared or is_shared
        lane.state = State.SENDING
        self._context.wake_at(now_ms)

    def pin(self, place: Place) -> None:
        """From now on the identity changes only in `boundary`: what was saved names what later records carry."""
        lane = self._partition(place)
        lane.is_pinned = True
        self._wake(lane)

    def has_renewal(self, place: Place) -> bool:
        """Whether the next `boundary` changes the lease."""
        lane = self._partitions.get(place)
        return lane is not None and lane.renewed is not None

    def throttled(self, node_id: int, until_ms: int) -> None:
        self._throttled[node_id] = max(until_ms, self._throttled.get(node_id, 0))
        self._context.wake_at(self._throttled[node_id])

    def give_up(self, now_ms: int, code: int, places: Iterable[Place] | None = None, *, in_flight: bool = True) -> None:
        """Reports everything as failed that was not sent yet, and with `in_flight` all the rest as well."""
        for lane in [self._partition(place) for place in places] if places is not None else self._partitions.values():
            lane.give_up(code, in_flight, now_ms)
            self._wake(lane)

    # Views

    def backlog(self, place: Place) -> int:
        lane = self._partitions.get(place)
        return len(lane.waiting) if lane is not None else 0

    @property
    def identity(self) -> Identity:
        """The one that serves all partitions, if there is one."""
        return self._everybody or NOBODY

    def standing(self, place: Place) -> Standing:
        lane = self._partitions.get(place)
        if lane is None:
            return Standing()
        tenure, waiting = lane.tenure, tuple(lane.waiting)
        return Standing(
            sum(batch.record_count for batch in waiting),
            sum(len(batch.data) for batch in waiting),
            sum(batch.record_count for batch in lane.open if batch.is_flying),
            0 if tenure is None else tenure.acknowledged,
            NOBODY if tenure is None else tenure.identity,
        )

    def boundary(self, place: Place) -> Boundary | None:
        """What is surely stored, where nothing is open. A pinned partition changes its lease here."""
        lane = self._partitions.get(place)
        if lane is None or not lane.is_idle or lane.state != State.SENDING:
            return None
        tenure = lane.adopt_renewed()
        if tenure is None:
            return None
        self._context.wake_at(tenure.renew_at_ms)  # a lease that begins here is to be renewed in its turn
        expires_at_ms = tenure.expires_at_ms if tenure.is_leased else None
        return Boundary(tenure.identity, tenure.acknowledged, lane.next_offset, expires_at_ms)

    def next_due_ms(self) -> int | None:
        return self._context.due_ms if self._context.due_ms < FOREVER_MS else None

    # What to do

    def tick(self, now_ms: int) -> None:
        """Looks at everything that has a time: timeouts, backoffs, leases."""
        context = self._context
        if now_ms < context.due_ms:
            return
        context.due_ms = FOREVER_MS
        self._throttled = {node: until for node, until in self._throttled.items() if until > now_ms}
        soonest_ms = min(self._throttled.values(), default=FOREVER_MS)
        renewals: list[Partition] = []
        for lane in self._partitions.values():
            if not lane.is_idle:
                lane.expire(now_ms)
                if lane.state == State.SETTLING and now_ms >= lane.settle_at_ms:
                    settling.look_up(lane, now_ms)
                self._wake(lane)
            if lane.is_due_for_renewal(now_ms):
                renewals.append(lane)
                lane.is_asked = True
            soonest_ms = lane.due_ms(now_ms, soonest_ms)
        self._ask_identity(renewals)
        context.wake_at(soonest_ms)

    def actions(self, now_ms: int) -> list[Action]:
        context = self._context
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
        for lane in ready:
            lane.is_ready = False
            if lane.tenure is None and self._is_nameless(lane, now_ms):
                nameless.append(lane)
            if lane.state or (not lane.waiting and lane.flying == len(lane.open)):
                continue
            if lane.leader == NO_LEADER:
                self._want_metadata(lane.place.topic, now_ms)
            elif now_ms < lane.not_before_ms:
                self._context.wake_at(lane.not_before_ms)
            elif lane.leader in self._throttled:
                self._context.wake_at(self._throttled[lane.leader])
            else:
                by_node.setdefault(lane.leader, []).append(lane)
        for node_id, lanes in by_node.items():
            self._fill_requests(node_id, lanes, now_ms)
            nameless += [lane for lane in lanes if lane.tenure is None and self._is_nameless(lane, now_ms)]
        self._ask_identity(nameless)

    def _fill_requests(self, node_id: int, lanes: list[Partition], now_ms: int) -> None:
        """One batch of each partition, then the next of each, since a request holds one batch of a partition."""
        limits = self._limits
        while lanes:
            more: list[Partition] = []
            batches: list[Batch] = []
            size_bytes = REQUEST_BYTES
            for lane in lanes:
                batch = lane.take(now_ms)
                if batch is None:
                    continue
                more.append(lane)
                batch_bytes = len(batch.data) + BATCH_BYTES
                if batches and (
                    size_bytes + batch_bytes > limits.max_request_bytes or len(batches) >= limits.max_request_batches
                ):
                    self._produce(node_id, batches)
                    batches, size_bytes = [], REQUEST_BYTES
                batches.append(batch)
                size_bytes += batch_bytes
            if batches:
                self._produce(node_id, batches)
            lanes = more

    def _produce(self, node_id: int, batches: list[Batch]) -> None:
        request_id = self._last_request_id = self._last_request_id + 1
        self._requests[request_id] = node_id, batches
        context = self._context
        context.counters.requests += 1
        context.counters.batches_sent += len(batches)
        context.actions.append(Produce(node_id, request_id, batches))

    def _is_nameless(self, lane: Partition, now_ms: int) -> bool:
        """Whether an identity must be asked for. Where one serves all partitions, it is taken."""
        if not lane.is_idempotent or lane.tenure is not None or lane.renewed is not None:
            return False
        if lane.state or not (lane.waiting or lane.is_pinned):
            return False
        if self._everybody is not None and self._everybody.pid != lane.spent_pid:
            lane.tenure = Tenure(self._everybody, 0, None, now_ms)
            self._wake(lane)
            return False
        if lane.is_asked:
            return False
        lane.is_asked = True
        return True

    def _ask_identity(self, lanes: list[Partition]) -> None:
        if lanes:
            self._context.actions.append(NeedIdentity([lane.place for lane in lanes]))

    def _want_metadata(self, topic: str, now_ms: int) -> None:
        """Asks, unless it was asked so short a time ago that the answer may be under way."""
        asked_ms = self._metadata_asked_ms.get(topic)
        pause_ms = max(self._limits.retry_backoff_ms, LEAST_PAUSE_MS)
        if asked_ms is None or now_ms - asked_ms >= pause_ms:
            self._metadata_asked_ms[topic] = asked_ms = now_ms
            self._context.actions.append(NeedMetadata([topic]))
        self._context.wake_at(asked_ms + pause_ms)

    def _wake(self, lane: Partition) -> None:
        if not lane.is_ready:
            lane.is_ready = True
            self._ready.append(lane)

    def _partition(self, place: Place) -> Partition:
        lane = self._partitions.get(place)
        if lane is None:
            lane = self._partitions[place] = Partition(place, self._context)
            lane.leader = self._leaders.get(place, NO_LEADER)
        return lane
