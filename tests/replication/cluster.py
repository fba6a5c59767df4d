"""A cluster in memory: real logs on disks of memory, the machines of `oncelog.replication`, and a tree, on one clock.

Every delay, loss, cut, pause, kill and power failure is drawn from one seed. `Cluster.run` goes through a history and
raises `Violation` at the moment when something is not as promised:

- what was acknowledged, and whatever a reader could see, stands at its offset under every later leader;
- there is one leader an epoch; each slot stands once and in order, also of a batch that comes again after two lifetimes
  of its lease; after an answered fence no older generation follows; no pid is granted twice;
- a reader finds no other records where it was before, and no end before it;
- some time after the last fault every replica is in sync and every producer has got its answers.
"""

import heapq
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from oncelog.clock import Now
from oncelog.log.config import LogConfig
from oncelog.log.partition import End, Fate, PartitionLog
from oncelog.producers import ProducerLimits, ProducerMap
from oncelog.producers.leases import BLOCK_PIDS, Block, GrantHistory, Stock, first_leased
from oncelog.replication.following import Answer, TooEarly
from oncelog.replication.leader import Proposal, Rules
from oncelog.replication.leadership import Leadership, Peer, first, reassigned, resigned
from oncelog.replication.replica import Fetching, Replica
from tests.log.memory_disk import MemoryDisk
from tests.log.support import START_MS
from tests.replication.chances import Chances
from tests.replication.clients import Consumer, Producer
from tests.replication.promises import Promises, Violation, stood_in
from tests.replication.tree import Tree

T = TypeVar("T")

FOLDER = "data/orders-0"
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300, retention_ms=-1)
TICK_MS = 50
SESSION_MS = 600
QUIET_MS = 12_000


