"""What was written to our server in transactions, read by our consumer and by `oncelog consume`."""

from typing import Any

import confluent_kafka
import pytest

import oncelog
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition
from tests.cli.running import Oncelog
from tests.waiting import until

PATIENCE_S = 30.0
COMMITTED = [f"{number}.{index}" for number in range(12) if number % 3 != 1 for index in range(3)]


@pytest.fixture(scope="module")
def server() -> Any:
    with oncelog.Server() as started:
        yield started


@pytest.fixture(scope="module")
def open_one(server: oncelog.Server) -> Any:
    """Every third transaction was aborted, and one is open: in it, records were written before those of the others."""
    properties = {"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0}
    stays, producer = (confluent_kafka.Producer(properties | {"transactional.id": name}) for name in ("stays", "goes"))
    for each in (stays, producer):
        each.init_transactions(PATIENCE_S)
    for number in range(12):
        if number == 9:
            stays.begin_transaction()
            stays.produce("t", b"open")
            stays.flush(PATIENCE_S)
        producer.begin_transaction()
        for index in range(3):
            producer.produce("t", b"%d.%d" % (number, index))
        producer.flush(PATIENCE_S)  # what is not sent yet when it is aborted never is
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(PATIENCE_S)
    return stays


def read(server: oncelog.Server, isolation: str) -> list[str]:
    said = Oncelog(server.bootstrap_servers)("consume", "-t", "t", "-e", "-q", "-X", f"isolation.level={isolation}")
    return said.lines


def test_committed_records_are_all_that_is_read_and_an_open_transaction_is_waited_for(
    server: oncelog.Server, open_one: Any
) -> None:
    before = [each for each in COMMITTED if int(each.split(".")[0]) < 9]
    assert read(server, "read_committed") == before
    everything = read(server, "read_uncommitted")
    assert len(everything) == 12 * 3 + 1 and "open" in everything
    with Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        found: list[str] = []

        def take() -> int:
            found.extend((each.value() or b"").decode() for each in consumer.consume(100, 0.1) if not each.error())
            return len(found)

        until(lambda: take() >= len(before), "what was committed before the open one")
        assert found == before
        open_one.commit_transaction(PATIENCE_S)
        until(lambda: take() > len(COMMITTED), "the rest")
        behind = [each for each in COMMITTED if each not in before]
        assert found == [*before, "open", *behind]
    assert read(server, "read_committed") == found
