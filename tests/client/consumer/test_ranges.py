"""A range is exactly what stands between two offsets, or an error; never fewer rows."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.chaos.faults import Fault, Kind
from oncelog.chaos.proxy import FaultProxy
from oncelog.client.admin import Admin
from oncelog.client.consumer import range_engine, ranges
from oncelog.client.consumer.ranges import DataLost, Range, read_columns, read_range
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.fetching.fetcher import Fetcher
from oncelog.client.fetching.values import Fetch, Fetched, FetchLimits, Leader
from oncelog.client.net import warm_connections
from oncelog.client.types import TopicPartition
from oncelog.embedded import Server
from oncelog.records.build import build_batch
from oncelog.records.header import stamp
from tests.client.consumer.reading import PATIENCE_S, write
from tests.lives.own_threads import own_threads
from tests.raw import CODECS, RawConnection, Rec
from tests.raw.topics import new_topic
from tests.waiting import until

BATCHES = 30
_unused = count()

Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(autouse=True)
def quick_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubts are settled in moments, since in these tests nothing is late."""
    monkeypatch.setattr(range_engine, "IDLE_S", 0.05)
    monkeypatch.setattr(range_engine, "PAUSE_S", 0.01)
    monkeypatch.setattr(ranges, "DOUBTS_S", 0.1)


@pytest.fixture(scope="module")
def mixed(server: Server) -> tuple[str, list[Row]]:
    """A topic with batches of all sizes and codecs, and its rows: offset, key, value."""
    rows: list[Row] = []
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        for at in range(BATCHES):
            records = [
                Rec(None if i % 7 == 3 else b"%d.%d" % (at, i), b"k%d" % i if i % 3 else None)
                for i in range(1 + at * 3)
            ]
            write(raw, topic, records, codec=list(CODECS)[at % len(CODECS)])
            rows += [(len(rows) + i, record.key, record.value) for i, record in enumerate(records)]
    return topic, rows


def read(
    servers: str, topic: str, start: int, end: int, *, patience_s: float = PATIENCE_S, on_loss: Any = None, **more: Any
) -> list[Row]:
    properties = {"bootstrap.servers": servers} | {name.replace("_", "."): str(value) for name, value in more.items()}
    rows: list[Row] = []
    for found in read_columns(properties, Range(topic, 0, start, end), patience_s=patience_s, on_loss=on_loss):
        assert found.offset is not None and found.key is not None and found.value is not None
        rows += zip(found.offset.tolist(), found.key.to_list(), found.value.to_list(), strict=True)
    return rows


@given(st.data())
def test_a_range_is_the_records_from_its_start_to_before_its_end(
    server: Server, mixed: tuple[str, list[Row]], data: st.DataObject
) -> None:
    topic, rows = mixed
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    fetch_bytes = data.draw(st.sampled_from([100, 1000, 1 << 20]))
    assert read(server.bootstrap_servers, topic, start, end, fetch_message_max_bytes=fetch_bytes) == rows[start:end]


def test_only_the_columns_that_are_wanted_are_decoded(server: Server, mixed: tuple[str, list[Row]]) -> None:
    topic, _ = mixed
    properties = {"bootstrap.servers": server.bootstrap_servers}
    batches = list(read_range(properties, topic, 0, 10, 200, columns=frozenset({"offset", "timestamp"})))
    assert [batch.schema.names for batch in batches] == [["offset", "timestamp", "timestampType"]] * len(batches)
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(10, 200))


def test_little_more_is_fetched_than_the_range_holds(server: Server, raw: RawConnection, topic: str) -> None:
    for _ in range(200):
        write(raw, topic, [os.urandom(1000)] * 10)
    read(server.bootstrap_servers, topic, 0, 1)  # the connection is open, the topic known
    before = server.broker.metrics.bytes_sent
    assert len(read(server.bootstrap_servers, topic, 500, 600)) == 100
    assert server.broker.metrics.bytes_sent - before < 300_000


def test_nothing_is_asked_for_behind_the_end() -> None:
    fetcher = Fetcher(FetchLimits())
    fetcher.assign(("t", 0), 0, stop_at=10)
    fetcher.leaders({("t", 0): Leader(1, 0)}, {}, 0)
    data = build_batch([(None, b"x", (), 1)] * 6)
    for base in (0, 6):
        (fetch,) = fetcher.actions(0)
        assert isinstance(fetch, Fetch)
        stamp(data, 0, base, 0)
        fetcher.fetched(fetch.request_id, [Fetched(("t", 0), 0, 99, 99, 0, [], -1, bytes(data))], 0)
    assert fetcher.actions(0) == []