class Broker:
    def __init__(self, number: int, cluster: "Cluster") -> None:
        self.number = number
        self.cluster = cluster
        self.disk = MemoryDisk(cluster.chance.getrandbits(32))
        self.is_clean = True  # when it starts
        self.life = 0  # what is on its way to an earlier one does not arrive
        self.replica: Replica | None = None
        self.epoch = 0
        self.is_paused = False
        self.held: list[Callable[[], None]] = []  # what arrived while it was paused
        self.peers: dict[int, Peer] = {}
        self.peers_seen = -1
        self.is_asking = False
        self.answers: list[tuple[End, Callable[[bool], None]]] = []
        self.pids = self.noted_pids = GrantHistory(cluster.chances.lifetime_ms)
        self.stock = Stock()

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    @property
    def is_clean_now(self) -> bool:
        return self.is_clean if self.replica is None else self.replica.is_clean

    @property
    def log(self) -> PartitionLog:
        assert self.replica is not None
        log = self.replica.log
        assert isinstance(log, PartitionLog)
        return log

    def start(self) -> None:
        cluster = self.cluster
        self.life += 1
        self.stock = Stock(self.pids.period_ms)
        self.is_asking = self.is_paused = False
        self.held, self.answers = [], []
        self.open()
        self.epoch = cluster.tree.register(self.number)
        self.peers = dict(cluster.tree.peers)
        self.see(cluster.tree.state)
        cluster.tell_all()
        self.later(cluster.chance.randrange(TICK_MS), self.tick)

    def open(self) -> None:
        chances = self.cluster.chances
        log = PartitionLog.open(
            self.disk, FOLDER, CONFIG, self.new_producers(), self.cluster.now, replicated=True, stayed_up=self.is_clean
        )
        if log.offline is not None:
            raise Violation(f"broker {self.number} cannot open its log: {log.offline}")
        rules = Rules(chances.min_in_sync, chances.lag_ms, chances.prefer_after_ms)
        self.replica = self.cluster.kind(self.number, log, rules, is_clean=self.is_clean)

    def drop(self) -> None:
        """It is no replica any more: its log is removed."""
        self.is_clean = self.is_clean_now
        self.disk = MemoryDisk(self.cluster.chance.getrandbits(32))
        self.open()

    def end(self, *, has_power: bool) -> None:
        self.life += 1
        # Noted on its disk, and taken back once it has taken itself out of what counts on it.
        self.is_clean = self.is_clean_now and has_power
        if not has_power:
            self.pids = self.noted_pids
        self.replica = None
        self.disk = self.disk.crash(keep_all=has_power)
        for _, answered in self.answers:
            answered(False)
        self.answers = []

    def later(self, delay_ms: float, work: Callable[[], None]) -> None:
        life = self.life

        def run() -> None:
            if self.life == life and self.is_up:
                if self.is_paused:
                    self.held.append(run)
                else:
                    work()

        self.cluster.later(delay_ms, run)

    def go_on(self) -> None:
        self.is_paused = False
        held, self.held = self.held, []
        for work in held:
            work()

    # What it does

    def see(self, state: Leadership) -> None:
        assert self.replica is not None
        before = self.replica.state
        if before is not None and state.version > before.version and self.number not in state.replicas:
            self.drop()
        led = self.replica.leader
        self.replica.see(state, self.cluster.now.monotonic_ms)
        if self.replica.leader is not None and self.replica.leader is not led:
            self.cluster.tell(
                f"broker {self.number} leads in epoch {self.log.leader_epoch} from {self.log.next_offset} on"
            )
            self.cluster.promises.leads(self.number, self.log)
        self.settle()

    def tick(self) -> None:
        assert self.replica is not None
        cluster = self.cluster
        self.later(TICK_MS, self.tick)
        proposal = self.replica.change(self.peers, cluster.now.monotonic_ms)
        if proposal is not None:
            self.propose(proposal)
        self.forget()
        self.look_at_pids()
        self.settle()
        self.ask()

    def forget(self) -> None:
        """A leader deletes what is old enough; its followers hear of it."""
        log, cluster = self.log, self.cluster
        if self.leads() and log.offline is None and cluster.chance.random() < cluster.chances.deletes:
            start = log.log_start_offset
            log.delete_before(start + int((log.high_watermark - start) * cluster.chance.random()), cluster.now)

    # Pids

    def new_producers(self) -> ProducerMap:
        return ProducerMap(self, ProducerLimits(lease_lifetime_ms=self.cluster.chances.lifetime_ms))

    def may_be_new(self, pid: int, now: Now) -> bool:
        return self.pids.may_be_new(pid, now.monotonic_ms)

    def look_at_pids(self) -> None:
        cluster, began_ms = self.cluster, self.cluster.now.monotonic_ms
        self.log.producers.expire(cluster.now)
        if cluster.chance.random() < 0.2:
            self.noted_pids = self.pids

        def read(next_pid: int) -> None:
            self.pids = self.pids.read(next_pid, began_ms)
            if self.stock.is_low():
                self.reserve(next_pid)

        if self.stock.is_low() or cluster.chance.random() < 0.1:
            self.ask_tree(lambda: cluster.tree.next_pid, read)

    def reserve(self, next_pid: int) -> None:
        cluster, began_ms = self.cluster, self.cluster.now.monotonic_ms
        block = Block(first_leased(next_pid, BLOCK_PIDS), first_leased(next_pid, BLOCK_PIDS) + BLOCK_PIDS)

        def taken(done: bool) -> None:
            if done:
                self.pids = self.pids.read(next_pid, began_ms).read(block.end_pid, began_ms)
                self.stock.add(block, cluster.now.monotonic_ms)

        self.ask_tree(lambda: cluster.tree.take_pids(next_pid, block.end_pid), taken)

    # Leadership and records

    def propose(self, proposal: Proposal) -> None:
        cluster = self.cluster

        def arrived() -> tuple[bool | None, Leadership]:
            done = cluster.tree.set(proposal)
            if done:
                cluster.promises.elected(cluster.tree.state.epoch)
                cluster.tell_all()
            return done, cluster.tree.state

        def answered(found: tuple[bool | None, Leadership]) -> None:
            self.see(found[1])  # an earlier try may have counted
            if found[0] is False:
                self.refused(proposal)

        self.ask_tree(arrived, answered)

    def ask_tree(self, work: Callable[[], T], answered: Callable[[T], None]) -> None:
        cluster = self.cluster
        if not cluster.reaches_tree(self.number):
            return

        def arrived() -> None:
            found = work()
            if cluster.chance.random() >= cluster.chances.lost_answers and cluster.reaches_tree(self.number):
                self.later(cluster.delay(), lambda: answered(found))

        # What was sent may arrive long after the sender has given up, or ended.
        cluster.later(cluster.delay() * (40 if cluster.chance.random() < cluster.chances.slow_tree else 1), arrived)

    def refused(self, proposal: Proposal) -> None:
        assert self.replica is not None
        self.replica.refused(proposal)
        self.settle()

    def ask(self) -> None:
        assert self.replica is not None
        asked = self.replica.fetch()
        if asked is None or self.is_asking or self.replica.state is None:
            return
        if self.number not in self.replica.state.replicas:
            return
        cluster, leader = self.cluster, self.cluster.brokers[self.replica.state.leader]
        self.is_asking = True
        fetching = Fetching(self.number, self.epoch, asked)

        def given_up() -> None:
            self.is_asking = False

        def served() -> None:
            assert leader.replica is not None
            answered = leader.replica.answer(fetching, cluster.now.monotonic_ms)
            leader.settle()
            cluster.send(leader.number, self, lambda: taken(answered))

        def taken(answered: Answer | None) -> None:
            assert self.replica is not None
            self.is_asking = False
            if answered is not None and self.log.offline is None:
                before = self.log.high_watermark
                if isinstance(answered, TooEarly):
                    cluster.tell(f"broker {self.number} begins anew: it ends at {self.log.next_offset}")
                self.replica.take(asked, answered, cluster.now)
                if self.log.next_offset < before:
                    raise Violation(f"broker {self.number} cut off what was safe: {self.log.next_offset} < {before}")
                if getattr(answered, "batches", b""):
                    self.ask()

        cluster.send(self.number, leader, served)
        life_ms = 300
        self.later(life_ms, given_up)

    def settle(self) -> None:
        """Answer what waits."""
        if self.leads() and self.cluster.promises.shown(self.log):
            self.cluster.tell(f"safe up to {self.log.high_watermark} at broker {self.number}")
        if not self.answers:
            return
        waiting, self.answers = self.answers, []
        for end, answered in waiting:
            fate = self.fate(end)
            if fate is Fate.WAITS:
                self.answers.append((end, answered))
            else:
                answered(fate is Fate.SAFE)

    def fate(self, end: End) -> Fate:
        return self.log.fate(end)

    def leads(self) -> bool:
        return self.replica is not None and self.replica.leader is not None


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
        if kind in ("kill", "power", "stop"):
            self._end(broker, kind, length_ms)
        elif kind == "disk":
            broker.log.go_offline("its disk fails")
            self.later(length_ms, partial(self._end_now, broker, broker.life, has_power=True, length_ms=30))
        elif kind == "pause":
            broker.is_paused = True
            self._lose_session(broker, SESSION_MS, length_ms)
            self.later(length_ms, partial(self._go_on, broker, broker.life))
        elif kind == "cut":
            other = self.chance.choice([-1, *(each.number for each in self.brokers)])
            links = [(broker.number, other), (other, broker.number)]
            gone = links if self.chance.random() < 0.5 else links[:1]
            self.cuts.update(gone)
            self.later(length_ms, lambda: self.cuts.difference_update(gone))
        elif kind == "cut-tree":
            self.cut_from_tree.add(broker.number)
            self._lose_session(broker, SESSION_MS, length_ms)
            self.later(length_ms, lambda: self._reach_tree(broker))

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
            self.tell_all()

    def _go_on(self, broker: Broker, life: int) -> None:
        if broker.life == life and broker.is_up and broker.is_paused:
            broker.go_on()
            self._reach_tree(broker)

    def _reach_tree(self, broker: Broker) -> None:
        """It learns a little late that its session is over, and registers anew, as the process that it is."""
        self.cut_from_tree.discard(broker.number)

        def back() -> None:
            if not self.tree.peers[broker.number].is_live:
                peer = self.tree.peers[broker.number]
                self.tree.peers[broker.number] = peer._replace(is_live=True)
            self.tell_all()

        broker.later(100, back)

    # The end

    def check_end(self) -> None:
        logs = [broker.log for broker in self.brokers]
        start = max(log.log_start_offset for log in logs)
        ends = [stood_in(log, start, log.next_offset) for log in logs]
        if any(end != ends[0] for end in ends):
            raise Violation("the replicas differ")
