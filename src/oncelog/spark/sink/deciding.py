"""The decision of a task or a driver about a batch, given the saved state. Pure.

Spark runs a batch again whenever it does not know that it was committed, and never knows it of the last one. So a batch
is right in two cases: it is the one after the saved one, or the saved one itself. Anything else means that checkpoint
and sink do not belong together, or that one of them was lost or put back; then both numbers are named.
"""

from enum import Enum

from oncelog.spark.options import SinkOptions
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import LaneMessage, SinkState, topic_of
from oncelog.spark.sink.sink_register import SinkRegister


class Doing(Enum):
    BEGIN = "begin"  # nobody owns the sink yet
    WRITE = "write"  # saved is the batch before: go on behind it
    VERIFY = "verify"  # saved is this very batch: run the rows again and compare, send nothing


def decide(
    register: SinkRegister,
    sink: str,
    query: str,
    batch: int,
    first_batch: int | None,
    *,
    in_transactions: bool = False,
) -> Doing:
    owner = register.owner
    if owner is None:
        if batch == (first_batch or 0):
            return Doing.BEGIN
        raise SinkRefused(_nothing_saved(sink, batch, first_batch))
    if owner.query != query:
        raise SinkRefused(
            f"sink {sink!r} belongs to query {owner.query}, and this is query {query}. A sink is one query's: give "
            "this one a `sink.name` of its own. (A query whose checkpoint was deleted is another query from then on: "
            "what it reads again is written again, so bring the checkpoint back, or give it a new output topic as well)"
        )
    if owner.in_transactions is not in_transactions:
        raise SinkRefused(_another_kind(sink, batch, in_transactions=in_transactions))
    due = register.next_batch
    assert due is not None
    if batch == due:
        return Doing.WRITE
    if register.state is None:
        raise SinkRefused(
            f"sink {sink!r} begins with batch {due}, and the checkpoint runs batch {batch}: they do not belong together"
        )
    if batch == register.state.batch:
        return Doing.VERIFY
    raise SinkRefused(_out_of_step(sink, batch, register.state.batch))


def is_one_ahead(register: SinkRegister, query: str, batch: int) -> bool:
    """Whether the batch is one ahead of what this query's own transactions have written, as far as that shows."""
    owner, due = register.owner, register.next_batch
    return owner is not None and owner.in_transactions and owner.query == query and due is not None and batch == due + 1


def _nothing_saved(sink: str, batch: int, first_batch: int | None) -> str:
    if first_batch is not None and first_batch != batch:
        return (
            f"sink {sink!r} is to begin with batch {first_batch} (`sink.first.batch`), and the checkpoint runs batch "
            f"{batch}: set it to {batch} if all batches before that are written"
        )
    return (
        f"sink {sink!r} has nothing saved, and the checkpoint runs batch {batch}: either the sink's state is lost (the "
        f"topic {topic_of(sink)} was deleted, or this is another cluster), or the batches before were written by "
        f"another sink. It cannot be told which rows of batch {batch} are there already. If none is, say so by "
        f"`sink.first.batch` = {batch} and a `sink.name` that was never used"
    )


def _another_kind(sink: str, batch: int, *, in_transactions: bool) -> str:
    writes, is_to_write = ("rows by rows", "transactions") if in_transactions else ("transactions", "rows by rows")
    return (
        f"sink {sink!r} writes {writes}, and is to write {is_to_write} now (`transactional.batches`): what it began of "
        f"a batch in one way it cannot end in the other. Go on as before; or, where batch {batch} is not begun, with a "
        f"`sink.name` that was never used and `sink.first.batch` = {batch}"
    )


