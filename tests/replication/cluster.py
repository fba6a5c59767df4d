"""A cluster in memory: real logs on disks of memory, the machines of `oncelog.replication`, and a tree, on one clock.

Every delay, loss, cut, pause, kill and power failure is drawn from one seed. `Cluster.run` goes through a history and
raises `Violation` at the moment when something is not as promised:

- what was acknowledged, and whatever a reader could see, stands at its offset under every later leader;
- there is one leader an epoch; each slot stands once and in order, also of a batch that comes again after two lifetimes
  of its lease; after an answered fence no older generation follows; no pid is granted twice;
- a reader finds no other records where it was before, and no end before it;
- a broker whose disk is full gives way to another once, and again only after something has happened;
- some time after the last fault every replica is in sync and every producer has got its answers.
"""

import heapq
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from oncelog.clock import Now
from oncelog.replication.leadership import Leadership, Peer, first, reassigned, resigned
from oncelog.replication.replica import Replica
from tests.log.memory_disk import ENOUGH_BYTES, MemoryDisk
from tests.log.support import START_MS
from tests.replication.broker import Broker
from tests.replication.chances import Chances
from tests.replication.clients import Consumer, Producer
from tests.replication.promises import Promises, Violation, stood_in
from tests.replication.tree import Tree

SESSION_MS = 600
QUIET_MS = 12_000


