"""A flow as its register and journals show it, from outside: nothing is held, and nothing is written."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client import KafkaError, KafkaException, NewTopic
from oncelog.client.door import EARLIEST, Timeouts, TopicKeeper, end_offsets, topic_keeper, topic_sizes
from oncelog.flow.formats import Unreadable
from oncelog.flow.journal import Journal
from oncelog.flow.register import FlowRegister
from oncelog.runner.agreeing import KIND
from oncelog.runner.cluster import Cluster, journal_batches
from oncelog.runner.layout import PREFIX, Layout
from oncelog.runner.life import CLOCK
from oncelog.runner.topics import memory_ms, wanted_topics
from oncelog.runner.unread import Known, Unread, unread
from oncelog.slots import Place
from oncelog.slots.limits import SETTLE_MS

PATIENCE_MS: Final = 30_000
DAMAGED: Final = (KafkaError._BAD_MSG, KafkaError._TIMED_OUT)  # found by us, or by a broker that refuses to serve it


@dataclass(frozen=True)
class InputLook:
    topic: str
    next_offset: int | None  # None: nothing is committed
    start: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - (self.start if self.next_offset is None else self.next_offset))


@dataclass(frozen=True)
class CellLook:
    stage: str
    cell: int
    journal: Journal
    inputs: list[InputLook]
    looked_at_ms: int
    damage: str = ""  # why its journal cannot be read; nothing is known of the cell then

    @property
    def busy_until_ms(self) -> int:
        """The time until which somebody may send for this cell, by all that its journal says: the holder, where it has
        not said goodbye, and those with other code that were there before it."""
        taken = self.journal.take_over
        if taken is None:
            return 0
        return max(taken.others_until_ms, 0 if self.journal.is_left else taken.until_ms + SETTLE_MS)


@contextmanager
def _named(topic: str) -> Iterator[None]:
    """Name the topic of a record or a log that cannot be read."""
    try:
        yield
    except Unreadable as error:
        raise Unreadable(f"{topic}: {error}") from error
    except KafkaException as failure:
        if failure.error.code() not in DAMAGED:
            raise
        raise Unreadable(failure.error.str()) from failure


class Looking:
    """A look at the flows of one cluster. Used on one loop."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def flows(self) -> list[str]:
        """Their names: a register's topic has no dot behind the prefix, a journal's has."""
        topics = (await self.cluster.brokers.refresh()).topics
        names = (name.removeprefix(PREFIX) for name in topics if name.startswith(PREFIX))
        return sorted(name for name in names if "." not in name)

    def register_topic(self, flow: str) -> TopicKeeper[FlowRegister]:
        return topic_keeper(self.cluster.brokers, PREFIX + flow, KIND, FlowRegister, PATIENCE_MS)

    async def register(self, flow: str) -> FlowRegister:
        with _named(PREFIX + flow):
            return await self.register_topic(flow).read()

    async def journal(self, flow: str, stage: str, cell: int) -> Journal:
        found = Journal()
        place = Place(f"{PREFIX}{flow}.{stage}", cell)
        with _named(f"{place.topic}-{place.partition}"):
            found.read(await journal_batches(self.cluster.brokers, place, 0))
        return found

    async def cells(self, flow: str, register: FlowRegister, *, with_damaged: bool = False) -> AsyncIterator[CellLook]:
        """One after the other, since each has its state in memory."""
        sources = {each.stage: register.sources(each.stage) for each in register.stages}
        known = (await self.cluster.brokers.refresh()).topics
        for stage in register.stages:
            for cell in range(stage.cells):
                there = [
                    (name, cell)
                    for name in sources[stage.stage]
                    if name in known and cell < len(known[name].partitions)
                ]
                starts = await end_offsets(self.cluster.brokers, there, EARLIEST)
                later = register.starts(stage.stage)
                starts |= {
                    (name, at): max(starts[name, at], later[name].offsets[at]) for name, at in there if name in later
                }
                is_there = f"{PREFIX}{flow}.{stage.stage}" in known
                journal, damage = Journal(), ""
                try:
                    journal = await self.journal(flow, stage.stage, cell) if is_there else journal
                except Unreadable as why:
                    if not with_damaged:
                        raise
                    damage = str(why)
                ends = await end_offsets(self.cluster.brokers, there)
                commit = journal.commit
                inputs = [
                    InputLook(
                        name,
                        None if commit is None else commit.inputs[index].next_offset,
                        starts.get((name, cell), 0),
                        ends.get((name, cell), 0),
                    )
                    for index, name in enumerate(sources[stage.stage])
                ]
                yield CellLook(stage.stage, cell, journal, inputs, CLOCK.now().wall_ms, damage)

    async def unread(self, register: FlowRegister) -> list[Unread]:
        """The inputs that have more partitions than their stages have cells."""
        await self.cluster.brokers.refresh()
        written = {sink for *_, sink in register.flow_parts.parts} if register.flow_parts else set()
        inputs = [
            Known(stage.stage, name, stage.cells, name in written)
            for stage in register.stages
            for name in register.sources(stage.stage)
        ]
        return await unread(self.cluster.brokers, inputs)


@dataclass(frozen=True)
class TopicLook:
    wanted: NewTopic
    role: str
    partitions: int  # 0: it is not there
    size_bytes: int | None


async def topics_of(cluster: Cluster, layout: Layout) -> list[TopicLook]:
    """The topics that a flow needs, and which of them are there."""
    wanted = wanted_topics(layout, await memory_ms(cluster))
    sizes = await topic_sizes(cluster.brokers, list(wanted), Timeouts(PATIENCE_MS))
    known = cluster.brokers.metadata.topics
    roles = dict.fromkeys(layout.sources, "input") | dict.fromkeys(layout.targets, "output")
    roles |= dict.fromkeys(layout.between, "through") | {stage.journal: "journal" for stage in layout.stages}
    return [
        TopicLook(
            topic,
            roles.get(name, "register"),
            len(known[name].partitions) if name in known else 0,
            sizes.get(name),
        )
        for name, topic in wanted.items()
    ]


@asynccontextmanager
async def looking(properties: Mapping[str, Any], patience_s: float) -> AsyncIterator[Looking]:
    """A look at a cluster that answers within `patience_s`; else FlowRefused."""
    cluster = Cluster(properties, asyncio.get_running_loop().call_soon_threadsafe, lambda: None)
    try:
        await cluster.start(patience_s)
        yield Looking(cluster)
    finally:
        await cluster.close()
