"""A cluster in memory, and processes that take turns on it: where a process can be stopped or killed, it is.

Every step that touches the cluster (an append, a read, a record that arrives) waits for its turn, before it and after
it; whose turn it is, and who dies while he waits, a seeded random decides. So attempts, drivers and what they leave
behind meet in any order, and a run is repeated by its seed.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.retry import Clock, Patience
from oncelog.client.register.partition import Fetched
from oncelog.client.register.topic import TopicKeeper
from oncelog.client.saving.saved import SavedProducer
from oncelog.client.saving.saved_topics import SavedTopic
from oncelog.records.read import records_of
from oncelog.slots import Identity, Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.slots.register import Record
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import Json, topic_of
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.rows import Portion
from oncelog.spark.sink.saved_lanes import identity_of, only_added, places_of, together, untouched
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.state_topic import KIND, StateTopic

PARTITIONS = 3
NO_ID = "00000000-0000-0000-0000-000000000000"


class Killed(BaseException):
    """The process is gone; nothing of it runs any more."""


class Actor:
    """One process. It runs in a thread of its own, and only while it is its turn."""

    def __init__(self, world: "World", name: str, work: Callable[[], Any]) -> None:
        self.world = world
        self.name = name
        self.result: Any = None
        self.failure: SinkRefused | None = None
        self.is_over = False
        self.is_doomed = False
        self._work = work
        self._turn = threading.Semaphore(0)
        self._yielded = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        _here.actor = self
        try:
            if not self.is_doomed:
                self.result = self._work()
        except Killed:
            pass
        except SinkRefused as refusal:
            self.failure = refusal
        except Exception as defect:
            self.world.defects.append(defect)
        self.is_over = True
        self._yielded.release()

    @property
    def has_succeeded(self) -> bool:
        return self.is_over and self.failure is None and not self.is_doomed

    def go(self) -> None:
        """One turn, up to where it next touches the cluster."""
        self._turn.release()
        self._yielded.acquire()
        if self.is_over:
            self._thread.join()

    def step(self) -> None:
        self._yielded.release()
        self._turn.acquire()
        if self.is_doomed:
            raise Killed


_here = threading.local()


def step() -> None:
    """Somebody else may be next, and this process may be killed."""
    _here.actor.step()


class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.records: list[Record] = []
        self.next_offset = 0
        self.is_made = False
        self.partitions: dict[Place, list[tuple[Identity, int, Any]]] = {}
        self.counts: dict[str, int] = {}
        self.last_pid = 0
        self.actors: list[Actor] = []
        self.defects: list[Exception] = []

    def start(self, name: str, work: Callable[[], Any]) -> Actor:
        actor = Actor(self, name, work)
        self.actors.append(actor)
        return actor

    def kill(self, actor: Actor) -> None:
        if not actor.is_over:
            actor.is_doomed = True
            actor.go()
            self.actors.remove(actor)

    def run(self, until: Callable[[], bool], *, most_steps: int = 1 << 30) -> None:
        """Everybody who is there, in random turns."""
        for _ in range(most_steps):
            self.actors = [actor for actor in self.actors if not actor.is_over]
            if until() or not self.actors:
                return
            self.random.choice(self.actors).go()
            if self.defects:
                raise self.defects[0]

    # --- what stands in the log

    def slot(self, place: Place, identity: Identity, sequence: int) -> Any:
        return next(
            (value for who, number, value in self.partitions[place] if (who, number) == (identity, sequence)), None
        )

    def produce(self, place: Place, identity: Identity, sequence: int, value: Any) -> None:
        """As a broker: a slot is filled once, and none is left out."""
        log = self.partitions[place]
        due = sum(who == identity for who, _, _ in log)
        assert sequence <= due, f"a gap: {sequence} where {due} is due"
        if sequence == due:
            log.append((identity, sequence, value))

    def compact(self) -> None:
        """What has a younger record of the same key goes, and tombstones."""
        newest = {each.key: each.offset for each in self.records}
        self.records = [each for each in self.records if newest[each.key] == each.offset and each.value is not None]


class MemoryLog:
    """The sink's topic, instead of what goes over the network."""

    topic = topic_of("s")
    servers = "memory:1"

    def __init__(self, world: World) -> None:
        self.world = world

    async def partition_count(self) -> int:
        return int(self.world.is_made)

    async def create(self, config: Mapping[str, str]) -> None:
        step()
        self.world.is_made = True

    async def cleanup_policy(self) -> str | None:
        return "compact"

    async def bounds(self) -> tuple[int, int]:
        step()
        return 0, self.world.next_offset

    async def fetch(self, offset: int) -> Fetched:
        step()
        there = [record for record in self.world.records if record.offset >= offset]
        some = there[: self.world.random.randint(1, 5)]
        end = self.world.next_offset
        return Fetched(some, some[-1].offset + 1 if len(some) < len(there) else end, end)

    async def produce(self, batch: bytearray) -> int:
        step()
        world = self.world
        first = world.next_offset
        for record in records_of(batch):
            world.records.append(Record(world.next_offset, record.key, record.value))
            world.next_offset += 1
        if world.random.random() < 0.1:
            world.compact()
        step()
        if world.random.random() < 0.1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the answer was lost", retriable=True))
        return first


async def _go_on(_: float) -> None:
    step()


CLOCK = Clock(lambda: 0.0, _go_on)


class MemoryTopic(TopicKeeper[Standing]):
    def __init__(self, world: World) -> None:
        super().__init__(MemoryLog(world), KIND, Standing, Patience(), clock=CLOCK)
        self.world = world


