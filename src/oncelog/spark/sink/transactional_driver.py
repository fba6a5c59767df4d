"""The driver's work on a batch that is a transaction, when its task has ended well: it writes down, in the same
transaction, that the batch is written, and commits it. A reader who sees one of the two sees both."""

import logging
import secrets
from collections.abc import Sequence
from typing import Final

from oncelog.client import KafkaException, SavedProducer
from oncelog.client.door import TransactionName
from oncelog.clock import wall_s
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink import milestones
from oncelog.spark.sink.deciding import Doing, decide, ended_by_others, other_count, state_lost
from oncelog.spark.sink.driver import checked_messages, warn_of_old
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import STATE, LaneMessage, SinkState, encode, key_of, topic_of
from oncelog.spark.sink.milestones import reached
from oncelog.spark.sink.option_checking import lane_properties, transaction_timeout_ms
from oncelog.spark.sink.saved_lanes import identity_of
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.transactional_lane import ENDED
from oncelog.spark.sink.warm_worker import Cluster, cluster, read_on

_log: Final = logging.getLogger("oncelog.spark")


def commit_transaction(
    options: SinkOptions, messages: Sequence[LaneMessage | None], batch: int, connected: Cluster | None = None
) -> None:
    """Raises where the batch is not known to be committed; then Spark does not commit it either, and the next run finds
    out whether it is."""
    lanes = checked_messages(messages, batch)
    sink = lanes[0].sink
    reached(milestones.COMMITTING, sink=sink, batch=batch)
    connected = connected or cluster(lane_properties(options))
    try:
        _commit(options, connected, lanes, batch)
    except KafkaException as failure:
        words = failure.error.str()
        if failure.error.code() in ENDED:
            words = f"{ended_by_others(sink, batch, transaction_timeout_ms(options))}: {words}"
        raise SinkRefused(f"batch {batch} of sink {sink!r} is not known to be committed: {words}") from failure
    warn_of_old(connected, lanes)
    reached(milestones.COMMITTED, sink=sink, batch=batch)


def _commit(options: SinkOptions, connected: Cluster, lanes: Sequence[LaneMessage], batch: int) -> None:
    sink = lanes[0].sink
    name = _transaction_of(lanes)
    if name is None:  # a batch without rows: one who had written some may have been about to commit them
        name = connected.begin(topic_of(sink), transaction_timeout_ms(options))
    register = read_on(connected, sink, batch=batch, back=1, to_end=True, is_expected=True) or SinkRegister()
    doing = decide(register, sink, lanes[0].query, batch, options.first_batch, in_transactions=True)
    if doing is Doing.BEGIN or register.owner is None:
        raise SinkRefused(state_lost(sink, batch))
    rows = sum(lane.rows for lane in lanes)
    if doing is Doing.VERIFY:
        saved = None if register.state is None else register.state.rows
        if saved not in (None, rows):
            _log.warning(other_count(sink, batch, rows, saved))
    else:
        state = SinkState(
            claim=register.owner,
            batch=batch,
            lane_count=len(lanes),
            lanes={},
            previous_offset=max(register.state_offset, 0),
            nonce=secrets.token_hex(8),
            made_at_ms=int(wall_s() * 1000),
            rows=rows,
        )
        pairs = [(key_of(STATE, batch, state.nonce), encode(STATE, state))]
        transaction = connected.transaction(name)
        removed = [(old, None) for old in register.outlived(batch)]
        connected.run(connected.log(sink).append_in(transaction, [*pairs, *removed]))
        reached(milestones.BEFORE_SAVE, sink=sink, batch=batch)
        connected.run(transaction.end(commits=True))
    reached(milestones.SAVED, sink=sink, batch=batch)


def _transaction_of(lanes: Sequence[LaneMessage]) -> TransactionName | None:
    written = [lane for lane in lanes if lane.producer is not None]
    if not written:
        return None
    (lane,) = written
    return TransactionName(topic_of(lane.sink), identity_of(SavedProducer.from_json(lane.producer or {})))


def abort_transaction(
    options: SinkOptions, lanes: Sequence[LaneMessage | None], connected: Cluster | None = None
) -> None:
    """The one in which these rows are, if anybody answers, and unless another attempt has begun since: that is refused,
    as is what another query does under the sink's name. Of a task that has not told, the next attempt ends it, or its
    time."""
    name = _transaction_of([lane for lane in lanes if lane is not None])
    if name is None:
        return
    connected = connected or cluster(lane_properties(options))
    try:
        connected.run(connected.transaction(name).end(commits=False))
        connected.begin(name.transactional_id, transaction_timeout_ms(options))  # or its numbers could begin another
    except KafkaException:
        pass
