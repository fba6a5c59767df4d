"""One broker of a cluster in memory: a real log on a disk of memory, and what a broker does about it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oncelog.clock import Now
from oncelog.log.config import LogConfig
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate, PartitionLog
from oncelog.producers import ProducerLimits, ProducerMap
from oncelog.producers.leases import BLOCK_PIDS, Block, GrantHistory, Stock, first_leased
from oncelog.replication.following import Answer, TooEarly
from oncelog.replication.leader import Proposal, Rules
from oncelog.replication.leadership import Leadership, Peer
from oncelog.replication.replica import Fetching, Replica
from tests.log.memory_disk import MemoryDisk
from tests.replication.promises import Violation

if TYPE_CHECKING:
    from tests.replication.cluster import Cluster

T = TypeVar("T")

FOLDER = "data/orders-0"
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300, retention_ms=-1)
TICK_MS = 50


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
    def is_full(self) -> bool:
        return self.disk.capacity_bytes == 0

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
        cluster.promises.happened()
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
        if (
            self.leads()
            and log.offline is None
            and not self.is_full
            and cluster.chance.random() < cluster.chances.deletes
        ):
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
        cluster, gives_way = self.cluster, self.gives_way(proposal)

        def arrived() -> tuple[bool | None, Leadership]:
            done = cluster.tree.set(proposal)
            if done:
                if gives_way:
                    cluster.tell(f"broker {self.number} gives way")
                    cluster.promises.gives_way(self.number)
                cluster.promises.elected(cluster.tree.state.epoch)
                cluster.tell_all()
            return done, cluster.tree.state

        def answered(found: tuple[bool | None, Leadership]) -> None:
            self.see(found[1])  # an earlier try may have counted
            if found[0] is False:
                self.refused(proposal)

        self.ask_tree(arrived, answered)

    def gives_way(self, proposal: Proposal) -> bool:
        """As its disk takes nothing in for now."""
        assert self.replica is not None
        state = self.replica.state
        is_in_sync = state is not None and self.number in state.in_sync
        return (
            is_in_sync and self.number not in proposal.state.in_sync and self.log.refuses and self.log.offline is None
        )

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
                try:
                    self.replica.take(asked, answered, cluster.now)
                except LogStorageError:
                    return  # its disk is full
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
