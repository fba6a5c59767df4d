"""`transactional.batches` on both servers, driven as Spark drives it and by Spark."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oncelog.client import Producer
from oncelog.spark.options import BadOption, sink_options
from oncelog.spark.sealed.sealing import sealed
from oncelog.spark.sink import due_batch, transactional_lane, warm_worker
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import LaneMessage, LaneTask, topic_of
from oncelog.spark.sink.lane_writer import LaneWriter
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.transactional_driver import abort_transaction, commit_transaction
from oncelog.spark.sink.warm_worker import Cluster, cluster
from tests.lives.stored import end_offsets
from tests.peers.committed import all_committed
from tests.peers.server_process import ServerProcess
from tests.spark.sink.queries import Query
from tests.spark.sink.support import Reachable, Rows, Sink, cut, make_topic, numbers, remove_topic, table, values_of
from tests.waiting import until

PARTITIONS = 4
both = pytest.mark.parametrize("server", ["oncelog", "kafka"], indirect=True)  # both in `./dev test`


class TransactionalSink(Sink):
    def __init__(self, server: Reachable, topic: str, **options: str) -> None:
        given = {"transactional_batches": "true", "kafka_transaction_timeout_ms": "600000", **options}
        super().__init__(server, topic, **given)
        self.topic, self.servers = topic, server.bootstrap_servers

    def begin(self, batch: int, rows: Rows, lane: int = 0) -> LaneMessage:
        """A task, up to its end."""
        return self.lane(batch, lane, cut(rows, 100))

    def commit(self, batch: int, messages: Sequence[LaneMessage | None]) -> None:
        commit_transaction(self.options, messages, batch)

    def write(self, batch: int, rows: Rows) -> None:
        self.commit(batch, [self.begin(batch, rows)])

    def seen(self, partitions: int = PARTITIONS) -> list[bytes]:
        return sorted(each.value() or b"" for each in all_committed(self.servers, self.topic, partitions))

    def shows(self, *rows: Rows, partitions: int = PARTITIONS) -> None:
        """All of these, in the end: a commit is answered before each partition has its marker."""
        wanted = values_of(*rows)
        until(lambda: self.seen(partitions) == wanted, f"{len(wanted)} rows of {self.topic}")


@pytest.fixture
def sink(server: ServerProcess, topic: str) -> TransactionalSink:
    make_topic(server, topic, PARTITIONS)
    return TransactionalSink(server, topic)


@both
def test_a_batch_is_seen_when_it_is_committed_and_not_before(sink: TransactionalSink) -> None:
    first, second = numbers(0, 1000), numbers(1000, 1500)
    message = sink.begin(0, first)
    assert sink.seen() == []
    sink.commit(0, [message])
    sink.shows(first)
    sink.write(1, second)
    sink.write(2, [])
    sink.write(3, numbers(1500, 1501))
    sink.shows(numbers(0, 1501))


@both
def test_what_a_run_left_half_written_is_gone_and_the_next_may_yield_other_rows(sink: TransactionalSink) -> None:
    sink.begin(0, numbers(0, 300))
    sink.write(0, numbers(500, 700))
    sink.shows(numbers(500, 700))
    sink.write(0, numbers(900, 950))  # run again, because Spark does not know
    sink.shows(numbers(500, 700))
    sink.write(1, numbers(0, 10))
    sink.shows(numbers(500, 700), numbers(0, 10))


def test_what_was_committed_may_show_later_than_the_next_batch_begins(
    sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sink.begin(0, numbers(0, 5)).sink
    sink.write(0, numbers(0, 10))
    connected = cluster(lane_properties(sink.options))

    def first() -> SinkRegister | None:
        register = warm_worker.read_on(connected, name)
        return register if register is not None and register.next_batch == 1 else None

    before = deepcopy(until(first, "the first batch to show"))
    sink.write(1, numbers(10, 20))
    begun: list[str] = []
    begin = Cluster.begin

    def late(*about: Any, **how: Any) -> Any:
        return warm_worker.read_on(*about, **how) if begun else deepcopy(before)

    def beginning(self: Cluster, transactional_id: str, timeout_ms: int) -> Any:
        begun.append(transactional_id)
        return begin(self, transactional_id, timeout_ms)

    monkeypatch.setattr(Cluster, "begin", beginning)
    for room in (due_batch, transactional_lane):
        monkeypatch.setattr(room, "read_on", late)
    message = sink.begin(2, numbers(20, 30))
    assert len(begun) == 1
    sink.commit(2, [message])
    sink.shows(numbers(0, 30))


def test_who_is_refused_ends_nobodys_transaction(sink: TransactionalSink, server: ServerProcess, topic: str) -> None:
    sink.write(0, numbers(0, 10))
    message = sink.begin(1, numbers(10, 20))
    other = TransactionalSink(server, topic, sink_name=message.sink)
    other.query = "another"
    with pytest.raises(SinkRefused, match="belongs to query"):
        other.begin(1, numbers(0, 5))
    abort_transaction(other.options, [None])
    sink.commit(1, [message])
    sink.shows(numbers(0, 20))


@both
def test_who_was_fenced_neither_writes_nor_commits(sink: TransactionalSink) -> None:
    with LaneWriter(sink.options, LaneTask(sink.query, 0, 0)) as former:
        (first, *rest) = cut(numbers(0, 300), 100)
        former.write(first)
        late = sink.begin(0, numbers(300, 600))
        message = sink.begin(0, numbers(600, 900))
        with pytest.raises(MayPass, match=r"ended by others.*kafka.transaction.timeout.ms"):
            for each in rest:
                former.write(each)
            former.finish()
    with pytest.raises(SinkRefused, match="ended by others"):
        sink.commit(0, [late])
    sink.commit(0, [message])
    sink.shows(numbers(600, 900))


def test_a_batch_that_takes_longer_than_its_time_is_aborted_and_told(server: ServerProcess, topic: str) -> None:
    make_topic(server, topic, 1)
    hurried = TransactionalSink(server, topic, kafka_transaction_timeout_ms="1000")
    message = hurried.begin(0, numbers(0, 10))
    until(lambda: end_offsets(hurried.servers, topic)[0] > 10, "the marker of the abort")
    with pytest.raises(SinkRefused, match=r"took longer than `kafka.transaction.timeout.ms` = 1000"):
        hurried.commit(0, [message])
    assert hurried.seen(1) == []


def test_an_aborted_batch_keeps_no_reader_waiting(sink: TransactionalSink) -> None:
    message = sink.begin(0, numbers(0, 100))
    abort_transaction(sink.options, [message])
    with pytest.raises(SinkRefused, match="ended by others"):
        sink.commit(0, [message])
    sink.write(0, numbers(0, 50))
    sink.shows(numbers(0, 50))


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_task_that_fails_for_good_keeps_no_reader_waiting(sink: TransactionalSink, is_refused: bool) -> None:
    """Nobody tells the driver of its transaction, and no other attempt may come to end it."""
    failure = SinkRefused if is_refused else ZeroDivisionError
    with pytest.raises(failure) as failed, LaneWriter(sink.options, LaneTask(sink.query, 0, 0)) as lane:
        lane.write(table(numbers(0, 100), partition=pa.array([0] * 100, pa.int32())))
        until(lambda: end_offsets(sink.servers, sink.topic)[0] > 0, "rows of the batch")
        lane.write(table(numbers(100, 101), partition=pa.array([-1 if is_refused else 0], pa.int32())))
        raise ZeroDivisionError  # where the query computes its next rows
    assert not isinstance(failed.value, MayPass)
    with Producer({"bootstrap.servers": sink.servers}) as producer:
        producer.produce(sink.topic, b"behind it", partition=0)
    until(lambda: sink.seen() == [b"behind it"], "what others wrote meanwhile")
    sink.write(0, numbers(0, 10))
    sink.shows(numbers(0, 10), [(b"", b"behind it")])


def test_rows_of_a_second_task_are_refused(sink: TransactionalSink) -> None:
    idle = sink.begin(0, [], lane=1)
    with pytest.raises(SinkRefused, match=r"repartition\(1\)"):
        sink.begin(0, numbers(0, 10), lane=1)
    sink.commit(0, [sink.begin(0, numbers(0, 10)), idle])
    sink.shows(numbers(0, 10))


def test_a_sink_stays_of_its_kind(sink: TransactionalSink, server: ServerProcess, topic: str) -> None:
    sink.write(0, numbers(0, 10))
    direct = Sink(server, topic)
    with pytest.raises(SinkRefused, match=r"writes transactions, and is to write rows by rows"):
        direct.run(1, [numbers(10, 20)])
    other = Sink(server, topic, sink_name=f"{topic}-direct")
    other.run(0, [numbers(20, 30)])
    with pytest.raises(SinkRefused, match=r"writes rows by rows, and is to write transactions"):
        TransactionalSink(server, topic, sink_name=f"{topic}-direct").write(1, numbers(30, 40))


def test_a_topic_that_is_made_again_in_the_middle_of_a_batch_shows_no_part_of_it(
    sink: TransactionalSink, server: ServerProcess, topic: str
) -> None:
    """Nothing is compared with what stood there, so the next attempt writes the batch to the topic that there is."""
    sink.write(0, numbers(0, 10))
    stood = sum(end_offsets(sink.servers, topic))
    with LaneWriter(sink.options, LaneTask(sink.query, 1, 0)) as lane:
        first, *rest = cut(numbers(10, 3000), 1000)
        lane.write(first)
        until(lambda: sum(end_offsets(sink.servers, topic)) > stood, "rows of the batch")
        remove_topic(server, topic)
        make_topic(server, topic, PARTITIONS)
        # A coordinator of Kafka's may have ended the transaction by then, which is told in its own words.
        with pytest.raises(MayPass, match=rf"batch 1 of .*('{topic}' was deleted and made again|was ended by others)"):
            for each in rest:
                lane.write(each)
            lane.finish()
    assert sink.seen() == []
    sink.write(1, numbers(10, 3000))
    sink.shows(numbers(10, 3000))


def test_a_state_topic_that_was_removed_is_told_before_a_row_is_shown(
    sink: TransactionalSink, server: ServerProcess, topic: str
) -> None:
    sink.write(0, numbers(0, 10))
    name = topic_of(sink.begin(1, []).sink)
    remove_topic(server, name)
    impatient = TransactionalSink(server, topic, kafka_delivery_timeout_ms="4000")
    with pytest.raises(SinkRefused, match=rf"the sink's state is lost \(the topic {name} was deleted"):
        impatient.write(1, numbers(10, 20))
    sink.shows(numbers(0, 10))


def test_only_a_stream_of_the_direct_sink_takes_it(tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "transactional.batches": "true"}
    with pytest.raises(BadOption, match="belongs to writeStream"):
        sink_options(given, is_streaming=False)
    with pytest.raises(BadOption, match="needs no files"):
        sealed(tmp_path, **given)


@both
def test_a_query_that_does_not_repeat_writes_each_batch_once(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, PARTITIONS)
    job = Query(spark, server, tmp_path / "query", topic=topic, transactional_batches="true")
    job.frame = lambda frame: frame.repartition(1).selectExpr("uuid() AS key", "CAST(value AS BINARY) AS value")
    job.add(*range(100))
    job.add(*range(100, 150))
    job.run()
    job.forget_commit(1)
    job.add(*range(150, 200))
    job.run()
    found = all_committed(server.bootstrap_servers, topic, PARTITIONS)
    assert sorted(int(each.value() or b"") for each in found) == list(range(200))