def test_offsets_that_compaction_took_are_no_rows_and_no_loss(server: Server, raw: RawConnection) -> None:
    topic = new_topic(raw, cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_bytes="1024")
    for at in range(40):
        write(raw, topic, [Rec(b"%d.%d" % (at, i), b"key %d" % i) for i in range(10)])
    server.call(_compact, server, topic)
    rows = read(server.bootstrap_servers, topic, 0, 400)
    offsets = [row[0] for row in rows]
    assert len(offsets) < 400 and offsets == sorted(set(offsets)), "compaction took some"
    hole = next(at for at in range(400) if at not in offsets)
    for start in (0, hole):
        for end in (hole + 1, offsets[-1]):
            wanted = [row for row in rows if start <= row[0] < end]
            assert read(server.bootstrap_servers, topic, start, end) == wanted


def _compact(server: Server, topic: str) -> None:
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    partition.log.compact(server.broker.clock.now())


def test_records_that_were_deleted_are_lost_and_the_rest_is_read_where_that_is_allowed(
    server: Server, raw: RawConnection, topic: str
) -> None:
    write(raw, topic, [b"%d" % i for i in range(100)])
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for deleted in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
            deleted.result(PATIENCE_S)
    with pytest.raises(DataLost, match=r"offsets 10 to 40 are gone, the log begins at 40"):
        read(server.bootstrap_servers, topic, 10, 100)
    told: list[str] = []
    rows = read(server.bootstrap_servers, topic, 10, 90, on_loss=told.append)
    assert [row[0] for row in rows] == list(range(40, 90))
    assert len(told) == 1
    assert read(server.bootstrap_servers, topic, 10, 30, on_loss=told.append) == []
    assert len(told) == 2


@pytest.mark.parametrize("start", [3, 10, 12])
def test_an_end_that_is_not_in_the_log_is_a_loss_and_not_fewer_rows(
    server: Server, raw: RawConnection, topic: str, start: int
) -> None:
    write(raw, topic, [b"%d" % i for i in range(10)])
    with pytest.raises(DataLost, match="the log ends at 10"):
        read(server.bootstrap_servers, topic, start, 20)
    told: list[str] = []
    rows = read(server.bootstrap_servers, topic, start, 20, on_loss=told.append)
    assert [row[0] for row in rows] == list(range(start, 10))
    assert len(told) == 1


def test_an_end_that_comes_to_be_in_time_is_read_up_to(server: Server, raw: RawConnection, topic: str) -> None:
    write(raw, topic, [b"%d" % i for i in range(10)])
    found = read_columns({"bootstrap.servers": server.bootstrap_servers}, Range(topic, 0, 0, 20))
    assert next(found).row_count == 10
    write(raw, topic, [b"%d" % i for i in range(10)])
    assert sum(each.row_count for each in found) == 10


def test_a_topic_that_is_not_there_is_a_loss_once_that_is_certain(server: Server) -> None:
    with pytest.raises(DataLost, match="nowhere-0"):
        read(server.bootstrap_servers, "nowhere", 0, 10)
    told: list[str] = []
    assert read(server.bootstrap_servers, "nowhere", 0, 10, on_loss=told.append) == []
    assert len(told) == 1


def test_a_topic_that_is_deleted_while_it_is_read_is_a_loss(server: Server, raw: RawConnection, topic: str) -> None:
    for _ in range(20):
        write(raw, topic, [bytes(1000)] * 100)
    little = {"fetch.message.max.bytes": "100000", "queued.max.messages.kbytes": "150"}  # most of it is not fetched yet
    found = read_columns({"bootstrap.servers": server.bootstrap_servers} | little, Range(topic, 0, 0, 2000))
    next(found)
    assert raw.delete_topic(topic) == 0
    with pytest.raises(DataLost, match=topic):
        list(found)


def test_another_topic_of_the_name_is_a_loss_where_the_former_is_wanted(
    server: Server, raw: RawConnection, topic: str
) -> None:
    write(raw, topic, [b"former"] * 100)
    (known,) = raw.call("metadata", 12, topics=[{"topic_id": None, "name": topic}]).topics
    asked = Range(topic, 0, 0, 100, topic_id=str(known.topic_id))
    properties = {"bootstrap.servers": server.bootstrap_servers}
    assert sum(each.row_count for each in read_columns(properties, asked)) == 100
    assert raw.delete_topic(topic) == 0
    assert raw.create_topic(topic, 1) == 0
    write(raw, topic, [b"another"] * 200)
    for _ in range(2):  # the first one may learn of it, and the second one knows
        with pytest.raises(DataLost, match="was deleted and made again"):
            list(read_columns(properties, asked))
    told: list[str] = []
    assert list(read_columns(properties, asked, on_loss=told.append)) == []
    assert len(told) == 1


