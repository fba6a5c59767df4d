"""The driver's work when all tasks of a batch have ended well: it compares, and writes the batch's state down.

Until that record stands, the batch may be run again in full; from then on it is only compared. Of two drivers that save
the same batch the first in the log has saved it, and the other one compares too.
"""

import logging
from collections.abc import Sequence
from typing import Final

from oncelog.client import KafkaException
from oncelog.client.door import TopicGone
from oncelog.clock import wall_s
from oncelog.slots.register import Outcome
from oncelog.spark.options import SinkOptions
from oncelog.spark.retention import soon_gone
from oncelog.spark.sink import milestones
from oncelog.spark.sink.claiming import announce
from oncelog.spark.sink.deciding import (
    Doing,
    check_claimed,
    check_same,
    check_topic,
    decide,
    other_lanes,
    state_lost,
    topic_gone,
)
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import STATE, LaneMessage, SinkState
from oncelog.spark.sink.milestones import reached
from oncelog.spark.sink.next_state import following
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.state_topic import StateTopic
from oncelog.spark.sink.warm_worker import Cluster, cluster, read_on

_log: Final = logging.getLogger("oncelog.spark")
_warned: Final[set[str]] = set()

NO_MESSAGE = (
    "a task of batch {batch} ended without reporting to the driver, so it is not known whether its rows were written; "
    "the batch is not committed. Continuous and real-time triggers always end this way, because Spark never calls a "
    "Python sink for them: use trigger(processingTime=...) or trigger(availableNow=True)"
)


def commit_batch(
    options: SinkOptions, messages: Sequence[LaneMessage | None], batch: int, connected: Cluster | None = None
) -> None:
    """Raises where the batch cannot be called written; then Spark does not commit it either."""
    lanes = checked_messages(messages, batch)
    sink, query = lanes[0].sink, lanes[0].query
    reached(milestones.COMMITTING, sink=sink, batch=batch)
    connected = connected or cluster(lane_properties(options))
    try:
        register = read_on(connected, sink, batch=batch, back=1, is_expected=True) or SinkRegister()
        committing = _Committing(connected.log(sink), connected.destination, register, lanes, batch)
        connected.run(committing.commit(query, options))
        warn_of_old(connected, lanes)
    except TopicGone as gone:
        raise SinkRefused(topic_gone(options, sink, batch, gone.what)) from gone
    except KafkaException as failure:
        words = failure.error.str()
        raise SinkRefused(f"the state of batch {batch} of sink {sink!r} could not be saved: {words}") from failure
    reached(milestones.COMMITTED, sink=sink, batch=batch)


def warn_of_old(connected: Cluster, lanes: Sequence[LaneMessage]) -> None:
    """Warn once for each topic and process: nothing is wrong with the batch, but with what becomes of it."""
    oldest_ms: dict[str, int] = {}
    for lane in lanes:
        for topic, each_ms in lane.oldest_ms.items():
            oldest_ms[topic] = min(each_ms, oldest_ms.get(topic, each_ms))
    for topic, each_ms in oldest_ms.items():
        kept = None if topic in _warned else connected.run(connected.destination.kept_ms(topic))
        if kept is not None and each_ms < int(wall_s() * 1000) - kept:
            _warned.add(topic)
            _log.warning(soon_gone(topic, kept, f"the rows of sink {lanes[0].sink!r}", "written"))


def checked_messages(messages: Sequence[LaneMessage | None], batch: int) -> list[LaneMessage]:
    lanes = [message for message in messages if message is not None]
    if not lanes or len(lanes) < len(messages):
        raise SinkRefused(NO_MESSAGE.format(batch=batch))
    lanes.sort(key=lambda message: message.lane)
    numbers = [message.lane for message in lanes]
    if numbers != list(range(len(lanes))):
        raise SinkRefused(f"batch {batch} has lanes {numbers}: one for each task is expected, from 0 on")
    whose = {(message.sink, message.query, message.batch) for message in lanes}
    if whose != {(lanes[0].sink, lanes[0].query, batch)}:
        raise SinkRefused(
            f"the tasks of batch {batch} wrote for different sinks, queries or batches: {sorted(whose)}. The batch is "
            "not committed; running the query again writes what is missing of it"
        )
    return lanes


class _Committing:
    def __init__(
        self, topic: StateTopic, destination: Destination, register: SinkRegister, lanes: list[LaneMessage], batch: int
    ) -> None:
        self._topic = topic
        self._destination = destination
        self._lanes = lanes
        self._sink = lanes[0].sink
        self._batch = batch
        self._register = register

    async def commit(self, query: str, options: SinkOptions) -> None:
        sink, batch = self._sink, self._batch
        doing = decide(self._register, sink, query, batch, options.first_batch)
        if doing is Doing.BEGIN:
            raise SinkRefused(state_lost(sink, batch))
        if doing is Doing.VERIFY:
            assert self._register.state is not None
            check_same(self._register.state, self._lanes)
            check_topic(self._register.state, options)
        else:
            check_claimed(self._register, sink, batch, self._lanes)
            state = await following(self._topic, self._destination, self._register, self._lanes, batch)
            self._check_all_lanes(state)
            reached(milestones.BEFORE_SAVE, sink=sink, batch=batch)
            await self._save(state)
        reached(milestones.SAVED, sink=sink, batch=batch)

    def _check_all_lanes(self, state: SinkState) -> None:
        others = self._register.unwritten(state)
        if others:
            raise SinkRefused(other_lanes(self._sink, self._batch, len(self._lanes), others))

    async def _save(self, state: SinkState) -> None:
        old = self._register.outlived(self._batch)
        outcome = await announce(self._topic, self._register, STATE, state, removes=old)
        saved = self._register.state
        if saved is None or outcome is Outcome.OPEN:
            self._check_all_lanes(state)
            raise SinkRefused(f"the state of batch {state.batch} of sink {self._sink!r} does not count: a defect")
        if saved.batch > state.batch:
            raise SinkRefused(
                f"another driver has saved batch {saved.batch} of sink {self._sink!r} while this one ran batch "
                f"{state.batch}: two run on one checkpoint, and this one ends"
            )
        if outcome is Outcome.OTHERS:
            check_same(saved, self._lanes)
