"""The work of a broker on its partitions: it reads what the brokers have agreed on, opens what it is to have, leads or
follows, and says what should change.

Everything that is decided is decided by the machines of `replication/`; here the tree is read and written, and time
passes. One task does it, so nothing happens beside it: what the tree tells is noted, and looked at in the next round.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from oncelog.clock import Clock
from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.cluster.documents import (
    GONE,
    NODES,
    TOPICS,
    DamagedTree,
    Held,
    NodeDocument,
    TopicDocument,
    decode_topic,
    encode_topic,
    put_topic,
    remove_topic,
)
from oncelog.cluster.follows import Following, Follows
from oncelog.cluster.seen_documents import SeenDocuments
from oncelog.cluster.tree import ABSENT, Check, Node, Outdated, Put, Remove, Tree, TreeError, Unsure
from oncelog.cluster.tree_cluster import TreeCluster
from oncelog.replication.leader import Proposal, Rules
from oncelog.replication.leadership import Leadership, Peer, reassigned, resigned
from oncelog.replication.replica import Replica
from oncelog.security.documents import Change, Kind
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition, Topic
from oncelog.server.turns import Turns

logger = logging.getLogger(__name__)

TICK_S: Final = 0.5
AGAIN_S: Final = 0.05  # after the tree did not answer
TOPICS_AT_ONCE: Final = 50
TRIES: Final = 50
SUSPECTED_MS: Final = 10_000  # longer than a session lasts
STOP_S: Final = 5.0  # for others to lead


class Supervisor:
    def __init__(
        self,
        cluster: TreeCluster,
        topics: ClusterTopics,
        settings: Settings,
        clock: Clock,
        *,
        follow: Callable[[int], Following],
        led: Callable[[Partition, bool], None] = lambda partition, is_led: None,
        gone: Callable[[str], None] = lambda topic: None,
        dropped: Callable[[], None] = lambda: None,
        is_clean: bool = True,
        turns: Turns,
    ) -> None:
        """`follow` answers who fetches from that broker. `led` is called when this broker begins or ceases to lead,
        `gone` when a topic was deleted, `dropped` when others have a partition now.
        `is_clean`: everything that this broker acknowledged before is on its disk."""
        self._cluster = cluster
        self._tree: Tree = cluster.tree
        self._topics = topics
        self._documents = SeenDocuments(cluster.tree, topics)
        self._settings = settings
        self._clock = clock
        self._follows = Follows(follow)
        self._led = led
        self._gone, self._dropped = gone, dropped
        self._is_clean, self._turns = is_clean, turns
        self._held: dict[str, Held] = {}
        self._leaving: list[Topic] = []  # deleted; their logs are still here
        self._suspects: dict[int, tuple[int, int]] = {}  # each in which of its epochs, and until when
        self._told: set[str] = set()
        self._is_all_told = True
        self._is_lost = self._is_away = False  # the session; this broker, as the others see it
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    # Its life

    async def load(self) -> None:
        """Everything that this broker is to have is open when this returns; it leads nothing yet, and nobody knows of
        it."""
        self._topics.agree_by(self)
        self._tree.watch(self._tell)
        self._tree.on_lost(self._lose)
        await self._tree.begin_session()
        await self._cluster.agree()
        await self._cluster.look_at_brokers()
        await self._cluster.pids.read()
        gone = await self._tree.children(GONE)
        self._topics.remove_gone({UUID(topic_id) for topic_id in gone})  # nobody is served yet
        await self._documents.load()
        if self._topics.lacks_any(await self._tree.children(TOPICS), self._cluster.node_id):
            self._cluster.own.note_lack()
            self._is_clean = False
        await self._read_topics()
        await self._open_and_close()

    async def start(self, document: NodeDocument) -> None:
        """This broker is up."""
        await self._cluster.join(document)
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._cluster.pids.keep_reading())]

    async def stop(self) -> None:
        """Others lead when this returns, where they can."""
        if self._tasks and self._tree.is_connected:
            with contextlib.suppress(TreeError, asyncio.TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._cluster.say_stopping()
                    self._wake.set()
                    await self._until(lambda: not any(map(self._can_be_left, self._partitions())))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._tree.close()

    def _can_be_left(self, partition: Partition) -> bool:
        """Whether it can be left to a broker that stays, and has all of it."""
        state = partition.leadership
        return partition.leads and state is not None and not set(self.brokers).isdisjoint(state.in_sync)

    def _tell(self, path: str) -> None:
        if path:
            self._told.add(path)
        else:
            self._is_all_told = True
        self._wake.set()

    def _lose(self) -> None:
        """The session. Others may lead from now on; what they decided is read in the next one."""
        self._is_lost = True
        self._wake.set()

    def suspect(self, broker: int) -> None:
        """Its process seems gone, and its session is not over yet. Electing another is safe at any time."""
        if broker in self._cluster.peers:
            until_ms = self._clock.now().monotonic_ms + SUSPECTED_MS
            self._suspects[broker] = self._cluster.peers[broker].epoch, until_ms
            self._wake.set()

    def _peers(self, now_ms: int) -> Mapping[int, Peer]:
        peers = self._cluster.peers
        if not self._suspects:
            return peers
        self._suspects = {broker: each for broker, each in self._suspects.items() if now_ms < each[1]}
        gone = {each for each, (epoch, _) in self._suspects.items() if each in peers and peers[each].epoch == epoch}
        return {broker: peer._replace(is_live=peer.is_live and broker not in gone) for broker, peer in peers.items()}

    # One round after the other

    async def _run(self) -> None:
        while True:
            tick = asyncio.get_running_loop().call_later(TICK_S, self._wake.set)
            await self._wake.wait()
            tick.cancel()
            self._wake.clear()
            try:
                await self._round()
            except TreeError as error:
                logger.debug("the tree: %s", error)
                self._is_all_told = True
                await asyncio.sleep(AGAIN_S)
                self._wake.set()
            except Exception:
                logger.exception("the supervisor of partitions failed; it goes on")
                self._is_all_told = True
                await asyncio.sleep(TICK_S)

    async def _round(self) -> None:
        if self._is_lost:
            await self._tree.begin_session()
            self._is_lost, self._is_away = False, True
        if self._is_away:  # also where an earlier try was not answered
            await self._cluster.join_again()
            self._is_away = False
        told, self._told = self._told, set()
        is_all_told, self._is_all_told = self._is_all_told, False
        try:
            if is_all_told or any(path.startswith((NODES, "/live")) for path in told):
                await self._cluster.look_at_brokers()
            await self._documents.read(kind for kind in Kind if is_all_told or f"/{kind}" in told)
            if is_all_told:
                await self._read_topics()
            else:
                for path in sorted(told):
                    if path.startswith(f"{TOPICS}/"):
                        await self._read_topic(path.removeprefix(f"{TOPICS}/"))
            await self._propose()
        except BaseException:
            self._told |= told
            self._is_all_told = self._is_all_told or is_all_told
            raise
        finally:  # also where the tree cannot be asked: what is agreed on goes on
            self._follows.obey(self._partitions(), self._clock.now().monotonic_ms)
        self._cluster.miss_only(state.leader for held in self._held.values() for state in held.document.partitions)
        if not self._is_clean and all(each.replica is None or each.replica.is_clean for each in self._partitions()):
            self._is_clean = True
            self._cluster.own.recovered()
        async with self._changed:
            self._changed.notify_all()

    def _partitions(self) -> Iterator[Partition]:
        return (each for held in self._held.values() for each in held.topic.open_partitions)

    # What the tree says

    async def _read_topics(self) -> None:
        nodes = await self._tree.children(TOPICS)
        for name in [each for each in self._held if each not in nodes]:
            self._forget(name)
        for name, node in nodes.items():
            self._see(name, node)

    async def _read_topic(self, name: str) -> None:
        node = await self._tree.get(f"{TOPICS}/{name}")
        if node is None:
            self._forget(name)
        else:
            self._see(name, node)

    def _see(self, name: str, node: Node) -> None:
        try:
            document = decode_topic(node.value)
        except DamagedTree as damage:
            logger.error("%s/%s is passed over: %s", TOPICS, name, damage)
            return
        held = self._held.get(name)
        if held is not None and held.topic.id != document.id:
            self._forget(name)
            held = None
        if held is not None and node.version <= held.version:
            return  # older than what was seen
        topic = self._topics.show(name, document)
        self._held[name] = Held(topic, document, node.version)
        rules = self._rules(topic)
        for partition, state in zip(topic.partitions, document.partitions, strict=False):
            self._see_partition(partition, state, rules)

    def _see_partition(self, partition: Partition, state: Leadership, rules: Rules) -> None:
        replica = partition.replica
        if state == partition.leadership and (replica is None or replica.rules == rules):
            return
        partition.leadership = state
        if replica is not None:
            replica.obey(rules)
            self._obey(partition, replica, state)

    def _obey(self, partition: Partition, replica: Replica, state: Leadership) -> None:
        before = -1 if replica.leader is None else replica.leader.state.epoch
        replica.see(state, self._clock.now().monotonic_ms)
        after = -1 if replica.leader is None else replica.leader.state.epoch
        if before != after:
            self._lead(partition, False)
            self._lead(partition, after >= 0)
        partition.wake()

    def _lead(self, partition: Partition, is_led: bool) -> None:
        if partition.leads != is_led:
            partition.leads = is_led
            self._led(partition, is_led)
            partition.wake()

    def _forget(self, name: str) -> None:
        if (held := self._held.pop(name, None)) is not None:
            for partition in held.topic.open_partitions:
                self._lead(partition, False)
                self._follows.leave(partition)
            self._topics.forget(held.topic)
            self._leaving.append(held.topic)
            self._gone(name)

    def _rules(self, topic: Topic) -> Rules:
        settings = self._settings
        is_rebalanced = settings.auto_leader_rebalance_enable
        return Rules(
            min_in_sync=int(topic.configs.get("min.insync.replicas", settings.min_insync_replicas)),
            lag_ms=settings.replica_lag_time_max_ms,
            prefer_after_ms=1000 * settings.leader_imbalance_check_interval_seconds if is_rebalanced else -1,
        )

    async def _open_and_close(self) -> None:
        """In turns: others are served, and the session goes on, while many logs are opened."""
        is_any_closed = bool(self._leaving)
        while self._leaving:  # before another topic of that name has its folders
            for partition in (topic := self._leaving[-1]).partitions:
                await self._close(partition)
                await self._turns.pause()
            self._leaving.remove(topic)
        for held in list(self._held.values()):
            for partition, state in zip(held.topic.partitions, held.document.partitions, strict=False):
                if self._is_to_be_open(state) == partition.is_open:
                    continue
                if not partition.is_open:
                    self._open(partition, state)
                else:
                    is_any_closed = True
                    await self._close(partition)
                await self._turns.pause()
        if is_any_closed:
            self._dropped()

    def _is_to_be_open(self, state: Leadership) -> bool:
        return self._cluster.node_id in state.replicas

    def _open(self, partition: Partition, state: Leadership) -> None:
        self._topics.open_here(partition, self._clock.now())
        me, rules = self._cluster.node_id, self._rules(partition.topic)
        is_clean = self._is_clean or state.epoch < 0  # nobody has led it yet
        partition.replica = Replica(me, partition.log, rules, is_clean=is_clean)
        self._obey(partition, partition.replica, state)

    async def _close(self, partition: Partition) -> None:
        """Others have it now, or its topic was deleted."""
        self._lead(partition, False)
        self._follows.leave(partition)
        await self._turns.run(self._topics.dropping(partition))

    # What should be said there instead

    async def _propose(self) -> None:
        for _ in range(TRIES):
            await self._open_and_close()
            asking = [(held, found) for held in self._held.values() if (found := self._proposals(held))]
            if not asking:
                return
            for start in range(0, len(asking), TOPICS_AT_ONCE):
                await asyncio.gather(*(self._put(*each) for each in asking[start : start + TOPICS_AT_ONCE]))
        self._wake.set()

    def _proposals(self, held: Held) -> dict[int, Proposal]:
        """The proposals that begin where the document stands; the others wait for what the tree says next."""
        now_ms = self._clock.now().monotonic_ms
        peers, found = self._peers(now_ms), {}
        for partition in held.topic.open_partitions:
            if partition.replica is not None:
                proposal = partition.replica.change(peers, now_ms)
                if proposal is not None and (
                    held.document.partitions[partition.index].version == proposal.state.version - 1
                ):
                    found[partition.index] = proposal
        return found

    async def _put(self, held: Held, proposals: dict[int, Proposal]) -> None:
        states = list(held.document.partitions)
        checks: dict[int, int] = {}
        for index, proposal in proposals.items():
            if all(checks.get(broker, epoch) == epoch for broker, epoch in proposal.epochs):
                states[index] = proposal.state
                checks |= dict(proposal.epochs)
        changes = put_topic(held, held.document._replace(partitions=tuple(states)))
        try:
            await self._tree.change(
                *(Check(f"{NODES}/{broker}", epoch) for broker, epoch in checks.items()),
                *changes,
            )
        except Outdated as outdated:
            await self._read_topic(held.topic.name)  # where an earlier try was in doubt, it may have counted
            if not outdated.path.startswith(NODES):
                return
            broker = int(outdated.path.rpartition("/")[2])
            for index, proposal in proposals.items():
                replica = held.topic.partitions[index].replica
                if replica is not None and dict(proposal.epochs).get(broker) == checks[broker]:
                    replica.refused(proposal)
            await self._cluster.look_at_brokers()
        except Unsure:
            await self._read_topic(held.topic.name)
        else:
            self._see(held.topic.name, Node(changes[-1].value, held.version + 1))

    # The catalog

    @property
    def brokers(self) -> list[int]:
        return [broker for broker, peer in self._cluster.peers.items() if peer.is_live and not peer.is_stopping]

    @property
    def down(self) -> list[int]:
        return [broker for broker in self._cluster.peers if broker not in self.brokers]

    async def create(self, name: str, document: TopicDocument) -> None:
        try:
            await self._tree.change(Put(f"{TOPICS}/{name}", encode_topic(document), ABSENT))
        except Outdated:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.") from None
        except TreeError as error:
            raise _undecided(error) from error
        await self._until(lambda: self._is_led(name))

    async def change_document(self, kind: Kind, change: Change) -> None:
        try:
            await self._documents.change(kind, change)
        except TreeError as error:
            raise _undecided(error) from error

    async def delete(self, topic: Topic) -> None:
        def without(held: Held) -> tuple[Put | Remove, ...]:
            return remove_topic(topic.name, held.version, topic.id, self._clock.now().wall_ms)

        await self._change(topic, without)
        with contextlib.suppress(TreeError):
            await self._cluster.forget_gone()
        await self._until(lambda: self._topics.get(topic.name) is not topic)

    async def grow(self, topic: Topic, added: Sequence[Leadership]) -> None:
        have = len(topic.partitions)

        def grown(held: Held) -> tuple[Put | Remove, ...]:
            if len(held.document.partitions) != have:
                raise KafkaError(ErrorCode.invalid_partitions, f"The topic {topic.name} has grown meanwhile.")
            return put_topic(held, held.document._replace(partitions=(*held.document.partitions, *added)))

        await self._change(topic, grown)
        await self._until(lambda: len(topic.partitions) > have and self._is_led(topic.name))

    async def elect(self, topic: Topic, indexes: Collection[int]) -> None:
        """The preferred leaders, which must be up and in sync."""

        def electing(held: Held) -> tuple[Put | Remove, ...]:
            states = [
                resigned(state) if index in indexes and not state.is_as_preferred else state
                for index, state in enumerate(held.document.partitions)
            ]
            return put_topic(held, held.document._replace(partitions=tuple(states)))

        await self._change(topic, electing)
        await self._until(lambda: self._is_led(topic.name))

    async def reassign(self, topic: Topic, targets: Mapping[int, Sequence[int] | None]) -> None:
        """Begin to reassign partitions. It goes on after this returns: new replicas have to be copied first."""

        def reassigning(held: Held) -> tuple[Put | Remove, ...]:
            states = list(held.document.partitions)
            for index, target in targets.items():
                try:
                    states[index] = reassigned(states[index], target, self._rules(topic).min_in_sync)
                except ValueError as refusal:
                    raise KafkaError(ErrorCode.invalid_replica_assignment, str(refusal)) from None
            return put_topic(held, held.document._replace(partitions=tuple(states)))

        await self._change(topic, reassigning)

    async def alter(self, topic: Topic, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        held = await self._change(topic, lambda held: put_topic(held, held.document.altered(change)))
        await self._until_seen(held)

    async def _change(self, topic: Topic, change: Callable[[Held], Iterable[Put | Remove]]) -> Held:
        for _ in range(TRIES):
            held = self._held.get(topic.name)
            if held is None or held.topic is not topic:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic {topic.name} was deleted meanwhile.")
            try:
                await self._tree.change(*change(held))
                return held
            except Outdated:
                await self._until_seen(held)
            except TreeError as error:
                raise _undecided(error) from error
        message = f"others changed the topic {topic.name} meanwhile, again and again"
        raise KafkaError(ErrorCode.request_timed_out, message)

    async def _until_seen(self, held: Held) -> None:
        self._tell(f"{TOPICS}/{held.topic.name}")
        await self._until(lambda: self._held.get(held.topic.name) is not held)

    def _is_led(self, name: str) -> bool:
        topic = self._topics.get(name)
        members = self._cluster.members
        return topic is not None and all(
            each.leadership is not None and each.leadership.leader in members for each in topic.partitions
        )

    async def _until(self, is_so: Callable[[], bool]) -> None:
        self._wake.set()
        async with self._changed:
            await self._changed.wait_for(is_so)


def _undecided(error: TreeError) -> KafkaError:
    return KafkaError(
        ErrorCode.request_timed_out, f"the brokers could not agree on it, or nobody knows whether: {error}"
    )
