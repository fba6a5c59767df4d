"""Topics written by transactions: markers are no rows and no loss, and what was aborted or is open is left to the
isolation level, as in Spark's own source."""

from typing import Any

import confluent_kafka
import pytest

from oncelog.client.consumer import range_engine
from oncelog.client.consumer.ranges import Range, read_columns
from oncelog.client.errors import KafkaException
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.source.conftest import OURS, SPARKS, Reads, Streams
from tests.spark.source.filling import new_topic

WAIT_S = 60
COMMITTED = {"kafka.isolation.level": "read_committed"}

_left_open: list[confluent_kafka.Producer] = []  # its broker hears of it for as long as it lives


@pytest.fixture(scope="module")
def written(server: ServerProcess) -> str:
    """A topic with committed, aborted and plain records in turn, and at its end a transaction that is still
    open."""
    with RawConnection(server.port) as raw:
        topic = new_topic(raw, "transactions")
    properties = {"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0, "log_level": 0}
    plain = confluent_kafka.Producer(properties)
    within = confluent_kafka.Producer(properties | {"transactional.id": "tests", "transaction.timeout.ms": 900_000})
    within.init_transactions(WAIT_S)
    for at in range(12):
        within.begin_transaction()
        for i in range(5):
            within.produce(topic, f"{'aborted' if at % 3 == 1 else 'committed'} {at}.{i}", partition=0)
            within.flush(WAIT_S)
            if i == 2:
                plain.produce(topic, f"plain {at}", partition=0)
                plain.flush(WAIT_S)
        (within.abort_transaction if at % 3 == 1 else within.commit_transaction)(WAIT_S)
    within.begin_transaction()
    within.produce(topic, "open", partition=0)
    within.flush(WAIT_S)
    _left_open.append(within)
    return topic


@pytest.mark.parametrize(("isolation", "count"), [({}, 73), (COMMITTED, 52)], ids=["uncommitted", "committed"])
def test_a_batch_has_the_rows_that_its_isolation_level_lets_it_see(
    written: str, reads: Reads, isolation: dict[str, str], count: int
) -> None:
    rows = reads.same(subscribe=written, **isolation)
    assert len(rows) == count
    assert any(row[1].startswith(b"aborted") for row in rows) == (not isolation)
    for end in (6, 13, 40):
        bounds = {"endingOffsets": f'{{"{written}":{{"0":{end}}}}}', "minPartitions": "3"}
        assert reads.same(subscribe=written, **bounds, **isolation) == [row for row in rows if row[4] < end]


def test_a_stream_of_committed_records_ends_though_its_last_offsets_are_no_rows(
    written: str, spark: Any, server: ServerProcess, tmp_path: Any
) -> None:
    streams = Streams(spark, server, tmp_path)
    for source in (OURS, SPARKS):
        streams.run(
            source,
            source,
            {"availableNow": True},
            ("offset", "value"),
            subscribe=written,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="20",
            **COMMITTED,
        )
    assert streams.batches[OURS] == streams.batches[SPARKS]
    assert len(streams.rows(OURS)) == 52


def test_a_range_that_an_open_transaction_holds_back_is_an_error_and_not_fewer_rows(
    written: str, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_engine, "IDLE_S", 0.2)
    properties = {"bootstrap.servers": server.bootstrap_servers, "isolation.level": "read_committed"}
    with pytest.raises(KafkaException, match="an open transaction holds back what comes after offset 84"):
        list(read_columns(properties, Range(written, 0, 0, 85), patience_s=1.0))
