"""Who writes to a cluster in memory, and who reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.log.partition import End
from oncelog.producers import Decision
from oncelog.records.header import read_header
from tests.log.support import batch
from tests.replication.promises import Violation

if TYPE_CHECKING:
    from tests.replication.cluster import Broker, Cluster


@dataclass
class Producer:
    """Sends one batch at a time, again and again until it is answered, to whoever leads as far as it knows."""

    cluster: "Cluster"
    pid: int
    generation: int = 0
    sequence: int = 0
    count: int = 1
    believes: int = 0
    epoch: int = -1
    is_fencing: bool = False
    attempt: int = 0

    def next(self) -> None:
        chance = self.cluster.chance
        self.attempt += 1
        self.count = chance.randrange(1, 4)
        self.is_fencing = chance.random() < self.cluster.chances.fences
        if self.cluster.now.monotonic_ms < self.cluster.chances.duration_ms:
            self.cluster.later(chance.randrange(1, self.cluster.chances.pace_ms), self.send)
        else:
            self.cluster.finished += 1

    def send(self) -> None:
        cluster = self.cluster
        self.attempt += 1
        attempt = self.attempt
        cluster.later(cluster.chances.patience_ms, lambda: self.again(attempt))
        broker = cluster.brokers[self.believes]
        cluster.send(-1, broker, lambda: self.served(broker, attempt))

    def again(self, attempt: int) -> None:
        if attempt == self.attempt:
            self.believes = self.cluster.chance.randrange(len(self.cluster.brokers))
            self.send()

    def served(self, broker: "Broker", attempt: int) -> None:
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
        if not replica.leader.has_enough:
            return
        log = broker.log
        if self.is_fencing:
            fenced = log.fence(self.pid, self.generation + 1, cluster.now)
            replica.move_high_watermark()
            if fenced.decision is Decision.FENCED:
                # An earlier attempt did it: what is told is true once that is safe.
                end, last = log.end, fenced.last_sequence
                self.wait(broker, end, lambda: self.fenced(attempt, fenced.generation, last))
            elif fenced.decision is Decision.APPEND:
                end = End(fenced.offset + 1, fenced.epoch)
                self.wait(broker, end, lambda: self.fenced(attempt, fenced.generation, fenced.last_sequence))
            else:
                raise Violation(f"a fence of pid {self.pid} was answered {fenced.decision}")
            return
        sent = batch(
            *(b"%d" % (self.sequence + at) for at in range(self.count)),
            pid=self.pid,
            generation=self.generation,
            sequence=self.sequence,
        )
        staged = log.append(sent, read_header(sent), cluster.now)
        replica.move_high_watermark()
        if attempt != self.attempt:
            broker.settle()
            return
        if staged.decision not in (Decision.APPEND, Decision.DUPLICATE):
            raise Violation(f"sequence {self.sequence} of pid {self.pid} was answered {staged.decision}")
        sequence, count = self.sequence, self.count
        self.wait(broker, staged.end, lambda: self.stored(attempt, sequence, count, staged.base_offset))

    def wait(self, broker: "Broker", end: End, safe: Callable[[], None]) -> None:
        cluster = self.cluster

        def settled(is_safe: bool) -> None:
            if is_safe and broker.replica is not None and broker.leads():
                cluster.later(cluster.delay(), safe)

        broker.answers.append((end, settled))
        broker.settle()

    def stored(self, attempt: int, sequence: int, count: int, offset: int) -> None:
        if attempt == self.attempt:
            self.cluster.promises.acknowledged(self.pid, sequence, count, offset)
            self.sequence += count
            self.next()

    def fenced(self, attempt: int, generation: int, last_sequence: int) -> None:
        if attempt == self.attempt:
            if last_sequence + 1 != self.sequence and (last_sequence, self.sequence) != (-1, 0):
                raise Violation(f"a fence of pid {self.pid} tells {last_sequence}, {self.sequence} comes next")
            self.cluster.promises.fenced(self.pid, generation)
            self.generation = generation
            self.next()
