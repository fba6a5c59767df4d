"""One group's coordinator, and copies of a job that race for what it has committed.

Whose turn it is a seed decides; a copy may end at any step. The coordinator is Kafka's: a static member that joins
fences the one of the same name, a commit is the current member's or refused, sessions end. Requests and answers get
lost, and a coordinator that moved says so.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.coordinators import Coordinators
from oncelog.client.register.entry import Entry
from oncelog.client.saving.committed import take_out
from oncelog.client.saving.errors import TakenOver
from oncelog.client.saving.ownership import Ownership, fetch_committed
from oncelog.client.saving.saved_topics import SavedTopic

GROUP = "g"
LONGEST_SESSION_MS = 300_000  # so that the first try is refused
MOST_TURNS = 600  # of one copy
LOADING, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, SESSION, FENCED = 14, 16, 22, 25, 26, 82


class Value(NamedTuple):
    """A saved producer: one number, and the number that it builds upon."""

    number: int
    base: int
    topics: Mapping[str, SavedTopic] = MappingProxyType({})

    def to_json(self) -> str:
        return f"{self.number} {self.base}"

    @classmethod
    def of(cls, text: bytes) -> "Value":
        number, base = map(int, text.split())
        return cls(number, base)


class Ended(Exception):
    """The copy was killed."""


@dataclass
class Coordinator:
    random: Random
    generation: int = 0
    members: int = 0
    member_id: str = ""  # of the only member
    is_synced: bool = False
    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    stored: list[Value] = field(default_factory=list)  # what every commit came to, in order

    def answer(self, name: str, request: Any) -> Any:
        if self.random.random() < 0.05:
            self.member_id = ""  # its session ended
        code = self.random.choice((LOADING, NOT_COORDINATOR)) if self.random.random() < 0.05 else 0
        return getattr(self, name)(request, code)

    def offset_fetch(self, request: Any, code: int) -> Any:
        partitions = [] if code else list(self.offsets.items())
        topics = [
            with_one(name, at, error_code=0, committed_offset=offset, metadata=metadata)
            for (name, at), (offset, metadata) in partitions
        ]
        return SimpleNamespace(error_code=code, topics=topics)

    def join_group(self, request: Any, code: int) -> Any:
        if not code and request.session_timeout.total_seconds() * 1000 > LONGEST_SESSION_MS:
            code = SESSION
        if not code:
            assert request.group_instance_id, "a member without a name fences nobody"
            self.members += 1
            self.generation += 1
            self.member_id, self.is_synced = f"m{self.members}", False
        member = self.member_id
        return SimpleNamespace(error_code=code, generation_id=self.generation, member_id=member, leader=member)

    def sync_group(self, request: Any, code: int) -> Any:
        code = code or self.refusal(request.member_id, request.generation_id)
        self.is_synced = self.is_synced or not code
        return SimpleNamespace(error_code=code)

    def offset_commit(self, request: Any, code: int) -> Any:
        code = code or self.refusal(request.member_id, request.generation_id_or_member_epoch)
        if not code and not self.is_synced:
            code = ILLEGAL_GENERATION
        asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
        if not code:
            for name, each in asked:
                self.offsets[name, each.partition_index] = each.committed_offset, each.committed_metadata
        partitions = [
            SimpleNamespace(
                name=name, partitions=[SimpleNamespace(partition_index=each.partition_index, error_code=code)]
            )
            for name, each in asked
        ]
        return SimpleNamespace(topics=partitions)

    def leave_group(self, request: Any, code: int) -> Any:
        (gone,) = request.members
        assert gone.group_instance_id, "a member without a name is another one"
        of_member = 0 if code else self.refusal(gone.member_id, self.generation)
        if not code and not of_member:
            self.member_id, self.generation = "", self.generation + 1
        return SimpleNamespace(error_code=code, members=[SimpleNamespace(error_code=of_member)])

    def refusal(self, member_id: str, generation: int) -> int:
        if not self.member_id:
            return UNKNOWN_MEMBER
        if member_id != self.member_id:
            return FENCED
        return 0 if generation == self.generation else ILLEGAL_GENERATION


class Brokers:
    """Of one copy: what `OffsetsKeeper` has of the cluster."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.turns = 0
        self.coordinators = Coordinators(self.coordinator)

    async def coordinator(self, group: str, _: int) -> int:
        assert group == GROUP
        return 0

    async def request(self, node_id: int, name: str, build: Callable[[Any], Any], **_: Any) -> Any:
        world = self.world
        await world.turn(self)
        request = build(SimpleNamespace(new=lambda _, **fields: SimpleNamespace(**fields)))
        if world.random.random() < 0.05:
            raise lost()
        before = dict(world.group.offsets)
        answer = world.group.answer(name, request)
        if world.group.offsets != before or (name == "offset_commit" and not refused(answer)):
            world.note()
        await world.turn(self)
        if world.random.random() < 0.05:
            raise lost()
        return answer


