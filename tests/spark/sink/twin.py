"""A cluster in memory, and processes that take turns on it: where a process can be stopped or killed, it is.

Every step that touches the cluster (an append, a read, a record that arrives) waits for its turn, before it and after
it; whose turn it is, and who dies while he waits, a seeded random decides. So attempts, drivers and what they leave
behind meet in any order. The rules of a broker are those of `tests.model`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.retry import Clock, Patience
from oncelog.client.net.transaction import TransactionName
from oncelog.client.register.partition import Fetched
from oncelog.client.register.topic import TopicKeeper
from oncelog.client.saving.saved import SavedProducer
from oncelog.client.saving.saved_topics import SavedTopic
from oncelog.clock import ManualClock
from oncelog.producers.producer_map import FIRST_KAFKA_PID
from oncelog.records.read import records_of
from oncelog.slots import Identity, Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import Json, topic_of
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.rows import Portion
from oncelog.spark.sink.saved_lanes import identity_of, only_added, places_of, together, untouched
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.state_topic import KIND, StateTopic
from oncelog.spark.sink.warm_worker import Cluster
from tests.model.partition import Partition, Producers, Wire
from tests.model.topic import CompactedTopic
from tests.model.turns import Actor, point

PARTITIONS, MOST_PARTITIONS = 3, 5
REMEMBERED = 5  # batches of a producer; a broker refuses an older one that is there
NOW = ManualClock().now()
NO_ID = "00000000-0000-0000-0000-000000000000"


class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.topic = CompactedTopic(random)
        self.is_made = False
        self.partitions = {Place("out", at): Partition(Producers()) for at in range(MOST_PARTITIONS)}
        self.counts = {"out": PARTITIONS}
        self.last_pid = FIRST_KAFKA_PID
        self.actors: list[Actor] = []

    def start(self, name: str, work: Callable[[], Any]) -> Actor:
        actor = Actor(name, work)
        self.actors.append(actor)
        return actor

    def kill(self, actor: Actor) -> None:
        if not actor.is_over:
            actor.kill()
            self.actors.remove(actor)

    def run(self, until: Callable[[], bool], *, most_steps: int = 1 << 30) -> None:
        """Everybody who is there, in random turns."""
        for _ in range(most_steps):
            self.actors = [actor for actor in self.actors if not actor.is_over]
            if until() or not self.actors:
                return
            actor = self.random.choice(self.actors)
            actor.go()
            if actor.failure is not None and not isinstance(actor.failure, SinkRefused):
                raise actor.failure

    # --- what stands in the log

    def filled(self, place: Place, identity: Identity) -> int:
        """How many of its slots."""
        known = self.partitions[place].highwater(identity.pid, NOW)
        return 0 if known is None else known[1] + 1

    def slot(self, place: Place, identity: Identity, sequence: int) -> Any:
        stored = self.partitions[place].batches
        return next(
            (wire.records[0] for _, wire in stored if (wire.pid, wire.first_sequence) == (identity.pid, sequence)), None
        )

    def produce(self, place: Place, identity: Identity, sequence: int, value: Any) -> None:
        due = self.filled(place, identity)
        assert sequence <= due, f"a gap: {sequence} where {due} is due"
        wire = Wire(place, identity.pid, identity.generation, sequence, (value,), NOW.wall_ms)
        refused, _ = self.partitions[place].append(wire, NOW)
        assert not refused or sequence < due - REMEMBERED, f"{place} answers {refused} to slot {sequence}"


class MemoryLog:
    """The sink's topic, instead of what goes over the network."""

    topic = topic_of("s")
    servers = "memory:1"

    def __init__(self, world: World) -> None:
        self.world = world

    async def partition_count(self) -> int:
        return int(self.world.is_made)

    async def create(self, config: Mapping[str, str]) -> None:
        point()
        self.world.is_made = True

    async def cleanup_policy(self) -> str | None:
        return "compact"

    async def bounds(self) -> tuple[int, int]:
        point()
        return 0, self.world.topic.end

    async def fetch(self, offset: int) -> Fetched:
        point()
        return Fetched(*self.world.topic.fetch(offset), self.world.topic.end)

    async def produce(self, batch: bytearray, transactional_id: str | None = None) -> int:
        point()
        world = self.world
        first = world.topic.store((record.key, record.value) for record in records_of(batch))
        world.topic.shown = world.topic.end
        if world.random.random() < 0.1:
            world.topic.compact()
        point()
        if world.random.random() < 0.1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the answer was lost", retriable=True))
        return first


