"""Simulated brokers with the real rules (`tests.model.partition`); a leader may move and cut its tail.

Faults that live here: a new leader without what was not yet replicated; a request that is refused before the append, or
answered with an error after it; batches that are too large; stock Kafka's memory, which forgets a producer by the
timestamps of its records, and remembers five batches.
"""

from collections.abc import Callable
from random import Random

from oncelog.clock import ManualClock, Now
from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.decision import Decision
from oncelog.producers.leases import GrantHistory, Lease, lease_of
from oncelog.producers.producer_map import FIRST_KAFKA_PID
from oncelog.producers.sequences import is_newer_generation
from oncelog.slots import Identity, Place
from oncelog.slots.messages import Found
from tests.model.partition import Partition, Producers, Wire
from tests.producers.granting import Granting, Sequence
from tests.slots.flavours import Flavour

NODES = 3

Respond = Callable[[int, int], None]  # error code, base offset


class Log:
    def __init__(self, cluster: "Cluster", place: Place, leader: int) -> None:
        self.cluster = cluster
        self.place = place
        self.leader = leader
        self.stored = Partition(cluster.new_producers())
        self.high_watermark = 0
        self.too_large_records = 1 << 30
        self.error: tuple[int, int, bool] = (0, 0, False)  # until when, code, whether the batch is appended first
        self._replicating = 0
        self._waiting: list[tuple[int, int, Respond]] = []

    def produce(self, wire: Wire, acks: int, now: Now, respond: Respond) -> None:
        until_ms, code, appends_first = self.error
        is_failing = now.monotonic_ms < until_ms
        if is_failing and not appends_first:
            respond(code, -1)
            return
        if len(wire.records) > self.too_large_records:
            respond(Code.MSG_SIZE_TOO_LARGE, -1)
            return
        if any(record in self.cluster.poisoned for record in wire.records):
            respond(Code.INVALID_RECORD, -1)
            return
        refused, base_offset = self.stored.append(wire, now)
        self._replicate()
        if refused:
            respond(refused, -1)
        elif is_failing:
            respond(code, -1)
        elif acks == -1 and self.high_watermark < self.stored.end_offset:
            self._waiting.append((self.stored.end_offset, base_offset, respond))
        else:
            respond(0, base_offset)

    def _replicate(self) -> None:
        if self._replicating < self.stored.end_offset:
            self._replicating = self.stored.end_offset
            self.cluster.replicate(self, self._replicating)

    def replicated(self, offset: int) -> None:
        if offset > self.stored.end_offset:
            return  # it was cut meanwhile
        self.high_watermark = max(self.high_watermark, offset)
        waiting, self._waiting = self._waiting, []
        for end_offset, base_offset, respond in waiting:
            if end_offset <= self.high_watermark:
                respond(0, base_offset)
            else:
                self._waiting.append((end_offset, base_offset, respond))

    def move(self, leader: int, keeps_all: bool, now: Now) -> None:
        """Another replica leads. It may lack what was not replicated, and its producers are made from its log."""
        self.leader = leader
        waiting, self._waiting = self._waiting, []
        for _, _, respond in waiting:
            respond(Code.NOT_LEADER_FOR_PARTITION, -1)
        end_offset = self.stored.end_offset if keeps_all else self.high_watermark
        self.stored.taken_over(end_offset, self.cluster.new_producers(), now)
        self.high_watermark = self._replicating = self.stored.end_offset

    def look_up(
        self, identity: Identity, from_offset: int, must_fence: bool, fence_with: int, now: Now
    ) -> Found | None:
        """What an engine does for a LookUp, in one step. None: not now, something is not replicated yet."""
        if self.high_watermark < self.stored.end_offset:
            return None
        pid, generation, _ = identity
        if must_fence:
            known = self.stored.highwater(pid, now)
            if known is not None and not is_newer_generation(known[0], fence_with):
                fence_with = (known[0] + 1) % 32_768
            if self.stored.producers.of(pid, now).judge_fence(pid, fence_with, now) is Decision.APPEND:
                self.stored.store(Wire(self.place, pid, fence_with, -1, (), -1), now)
                self._replicate()
                generation = fence_with
                if known is not None:
                    return Found(known[1], generation, self.stored.spans(pid))
                return Found(-1, generation)
        spans = self.stored.spans(pid, from_offset, None if must_fence else generation)
        return Found(spans[-1].last_sequence if spans else -1, generation, spans)


class Cluster:
    def __init__(self, flavour: Flavour, rng: Random, after: "Callable[[int, Callable[[], None]], None]") -> None:
        self.flavour = flavour
        self.rng = rng
        self._after = after
        self._kafka_pid = FIRST_KAFKA_PID
        self._clock = ManualClock()
        self._granting = Granting(Sequence(), self._clock, GrantHistory(flavour.lifetime_ms))
        self.poisoned: set[int] = set()
        self.replication_ms = rng.choice((0, 0, 5, 30))
        self.down_until = [0] * NODES
        self.paused_until = [0] * NODES
        places = [Place("t", index) for index in range(flavour.partitions)]
        self.logs = {place: Log(self, place, rng.randrange(NODES)) for place in places}

    def new_producers(self) -> Producers:
        return Producers(self._granting, self.flavour.lifetime_ms, self.flavour.forget_after_ms)

    def lease(self, now: Now) -> Lease:
        self._clock.advance(now.monotonic_ms - self._clock.now().monotonic_ms)
        return lease_of(self._granting.grant(), self.flavour.lifetime_ms, self.rng)

    def kafka_pid(self) -> int:
        self._kafka_pid += 1
        return self._kafka_pid - 1

    def replicate(self, log: Log, end_offset: int) -> None:
        if self.replication_ms == 0:
            log.replicated(end_offset)
        else:
            self._after(self.rng.randrange(1, self.replication_ms + 1), lambda: log.replicated(end_offset))