@pytest.mark.parametrize("kind", [Kind.CUT, Kind.SWALLOW, Kind.STALL])
def test_a_connection_that_breaks_costs_no_row_and_doubles_none(
    server: Server, mixed: tuple[str, list[Row]], kind: Kind
) -> None:
    topic, rows = mixed
    faults = [
        Fault(kind=kind, counter="fetch answers", api="fetch", at=at, part=0.5, ms=50 if kind is Kind.STALL else 0)
        for at in range(2, 12, 3)
    ]
    quick = {"socket_timeout_ms": 200, "reconnect_backoff_ms": 1, "retry_backoff_ms": 1, "fetch_wait_max_ms": 10}
    with FaultProxy(server.bootstrap_servers, faults) as proxy:
        found = read(proxy.bootstrap_servers, topic, 0, len(rows), fetch_message_max_bytes=500, **quick)
        assert len(proxy.happened) == len(faults)
    assert found == rows


def test_damage_is_told_with_its_offset_and_not_tried_for_ever(server: Server, raw: RawConnection, topic: str) -> None:
    for at in range(3):
        write(raw, topic, [b"batch %d" % at] * 5)
    (segment,) = Path(server.data_dir).glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"batch 1") + 3] ^= 1
    segment.write_bytes(data)
    found = read_columns(
        {"bootstrap.servers": server.bootstrap_servers, "fetch.error.backoff.ms": "1"}, Range(topic, 0, 0, 15)
    )
    assert next(found).row_count == 5
    with pytest.raises(KafkaException, match=r"at offset 5 is damaged.*CRC"):
        next(found)


def test_who_does_not_answer_is_not_waited_for_for_ever() -> None:
    with pytest.raises(KafkaException, match=r"nothing more came at offset 0 in 0.3 s: .*connect failed") as refused:
        read("127.0.0.1:1", "t", 0, 10, patience_s=0.3)
    assert refused.value.error == KafkaError._TIMED_OUT


def test_connections_stay_open_from_range_to_range(server: Server, mixed: tuple[str, list[Row]]) -> None:
    topic, rows = mixed
    its_own = f"warm-{next(_unused)}"
    before = server.broker.metrics.connections_accepted
    for start in range(0, 200, 10):
        assert read(server.bootstrap_servers, topic, start, start + 10, client_id=its_own) == rows[start : start + 10]
    assert server.broker.metrics.connections_accepted - before == 2, "one to ask, one to fetch"


def test_no_more_than_a_few_clusters_are_kept_open(server: Server, mixed: tuple[str, list[Row]]) -> None:
    topic, _ = mixed
    for _ in range(warm_connections.MOST + 3):
        read(server.bootstrap_servers, topic, 0, 10, client_id=f"many-{next(_unused)}")
    assert len(warm_connections.kept) <= warm_connections.MOST
    until(lambda: server.broker.metrics.connections_open <= 2 * warm_connections.MOST + 2, "the others to be closed")


def test_a_range_that_is_left_half_way_leaves_nothing_behind(server: Server, mixed: tuple[str, list[Row]]) -> None:
    topic, rows = mixed
    servers = server.bootstrap_servers
    read(servers, topic, 0, 1)
    before = own_threads()
    for _ in range(5):
        found: Iterator[Any] = read_columns({"bootstrap.servers": servers}, Range(topic, 0, 0, len(rows)))
        next(found)
        found.close()  # type: ignore[attr-defined]
        assert read(servers, topic, 7, 9) == rows[7:9]
    assert own_threads() == before
    assert all(each.users == 0 for each in warm_connections.kept.values())


def test_a_forked_process_reads_over_connections_of_its_own(server: Server, mixed: tuple[str, list[Row]]) -> None:
    topic, rows = mixed
    assert read(server.bootstrap_servers, topic, 0, 50) == rows[:50]
    child = os.fork()
    if child == 0:
        is_right = False
        try:
            is_right = read(server.bootstrap_servers, topic, 50, 100) == rows[50:100]
        finally:
            os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read(server.bootstrap_servers, topic, 100, 150) == rows[100:150]
