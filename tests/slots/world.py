"""A network between Senders and a simulated cluster, under one clock: events in a heap, faults drawn from the seed.

What may happen: latency of 1 to 10 ms a way; a connection is cut, and of what was on its way to the broker a prefix is
lost, dropped or still processed, long after the client has reconnected; an answer is swallowed until the request times
out; a broker is slow, or down; leaders move and cut their tails; metadata is stale; brokers refuse, before or after the
append; grants are slow; a fence's answer is lost. What cannot happen: one TCP stream delivers out of order, or twice.
"""

from collections.abc import Callable
from random import Random

from oncelog.error_codes import ErrorCodes as Code
from oncelog.records.build import build_batch
from oncelog.records.header import read_header
from oncelog.slots import Identity, Place
from oncelog.slots.batch import Batch
from oncelog.slots.messages import (
    Action,
    BatchAnswer,
    Delivered,
    Failed,
    Found,
    LookUp,
    NeedIdentity,
    NeedMetadata,
    Produce,
)
from oncelog.slots.sender import Sender
from tests.model.events import WALL_MS, Events
from tests.model.partition import Wire
from tests.slots.cluster import NODES, Cluster
from tests.slots.flavours import Flavour

REQUEST_TIMEOUT_MS = 600
CALM_MS = 400_000  # how long after the faults everything must be reported
BROKER_ERRORS = (
    (Code.NOT_ENOUGH_REPLICAS, False),
    (Code.NOT_LEADER_FOR_PARTITION, False),
    (Code.KAFKA_STORAGE_ERROR, False),
    (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    (Code.REQUEST_TIMED_OUT, True),
    (Code.UNKNOWN, True),
)

NewSender = Callable[[Flavour, Callable[[], float]], Sender]


class World(Events):
    def __init__(self, flavour: Flavour, seed: int, new_sender: NewSender) -> None:
        super().__init__(1_000)
        self.flavour = flavour
        self.rng = Random(seed)
        self.cluster = Cluster(flavour, self.rng, self.after)
        self.swallow_until = [0] * NODES
        self.reports_open = 0
        self.throttles = 0.05 if flavour.has_faults and self.rng.random() < 0.2 else 0.0
        self.clients = [Client(self, index, new_sender(flavour, self.rng.random)) for index in range(flavour.clients)]

    def latency_ms(self) -> int:
        return 1 + int(self.rng.random() * 10)

    def run(self) -> None:
        """Until everything is reported, or far longer than that can take."""
        self.run_until(self.now_ms + self.flavour.duration_ms + CALM_MS, lambda: not self.reports_open)
        # What was lost on its way and lives on must find its slots taken, also after the last report.
        self.run_until(self.now_ms + self.flavour.linger_ms + 2 * REQUEST_TIMEOUT_MS)


class Request:
    __slots__ = ("acks", "answers", "conn", "id", "is_dropped", "open", "wires")

    def __init__(self, conn: "Conn", request_id: int, wires: list[Wire], acks: int) -> None:
        self.conn = conn
        self.id = request_id
        self.wires = wires
        self.acks = acks
        self.answers: list[BatchAnswer] = []
        self.open = len(wires)
        self.is_dropped = False


class Conn:
    """One TCP connection. `arriving` is what has left the client and not yet reached the broker's hands."""

    def __init__(self, client: "Client", node: int) -> None:
        self.client = client
        self.node = node
        self.is_open = True
        self.outstanding: dict[int, Request] = {}
        self.arriving: list[Request] = []
        self._arrives_ms = 0
        self._replies_ms = 0

    def send(self, request: Request) -> None:
        world = self.client.world
        self.outstanding[request.id] = request
        self.arriving.append(request)
        self._arrives_ms = max(self._arrives_ms, world.now_ms + world.latency_ms())
        world.after(self._arrives_ms - world.now_ms, lambda: self._arrive(request))
        if world.flavour.has_faults:
            world.after(REQUEST_TIMEOUT_MS, lambda: self._time_out(request))

    def _arrive(self, request: Request, is_late: bool = False) -> None:
        world = self.client.world
        cluster = world.cluster
        if request.is_dropped or (not self.is_open and not is_late):
            return
        paused_ms = cluster.paused_until[self.node] - world.now_ms
        if paused_ms > 0:
            world.after(paused_ms, lambda: self._arrive(request, is_late))
            return
        if world.now_ms < cluster.down_until[self.node]:
            return
        if request in self.arriving:
            self.arriving.remove(request)
        for wire in request.wires:
            self._process(request, wire)

    def _process(self, request: Request, wire: Wire) -> None:
        world = self.client.world
        log = world.cluster.logs[wire.place]

        def respond(code: int, base_offset: int) -> None:
            request.answers.append(BatchAnswer(*wire.place, code, base_offset))
            request.open -= 1
            if not request.open:
                self._reply(request)

        if log.leader != self.node:
            respond(Code.NOT_LEADER_FOR_PARTITION, -1)
        else:
            log.produce(wire, request.acks, world.now, respond)

    def _reply(self, request: Request) -> None:
        world = self.client.world
        if not self.is_open or request.acks == 0 or world.now_ms < world.swallow_until[self.node]:
            return
        self._replies_ms = max(self._replies_ms, world.now_ms + world.latency_ms())
        world.after(self._replies_ms - world.now_ms, lambda: self._answered(request))

    def _answered(self, request: Request) -> None:
        if self.client.is_asleep(lambda: self._answered(request)):
            return
        if self.is_open and self.outstanding.pop(request.id, None) is not None:
            self.client.landed(request.wires)
            world = self.client.world
            throttle_ms = world.rng.randrange(1, 60) if world.rng.random() < world.throttles else 0
            self.client.sender.answered(request.id, request.answers, world.now_ms, throttle_ms=throttle_ms)
            self.client.pump()

    def _time_out(self, request: Request) -> None:
        if self.client.is_asleep(lambda: self._time_out(request)):
            return
        if request.id in self.outstanding:
            self.cut(Code._TIMED_OUT)

    def cut(self, code: int = Code._TRANSPORT) -> None:
        """A prefix of what was on its way is in the broker's hands already, and is processed whenever it gets to it."""
        if not self.is_open:
            return
        self.is_open = False
        world = self.client.world
        rng = world.rng
        survivors = rng.randrange(len(self.arriving) + 1)
        late_ms = rng.choice((1, 20, 60, 150, world.flavour.linger_ms - 100)) if survivors else 0
        for index, request in enumerate(self.arriving):
            if index < survivors:
                late_ms = min(late_ms + rng.randrange(3), world.flavour.linger_ms)
                world.after(late_ms, lambda request=request: self._arrive(request, True))  # type: ignore[misc]
            else:
                request.is_dropped = True
        self._lose(code)

    def _lose(self, code: int) -> None:
        if self.client.is_asleep(lambda: self._lose(code)):
            return
        lost, self.outstanding = self.outstanding, {}
        for request_id, request in lost.items():
            self.client.landed(request.wires)
            self.client.sender.lost(request_id, self.client.world.now_ms, code=code)
        self.client.pump()


class Client:
    """The engine's part: does what the Sender asks, badly at times, and writes down what it reports."""

    def __init__(self, world: World, index: int, sender: Sender) -> None:
        self.world = world
        self.sender = sender
        self.index = index
        self.conns: dict[int, Conn] = {}
        self.delivered: list[tuple[Delivered, int]] = []
        self.failed: list[Failed] = []
        self.expiry: dict[tuple[int, int], int] = {}
        self.sent: list[tuple[int, Wire]] = []
        self.violations: list[str] = []
        self.is_dead = False
        self.late: list[Wire] = []  # sent when nothing could look at a clock any more
        self._flying: dict[Place, int] = {}
        self._due_ms = 1 << 62
        self._asleep_until_ms = 0
        self._dozes_at = world.rng.randrange(1, 12) if world.flavour.doze_ms and index else 0  # which request
        sender.set_wall_clock(WALL_MS + world.now_ms, world.now_ms)

    def is_asleep(self, what: Callable[[], None]) -> bool:
        """Whether this process stands still; then it is done when it wakes up."""
        asleep_ms = self._asleep_until_ms - self.world.now_ms
        if asleep_ms > 0:
            self.world.after(asleep_ms, what)
        return asleep_ms > 0

    def add(self, place: Place, records: tuple[int, ...]) -> None:
        if self.is_asleep(lambda: self.add(place, records)):
            return
        world = self.world
        stamp_ms = WALL_MS + world.now_ms - world.flavour.record_age_ms
        data = build_batch([(None, b"", (), stamp_ms)] * len(records))
        self.sender.add(Batch(*place, data, len(records), world.now_ms, records), world.now_ms)
        self.pump()

    def pump(self) -> None:
        if self.is_dead or self.is_asleep(self.pump):
            return
        world, sender = self.world, self.sender
        actions = sender.actions(world.now_ms)
        while actions:
            for action in actions:
                self._do(action)
            actions = sender.actions(world.now_ms)
        due_ms = sender.next_due_ms()
        if due_ms is not None and (due_ms < self._due_ms or self._due_ms <= world.now_ms):
            self._due_ms = due_ms
            world.after(max(1, due_ms - world.now_ms), self.pump)

    def _do(self, action: Action) -> None:
        match action:
            case Produce():
                self._produce(action)
            case Delivered():
                self.delivered.append((action, self.world.now_ms))
                self.world.reports_open -= action.batch.record_count
            case Failed():
                self.failed.append(action)
                self.world.reports_open -= action.batch.record_count
            case NeedMetadata():
                self.world.after(2 * self.world.latency_ms(), self.learn_leaders)
            case NeedIdentity():
                self._identify(action)
            case LookUp():
                self._look_up(action, self._fence_of(action.identity))

    def _produce(self, action: Produce) -> None:
        world = self.world
        wires = [self._wire(batch) for batch in action.batches]
        if len({wire.place for wire in wires}) < len(wires):
            self.violations.append("two batches of one partition in one request")
        for wire in wires:
            self._flying[wire.place] = flying = self._flying.get(wire.place, 0) + 1
            if flying > world.flavour.limits.max_in_flight:
                self.violations.append(f"{flying} requests in flight for {wire.place}")
        self._dozes_at -= 1
        if self._dozes_at == 0:
            world.after(world.flavour.doze_ms, lambda: self._write(action, wires, is_late=world.flavour.dozes_in_write))
            self._asleep_until_ms = world.now_ms + world.flavour.doze_ms
        elif not self.is_asleep(lambda: self._write(action, wires)):
            self._write(action, wires)

    def _write(self, action: Produce, wires: list[Wire], *, is_late: bool = False) -> None:
        world, node = self.world, action.node_id
        conn = self.conns.get(node)
        is_open = conn is not None and conn.is_open
        if (not is_open and action.is_checked) or (world.now_ms >= action.until_ms and not is_late):
            if not is_open and world.now_ms >= world.cluster.down_until[node]:
                self.conns[node] = Conn(self, node)
            world.after(1, lambda: self._unchecked(action.request_id, wires))
            return
        if conn is None or not conn.is_open:
            if world.now_ms < world.cluster.down_until[node]:
                world.after(1, lambda: self._not_sent(action.request_id, wires))
                return
            conn = self.conns[node] = Conn(self, node)
        if is_late:
            self.late += wires
        conn.send(Request(conn, action.request_id, wires, world.flavour.limits.acks))

    def _unchecked(self, request_id: int, wires: list[Wire]) -> None:
        self.landed(wires)
        self.sender.unchecked(request_id, self.world.now_ms)
        self.pump()

    def landed(self, wires: list[Wire]) -> None:
        for wire in wires:
            self._flying[wire.place] -= 1

    def _not_sent(self, request_id: int, wires: list[Wire]) -> None:
        if self.is_asleep(lambda: self._not_sent(request_id, wires)):
            return
        self.landed(wires)
        self.sender.lost(request_id, self.world.now_ms, was_sent=False)
        self.pump()

    def _wire(self, batch: Batch) -> Wire:
        header = read_header(batch.data)
        assert isinstance(batch.payload, tuple)
        wire = Wire(
            batch.place,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            batch.payload,
            header.max_timestamp,
        )
        now_ms = self.world.now_ms
        if now_ms >= self.expiry.get((wire.pid, wire.generation), 1 << 62):
            self.violations.append(f"sent on a lease that ended: {wire}")
        self.sent.append((now_ms, wire))
        return wire

    def learn_leaders(self) -> None:
        if self.is_asleep(self.learn_leaders):
            return
        world = self.world
        stale = world.rng.random() < 0.2 and world.flavour.has_faults
        known: dict[Place, int | None] = {}
        for place, log in world.cluster.logs.items():
            known[place] = world.rng.choice((None, (log.leader + 1) % NODES)) if stale else log.leader
        self.sender.leaders(known, world.now_ms)
        self.pump()

    # Identities

    def _identify(self, action: NeedIdentity) -> None:
        asked_ms = self.world.now_ms
        is_slow = self.world.flavour.has_faults and self.world.rng.random() < 0.1
        delay_ms = 2 * self.world.latency_ms() + (self.world.rng.choice((100, 3_000)) if is_slow else 0)
        self.world.after(delay_ms, lambda: self._grant(action, asked_ms))

    def _grant(self, action: NeedIdentity, asked_ms: int) -> None:
        world = self.world
        if world.flavour.is_leased:
            lease = world.cluster.lease(world.now)
            ends_ms = asked_ms + lease.expire_ms
            identity = Identity(lease.pid, lease.generation, WALL_MS + ends_ms)
            self.expiry[lease.pid, lease.generation] = ends_ms
        else:
            identity = Identity(world.cluster.kafka_pid(), 0)
        self.sender.granted(action.places, identity, world.now_ms)
        self.pump()

    def _fence_of(self, identity: Identity) -> int:
        return (identity.generation + 1) % 32_768

    def _look_up(self, action: LookUp, fence_with: int) -> None:
        """Tried until it works. The answer of a fence may be lost; then the next one takes the next generation."""
        self.world.after(self.world.latency_ms(), lambda: self._ask(action, fence_with))

    def _ask(self, action: LookUp, fence_with: int) -> None:
        if self.is_asleep(lambda: self._ask(action, fence_with)):
            return
        world = self.world
        log = world.cluster.logs[action.place]
        found = None
        if world.now_ms >= max(world.cluster.down_until[log.leader], world.cluster.paused_until[log.leader]):
            found = log.look_up(action.identity, action.from_offset, action.must_fence, fence_with, world.now)
        if world.flavour.name == "impatient" and world.rng.random() < 0.05:
            self.sender.looked_up(action.place, None, world.now_ms)  # what was there may be gone by retention
            self.pump()
        elif found is None or (world.flavour.has_faults and world.rng.random() < 0.3):
            world.after(20, lambda: self._ask(action, (fence_with + 1) % 32_768))
        else:
            self._tell(action, found)

    def _tell(self, action: LookUp, found: Found) -> None:
        """A fence counts when it is below the high watermark; a new leader may have lost it before."""
        world = self.world
        log = world.cluster.logs[action.place]
        pid, generation, _ = action.identity
        if found.generation != generation:
            known = log.stored.highwater(pid, world.now)
            if known is None or known[0] != found.generation:
                self._look_up(action, (found.generation + 1) % 32_768)
                return
            if log.high_watermark < log.stored.end_offset:
                world.after(5, lambda: self._tell(action, found))
                return
            self.expiry[pid, found.generation] = self.expiry[pid, generation]
        self.sender.looked_up(action.place, found, world.now_ms)
        self.pump()