class MemoryDestination:
    def __init__(self, world: World) -> None:
        self.world = world

    async def new_lane(self, topic: str, count: int | None) -> SavedProducer:
        step()
        self.world.last_pid += 1
        identity = Identity(self.world.last_pid, 0)
        return SavedProducer(
            cluster_id="memory",
            made_at_ms=0,
            partitioner="murmur2_random",
            topics={topic: self._begin(identity, topic, count)},
        )

    async def further_topic(self, lane: SavedProducer, topic: str, count: int | None) -> SavedProducer:
        step()
        return SavedProducer(
            cluster_id="memory",
            made_at_ms=0,
            partitioner="murmur2_random",
            topics={topic: self._begin(identity_of(lane), topic, count)},
        )

    async def added_partitions(self, lane: SavedProducer, topic: str) -> SavedProducer | None:
        step()
        have, count = lane.topics[topic].partition_count, self.world.counts[topic]
        ends = {Place(topic, at): len(self.world.partitions[Place(topic, at)]) for at in range(have, count)}
        return only_added(lane, topic, count, ends) if ends else None

    async def counts(self, lane: SavedProducer) -> dict[str, int]:
        step()
        return {topic: self.world.counts[topic] for topic in lane.topics}

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        step()
        return {place: len(self.world.partitions[place]) for place in places}

    async def ends_of(self, lane: SavedProducer) -> dict[Place, int]:
        return await self.ends(places_of(lane))

    async def kept_ms(self, topic: str) -> None:
        """For ever."""

    async def first_difference(self, *_: Any) -> str | None:
        return None

    def _begin(self, identity: Identity, topic: str, count: int | None) -> SavedTopic:
        count = count or self.world.counts[topic]
        ends = {Place(topic, at): len(self.world.partitions[Place(topic, at)]) for at in range(count)}
        return SavedTopic(
            topic_id=NO_ID, partition_count=count, keyless_counter=0, partitions=untouched(identity, ends)
        )


class MemoryProducer:
    """A lane's. Rows arrive one by one, each partition's in their order, whenever it is their turn."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.began: SavedProducer
        self._next: dict[Place, int] = {}
        self._to_drop: dict[Place, int] = {}
        self._under_way: list[tuple[Place, int, Any]] = []

    def start(self, saved: SavedProducer, *, is_fresh: bool) -> None:
        assert not self._under_way, "whoever had it before was done"
        self.began = saved
        self._next.clear()
        self._to_drop.clear()
        self._begin(saved, is_fresh=is_fresh)

    def extend(self, saved: SavedProducer, *, is_fresh: bool) -> None:
        self.began = together([self.began, saved])
        self._begin(saved, is_fresh=is_fresh)

    def _begin(self, saved: SavedProducer, *, is_fresh: bool) -> None:
        step()
        identity = identity_of(saved)
        for name, topic in saved.topics.items():
            for at, each in topic.partitions.items():
                place = Place(name, at)
                sequence = self._next[place] = each.last.next_sequence
                filled = sum(who == identity for who, _, _ in self.world.partitions[place])
                self.check_found(place, identity, each)
                self._to_drop[place] = 0 if is_fresh else filled - sequence

    def check_found(self, place: Place, identity: Identity, saved: SavedPartition) -> None:
        """What was sent since lies where it is looked for."""
        for offset, (who, sequence, _) in enumerate(self.world.partitions[place]):
            if who == identity and sequence >= saved.last.next_sequence:
                assert offset >= saved.next_offset, f"{place}: slot {sequence} at {offset} would not be found"

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
                self._under_way.append((place, sequence, value))
            while len(self._under_way) > 3:
                self._arrive()

    def _arrive(self) -> None:
        step()
        places = {place for place, _, _ in self._under_way}
        place = self.world.random.choice(sorted(places))
        at = next(at for at, each in enumerate(self._under_way) if each[0] == place)
        _, sequence, value = self._under_way.pop(at)
        self.world.produce(place, identity_of(self.began), sequence, value)
        self._compare(place, sequence, value)

    def _compare(self, place: Place, sequence: int, value: Any) -> None:
        there = self.world.slot(place, identity_of(self.began), sequence)
        if there != value:
            raise SinkRefused(f"{place}: {value!r} where {there!r} stands")

    def finish(self) -> Json:
        while self._under_way:
            self._arrive()
        if any(self._to_drop.values()):
            raise SinkRefused("the replay ended before the records that stand there")
        topics = {}
        for name, topic in self.began.topics.items():
            partitions = {}
            for at, each in topic.partitions.items():
                place = Place(name, at)
                span = Span(each.last.identity, self._next[place])
                partitions[at] = SavedPartition(next_offset=len(self.world.partitions[place]), spans=(span,))
            topics[name] = SavedTopic(
                topic_id=NO_ID, partition_count=topic.partition_count, keyless_counter=0, partitions=partitions
            )
        self.began = SavedProducer(cluster_id="memory", made_at_ms=0, partitioner=self.began.partitioner, topics=topics)
        return self.began.to_value()

    def close(self) -> None:
        self._under_way.clear()


class MemoryCluster:
    """What one process has of the cluster; `kept` survives its tasks, as in a worker that is used again."""

    def __init__(self, world: World, kept: dict[str, Any]) -> None:
        self.world = world
        self.destination: Destination = MemoryDestination(world)
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

    def standing(self, sink: str) -> Standing | None:
        return self._kept.get("standing")

    def remember(self, sink: str, standing: Standing) -> None:
        self._kept["standing"] = standing

    def forget(self, sink: str) -> None:
        self._kept.pop("standing", None)
