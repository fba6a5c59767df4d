"""A group whose members speak either protocol, and some now the one and now the other, with clients that do what
Kafka's do: those of the classic one join, share out and ask for their shares, those of KIP-848 say what they have.

Some give all up before they join (eager), some keep what they have (cooperative). They fall silent, lose answers, are
killed and come back in the other protocol; topics grow, the disk refuses, the coordinator is killed and reads all back.
A client believes that it has what it was told last, until it gives that up or hears that it is a member no more.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.values import JOINS, LEAVES, Beat, Place
from oncelog.server.groups.embedded import read_share, read_subscription, share_bytes
from oncelog.server.groups.messages import JoinAnswer, JoinRequest, Leaving, SyncAnswer, SyncRequest
from tests.log.memory_disk import MemoryDisk
from tests.server.groups.support import House
from tests.server.groups.words import subscription
from tests.server.topics_support import grow_to

SESSION_MS, REBALANCE_MS, BEAT_MS = 10_000, 20_000, 1_000
TOPICS = ("apples", "pears")
REFUSED_BY_THE_DISK = ErrorCode.not_coordinator, ErrorCode.coordinator_not_available

At = tuple[str, int]


@dataclass
class Client:
    name: str
    instance_id: str | None = None
    is_classic: bool = True
    is_eager: bool = True
    member_id: str = ""
    epoch: int = -1
    has: frozenset[At] = frozenset()
    is_out: bool = True
    is_silent: bool = False
    must_join: bool = True
    must_sync: bool = False
    is_asking: bool = False  # a join or an ask for its share waits for its answer
    says_all: bool = True
    leads: JoinAnswer | None = None
    lives: int = field(default=0)

    def begin(self) -> None:
        self.lives += 1
        self.is_out = self.is_silent = False
        self.member_id = "" if self.is_classic else f"{self.name}-{self.lives}"
        self.lose_all()

    def lose_all(self) -> None:
        self.has, self.epoch = frozenset(), -1 if self.is_classic else JOINS
        self.must_join, self.must_sync, self.is_asking, self.leads = True, False, False, None


class Model:
    def __init__(self, seed: int, policy: str) -> None:
        self.random, self.policy = Random(seed), policy
        self.house = House(
            f"group.consumer.session.timeout.ms={SESSION_MS}", f"group.consumer.migration.policy={policy}"
        )
        self.house.make_topic("apples", 4)
        self.house.make_topic("pears", 3)
        self.clients = [Client(f"c{n}", instance_id=f"s{n}" if n >= 3 else None, is_eager=n % 2 == 0) for n in range(5)]
        self.moves: Counter[str] = Counter()
        self._fresh = 0

    # What happens

    async def act(self) -> None:
        before = self._kind()
        actions = self.speak, self.pass_time, self.change_a_client, self.change_topics, self.crash
        await self.random.choices(actions, (60, 20, 14, 2, 2))[0]()
        await asyncio.sleep(0)
        self.moves[f"{before} to {self._kind()}"] += 1
        self.check()

    async def speak(self) -> None:
        client = self.random.choice(self.clients)
        if client.is_out:
            client.begin()
        if not client.is_silent:
            assert isinstance(self.house.disk, MemoryDisk)
            if self.random.random() < 0.04:
                self.house.disk.fail("pwritev", errno.ENOSPC)
            await self.tell(client, is_lost=self.random.random() < 0.06)
            self.house.disk.heal()

    async def tell(self, client: Client, *, is_lost: bool = False) -> None:
        if client.is_asking:
            return
        if not client.is_classic:
            self._beat(client, is_lost=is_lost)
        elif client.must_join:
            self._join(client, is_lost=is_lost)
        elif client.must_sync:
            self._sync(client, is_lost=is_lost)
        else:
            self._heartbeat(client)
        await asyncio.sleep(0)

    async def pass_time(self) -> None:
        self.house.timers.advance(self.random.randrange(1, 4_000))

    async def change_a_client(self) -> None:
        client = self.random.choice(self.clients)
        what = self.random.randrange(5)
        if what == 0:
            client.is_silent = not client.is_silent
        elif what in (1, 2) and not client.is_out:
            self._leave(client)
        elif what == 3:
            client.is_out = True  # killed
            client.has = frozenset()
        if client.is_out and self.random.random() < 0.6:
            client.is_classic = not client.is_classic

    async def change_topics(self) -> None:
        topic = self.house.topics.get(self.random.choice(TOPICS))
        assert topic is not None
        if len(topic.partitions) < 8:
            grow_to(self.house.topics, topic, len(topic.partitions) + 1)

    async def crash(self) -> None:
        self.house = self.house.after_restart()
        await asyncio.sleep(0)

    # Clients

    def _beat(self, client: Client, *, is_lost: bool) -> None:
        is_whole = client.says_all or client.epoch == JOINS
        beat = Beat(
            member_id=client.member_id,
            epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_whole else -1,
            topics=TOPICS if is_whole else None,
            owned=frozenset(map(self._place, client.has)),
        )
        try:
            answer, settled = self.house.groups.consumer.heartbeat("g", beat, lambda name: True, self.house.clock.now())
        except KafkaError as refusal:
            code = refusal.code
            client.says_all = True
            if code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found):
                client.lose_all()
            elif code is ErrorCode.fenced_instance_id:
                client.is_out, client.has = True, frozenset()
            else:
                assert code in (*REFUSED_BY_THE_DISK, ErrorCode.unreleased_instance_id), refusal
            return
        assert settled is ErrorCode.none
        client.says_all = is_lost
        if is_lost:
            return
        client.epoch = answer.epoch
        if answer.assigned is not None:
            client.has = frozenset(map(self._at, answer.assigned))

    def _join(self, client: Client, *, is_lost: bool) -> None:
        if client.is_eager:
            client.has = frozenset()
        self._fresh += 1
        request = JoinRequest(
            member_id=client.member_id,
            fresh_id=f"{client.name}-fresh-{self._fresh}",
            protocol_type="consumer",
            protocols=(("any", subscription(TOPICS, client.has, client.epoch)),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_id=client.instance_id,
            needs_known_id=True,
        )
        self._once(client, self.house.groups.join("g", request, self.house.clock.now()), self._joined, is_lost=is_lost)

    def _sync(self, client: Client, *, is_lost: bool) -> None:
        shares = {} if client.leads is None else dict(_shares(client.leads, self._partitions()))
        request = SyncRequest(
            member_id=client.member_id,
            generation=client.epoch,
            instance_id=client.instance_id,
            assignments=shares,
        )
        self._once(client, self.house.groups.sync("g", request, self.house.clock.now()), self._synced, is_lost=is_lost)

    def _once(self, client: Client, answer: object, hears: object, *, is_lost: bool) -> None:
        life = client.lives

        def told(found: object) -> None:
            if client.lives == life and not client.is_out:
                client.is_asking = False
                if is_lost:
                    client.must_join, client.must_sync = True, False
                else:
                    hears(client, found)  # type: ignore[operator]

        if isinstance(answer, asyncio.Future):
            client.is_asking = True
            answer.add_done_callback(lambda future: told(future.result()))
        else:
            told(answer)

    def _joined(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.none:
            client.member_id, client.epoch = answer.member_id, answer.generation
            client.must_join, client.must_sync = False, True
            client.leads = answer if answer.leader == answer.member_id else None
        elif answer.error is ErrorCode.member_id_required:
            client.member_id = answer.member_id
        else:
            self._refused(client, answer.error)

    def _synced(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.none:
            self._refused(client, answer.error)
            return
        partitions = read_share(answer.assignment).partitions
        has = frozenset((topic, index) for topic, indexes in partitions.items() for index in indexes)
        client.must_sync, client.must_join = False, bool(client.has - has)  # what it gives up it says at once
        client.has = has

    def _heartbeat(self, client: Client) -> None:
        error = self.house.groups.heartbeat(
            "g", client.member_id, client.instance_id, client.epoch, self.house.clock.now()
        )
        if error is not ErrorCode.none:
            self._refused(client, error)

    def _refused(self, client: Client, error: ErrorCode) -> None:
        if error is ErrorCode.fenced_instance_id:
            client.is_out, client.has = True, frozenset()
        elif error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
            client.lose_all()
            if error is ErrorCode.unknown_member_id:
                client.member_id = ""
        else:
            assert error in (*REFUSED_BY_THE_DISK, ErrorCode.rebalance_in_progress), error
            client.must_join, client.must_sync = True, False

    def _leave(self, client: Client) -> None:
        client.is_out, client.has = True, frozenset()
        if client.is_classic:
            leaving = Leaving(member_id=client.member_id, instance_id=client.instance_id)
            self.house.groups.leave("g", [leaving], self.house.clock.now())
        else:
            beat = Beat(member_id=client.member_id, epoch=LEAVES, instance_id=client.instance_id)
            try:
                self.house.groups.consumer.heartbeat("g", beat, lambda name: True, self.house.clock.now())
            except KafkaError as refusal:
                known = ErrorCode.unknown_member_id, ErrorCode.group_id_not_found, ErrorCode.fenced_instance_id
                assert refusal.code in known, refusal

    # What must hold

    def check(self) -> None:
        held = Counter(at for client in self._members() for at in client.has)
        twice = [at for at, count in held.items() if count > 1]
        assert not twice, f"two members have {twice}"

    def _members(self) -> Iterator[Client]:
        """Those that the group still counts. Who was sent away and has not heard it yet reads on, in any Kafka."""
        group = self.house.groups.groups.get("g")
        ids = {each.member_id for each in group.members} if group is not None else set()
        return (each for each in self.clients if not each.is_out and each.member_id in ids)

    async def settle(self) -> None:
        for client in self.clients:
            client.is_silent = False
            if client.is_out:
                client.begin()
        for _ in range(60):
            for client in self.clients:
                if client.is_out:  # fenced by what it was before
                    client.begin()
                await self.tell(client)
                self.check()
            self.house.timers.advance(BEAT_MS)
            await asyncio.sleep(0)

    def check_quiet(self) -> None:
        wanted = {(topic, index) for topic, count in self._partitions().items() for index in range(count)}
        held = Counter(at for client in self.clients for at in client.has)
        assert held == Counter(wanted), f"{held} where {wanted} is there"
        has_newer = any(not each.is_classic for each in self.clients)
        assert self._kind() == "consumer" if has_newer else self.policy == "upgrade" or self._kind() == "classic"
        now = self.house.clock.now()
        for each in self.clients:
            error = self.house.groups.check_commit("g", each.member_id, each.instance_id, each.epoch, now)
            assert error is ErrorCode.none, f"{each.name} may not commit: {error}"

    # Below

    def _partitions(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name in TOPICS if (topic := self.house.topics.get(name)) is not None}

    def _kind(self) -> str:
        group = self.house.groups.groups.get("g")
        return "none" if group is None else "consumer" if isinstance(group, ConsumerGroup) else "classic"

    def _place(self, at: At) -> Place:
        topic = self.house.topics.get(at[0])
        assert topic is not None
        return Place(topic.id.bytes, at[1])

    def _at(self, place: Place) -> At:
        topic = self.house.topics.by_id(UUID(bytes=place.topic_id))
        assert topic is not None
        return topic.name, place.partition


def _shares(joined: JoinAnswer, partitions: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """As a cooperative leader does it: what another member still has it gives nobody else."""
    metadatas = {each.member_id: each.metadata for each in joined.members}
    order = sorted(metadatas)
    has = {
        (topic, index): member_id
        for member_id, metadata in metadatas.items()
        for topic, indexes in read_subscription(metadata).has.items()
        for index in indexes
    }
    found: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in order}
    everything = sorted((topic, index) for topic, count in partitions.items() for index in range(count))
    for at, (topic, index) in enumerate(everything):
        to = order[at % len(order)]
        if has.get((topic, index), to) == to:
            found[to].setdefault(topic, []).append(index)
    for member_id, topics in found.items():
        given = {topic: tuple(indexes) for topic, indexes in topics.items()}
        yield member_id, share_bytes(metadatas[member_id], given)
