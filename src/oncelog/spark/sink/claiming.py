"""Claims and marks: whose the sink is, under which identity a lane writes, and that it is about to send something.

Each is appended before what it announces, and then everything up to it is read: the first in the log stands, no matter
who appended it. A task that finds its own first knows that nothing was sent before.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from oncelog.client import SavedProducer
from oncelog.clock import wall_s
from oncelog.slots.register import Outcome
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    TOPIC,
    Content,
    Json,
    LaneClaim,
    LaneTask,
    Mark,
    SinkClaim,
    encode,
    key_of,
)
from oncelog.spark.sink.sink_register import SinkRegister, batch_of, fact_about
from oncelog.spark.sink.state_topic import StateTopic

T = TypeVar("T")


async def announce(
    topic: StateTopic,
    register: SinkRegister,
    kind: str,
    content: Content,
    *named: object,
    removes: Iterable[bytes] = (),
) -> Outcome:
    """Append it, and read on up to it: what came of it. `named`: by what its key tells it from others, beside the
    nonce."""
    fact = fact_about(kind, content)
    batch = batch_of(fact)
    assert batch is not None, "every record of a sink belongs to a batch"
    key = key_of(kind, batch, *named, fact.nonce)
    await topic.append(register, [(key, encode(kind, content)), *((old, None) for old in removes)])
    return register.outcome(fact.subjects[-1], fact.nonce, fact.term)


class Claims:
    """The claims of one task. The answer to a claim is whether nobody had sent anything under it before."""

    def __init__(self, topic: StateTopic, register: SinkRegister, destination: Destination, place: LaneTask) -> None:
        self._topic = topic
        self._register = register
        self._destination = destination
        self._place = place

    async def sink(self, name: str, *, in_transactions: bool) -> None:
        """Claim the sink. Afterwards it is somebody's; whether ours, the register says."""
        claim = SinkClaim(name, self._place.query, self._place.batch, secrets.token_hex(8), in_transactions)
        await announce(self._topic, self._register, SINK, claim)

    async def lane(self, output: str) -> bool:
        """An identity for the lane, to write to this topic with."""
        count = self._register.partition_count(output)
        return await self._claim(LANE, await self._asked(lambda to: to.new_lane(output, count)))

    async def topic(self, output: str) -> bool:
        """The lane goes on to one topic more."""
        lane = self._register.lane(self._place.lane)
        assert lane is not None, "a lane claims itself first"
        known = SavedProducer.from_json(lane.producer)
        count = self._register.partition_count(output)
        return await self._claim(TOPIC, await self._asked(lambda to: to.further_topic(known, output, count)), output)

    async def partitions(self, output: str) -> bool | None:
        """The lane writes to partitions that the topic has got since, too; None where it has got none."""
        first = self._register.partitions_of(self._place.lane, output)
        known = SavedProducer.from_json(self._newest(output))
        added = await self._asked(lambda to: to.added_partitions(known, output))
        return None if added is None else await self._claim(TOPIC, added, output, first)

    async def mark(self) -> bool:
        """The lane is about to send something of this batch."""
        known = self._register.beginning(self._place.lane)
        assert known is not None, "a lane claims itself first"
        ends = await self._asked(lambda to: to.ends_of(known))
        return await self._announce(MARK, Mark(self._place.batch, self._place.lane, secrets.token_hex(8), ends))

    async def _claim(self, kind: str, value: SavedProducer, *named: object) -> bool:
        place, nonce = self._place, secrets.token_hex(8)
        claim = LaneClaim(place.batch, place.lane, value.to_value(), nonce, int(wall_s() * 1000))
        return await self._announce(kind, claim, *named)

    async def _announce(self, kind: str, content: Content, *named: object) -> bool:
        outcome = await announce(self._topic, self._register, kind, content, self._place.lane, *named)
        return outcome is Outcome.OWN

    async def _asked(self, question: Callable[[Destination], Awaitable[T]]) -> T:
        return await self._topic.patiently(lambda: question(self._destination))

    def _newest(self, output: str) -> Json:
        """The producer that knows the most partitions of the topic."""
        known = self._register.lane(self._place.lane)
        assert known is not None, "a lane claims itself first"
        claimed = [claim.producer for claim in self._register.further_topics(self._place.lane)]
        return next(each for each in (*claimed[::-1], known.producer) if output in each["topics"])
