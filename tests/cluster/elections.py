"""A cluster whose brokers are taken away and given back, with a word from those that stay about who leads meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from operator import gt
from pathlib import Path
from typing import NamedTuple

import oncelog
from oncelog.client import NewTopic
from oncelog.client.admin import Admin
from oncelog.cluster.parent import Parent
from tests.cluster.writing import PARTITIONS
from tests.raw import RawConnection
from tests.waiting import until

GROUPS_COORDINATOR = 0
TOPICS = ("orders", "__consumer_offsets")
PLACE = ("orders", 0)


class Harm(Enum):
    KILL = "killed"
    PAUSE = "paused for longer than its session"
    STOP = "stopped in an orderly way"


class Told(NamedTuple):
    leader: int
    epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]


class Elections:
    def __init__(self, server: oncelog.Server | Parent, folder: Path) -> None:
        self.server = server
        self._folder = folder
        self._addresses = dict(enumerate(server.bootstrap_servers.split(","), 1))
        with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()

    def leader(self) -> int:
        """Of the first partition."""
        return self._told(1)[PLACE].leader

    def coordinator(self, group: str) -> int:
        with RawConnection(self._addresses[1]) as raw:
            told = raw.call("find_coordinator", 4, key_type=GROUPS_COORDINATOR, coordinator_keys=(group,))
        return int(told.coordinators[0].node_id)

    @contextmanager
    def without(self, broker: int, harm: Harm) -> Iterator[None]:
        """Others lead what this one did when this begins, and it is back and in sync when this is over."""
        {Harm.KILL: self.server.kill, Harm.PAUSE: self.server.pause, Harm.STOP: self.server.stop}[harm](broker)
        with self._away(broker, self.server.resume if harm is Harm.PAUSE else self.server.start):
            yield

    @contextmanager
    def without_an_answer(self, send: Callable[[], None], held: int) -> Iterator[None]:
        """What is sent now is in the log of the first partition's leader, and in those of its followers but for so many
        that hang. So nothing is acknowledged, and then that leader is killed, and they go on."""
        leader, *_, replicas, _ = self._told(1)[PLACE]
        followers = [broker for broker in replicas if broker != leader]
        hanging = followers[len(followers) - held :]
        for broker in hanging:
            self.server.pause(broker)
        try:
            with self._more_in_logs_of(leader, *(broker for broker in followers if broker not in hanging)):
                send()
            self.server.kill(leader)
        finally:
            for broker in hanging:
                self.server.resume(broker)
        with self._away(leader, self.server.start):
            yield

    @contextmanager
    def _away(self, broker: int, bring_back: Callable[[int], None]) -> Iterator[None]:
        try:
            self._until_all_say(
                lambda told: told.leader not in (-1, broker), f"others to lead what {broker} led", broker
            )
            yield
        finally:
            bring_back(broker)
        self._until_all_say(lambda told: told.leader != -1 and len(told.in_sync) == len(self._addresses), "all in sync")

    @contextmanager
    def _more_in_logs_of(self, *brokers: int) -> Iterator[None]:
        """Than before, when this is over."""

        def sizes() -> list[int]:
            folders = [self._folder / str(broker) / "-".join(map(str, PLACE)) for broker in brokers]
            return [sum(file.stat().st_size for file in folder.glob("*.log")) for folder in folders]

        before = sizes()
        yield
        until(lambda: all(map(gt, sizes(), before)), f"more in the logs of {brokers}")

    def _until_all_say(self, is_so: Callable[[Told], bool], what: str, but: int = -1) -> None:
        """Of every partition, and all of them the same; but for one that is not asked."""
        asked = [broker for broker in self._addresses if broker != but]

        def do_all_say_so() -> bool:
            told = [self._told(broker) for broker in asked]
            return told.count(told[0]) == len(told) and all(map(is_so, told[0].values()))

        until(do_all_say_so, what)

    def _told(self, broker: int) -> dict[tuple[str, int], Told]:
        with RawConnection(self._addresses[broker]) as raw:
            named = [{"topic_id": None, "name": name} for name in TOPICS]
            topics = raw.call("metadata", 12, topics=named, allow_auto_topic_creation=False).topics
        return {
            (topic.name, each.partition_index): Told(
                each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes
            )
            for topic in topics
            for each in topic.partitions
        }
