"""Rows that a broker refuses, and how a refusal comes to the driver: once, with the row's number."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from oncelog.client import KafkaError, KafkaException
from oncelog.spark.sink.errors import MayPass, SinkRefused, refused
from oncelog.spark.sink.lane import LaneMessage
from oncelog.spark.sink.written import TaskMessage, attempt, lanes_of
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import Sink, cut, make_topic, numbers, table, values, values_of

MESSAGE = LaneMessage("s", "q", 0, 0, 0, 5, "hash", None)


def test_a_row_that_the_broker_refuses_is_named(kafka: ServerProcess, topic: str) -> None:
    """Stock Kafka takes no time that lies more than an hour ahead."""
    for name in (topic, f"{topic}-other"):
        make_topic(kafka, name)
    sink = Sink(kafka, topic="", query=f"query-of-{topic}")
    ahead_ms = 4_000_000_000_000
    for lane, row in ((0, 7), (1, 2503)):
        times = pa.array([ahead_ms if at == row else 1_700_000_000_000 for at in range(4000)], pa.int64())
        names = pa.array([topic if at % 3 else f"{topic}-other" for at in range(4000)])
        rows = table(numbers(0, 4000), timestamp=times.view(pa.timestamp("ms", "UTC")), topic=names)
        with pytest.raises(SinkRefused, match=rf"batch 0 of .* lane {lane}, row {row}: Broker: Invalid timestamp"):
            sink.lane(0, lane, [rows.slice(at, 500) for at in range(0, 4000, 500)])


def test_a_row_that_is_too_large_for_the_topic_is_named_and_a_smaller_one_makes_the_batch_whole(
    oncelog_server: ServerProcess, topic: str
) -> None:
    """Of the other partitions everything is written by then."""
    make_topic(oncelog_server, topic, max_message_bytes="50000")
    sink = Sink(oncelog_server, topic, kafka_batch_size="20000")
    small = numbers(0, 3000)
    large = [*small[:1503], (small[1503][0], bytes(100_000)), *small[1504:]]
    for number in range(2):
        with pytest.raises(SinkRefused, match=r"batch 0 of .* lane 0, row 1503: Broker: Message size too large"):
            sink.lane(0, 0, cut(large, 500), number)
    written = values(oncelog_server, topic)
    assert len(small) > len(written) > len(small) // 3
    sink.run(0, [small], 500)
    assert values(oncelog_server, topic) == values_of(small)


@pytest.mark.parametrize(
    ("topics", "partitions", "words"),
    [
        (["a", None], [0, 0], "row 1: null topic present"),
        (["a", "a"], [0, -1], "row 1: there is no partition -1"),
        (["no topic's name"] * 2, [0, 0], r"rows cannot be written to topic \"no topic's name\": "),
    ],
)
def test_rows_that_have_no_place_are_told_with_batch_and_lane(
    oncelog_server: ServerProcess, topic: str, topics: list[str | None], partitions: list[int], words: str
) -> None:
    rows = table(numbers(0, 2), topic=pa.array(topics), partition=pa.array(partitions, pa.int32()))
    with pytest.raises(SinkRefused, match=rf"batch 0 of sink 'query-of-{topic}', lane 3, {words}"):
        Sink(oncelog_server, topic="", query=f"query-of-{topic}").lane(0, 3, [rows])


def write(failure: Exception | None = None) -> LaneMessage:
    if failure is not None:
        raise failure
    return MESSAGE


def test_a_refusal_is_no_failed_task_and_fails_the_batch_once() -> None:
    rows: Iterator[int] = iter(range(3))
    refusal = attempt(lambda: write(SinkRefused("row 5 is too large")), rows)
    assert next(rows, None) is None, "to Spark a task that leaves rows behind is a broken one"
    assert refusal == TaskMessage(refusal="row 5 is too large")
    with pytest.raises(SinkRefused, match="row 5 is too large"):
        lanes_of([TaskMessage(MESSAGE), None, refusal])


def test_what_another_attempt_may_mend_fails_the_task() -> None:
    with pytest.raises(MayPass):
        attempt(lambda: write(MayPass("no answer")), iter(()))
    with pytest.raises(OSError):
        attempt(lambda: write(OSError()), iter(()))


def test_lanes_come_through_as_they_are() -> None:
    assert lanes_of([attempt(write, iter(())), None, TaskMessage()]) == [MESSAGE, None, None]


@pytest.mark.parametrize(
    ("failure", "may_pass"),
    [
        (ValueError("row 3: a timestamp before 1970"), False),
        (KafkaException(KafkaError(KafkaError.INVALID_TIMESTAMP)), False),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), False),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), False),
        (KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)), False),
        (KafkaException(KafkaError(KafkaError._INCONSISTENT)), False),
        (KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT)), True),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), True),
        (KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)), True),
        (KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)), True),
    ],
)
def test_a_failure_says_whether_another_attempt_may_succeed(failure: Exception, may_pass: bool) -> None:
    assert isinstance(refused("words", failure), MayPass) is may_pass