def with_one(name: str, partition: int, **fields: Any) -> Any:
    return SimpleNamespace(name=name, partitions=[SimpleNamespace(partition_index=partition, **fields)])


def refused(answer: Any) -> bool:
    return any(each.error_code for topic in answer.topics for each in topic.partitions)


def lost() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TRANSPORT, retriable=True))


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.group = Coordinator(self.random)
        self.numbers = 0
        self.waiting: list[asyncio.Future[None]] = []

    async def run(self, copies: int) -> None:
        started = 0
        running: set[asyncio.Task[None]] = set()
        while started < copies or running:
            if started < copies and (len(running) < 2 or self.random.random() < 0.1):
                started += 1
                running.add(asyncio.ensure_future(self.copy()))
            while len(self.waiting) < len(running) and not any(each.done() for each in running):
                await asyncio.sleep(0)
            for each in [each for each in running if each.done()]:
                running.remove(each)
                each.result()
            if self.waiting:
                self.waiting.pop(self.random.randrange(len(self.waiting))).set_result(None)
                await asyncio.sleep(0)

    async def turn(self, brokers: Brokers) -> None:
        brokers.turns += 1
        assert brokers.turns < MOST_TURNS, "it comes to no end"
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn
        if self.random.random() < 0.01:
            raise Ended

    # --- a copy of the job

    async def copy(self) -> None:
        """Loads, and commits what builds upon it, and what builds upon that."""
        brokers: Any = Brokers(self)
        try:
            held = await fetch_committed(brokers, GROUP, Value.of)
            base = 0 if held.saved is None else held.saved.number
            owner = Ownership(brokers, GROUP, held.saved, Value.of)
            for _ in range(self.random.randint(1, 5)):
                self.numbers += 1
                value = Value(self.numbers, base)
                try:
                    await owner.commit([Entry("in", at, value.number) for at in (0, 1)], value)
                except TakenOver:
                    assert self.group.stored[-1].number != base, "nobody has taken it over"
                    if self.random.random() < 0.5:
                        return
                    continue  # its user tries again
                base = value.number
                await self.leave_perhaps(owner)
                assert value in self.group.stored, "a commit that was acknowledged is not there"
        except Ended:
            pass

    async def leave_perhaps(self, owner: Ownership[Value]) -> None:
        """It may be the last one of the group by then, or fenced, or go on."""
        if self.random.random() < 0.2:
            with suppress(KafkaException):
                await owner.leave()

    # --- what must be true

    def note(self) -> None:
        """A commit was stored: it builds upon the one before, and its positions are its own."""
        value = self.held()
        before = self.group.stored[-1] if self.group.stored else Value(0, 0)
        assert value == before or value.base == before.number, f"{value} was stored over {before}"
        assert {offset for offset, _ in self.group.offsets.values()} == {value.number}
        self.group.stored.append(value)

    def held(self) -> Value:
        entries = [Entry(name, at, offset, text) for (name, at), (offset, text) in self.group.offsets.items()]
        saved = take_out(entries, Value.of).saved
        assert saved is not None
        return saved
