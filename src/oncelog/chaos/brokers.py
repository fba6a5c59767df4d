"""The brokers of an experiment: a cluster on this machine, and what is done to it, one thing after the other.

It is done by a thread beside the experiment, which goes on listening to its producer meanwhile: how long nothing is
confirmed is what is looked for. Each ends when all brokers are up and in sync again.
"""

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncelog.chaos.guard import Guard
from oncelog.chaos.life import HOST, free_ports
from oncelog.chaos.outcome import Replicas
from oncelog.chaos.plan import Event, Target
from oncelog.chaos.relay import Relay
from oncelog.chaos.stopped import Stopped
from oncelog.clock import monotonic_s
from oncelog.cluster.file import read_state, write_state
from oncelog.cluster.parent import SCHEME, BrokerEnded, Parent, copies
from oncelog.cluster.replica_comparing import check_cluster
from oncelog.cluster.tree import SESSION_TIMEOUT_MS
from oncelog.log.disk import RealDisk
from oncelog.replication.leadership import NOBODY, Leadership

WHOLE_S: Final = 120.0
LOOK_S: Final = 0.05
DOWN_S: Final = (0.2, 2.0)  # until one that was killed is started again
SESSION_S: Final = SESSION_TIMEOUT_MS / 1000
SILENT_S: Final = (1.2 * SESSION_S, 2 * SESSION_S)
MOST_TORN_BYTES: Final = 500
ANOTHER_BOOT: Final = "before the power failed"


