"""Who writes to a cluster in memory, and who reads it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Staged
from oncelog.producers import Decision
from oncelog.producers.sequences import GENERATIONS
from oncelog.records.header import read_header
from tests.log.support import batch
from tests.replication.promises import Violation, stood_in

if TYPE_CHECKING:
    from tests.replication.broker import Broker
    from tests.replication.cluster import Cluster


class Sent(NamedTuple):
    pid: int
    generation: int
    sequence: int
    records: int

    def append(self, broker: "Broker") -> Staged:
        made = batch(
            *(b"%d" % (self.sequence + at) for at in range(self.records)),
            pid=self.pid,
            generation=self.generation,
            sequence=self.sequence,
        )
        staged = broker.log.append(made, read_header(made), broker.cluster.now)
        assert broker.replica is not None
        broker.replica.move_high_watermark()
        return staged


@dataclass
class Producer:
    """Leases a pid, and sends one batch at a time, again and again until it is answered, to whoever leads as far as it
    knows. Some of what it sends arrives a second time, much later."""

    cluster: "Cluster"
    pid: int = 0  # 0: it has no lease
    leased_ms: float = 0
    generation: int = 0
    sequence: int = 0
    count: int = 1
    believes: int = 0
    epoch: int = -1
    is_fencing: bool = False
    attempt: int = 0

    @property
    def age_ms(self) -> float:
        return self.cluster.now.monotonic_ms - self.leased_ms

    def next(self) -> None:
        chance, chances = self.cluster.chance, self.cluster.chances
        self.attempt += 1
        self.count = chance.randrange(1, 4)
        if self.age_ms > chances.lifetime_ms * 23 / 24:
            self.pid = 0
        self.is_fencing = self.pid > 0 and chance.random() < chances.fences
        if self.cluster.now.monotonic_ms < chances.duration_ms:
            self.cluster.later(chance.randrange(1, chances.pace_ms), self.send)
        else:
            self.cluster.finished += 1

    def send(self) -> None:
        cluster = self.cluster
        self.attempt += 1
        attempt, sent_ms = self.attempt, cluster.now.monotonic_ms
        cluster.later(cluster.chances.patience_ms, lambda: self.again(attempt))
        broker = cluster.brokers[self.believes]
        sent, serve = Sent(self.pid, self.generation, self.sequence, self.count), self.put
        if self.is_fencing:
            serve = self.fence
        if self.pid:
            cluster.send(-1, broker, lambda: self.served(broker, attempt, sent, serve))
        else:
            cluster.send(-1, broker, lambda: self.granted(broker, attempt, sent_ms))

    def again(self, attempt: int) -> None:
        if attempt == self.attempt:
            self.believes = self.cluster.chance.randrange(len(self.cluster.brokers))
            self.send()

    def granted(self, broker: "Broker", attempt: int, sent_ms: float) -> None:
        cluster = self.cluster
        pid = broker.stock.take(cluster.now.monotonic_ms)
        if pid is None:
            cluster.later(cluster.delay(), lambda: self.again(attempt))
            return
        cluster.promises.granted(pid)
        generation = cluster.chance.randrange(GENERATIONS)

        def leased() -> None:
            if attempt == self.attempt:
                self.pid, self.generation, self.sequence, self.leased_ms = pid, generation, 0, sent_ms
                self.is_fencing = False
                self.send()

        cluster.later(cluster.delay(), leased)

    def served(self, broker: "Broker", attempt: int, sent: Sent, serve: "Callable[[Broker, int, Sent], None]") -> None:
        """At the broker, as a server does it."""
        replica, cluster = broker.replica, self.cluster
        if attempt != self.attempt and cluster.chance.random() < 0.5:
            return
        assert replica is not None
        if replica.leader is None or broker.log.leader_epoch < self.epoch:
            # Clients know the epoch of a leader from its metadata, and do not go back to an earlier one.
            cluster.later(cluster.delay(), lambda: self.again(attempt))
            return
        self.epoch = broker.log.leader_epoch
        if replica.leader.has_enough and broker.log.offline is None:
            with suppress(LogStorageError):  # its disk is full
                serve(broker, attempt, sent)

    def put(self, broker: "Broker", attempt: int, sent: Sent) -> None:
        cluster, staged = self.cluster, sent.append(broker)
        if cluster.chance.random() < cluster.chances.echoes:
            cluster.later(self.echo_ms(sent), lambda: self.echo(sent))
        if attempt != self.attempt:
            broker.settle()
        elif staged.decision is Decision.UNKNOWN_PRODUCER:
            self.unknown(attempt)
        elif staged.decision in (Decision.APPEND, Decision.DUPLICATE):
            self.wait(broker, staged.end, lambda: self.stored(attempt, sent, staged.base_offset))
        else:
            raise Violation(f"{sent} was answered {staged.decision}")

    def fence(self, broker: "Broker", attempt: int, sent: Sent) -> None:
        fenced = broker.log.fence(sent.pid, (sent.generation + 1) % GENERATIONS, self.cluster.now)
        assert broker.replica is not None
        broker.replica.move_high_watermark()
        if fenced.decision is Decision.FENCED:
            # An earlier attempt did it: what is told is true once that is safe.
            self.wait(broker, broker.log.end, lambda: self.fenced(attempt, fenced.generation, fenced.last_sequence))
        elif fenced.decision is Decision.APPEND:
            end = End(fenced.offset + 1, fenced.epoch)
            self.wait(broker, end, lambda: self.fenced(attempt, fenced.generation, fenced.last_sequence))
        elif fenced.decision is Decision.UNKNOWN_PRODUCER:
            self.unknown(attempt)
        else:
            raise Violation(f"a fence of pid {sent.pid} was answered {fenced.decision}")

    def unknown(self, attempt: int) -> None:
        """The broker has not read of the pid yet, or the lease is long over."""
        if attempt != self.attempt:
            return
        if self.sequence and self.age_ms < 2 * self.cluster.chances.lifetime_ms:
            raise Violation(f"pid {self.pid} is unknown at sequence {self.sequence}, {self.age_ms} ms after its grant")
        self.pid = 0
        self.cluster.later(self.cluster.delay(), lambda: self.again(attempt))

    def echo_ms(self, sent: Sent) -> float:
        """The first batch of a pid when it may have been forgotten, others sooner."""
        lifetime_ms, chance = self.cluster.chances.lifetime_ms, self.cluster.chance
        return 2 * lifetime_ms + chance.randrange(500) if sent.sequence == 0 else chance.randrange(lifetime_ms)

    def echo(self, sent: Sent) -> None:
        for broker in self.cluster.brokers:
            if broker.leads() and not broker.is_paused and broker.log.offline is None:
                with suppress(LogStorageError):
                    sent.append(broker)
                broker.settle()

    def wait(self, broker: "Broker", end: End, safe: Callable[[], None]) -> None:
        cluster = self.cluster

        def settled(is_safe: bool) -> None:
            if is_safe and broker.replica is not None and broker.leads():
                cluster.later(cluster.delay(), safe)

        broker.answers.append((end, settled))
        broker.settle()

    def stored(self, attempt: int, sent: Sent, offset: int) -> None:
        if attempt == self.attempt:
            self.cluster.promises.acknowledged(sent.pid, sent.sequence, sent.records, offset)
            self.sequence += sent.records
            self.next()

    def fenced(self, attempt: int, generation: int, last_sequence: int) -> None:
        if attempt == self.attempt:
            if last_sequence < 0 < self.sequence:
                # By a follower that had forgotten the pid when an earlier attempt's fence came, after it was cut off.
                self.unknown(attempt)
                return
            if last_sequence + 1 != self.sequence:
                raise Violation(f"a fence of pid {self.pid} tells {last_sequence}, {self.sequence} comes next")
            self.cluster.promises.fenced(self.pid, generation)
            self.generation = generation
            self.next()


@dataclass
class Consumer:
    """Reads what is safe, from whoever leads, and goes on where it was."""

    cluster: "Cluster"
    position: int = 0
    epoch: int = -1

    def read(self) -> None:
        cluster = self.cluster
        cluster.later(cluster.chance.randrange(1, 300), self.read)
        broker = cluster.chance.choice(cluster.brokers)
        cluster.send(-1, broker, lambda: self.served(broker))

    def served(self, broker: "Broker") -> None:
        assert broker.replica is not None
        leader, log, promises = broker.replica.leader, broker.log, self.cluster.promises
        if leader is None or log.leader_epoch < self.epoch:
            return
        self.epoch = log.leader_epoch
        promises.shown(log)
        # Before it is as far as its epoch began, a leader answers OFFSET_NOT_AVAILABLE to who asks for the end.
        end = log.high_watermark if log.high_watermark >= leader.epoch_start else log.next_offset
        if self.position > end:
            raise Violation(f"broker {broker.number} ends at {end}, and what is before {self.position} was read")
        self.position = max(self.position, log.log_start_offset)
        if self.position < log.high_watermark:
            promises.read(stood_in(log, self.position, log.high_watermark))
            self.position = log.high_watermark
