"""One history by its seed: what is produced when, what goes wrong when, and which promises were broken."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.sequences import sequence_after
from oncelog.slots import Identity, Place
from oncelog.slots.messages import Failed
from oncelog.slots.sender import Sender
from tests.model.partition import Wire
from tests.slots.cluster import NODES, Log
from tests.slots.flavours import Flavour, flavour_of
from tests.slots.world import BROKER_ERRORS, Client, NewSender, World


def real_sender(flavour: Flavour, random: Callable[[], float]) -> Sender:
    return Sender(flavour.limits, random)


def tell(
    seed: int, new_sender: NewSender = real_sender, *, name: str | None = None, flavour: Flavour | None = None
) -> "History":
    history = History(flavour or flavour_of(seed, name), seed, new_sender)
    history.world.run()
    return history


class History:
    def __init__(self, flavour: Flavour, seed: int, new_sender: NewSender) -> None:
        self.flavour = flavour
        self.world = World(flavour, seed, new_sender)
        self._rng = Random(seed ^ 0x5EED)
        self.may_fail = (
            flavour.limits.delivery_timeout_ms < 10_000 or flavour.limits.retries < 1_000 or flavour.is_pinned
        )
        self.planned: dict[Place, list[int]] = {place: [] for place in self.world.cluster.logs}
        self._begin()
        self._plan_work()
        if flavour.has_faults:
            self._plan_faults()

    def _at(self, at_ms: int, what: Callable[[], None]) -> None:
        self.world.after(at_ms, what)

    def _begin(self) -> None:
        world, flavour = self.world, self.flavour
        is_shared = flavour.clients > 1
        saved = Identity(world.cluster.kafka_pid(), 0) if is_shared or flavour.first_sequence else None
        for client in world.clients:
            for place in world.cluster.logs:
                if saved is not None:
                    first = flavour.first_sequence % 2**31
                    client.sender.resume(place, saved, first, world.now_ms, is_shared=is_shared)
                if flavour.is_pinned:
                    client.sender.pin(place)
            client.learn_leaders()
        if flavour.is_pinned:
            for at_ms in range(0, flavour.duration_ms + 5_000, 150):
                self._at(at_ms, self._save)

    def _save(self) -> None:
        for client in self.world.clients:
            for place in self.world.cluster.logs:
                client.sender.boundary(place)
            client.pump()

    def _plan_work(self) -> None:
        """All clients send the same records; how these are cut into batches is up to each."""
        rng, flavour = self._rng, self.flavour
        for index, place in enumerate(self.planned):
            times = sorted(rng.randrange(flavour.duration_ms) for _ in range(flavour.batches))
            sizes = [rng.choice((1, 1, 2, 3, 6)) for _ in times]
            records = list(range(index * 1_000_000, index * 1_000_000 + sum(sizes)))
            self.planned[place] = records
            for client in self.world.clients:
                at = 0
                awake = rng.randrange(len(times)) if flavour.sleep_ms and client.index else len(times)
                for number, (at_ms, size) in enumerate(zip(times, sizes, strict=True)):
                    if number >= awake:
                        at_ms += flavour.sleep_ms
                    if flavour.clients > 1:
                        size = rng.randrange(1, 5)
                    self._plan_batch(client, at_ms, place, tuple(records[at : at + size]))
                    at += size
                end_ms = flavour.duration_ms + (flavour.sleep_ms if client.index else 0)
                self._plan_batch(client, end_ms, place, tuple(records[at:]))

    def _plan_batch(self, client: Client, at_ms: int, place: Place, records: tuple[int, ...]) -> None:
        if records:
            self.world.reports_open += len(records)
            self._at(at_ms, lambda: client.add(place, records))

    # What goes wrong

    def _plan_faults(self) -> None:
        rng = self._rng
        kinds = [self._cut, self._cut, self._cut_all, self._move, self._pause, self._swallow, self._go_down]
        kinds += [self._refuse, self._refuse]
        is_impatient = self.flavour.name == "impatient"
        if is_impatient:
            kinds += [self._hold_up, self._hold_up]
        if rng.random() < (0.4 if is_impatient else 0.15) and self.flavour.clients == 1:
            kinds += [self._too_large, self._poison]
        for _ in range(rng.choice((5, 10, 20) if is_impatient else (0, 2, 5, 12))):
            self._at(rng.randrange(self.flavour.duration_ms), rng.choice(kinds))
        if self.flavour.name in ("forgetful", "old records"):
            kinds += [self._refuse_long, self._refuse_long]
            self._at(rng.randrange(self.flavour.duration_ms), self._refuse_long)
        if self._poison in kinds:
            self.may_fail = True

    def _cut(self) -> None:
        client = self._rng.choice(self.world.clients)
        conns = [conn for conn in client.conns.values() if conn.is_open]
        if conns:
            self._rng.choice(conns).cut()

    def _cut_all(self) -> None:
        for client in self.world.clients:
            for conn in list(client.conns.values()):
                conn.cut()

    def _hold_up(self) -> None:
        """Requests pile up before slow brokers, are cut off, and live on while what follows them is refused."""
        held_ms = self._rng.choice((30, 150))
        self.world.cluster.paused_until = [self.world.now_ms + held_ms] * NODES
        self._at(held_ms - 1, self._cut_all)
        self._at(held_ms, lambda: self._refuse_everywhere(self._rng.choice((20, 150, 690)), Code.NOT_ENOUGH_REPLICAS))

    def _refuse_everywhere(self, for_ms: int, code: int) -> None:
        for log in self.world.cluster.logs.values():
            log.error = self.world.now_ms + for_ms, code, False

    def _move(self) -> None:
        rng = self._rng
        log = rng.choice(list(self.world.cluster.logs.values()))
        log.move(rng.randrange(NODES), rng.random() < 0.5, self.world.now)

    def _pause(self) -> None:
        node = self._rng.randrange(NODES)
        longest_ms = 3_000 if self.flavour.is_leased else 700
        self.world.cluster.paused_until[node] = self.world.now_ms + self._rng.randrange(longest_ms)

    def _swallow(self) -> None:
        node = self._rng.randrange(NODES)
        self.world.swallow_until[node] = self.world.now_ms + self._rng.choice((20, 300, 1_500))

    def _go_down(self) -> None:
        """The broker and its connections; its partitions are led by others soon."""
        world, node = self.world, self._rng.randrange(NODES)
        world.cluster.down_until[node] = world.now_ms + self._rng.choice((50, 1_000))
        for client in world.clients:
            conn = client.conns.get(node)
            if conn is not None:
                conn.cut()
        for log in world.cluster.logs.values():
            if log.leader == node and self._rng.random() < 0.7:
                log.move((node + 1) % NODES, self._rng.random() < 0.5, world.now)

    def _refuse(self) -> None:
        rng = self._rng
        log = rng.choice(list(self.world.cluster.logs.values()))
        code, appends_first = rng.choice(BROKER_ERRORS)
        if code == -1:
            self.may_fail = True
        log.error = self.world.now_ms + rng.choice((5, 60, 400)), code, appends_first

    def _refuse_long(self) -> None:
        """Stores without an answer, and then refuses for long enough to forget who wrote."""
        world = self.world
        world.swallow_until = [world.now_ms + self._rng.choice((30, 200))] * NODES
        for_ms = self.flavour.forget_after_ms + 700
        self._at(
            world.swallow_until[0] - world.now_ms, lambda: self._refuse_everywhere(for_ms, Code.NOT_ENOUGH_REPLICAS)
        )

    def _too_large(self) -> None:
        log = self._rng.choice(list(self.world.cluster.logs.values()))
        log.too_large_records = self._rng.choice((1, 2, 0))

    def _poison(self) -> None:
        self.world.cluster.poisoned.add(self._rng.choice(self._rng.choice(list(self.planned.values()))))

    # Which promises were broken

    def broken(self) -> list[str]:
        return list(self._broken())

    def _broken(self) -> Iterator[str]:
        for client in self.world.clients:
            yield from client.violations
            yield from self._reports(client)
        for place, log in self.world.cluster.logs.items():
            records = log.stored.records(without=self._doubled(log))
            if self.flavour.is_idempotent:
                yield from (f"duplicate: {record}" for record, times in Counter(records).items() if times > 1)
                yield from (f"reorder: {one} before {other}" for one, other in pairwise(records) if one > other)
                if self.flavour.clients == 1:
                    yield from self._boundary(place)

    def _reports(self, client: Client) -> Iterator[str]:
        reported = Counter(
            record for report, _ in client.delivered for record in _records(report.batch.payload)
        ) + Counter(record for report in client.failed for record in _records(report.batch.payload))
        planned = [record for records in self.planned.values() for record in records]
        yield from (f"{record} was reported {reported[record]} times" for record in planned if reported[record] != 1)
        where = {place: log.stored.offsets() for place, log in self.world.cluster.logs.items()}
        for report, _ in client.delivered:
            offsets = where[report.batch.place]
            for index, record in enumerate(_records(report.batch.payload)):
                if record not in offsets:
                    yield f"gap: {record} was reported stored and is not"
                elif report.base_offset >= 0 and report.base_offset + index not in offsets[record]:
                    yield f"{record} was reported at {report.base_offset + index}, and lies at {offsets[record]}"
        if self.flavour.clients == 1:
            for failure in client.failed:
                offsets = where[failure.batch.place]
                for record in _records(failure.batch.payload):
                    if not failure.maybe_stored and record in offsets:
                        yield f"{record} was reported not stored, and is"
        if client.failed and not self.may_fail and not self._said_twice(client):
            yield f"failed without need: {client.failed[0]}"

    def _doubled(self, log: Log) -> list[Wire]:
        """What no look at a clock could stop: what stands there a second time of one request, if that was said."""
        late = [wire for client in self.world.clients for wire in client.late if any(self._said_twice(client))]
        records = Counter(log.stored.records())
        return [wire for wire in late if wire.place == log.place and all(records[each] == 2 for each in wire.records)]

    def _said_twice(self, client: Client) -> list[Failed]:
        return [each for each in client.failed if "stand twice" in (each.message or "")]

    def _boundary(self, place: Place) -> Iterator[str]:
        sender, log = self.world.clients[0].sender, self.world.cluster.logs[place]
        boundary = sender.boundary(place)
        if boundary is None:
            return
        own = [
            stored
            for stored in log.stored.batches
            if stored.wire.records and (stored.wire.pid, stored.wire.generation) == boundary.identity[:2]
        ]
        if own:
            wire = own[-1].wire
            due = sequence_after(wire.first_sequence, len(wire.records))
            if boundary.next_sequence != due:
                yield f"the boundary says {boundary.next_sequence} where {due} is next"
            if boundary.next_offset >= 0 and boundary.next_offset > own[-1].end_offset:
                yield f"the boundary says offset {boundary.next_offset}, the log {own[-1].end_offset}"


def _records(payload: object) -> tuple[int, ...]:
    assert isinstance(payload, tuple)
    return payload
