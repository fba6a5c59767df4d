"""What the driver does when all tasks of a batch have ended well: it compares, and writes the batch's state down.

Until that record stands, the batch may be run again in full; from then on, it is only compared. The record's slot is
filled once: it goes under the sink's own pid, and the batch is its sequence.
"""

from collections.abc import Sequence

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink import steps
from oncelog.spark.sink.deciding import Doing, check_same, decide
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.following import check_others, following
from oncelog.spark.sink.lane import STATE, LaneMessage, SinkState, encode, key_of, state_fields
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.state import SinkLog
from oncelog.spark.sink.steps import reached
from oncelog.spark.sink.warm import cluster, lane_properties

NO_MESSAGE = (
    "a task of batch {batch} has told nothing: its rows may not be written. Continuous and real-time triggers end that "
    "way, as Spark never calls a Python sink for them; use trigger(processingTime=...) or trigger(availableNow=True)"
)
_SLOT_IS_TAKEN = frozenset(
    {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.DUPLICATE_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}
)


def commit_batch(options: SinkOptions, messages: Sequence[LaneMessage | None], batch: int) -> None:
    """Raises where the batch cannot be called written; then Spark does not commit it either."""
    lanes = _checked(messages, batch)
    sink, query = lanes[0].sink, lanes[0].query
    reached(steps.COMMITTING, sink=sink, batch=batch)
    connected = cluster(lane_properties(options))
    connected.run(_commit(connected.brokers, connected.log(sink), lanes, options, sink, query, batch))
    reached(steps.COMMITTED, sink=sink, batch=batch)


def _checked(messages: Sequence[LaneMessage | None], batch: int) -> list[LaneMessage]:
    lanes = [message for message in messages if message is not None]
    if not lanes or len(lanes) < len(messages):
        raise SinkRefused(NO_MESSAGE.format(batch=batch))
    lanes.sort(key=lambda message: message.lane)
    if [message.lane for message in lanes] != list(range(len(lanes))):
        raise SinkRefused(
            f"batch {batch} has lanes {[message.lane for message in lanes]}: one for each task is expected"
        )
    whose = {(message.sink, message.query, message.batch) for message in lanes}
    if whose != {(lanes[0].sink, lanes[0].query, batch)}:
        raise SinkRefused(f"the tasks of batch {batch} wrote as {sorted(whose)}")
    return lanes


async def _commit(
    brokers: Brokers, log: SinkLog, lanes: list[LaneMessage], options: SinkOptions, sink: str, query: str, batch: int
) -> None:
    standing = await log.read(back=1)
    doing = decide(standing, sink, query, batch, options.first_batch)
    if doing is Doing.VERIFY:
        assert standing.state is not None
        check_same(standing.state, lanes)
    else:
        if doing is Doing.BEGIN:
            raise SinkRefused(f"sink {sink!r} was lost while batch {batch} was written")
        await check_others(brokers, log, standing, lanes)
        state = await following(brokers, log, standing, lanes, batch)
        reached(steps.BEFORE_SAVE, sink=sink, batch=batch)
        await _save(log, standing, state, lanes)
    reached(steps.SAVED, sink=sink, batch=batch)
    await _tidy(log, standing)


async def _save(log: SinkLog, standing: Standing, state: SinkState, lanes: list[LaneMessage]) -> None:
    """Fill the batch's slot, or compare with who has filled it."""
    claim = state.claim
    key = key_of(STATE, state.batch, state.nonce)
    value = encode(STATE, state_fields(state))
    try:
        offset = await log.append(
            [(key, value)], pid=claim.pid, epoch=claim.epoch, sequence=claim.sequence(state.batch)
        )
    except KafkaException as failure:
        if failure.error.code() not in _SLOT_IS_TAKEN:
            raise
        offset = -1
    if offset >= 0:
        await log.read_to(standing, offset)
    else:
        await log.read(standing)
    saved = standing.state
    if saved is None or saved.batch < state.batch:
        raise SinkRefused(
            f"the state of batch {state.batch} of sink {claim.sink!r} was refused, and batch "
            f"{'none' if saved is None else saved.batch} is the last that is saved: the sink's topic has lost what was "
            "acknowledged (an unclean leader election, a restored disk)"
        )
    if saved.batch > state.batch:
        raise SinkRefused(
            f"another driver has saved batch {saved.batch} of sink {claim.sink!r} while this one ran batch "
            f"{state.batch}: two run on one checkpoint, and this one ends"
        )
    if saved.nonce != state.nonce:
        check_same(saved, lanes)


async def _tidy(log: SinkLog, standing: Standing) -> None:
    """Remove what nobody needs any more: states before the last two, and claims that these have taken up."""
    assert standing.state is not None
    last = standing.state.batch
    old = [key for key, batch in standing.keys.items() if batch < last - 1 or (batch < last and b"/state/" not in key)]
    if old:
        await log.append([(key, None) for key in old])