async def _go_on(_: float) -> None:
    point()


CLOCK = Clock(lambda: 0.0, _go_on)


class MemoryTopic(TopicKeeper[SinkRegister]):
    def __init__(self, world: World) -> None:
        super().__init__(MemoryLog(world), KIND, SinkRegister, Patience(), clock=CLOCK)
        self.world = world


class MemoryDestination(Destination):
    def __init__(self, world: World) -> None:
        self.world = world

    async def new_lane(self, topic: str, count: int | None) -> SavedProducer:
        self.world.last_pid += 1
        return await self.lane_of(Identity(self.world.last_pid, 0), topic, count)

    async def lane_of(self, identity: Identity, topic: str, count: int | None = None) -> SavedProducer:
        point()
        return SavedProducer(
            cluster_id="memory",
            made_at_ms=0,
            partitioner="murmur2_random",
            topics={topic: self._begun(identity, topic, count)},
        )

    async def further_topic(self, lane: SavedProducer, topic: str, count: int | None) -> SavedProducer:
        point()
        return SavedProducer(
            cluster_id="memory",
            made_at_ms=0,
            partitioner="murmur2_random",
            topics={topic: self._begun(identity_of(lane), topic, count)},
        )

    async def added_partitions(self, lane: SavedProducer, topic: str) -> SavedProducer | None:
        point()
        have, count = lane.topics[topic].partition_count, self.world.counts[topic]
        ends = {Place(topic, at): self.world.partitions[Place(topic, at)].end_offset for at in range(have, count)}
        return only_added(lane, topic, count, ends) if ends else None

    async def counts(self, lane: SavedProducer) -> dict[str, int]:
        point()
        return {topic: self.world.counts[topic] for topic in lane.topics}

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        point()
        return {place: self.world.partitions[place].end_offset for place in places}

    async def ends_of(self, lane: SavedProducer) -> dict[Place, int]:
        return await self.ends(places_of(lane))

    async def kept_ms(self, topic: str) -> None:
        """For ever."""

    async def first_difference(self, *_: Any) -> str | None:
        return None

    def _begun(self, identity: Identity, topic: str, count: int | None) -> SavedTopic:
        count = count or self.world.counts[topic]
        ends = {Place(topic, at): self.world.partitions[Place(topic, at)].end_offset for at in range(count)}
        return SavedTopic(
            topic_id=NO_ID, partition_count=count, keyless_counter=0, partitions=untouched(identity, ends)
        )


