"""What retention takes from an output topic while a lane writes there, or is quiet."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from oncelog.client import Admin, Producer, TopicPartition
from oncelog.spark.sink.errors import SinkRefused
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import Sink, cut, make_topic, numbers, stored, table, values, values_of

FIRST, ROWS, OTHERS = numbers(0, 100), numbers(100, 600), numbers(9000, 9100)


@pytest.fixture(autouse=True)
def _topic(server: ServerProcess, topic: str) -> None:
    make_topic(server, topic, 2)


def remove(server: ServerProcess, topic: str, *partitions: int) -> None:
    """All that stands there now, as retention does it."""
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        removed = admin.delete_records([TopicPartition(topic, at, -1) for at in partitions or (0, 1)])
        for future in removed.values():
            future.result()


def write_as_others(server: ServerProcess, topic: str) -> None:
    with Producer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        for key, value in OTHERS:
            producer.produce(topic, key=key, value=value)


def test_a_half_sent_batch_goes_on_though_the_log_begins_behind_what_was_saved(
    server: ServerProcess, topic: str
) -> None:
    sink = Sink(server, topic)
    sink.run(0, [FIRST])
    write_as_others(server, topic)
    remove(server, topic)
    sink.lane(1, 0, cut(ROWS[:200], 50))
    sink.run(1, [ROWS])
    assert values(server, topic) == values_of(ROWS)


def test_a_half_sent_batch_goes_on_though_the_log_begins_behind_its_mark(server: ServerProcess, topic: str) -> None:
    """All of it stands there still: the lane's first record of the batch in a partition came behind what was removed
    from that."""
    sink = Sink(server, topic)
    sink.run(0, [FIRST])
    rows = [table(ROWS[at : at + 100], partition=pa.array([at // 300] * 100, pa.int32())) for at in range(0, 500, 100)]

    def late() -> Iterator[pa.RecordBatch]:
        yield from rows[:3]
        write_as_others(server, topic)
        remove(server, topic, 1)
        yield rows[3]

    sink.lane(1, 0, late())
    sink.commit(1, [sink.lane(1, 0, rows, attempt=1)])
    assert [value for _, value in stored(server, topic)[1]] == [value for _, value in ROWS[300:]]


def test_a_half_sent_batch_of_which_something_was_removed_is_refused_as_such(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [FIRST])
    sink.lane(1, 0, cut(ROWS[:200], 50))
    remove(server, topic)
    with pytest.raises(SinkRefused, match=r"retention") as refused:
        sink.run(1, [ROWS])
    assert "rand()" not in str(refused.value) and "sealed" not in str(refused.value)


def test_rows_that_are_older_than_the_topic_keeps_are_warned_of_once(
    server: ServerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = f"{topic}-kept"
    make_topic(server, kept, 1, retention_ms="-1")
    for name in (topic, kept):
        sink = Sink(server, name)
        for batch in range(2):
            times = pa.array([1_500_000_000_000] * 10, pa.int64()).view(pa.timestamp("ms", "UTC"))
            sink.commit(batch, [sink.lane(batch, 0, [table(FIRST[:10], timestamp=times)])])
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "oncelog.spark"]
    assert f"{topic} keeps records for 7 days (retention.ms), and some of the rows of sink" in warning
    assert "removed soon after they were written" in warning
