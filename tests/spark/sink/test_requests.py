"""How much a lane and a driver ask of the brokers for a micro-batch: each question takes half a millisecond."""

from collections import Counter

import pytest

from oncelog.client.net.connection import Connection
from oncelog.client.saving.errors import TopicGone
from oncelog.spark.sink.lane import LaneTask
from oncelog.spark.sink.lane_writer import LaneWriter
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.warm_worker import cluster
from oncelog.wire.hot import PRODUCE_TOPIC_IDS
from oncelog.wire.hot_client import PRODUCE_KEY
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import Sink, cut, make_topic, numbers, remove_topic, values

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
ROWS = numbers(0, 100)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Requests by their API key."""
    found: Counter[int] = Counter()
    send = Connection.send

    def counting(self: Connection, buffers: object, *rest: object) -> None:
        found[int.from_bytes(bytes(buffers[0][4:6]), "big")] += 1  # type: ignore[index]
        send(self, buffers, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "send", counting)
    return found


def before_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that take topics by their names alone, as Kafka before 4.1."""
    version = Connection.version

    def older(self: Connection, key: int, low: int, high: int) -> int:
        return version(self, key, low, min(high, PRODUCE_TOPIC_IDS - 1) if key == PRODUCE_KEY else high)

    monkeypatch.setattr(Connection, "version", older)


def test_a_warm_lane_asks_where_the_log_ends_and_reads_and_marks_the_sinks_topic(
    server: ServerProcess, topic: str, asked: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(server, topic)
    sink = Sink(server, topic)
    for batch in range(2):
        sink.run(batch, [ROWS])
    asked.clear()
    message = sink.lane(2, 0, cut(ROWS[:1], 1))
    assert asked == {FETCH: 1, LIST_OFFSETS: 1, PRODUCE: 2}
    asked.clear()
    sink.commit(2, [message])
    assert asked == {FETCH: 1, METADATA: 1, PRODUCE: 1}
    before_ids(monkeypatch)
    asked.clear()
    sink.lane(3, 0, cut(ROWS[:1], 1))
    assert asked == {FETCH: 1, LIST_OFFSETS: 1, METADATA: 1, PRODUCE: 2}


def test_a_lane_without_rows_reads_the_sinks_topic_alone(
    server: ServerProcess, topic: str, asked: Counter[int]
) -> None:
    make_topic(server, topic)
    sink = Sink(server, topic)
    sink.run(0, [ROWS])
    asked.clear()
    sink.lane(1, 0, [])
    assert asked == {FETCH: 1}


def test_brokers_that_take_names_are_asked_whether_it_is_the_same_topic_still(
    server: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_ids(monkeypatch)
    make_topic(server, topic)
    sink = Sink(server, topic)
    sink.run(0, [ROWS])
    remove_topic(server, topic)
    make_topic(server, topic)
    with (
        LaneWriter(sink.options, LaneTask(sink.query, 1, 0)) as lane,
        pytest.raises(Exception, match="made again") as gone,
    ):
        lane.write(cut(ROWS, 100)[0])
    assert isinstance(gone.value.__cause__, TopicGone)
    assert values(server, topic) == []
    assert 0 not in cluster(lane_properties(sink.options)).register(sink.query).marked()  # type: ignore[union-attr]