def _out_of_step(sink: str, batch: int, saved: int) -> str:
    if batch < saved:
        return (
            f"the checkpoint runs batch {batch}, and sink {sink!r} has saved batch {saved}: the checkpoint is older "
            "than the sink (an old copy was put back, or another driver goes on with the same checkpoint). What it "
            f"would write is there already. Go on from a checkpoint that has batch {saved}, or begin with a new "
            "checkpoint, `sink.name` and output topic"
        )
    return (
        f"the checkpoint runs batch {batch}, and sink {sink!r} has saved batch {saved}: the checkpoint is newer than "
        f"the sink, so batches {saved + 1} to {batch - 1} are not known to be written (the topic {topic_of(sink)} was "
        f"put back, or the sink's name was used for another checkpoint before). Bring the topic back as it was, or "
        "begin with a new checkpoint, `sink.name` and output topic"
    )


# --- what was done twice must be the same


def difference(saved: SinkState, lane: int, rows: int, order_hash: str) -> str | None:
    """The difference between a lane's run of the saved batch and the saved one; None where there is none."""
    known = saved.lanes.get(lane)
    saved_rows, saved_hash = (0, "") if known is None or known.idle_batches else (known.rows, known.order_hash)
    if rows != saved_rows:
        return f"{rows} rows where {saved_rows} were written"
    if rows and order_hash != saved_hash:
        return f"{rows} rows as before, but others, or in another order"
    return None


def check_same(saved: SinkState, messages: list[LaneMessage]) -> None:
    """The batch is saved already; these are what running it again came to."""
    sink, batch = saved.claim.sink, saved.batch
    if len(messages) != saved.lane_count:
        raise SinkRefused(other_lane_count(sink, batch, len(messages), saved.lane_count))
    for message in messages:
        found = difference(saved, message.lane, message.rows, message.order_hash)
        if found is not None:
            raise SinkRefused(other_rows(sink, batch, message.lane, found))


def check_claimed(register: SinkRegister, sink: str, batch: int, messages: list[LaneMessage]) -> None:
    """Every lane wrote as what it was claimed as. No reader of a whole log gets here with anything else."""
    for message in messages:
        known = register.lane(message.lane)
        if message.producer is None or known is None:
            continue
        wrote, claimed = message.producer["identities"], known.producer["identities"]
        if wrote != claimed:
            raise SinkRefused(
                f"batch {batch} of sink {sink!r}, lane {message.lane} was written as producer {wrote[0][0]}, and the "
                f"lane is producer {claimed[0][0]}: a task did not see what stands in the topic {topic_of(sink)} (an "
                "unclean leader election, or a restored disk), and rows of this batch may be there twice"
            )


def check_topic(saved: SinkState, options: SinkOptions) -> None:
    """The hash of a batch's rows does not know where the option `topic` sent them."""
    written = sorted({name for lane in saved.lanes.values() if lane.rows for name in lane.producer["topics"]})
    if options.topic is None or not written or options.topic in written:
        return
    what = f"wrote its rows to {', '.join(written)}, once, and is now to write them to {options.topic}"
    if options.job_id is not None:
        raise SinkRefused(f"{saved.claim.query} {what}: another job needs another `job.id`")
    raise SinkRefused(
        f"batch {saved.batch} of sink {saved.claim.sink!r} {what}: nothing is written. Where one query has two sinks, "
        "start it with a new checkpoint and give each a `sink.name` of its own (and a `path`). Where `topic` was "
        "changed, go back to the former one until this batch is through"
    )


def other_lane_count(sink: str, batch: int, now: int, before: int) -> str:
    return (
        f"batch {batch} of sink {sink!r} runs in {now} tasks and was written by {before}: its rows are divided in "
        "another way than in the first run, so it cannot be told which are there. How the source divides its rows must "
        f"not depend on the number of cores; run it as it was run before. {WAY_OUT}"
    )