class MemoryProducer(LaneProducer):
    """A lane's. Rows arrive one by one, each partition's in their order, whenever it is their turn."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.began: SavedProducer
        self._next: dict[Place, int] = {}
        self._to_drop: dict[Place, int] = {}
        self._on_their_way: list[tuple[Place, int, Any]] = []

    def start(self, saved: SavedProducer, *, is_fresh: bool, transaction: TransactionName | None = None) -> None:
        assert not self._on_their_way, "whoever had it before was done"
        self.began = saved
        self._next.clear()
        self._to_drop.clear()
        self._begin(saved, is_fresh=is_fresh)

    def extend(self, saved: SavedProducer, *, is_fresh: bool) -> None:
        self.began = together([self.began, saved])
        self._begin(saved, is_fresh=is_fresh)

    def _begin(self, saved: SavedProducer, *, is_fresh: bool) -> None:
        point()
        identity = identity_of(saved)
        for name, topic in saved.topics.items():
            for at, each in topic.partitions.items():
                place = Place(name, at)
                sequence = self._next[place] = each.last.next_sequence
                self.check_found(place, identity, each)
                self._to_drop[place] = 0 if is_fresh else self.world.filled(place, identity) - sequence

    def check_found(self, place: Place, identity: Identity, saved: SavedPartition) -> None:
        """What was sent since lies where it is looked for."""
        for first_sequence, _, offset in self.world.partitions[place].spans(identity.pid):
            if first_sequence >= saved.last.next_sequence:
                assert offset >= saved.next_offset, f"{place}: slot {first_sequence} at {offset} would not be found"

    def replayed(self) -> int:
        return sum(self._to_drop.values())

    def refused(self) -> None:
        """A broker in memory takes every row."""

    def send(self, portion: Portion) -> None:
        topic, rows = portion.topic, portion.rows
        count = self.began.topics[topic].partition_count
        values = rows.column("value").to_pylist()
        named = rows.column("partition").to_pylist() if "partition" in rows.schema.names else [None] * len(values)
        for value, partition in zip(values, named, strict=True):
            place = Place(topic, sum(value) % count if partition is None else partition)
            assert place.partition < count, f"{place}, where the lane has {count} partitions"
            sequence = self._next[place]
            self._next[place] += 1
            if self._to_drop[place]:
                self._to_drop[place] -= 1
                self._compare(place, sequence, value)
            else:
                self._on_their_way.append((place, sequence, value))
            while len(self._on_their_way) > 3:
                self._arrive()

    def _arrive(self) -> None:
        point()
        places = {place for place, _, _ in self._on_their_way}
        place = self.world.random.choice(sorted(places))
        at = next(at for at, each in enumerate(self._on_their_way) if each[0] == place)
        _, sequence, value = self._on_their_way.pop(at)
        self.world.produce(place, identity_of(self.began), sequence, value)
        self._compare(place, sequence, value)

    def _compare(self, place: Place, sequence: int, value: Any) -> None:
        there = self.world.slot(place, identity_of(self.began), sequence)
        if there != value:
            raise SinkRefused(f"{place}: {value!r} where {there!r} stands")

    def finish(self) -> Json:
        while self._on_their_way:
            self._arrive()
        if any(self._to_drop.values()):
            raise SinkRefused("the replay ended before the records that stand there")
        topics = {}
        for name, topic in self.began.topics.items():
            partitions = {}
            for at, each in topic.partitions.items():
                place = Place(name, at)
                span = Span(each.last.identity, self._next[place])
                partitions[at] = SavedPartition(next_offset=self.world.partitions[place].end_offset, spans=(span,))
            topics[name] = SavedTopic(
                topic_id=NO_ID, partition_count=topic.partition_count, keyless_counter=0, partitions=partitions
            )
        self.began = SavedProducer(cluster_id="memory", made_at_ms=0, partitioner=self.began.partitioner, topics=topics)
        return self.began.to_value()

    def close(self) -> None:
        self._on_their_way.clear()


class MemoryCluster(Cluster):
    """What one process has of the cluster; `kept` survives its tasks, as in a worker that is used again."""

    def __init__(self, world: World, kept: dict[str, Any]) -> None:
        self.world = world
        self.destination = MemoryDestination(world)
        self._kept = kept

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.close()

    def log(self, sink: str) -> StateTopic:
        return MemoryTopic(self.world)

    def producer(self, saved: SavedProducer) -> LaneProducer:
        producer: LaneProducer = self._kept.pop("producer", None) or MemoryProducer(self.world)
        return producer

    def release(self, producer: LaneProducer) -> None:
        self._kept["producer"] = producer

    def register(self, sink: str) -> SinkRegister | None:
        return self._kept.get("register")

    def remember(self, sink: str, register: SinkRegister) -> None:
        self._kept["register"] = register

    def forget(self, sink: str) -> None:
        self._kept.pop("register", None)