class Cluster:
    def __init__(self, seed: int, chances: Chances | None = None, kind: type[Replica] = Replica) -> None:
        self.seed = seed
        self.chances = chances or Chances()
        self.kind = kind
        self.chance = random.Random(seed)
        self._ms = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.tree = Tree(first(range(self.chances.brokers)))
        self.cuts: set[tuple[int, int]] = set()
        self.cut_from_tree: set[int] = set()
        self.promises = Promises()
        self.finished = 0
        self.told: list[str] = []
        self.brokers = [Broker(number, self) for number in range(self.chances.brokers)]
        for broker in self.brokers:
            broker.start()
        self.producers = [Producer(self) for _ in range(self.chances.producers)]
        Consumer(self).read()
        for producer in self.producers:
            producer.next()
        self.later(self.chance.expovariate(1 / self.chances.fault_ms), self.fault)
        if self.chances.moves:
            self.move()

    # Time

    @property
    def now(self) -> Now:
        return Now(START_MS + int(self._ms), int(self._ms))

    def later(self, delay_ms: float, work: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._ms + delay_ms, self._number, work))

    def delay(self) -> float:
        return self.chance.uniform(1, 8) * (20 if self.chance.random() < 0.01 else 1)

    def tell(self, what: str) -> None:
        self.told.append(f"{self._ms:8.0f}  {what}")

    def run(self) -> None:
        end_ms = self.chances.duration_ms + QUIET_MS + 4 * self.chances.patience_ms
        try:
            while self._events and self._ms < end_ms and not self._is_over():
                self._ms, _, work = heapq.heappop(self._events)
                work()
            if not self._is_over():
                state = self.tree.state
                raise Violation(f"{self.finished} producers finished, and the leadership is {state}")
            self.check_end()
        except Violation as violation:
            raise Violation(f"seed {self.seed}: {violation}\n" + "\n".join(self.told[-60:])) from violation

    def _is_over(self) -> bool:
        if self.finished < len(self.producers) or self._ms < self.chances.duration_ms:
            return False
        ends = {broker.log.next_offset for broker in self.brokers if broker.is_up}
        return (
            len(self.tree.state.in_sync) == len(self.brokers) and len(ends) == 1 and all(b.is_up for b in self.brokers)
        )

    # Messages

    def send(self, sender: int, to: Broker, work: Callable[[], None]) -> None:
        is_lost = self._ms < self.chances.duration_ms and self.chance.random() < self.chances.lost_messages
        if (sender, to.number) in self.cuts or is_lost:
            return
        to.later(self.delay(), work)

    def reaches_tree(self, broker: int) -> bool:
        return broker not in self.cut_from_tree

    def tell_all(self) -> None:
        """Watches: each broker learns of it sometime, and maybe of an older state after a newer one."""
        number, state, peers = self._number, self.tree.state, dict(self.tree.peers)
        if not self.told or str(state) not in self.told[-1]:
            self.tell(f"tree: {state} {peers}")
        for broker in self.brokers:
            if broker.is_up and self.reaches_tree(broker.number):
                broker.later(self.delay(), partial(self._seen, broker, number, state, peers))

    def _seen(self, broker: Broker, number: int, state: Leadership, peers: dict[int, Peer]) -> None:
        if self.reaches_tree(broker.number):
            if number > broker.peers_seen:  # one session's reads of one node come in order
                broker.peers_seen, broker.peers = number, peers
            broker.see(state)

    def move(self) -> None:
        """By a person, who is as fast as anybody; in the end all brokers are replicas."""
        is_last = self._ms >= self.chances.duration_ms - 1_000
        numbers = [broker.number for broker in self.brokers]
        count = len(numbers) if is_last else self.chance.randint(2, len(numbers))
        target = None if not is_last and self.chance.random() < 0.2 else self.chance.sample(numbers, count)
        is_done = False
        if not is_last and self.chance.random() < 0.3:
            self.tree.state = resigned(self.tree.state)
            self.tell_all()
        with suppress(ValueError):
            moved = reassigned(self.tree.state, target, self.chances.min_in_sync)
            if not self._is_anybody_whole(moved):
                raise ValueError
            self.tree.state = moved
            self.tell(f"moved to {target}")
            self.tell_all()
            is_done = is_last
        if not is_last or not is_done:
            self.later(self.chance.randint(200, 1_500), self.move)

    # Faults

    def fault(self) -> None:
        if self._ms >= self.chances.duration_ms - 1_000:
            return
        self.later(self.chance.expovariate(1 / self.chances.fault_ms), self.fault)
        broker = self.chance.choice(self.brokers)
        kind = self.chance.choice(self.chances.faults)
        length_ms = self.chance.choice(self.chances.lengths_ms)
        if not broker.is_up or broker.is_paused:
            return
        self.tell(f"{kind} of broker {broker.number} for {length_ms} ms")
        self.promises.happened()
        if kind in ("kill", "power", "stop"):
            self._end(broker, kind, length_ms)
        elif kind == "disk":
            broker.log.go_offline("its disk fails")
            self.later(length_ms, partial(self._end_now, broker, broker.life, has_power=True, length_ms=30))
        elif kind == "full":
            broker.disk.capacity_bytes = 0
            self.later(length_ms, partial(self._make_room, broker, broker.disk))
        elif kind == "pause":
            broker.is_paused = True
            self._lose_session(broker, SESSION_MS, length_ms)
            self.later(length_ms, partial(self._go_on, broker, broker.life))
        elif kind == "cut":
            other = self.chance.choice([-1, *(each.number for each in self.brokers)])
            links = [(broker.number, other), (other, broker.number)]
            gone = links if self.chance.random() < 0.5 else links[:1]
            self.cuts.update(gone)
            self.later(length_ms, partial(self._heal, gone))
        elif kind == "cut-tree":
            self.cut_from_tree.add(broker.number)
            self._lose_session(broker, SESSION_MS, length_ms)
            self.later(length_ms, lambda: self._reach_tree(broker))

    def _heal(self, links: list[tuple[int, int]]) -> None:
        self.cuts.difference_update(links)
        self.promises.happened()

    def _make_room(self, broker: Broker, disk: MemoryDisk) -> None:
        disk.capacity_bytes = ENOUGH_BYTES
        self.promises.happened()
        if broker.is_up and broker.disk is disk and broker.log.offline is not None:  # it could not be cut back, say
            self._end_now(broker, broker.life, has_power=True, length_ms=30)

    def _end(self, broker: Broker, kind: str, length_ms: int) -> None:
        if kind == "power" and not self._is_anybody_whole(self.tree.state, but=broker):
            kind = "kill"  # or what it has would be nowhere
        if kind == "stop":
            self.tree.peers[broker.number] = self.tree.peers[broker.number]._replace(is_stopping=True)
            self.tell_all()
            self.later(400, partial(self._end_now, broker, broker.life, has_power=True, length_ms=length_ms))
        else:
            self._end_now(broker, broker.life, has_power=kind == "kill", length_ms=length_ms)

    def _is_anybody_whole(self, state: Leadership, but: Broker | None = None) -> bool:
        counted = [each for each in self.brokers if each.number in (*state.in_sync, *state.eligible)]
        return any(each.is_clean_now for each in counted if each is not but)

    def _end_now(self, broker: Broker, life: int, *, has_power: bool, length_ms: int) -> None:
        if broker.life != life or not broker.is_up:
            return
        epoch = broker.epoch
        broker.end(has_power=has_power)
        self.later(SESSION_MS * self.chance.random(), lambda: self._gone(broker.number, epoch))
        self.later(length_ms, broker.start)

    def _lose_session(self, broker: Broker, after_ms: int, length_ms: int) -> None:
        epoch = broker.epoch
        if length_ms > after_ms:
            self.later(after_ms, lambda: self._gone(broker.number, epoch))

    def _gone(self, number: int, epoch: int) -> None:
        if self.tree.peers[number].epoch == epoch and self.tree.peers[number].is_live:
            self.tree.peers[number] = self.tree.peers[number]._replace(is_live=False)
            self.promises.happened()
            self.tell_all()

    def _go_on(self, broker: Broker, life: int) -> None:
        if broker.life == life and broker.is_up and broker.is_paused:
            self.promises.happened()
            broker.go_on()
            self._reach_tree(broker)

    def _reach_tree(self, broker: Broker) -> None:
        """It learns a little late that its session is over, and registers anew, as the process that it is."""
        self.cut_from_tree.discard(broker.number)

        def back() -> None:
            if not self.tree.peers[broker.number].is_live:
                peer = self.tree.peers[broker.number]
                self.tree.peers[broker.number] = peer._replace(is_live=True)
                self.promises.happened()
            self.tell_all()

        broker.later(100, back)

    # The end

    def check_end(self) -> None:
        logs = [broker.log for broker in self.brokers]
        start = max(log.log_start_offset for log in logs)
        ends = [stood_in(log, start, log.next_offset) for log in logs]
        if any(end != ends[0] for end in ends):
            raise Violation("the replicas differ")