def other_lanes(sink: str, batch: int, now: int, others: list[int]) -> str:
    """`others` have marked the batch and have no rows of it now."""
    named = ", ".join(map(str, others[:5])) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
    if max(others) >= now:
        what = f"runs in {now} tasks and ran in at least {max(others) + 1} before (lane {named} has begun to write it)"
    else:
        what = f"has no rows for lane {named} now, which has begun to write it in another run"
    return (
        f"batch {batch} of sink {sink!r} {what}: its rows are divided in another way than then, so it cannot be told "
        "which are there. How the source divides its rows must not depend on the number of cores; run it as it was "
        f"run before. {WAY_OUT}"
    )


def other_rows(sink: str, batch: int, lane: int, what: str) -> str:
    return (
        f"batch {batch} of sink {sink!r}, lane {lane}: the replay is not what was written: {what}. Nothing more is "
        f"written. {WAY_OUT}"
    )


def one_task(sink: str, batch: int) -> str:
    return (
        f"batch {batch} of sink {sink!r} runs in several tasks, and a transaction has one writer "
        "(`transactional.batches`): end the query with .repartition(1), before which its work is shared as ever, or "
        "with .coalesce(1). Nothing of the batch will be seen"
    )


def ended_by_others(sink: str, batch: int, timeout_ms: int) -> str:
    return (
        f"the transaction of batch {batch} of sink {sink!r} was ended by others: another attempt or another driver "
        f"began one, or it took longer than `kafka.transaction.timeout.ms` = {timeout_ms}"
    )


def other_count(sink: str, batch: int, now: int, before: int | None) -> str:
    """The refusal of a transaction that was committed and is run again, which need not yield what it did before."""
    return (
        f"batch {batch} of sink {sink!r} was committed with {before} rows, and yields {now} now, none of which is "
        "written. A query whose batches do not repeat may do that. But if an older copy of the checkpoint was put "
        "back, Spark has planned the batch anew, and what came since is lost: bring it in by a new query that begins "
        "behind the rows that were written"
    )


def state_lost(sink: str, batch: int) -> str:
    return (
        f"the state of sink {sink!r} was lost while batch {batch} was written: the topic {topic_of(sink)} is gone, or "
        "has nothing. Bring it back as it was, or begin with a new checkpoint, `sink.name` and output topic"
    )


def topic_gone(options: SinkOptions, sink: str, batch: int, what: str) -> str:
    """Nothing of the batch is lost: it was not written down as written, wherever its rows went."""
    named = f"a new `sink.name` and `sink.first.batch` = {batch}" if options.job_id is None else "a new `job.id`"
    others = "; what stands of this batch in other topics will stand there twice" if options.topic is None else ""
    return (
        f"batch {batch} of sink {sink!r}: {what}. Nothing more is written. To go on with an empty topic of this name, "
        f"start with {named}{others}"
    )


def topic_changed(sink: str, batch: int, what: str) -> str:
    """The refusal of a transaction, which nobody commits then."""
    return (
        f"batch {batch} of sink {sink!r}: {what}. None of its rows is shown; the next attempt writes all of them to "
        "the topic that there is then"
    )


def cannot_begin(sink: str, batch: int, lane: int, what: str) -> str:
    return (
        f"batch {batch} of sink {sink!r}, lane {lane} cannot begin: {what}. Nothing was written. Set what it was "
        "before, or start the query with a new checkpoint and a new `sink.name`"
    )


def cannot_go_on(sink: str, batch: int, lane: int, what: str) -> str:
    return (
        f"batch {batch} of sink {sink!r}, lane {lane} cannot go on: {what}. Rows of this batch may stand in the topic, "
        "and it cannot be told which. Nothing more is written. Start the query with a new checkpoint, a new "
        "`sink.name` where one was given, and a new output topic; keep output topics for longer than a query may stand "
        "still"
    )


WAY_OUT = (
    "A query whose batches do not repeat exactly (rand(), uuid(), shuffles, stateful operators, files that change) "
    "needs the sealed sink: writeStream.foreachBatch(oncelog.spark.sealed(...)). A job of df.write with other rows "
    "than before is another job, and needs another `job.id`"
)
