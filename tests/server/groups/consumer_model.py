"""A group of KIP-848 with clients that do what Kafka's do, and sometimes less: they fall silent, give nothing up, lose
answers and come back as somebody else. Topics come, grow and go, the disk refuses, and the coordinator moves.

A client believes that it has what it was told last, less what it gave up. What must hold at every step stands in
`check`, and what must hold when all have spoken for a while in `check_quiet`.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from oncelog.clock import ManualClock
from oncelog.server.coordinator_topic import KeyValue
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.records import decode, decode_key, encode
from oncelog.server.groups.consumer.topics import Found, KnownTopic
from oncelog.server.groups.consumer.values import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    NOWHERE,
    Beat,
    BeatAnswer,
    ConsumerLimits,
    Places,
)

SESSION_MS, REBALANCE_MS, BEAT_MS = 45_000, 60_000, 5_000
LIMITS = ConsumerLimits(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, max_members=6)
NAMES = ("apples", "pears", "plums")


class ModelTopics:
    def __init__(self) -> None:
        self.revision = 0
        self.known: dict[str, KnownTopic] = {}
        self._made = 0

    def get(self, name: str) -> KnownTopic | None:
        return self.known.get(name)

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return next((each for each in self.known.values() if each.topic_id == topic_id), None)

    def matching(self, pattern: str) -> Found:
        return Found(pattern, self.revision, frozenset(name for name in self.known if name.startswith(pattern)))

    def make(self, name: str, partitions: int) -> None:
        self._made += 1
        self.known[name] = KnownTopic(self._made.to_bytes(16, "big"), name, partitions)
        self.revision += 1

    def grow(self, name: str) -> None:
        topic = self.known[name]
        self.known[name] = topic._replace(partitions=topic.partitions + 1)
        self.revision += 1

    def delete(self, name: str) -> None:
        del self.known[name]
        self.revision += 1


@dataclass
class Client:
    name: str
    instance_id: str | None = None
    topics: tuple[str, ...] = NAMES
    pattern: str | None = None
    member_id: str = ""
    epoch: int = JOINS
    has: Places = NOWHERE
    is_to_have: Places = NOWHERE
    is_silent: bool = False
    keeps_all: bool = False  # gives nothing up
    is_out: bool = True
    says_all: bool = False  # as clients do after a lost answer
    lives: int = field(default=0)

    def begin(self) -> None:
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.lose_all()
        self.is_out = False

    def lose_all(self) -> None:
        self.epoch, self.has, self.is_to_have = JOINS, NOWHERE, NOWHERE

    def beat(self) -> Beat:
        is_whole = self.epoch == JOINS or self.says_all
        return Beat(
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_whole else -1,
            topics=self.topics,
            pattern=self.pattern or "",
            owned=self.has,
        )


class Model:
    def __init__(self, seed: int, *, assignor: str = "uniform") -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.topics = ModelTopics()
        self.topics.make("apples", 4)
        self.limits = ConsumerLimits(
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, max_members=6, assignors=(assignor,)
        )
        self.group = ConsumerGroup("g", lambda _: self.limits)
        self.log: list[KeyValue] = []
        self.clients = [Client(f"c{n}", instance_id=f"s{n}" if n >= 4 else None) for n in range(6)]

    # What happens

    def act(self) -> None:
        action = self.random.choices(
            (self.speak, self.pass_time, self.change_a_client, self.change_topics, self.move), (60, 20, 14, 5, 1)
        )[0]
        action()
        self.check()

    def speak(self) -> None:
        client = self.random.choice(self.clients)
        if client.is_out:
            client.begin()
        if not client.is_silent:
            self.heartbeat(client, is_lost=self.random.random() < 0.1, is_refused=self.random.random() < 0.05)

    def heartbeat(self, client: Client, *, is_lost: bool = False, is_refused: bool = False) -> None:
        if not client.keeps_all:
            client.has = client.is_to_have
        answer = self._ask(client.beat(), is_refused=is_refused)
        if answer is None or is_lost:
            client.says_all = True
            return
        if answer.error is ErrorCode.none:
            client.epoch, client.says_all = answer.epoch, False
            if answer.assigned is not None:
                client.is_to_have = answer.assigned
                client.has |= answer.assigned if not client.keeps_all else NOWHERE
        elif answer.error in (
            ErrorCode.fenced_member_epoch,
            ErrorCode.unknown_member_id,
            ErrorCode.group_max_size_reached,
        ):
            client.lose_all()
        elif answer.error is ErrorCode.unreleased_instance_id:
            assert client.epoch == JOINS
        elif answer.error is ErrorCode.fenced_instance_id:
            client.is_out, client.has = True, NOWHERE
        else:
            raise AssertionError(answer)

    def _ask(self, beat: Beat, *, is_refused: bool = False) -> BeatAnswer | None:
        now, before = self.clock.now(), self._state()
        try:
            answer = self.group.heartbeat(beat, self.topics, now)
        except KafkaError as refusal:
            self.group.sharing.take_back(now)
            assert self._state() == before
            return BeatAnswer(refusal.code, refusal.message)
        if is_refused:
            self.group.sharing.take_back(now)
            assert self._state() == before, "what was not stored is not remembered"
            return None
        self.store()
        return answer

    def store(self) -> None:
        self.log += [encode("g", change) for change in self.group.members.done]
        self.group.members.stored()

    def pass_time(self) -> None:
        self.clock.advance(self.random.randrange(1, 15_000))
        self.tick()

    def tick(self) -> None:
        while self.group.wake_ms is not None and self.group.wake_ms <= self.clock.now().monotonic_ms:
            self.group.fence_late(self.topics, self.clock.now())
            self.store()

    def change_a_client(self) -> None:
        client = self.random.choice(self.clients)
        what = self.random.randrange(6)
        if what == 0:
            client.is_silent = not client.is_silent
        elif what == 1:
            client.keeps_all = not client.keeps_all
        elif what == 2:
            client.topics, client.pattern = self._subscription()
        elif what == 3 and not client.is_out:
            client.is_out, client.has = True, NOWHERE
            self._ask(Beat(member_id=client.member_id, epoch=LEAVES, instance_id=client.instance_id))
        elif what == 4 and client.instance_id is not None and not client.is_out:
            client.is_out, client.has = True, NOWHERE
            beat = Beat(member_id=client.member_id, epoch=LEAVES_FOR_A_WHILE, instance_id=client.instance_id)
            self._ask(beat)
        elif what == 5:
            client.is_out, client.has = True, NOWHERE  # killed

    def _subscription(self) -> tuple[tuple[str, ...], str | None]:
        names = tuple(name for name in NAMES if self.random.random() < 0.6)
        return names, self.random.choice((None, None, "p", "pl"))

    def change_topics(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.topics.known:
            self.topics.make(name, self.random.randrange(1, 8))
        elif self.random.random() < 0.6:
            self.topics.grow(name)
        else:
            self.topics.delete(name)

    def move(self) -> None:
        """Another broker reads it back, of which as much as is left when it is compacted."""
        compacted = dict(self.log)
        self.log = [each for each in dict(self.log).items() if each[1] is not None]
        before = self._state()
        self.group = replayed(list(compacted.items()), self.limits)
        assert self._state() == before
        self.group.sharing.restored(self.clock.now())

    def _state(self) -> object:
        members = self.group.members
        maps = (members.said, members.current, members.target, members.patterns, members.instances)
        epochs = (members.epoch, members.topics_hash, members.target_epoch, members.target_wall_ms)
        return ([dict(each) for each in maps], epochs, members.topics, members.assignor, members.held_bytes)

    # What must hold

    def check(self) -> None:
        members = self.group.members
        held = Counter(place for each in members for place in (*each.current.assigned, *each.current.revoking))
        assert all(count == 1 for count in held.values()), "two members have the same partition"
        targets = Counter(place for places in members.target.values() for place in places)
        assert all(count == 1 for count in targets.values()), "two members are to have the same partition"
        for client in self.clients:
            if not client.is_out and client.member_id in members.said:
                current = members.current_of(client.member_id)
                known = current.assigned.keys() | current.revoking.keys()
                # One that comes back with nothing has not heard yet that it may have more; none has what is another's.
                strange = {place for place in client.has if members.owner(place) not in (None, client.member_id)}
                assert not strange, f"{client.name} reads what is another's: {strange}"
                assert client.has <= known or client.epoch == JOINS, f"{client.name} has {client.has - known}"

    def settle(self) -> None:
        for client in self.clients:
            client.is_silent = client.keeps_all = False
        for _ in range(40):
            for client in self.clients:
                if not client.is_out:
                    self.heartbeat(client)
                    self.check()
            self.clock.advance(BEAT_MS)
            self.tick()

    def check_quiet(self) -> None:
        members, here = self.group.members, [each for each in self.clients if not each.is_out]
        assert set(members.said) == {each.member_id for each in here}
        for client in here:
            assert (
                client.has
                == members.target_of(client.member_id)
                == members.current_of(client.member_id).assigned.keys()
            )
        wanted = {each.topic_id: each.partitions for each in map(self.topics.get, members.topics) if each is not None}
        places = {(topic_id, index) for topic_id, count in wanted.items() for index in range(count)}
        assert {tuple(place) for client in here for place in client.has} == (places if here else set())
        if self.group.sharing.assignor == "uniform":
            self._check_even(here)

    def _check_even(self, here: list[Client]) -> None:
        """Nobody has two more than another who could have one of them."""
        for client in here:
            reads = self.group.members.topics_of(self.group.members.said[client.member_id])
            ids = {each.topic_id for each in map(self.topics.get, reads) if each is not None}
            richer = [each for each in here if len(each.has) > len(client.has) + 1]
            assert not [place for each in richer for place in each.has if place.topic_id in ids]


def replayed(log: list[KeyValue], limits: ConsumerLimits = LIMITS) -> ConsumerGroup:
    group = ConsumerGroup("g", lambda _: limits)
    for data, value in log:
        key = decode_key(data)
        assert key is not None
        group.members.apply(decode(key, value))
    return group