class Brokers:
    """`hurt` begins; while `is_busy`, nothing else may."""

    def __init__(
        self,
        guard: Guard,
        folder: Path,
        count: int,
        settings: Mapping[str, str],
        seed: int,
        *,
        are_links_cut: bool = False,
    ) -> None:
        """`are_links_cut`: brokers are reached by links that can be."""
        self._folder = folder
        self._parent = Parent(str(folder), count, {**copies(count), **settings}, variables=guard.variables)
        self._relay = Relay() if are_links_cut else None
        self._seed = seed
        self._ending = threading.Event()
        self._thread = ThreadPoolExecutor(1, "oncelog-chaos")
        self._work: Future[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._put_links_between()
            self._parent.start_all()
        except (BrokerEnded, TimeoutError) as ended:
            raise Stopped(str(ended) or "the brokers did not start in time") from ended
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ending.set()
        self._thread.shutdown()
        self._parent.close()
        if self._relay is not None:
            self._relay.close()

    def _put_links_between(self) -> None:
        if self._relay is None:
            return
        for broker, port in zip(self._parent.nodes, free_ports(len(self._parent.nodes)), strict=True):
            self._parent.own_settings[broker] = {
                "listeners": f"PLAINTEXT://{HOST}:{port}",
                "advertised.listeners": f"PLAINTEXT://{self._relay.reach_broker(broker, port)}",
                "oncelog.cluster": f"{SCHEME}{self._relay.reach_tree(broker, self._parent.tree_path)}",
            }

    @property
    def servers(self) -> str:
        return self._parent.bootstrap_servers

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    def hurt(self, event: Event, topic: str) -> str:
        """Hurt a broker; which one follows from the seed, and from who leads by now."""
        chance = random.Random(f"oncelog chaos {self._seed} {event.at}")
        led = [each for each in self._parent.topics()[topic] if each.leader != NOBODY]
        state = chance.choice(led)
        down_s = chance.uniform(*DOWN_S)
        followers = [broker for broker in state.replicas if broker != state.leader]
        match event.target:
            case Target.LEADER:
                return self._begin(f"broker {state.leader}", lambda: self._kill(state.leader, down_s))
            case Target.FOLLOWER:
                broker = chance.choice(followers)
                return self._begin(f"broker {broker}", lambda: self._kill(broker, down_s))
            case Target.PAUSE:
                silent_s = chance.uniform(*SILENT_S)
                return self._begin(f"broker {state.leader}", lambda: self._pause(state.leader, silent_s))
            case Target.PARTITION:
                silent_s, are_clients_cut = chance.uniform(*SILENT_S), chance.random() < 0.5
                whom = f"broker {state.leader}, {'and clients too' if are_clients_cut else 'which clients still reach'}"
                return self._begin(whom, lambda: self._cut_off(state.leader, silent_s, are_clients_cut))
            case Target.ROLLING:
                return self._begin("all brokers", self._roll)
            case Target.POWER:
                return self._begin("all brokers", lambda: self._cut_power(topic, down_s, chance))
            case Target.ZOOKEEPER:
                silent_s = chance.uniform(*SILENT_S)
                return self._begin("the tree", lambda: self._stop_tree(silent_s))
        raise ValueError(f"{event.target} is not of brokers")

    def look(self) -> str | None:
        """The outcome, once it is over. Raises `Stopped` where it went wrong."""
        if self._work is None:
            self._check()
            return None
        if not self._work.done():
            return None
        work, self._work = self._work, None
        try:
            return work.result()
        except (BrokerEnded, TimeoutError) as ended:
            raise Stopped(str(ended) or "a broker was not up in time") from ended

    # In the thread

    def _begin(self, whom: str, work: Callable[[], None]) -> str:
        self._work = self._thread.submit(self._timed, work)
        return whom

    def _timed(self, work: Callable[[], None]) -> str:
        began_s = monotonic_s()
        work()
        up_s = monotonic_s() - began_s
        self._until_whole()
        return f"up again after {up_s:.1f} s, in sync after {monotonic_s() - began_s:.1f} s"

    def _kill(self, broker: int, down_s: float) -> None:
        self._parent.kill(broker)
        self._ending.wait(down_s)
        self._parent.start(broker)

    def _roll(self) -> None:
        for broker in self._parent.nodes:
            self._parent.stop(broker)
            self._parent.start(broker)
            self._until_whole()

    def _pause(self, broker: int, silent_s: float) -> None:
        self._parent.pause(broker)
        self._ending.wait(silent_s)
        self._parent.resume(broker)

    def _cut_off(self, broker: int, silent_s: float, are_clients_cut: bool) -> None:
        assert self._relay is not None
        self._relay.cut(broker, are_clients_cut=are_clients_cut)
        self._ending.wait(silent_s)
        self._relay.mend()

    def _stop_tree(self, silent_s: float) -> None:
        self._parent.stop_tree()
        self._ending.wait(silent_s)
        self._parent.start_tree()

    def _cut_power(self, topic: str, down_s: float, chance: random.Random) -> None:
        """Cut the power of all. Unflushed writes cannot be taken back from a process's files, so all of them stay. But
        each broker is told that the machine was started anew, and finds a write that the end of power tore."""
        for broker in self._parent.nodes:  # at one moment
            self._parent.pause(broker)
        for broker in self._parent.nodes:
            self._parent.kill(broker)
        self._parent.stop_tree()
        for broker in self._parent.nodes:
            folder = self._folder / str(broker)
            state = read_state(RealDisk(), str(folder))
            write_state(RealDisk(), str(folder), state | {"boot_id": ANOTHER_BOOT})
            for log in newest_logs(folder, topic):
                with log.open("ab") as file:
                    file.write(chance.randbytes(chance.randint(1, MOST_TORN_BYTES)))
        self._ending.wait(down_s)
        self._parent.start_tree()
        for broker in self._parent.nodes:
            self._parent.start(broker)

    def _until_whole(self) -> None:
        give_up_s = monotonic_s() + WHOLE_S
        while not all(is_whole(each) for topic in self._parent.topics().values() for each in topic):
            self._check()
            if self._ending.wait(LOOK_S):
                return
            if monotonic_s() > give_up_s:
                raise Stopped(f"the brokers are not in sync after {WHOLE_S:g} s: {self._parent.topics()}")

    def _check(self) -> None:
        for broker in self._parent.ended():
            said = "\n".join(self._parent.output(broker).splitlines()[-30:])
            raise Stopped(f"broker {broker} ended by itself:\n{said}")


def is_whole(state: Leadership) -> bool:
    return state.leader != NOBODY and set(state.in_sync) == set(state.replicas)


def newest_logs(folder: Path, topic: str) -> list[Path]:
    """The files that are written to, one of each partition."""
    found = [sorted(each.glob("*.log")) for each in folder.glob(f"{topic}-*") if each.name[len(topic) + 1 :].isdigit()]
    return [logs[-1] for logs in found if logs]


def compared(folder: Path) -> Replicas:
    """The comparison of the brokers' logs, once they do not run any more."""
    records, damage = 0, list[str]()
    for checked in check_cluster(RealDisk(), str(folder)):
        damage += [f"{checked.name}: {each}" for each in checked.damage]
        if " of brokers " in checked.name:
            records += checked.records
    return Replicas(records, tuple(damage))
