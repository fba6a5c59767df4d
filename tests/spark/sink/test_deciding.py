"""What a batch is to be, given what is saved: a table."""

import pytest

from oncelog.slots.register import Record
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink.deciding import Doing, check_same, check_topic, decide, difference, topic_gone
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import (
    SINK,
    STATE,
    Content,
    Json,
    LaneMessage,
    LaneState,
    SinkClaim,
    SinkState,
    encode,
    key_of,
)
from oncelog.spark.sink.sink_register import SinkRegister

OWNER = SinkClaim("s", "q", 5, "o")
LANES: Json = {"topics": {"out": {"count": 1}}}


def saved(batch: int) -> SinkRegister:
    lanes = {0: LaneState(LANES, 10, "h"), 1: LaneState(LANES, idle_batches=2)}
    return noted(STATE, batch, SinkState(OWNER, batch, 2, lanes))


def noted(kind: str, batch: int, content: Content) -> SinkRegister:
    register = SinkRegister()
    register.read([Record(0, key_of(kind, batch, "n"), encode(kind, content))])
    return register


def owned() -> SinkRegister:
    return noted(SINK, OWNER.first_batch, OWNER)


@pytest.mark.parametrize(
    ("register", "batch", "first_batch", "doing"),
    [
        (SinkRegister(), 0, None, Doing.BEGIN),
        (SinkRegister(), 7, 7, Doing.BEGIN),
        (owned(), 5, None, Doing.WRITE),
        (saved(8), 9, None, Doing.WRITE),
        (saved(8), 8, None, Doing.VERIFY),
        (saved(8), 9, 5, Doing.WRITE),
    ],
)
def test_the_next_batch_is_written_and_the_saved_one_compared(
    register: SinkRegister, batch: int, first_batch: int | None, doing: Doing
) -> None:
    assert decide(register, "s", "q", batch, first_batch) is doing


@pytest.mark.parametrize(
    ("register", "query", "batch", "first_batch", "words"),
    [
        (SinkRegister(), "q", 3, None, r"nothing saved, and the checkpoint runs batch 3: .*oncelog\.sink\.s"),
        (SinkRegister(), "q", 0, 4, r"begin with batch 4 \(`sink.first.batch`\), and the checkpoint runs batch 0"),
        (owned(), "q", 6, None, "begins with batch 5, and the checkpoint runs batch 6"),
        (saved(8), "other", 9, None, "belongs to query q, and this is query other"),
        (saved(8), "q", 7, None, "runs batch 7, and sink 's' has saved batch 8: the checkpoint is older"),
        (saved(8), "q", 10, None, "runs batch 10, and sink 's' has saved batch 8: .* newer.* batches 9 to 9"),
    ],
)
def test_anything_else_is_refused_with_both_numbers(
    register: SinkRegister, query: str, batch: int, first_batch: int | None, words: str
) -> None:
    with pytest.raises(SinkRefused, match=words):
        decide(register, "s", query, batch, first_batch)


def message(lane: int, rows: int, order_hash: str) -> LaneMessage:
    return LaneMessage("s", "q", 8, lane, 0, rows, order_hash, None)


def test_a_replay_has_the_rows_the_order_and_the_lanes_of_the_first_run() -> None:
    state = saved(8).state
    assert state is not None
    check_same(state, [message(0, 10, "h"), message(1, 0, "")])
    assert difference(state, 0, 9, "h") == "9 rows where 10 were written"
    assert difference(state, 0, 10, "x") == "10 rows as before, but others, or in another order"
    assert difference(state, 1, 4, "x") == "4 rows where 0 were written"
    with pytest.raises(SinkRefused, match="runs in 3 tasks and was written by 2"):
        check_same(state, [message(lane, 0, "") for lane in range(3)])
    with pytest.raises(SinkRefused, match=r"lane 0: .* 9 rows where 10 .*sealed.* another `job.id`"):
        check_same(state, [message(0, 9, "h"), message(1, 0, "")])


def test_rows_that_are_written_are_not_taken_for_those_of_another_topic() -> None:
    """Two sinks of one query that share a state: the second one's rows would be compared and never sent."""
    state = saved(8).state
    assert state is not None
    for topic in (None, "out"):
        check_topic(state, SinkOptions(client={}, topic=topic))
    with pytest.raises(SinkRefused, match=r"batch 8 of sink 's' wrote its rows to out, once, and is now .* to other:"):
        check_topic(state, SinkOptions(client={}, topic="other"))
    with pytest.raises(SinkRefused, match=r"q wrote its rows to out, .* needs another `job.id`"):
        check_topic(state, SinkOptions(client={}, topic="other", job_id="j"))


def test_what_a_new_sink_would_write_twice_is_said_before_it_is_made() -> None:
    assert topic_gone(SinkOptions(client={}, topic="out"), "s", 4, "gone").endswith("`sink.first.batch` = 4")
    assert topic_gone(SinkOptions(client={}), "s", 4, "gone").endswith("in other topics will stand there twice")
