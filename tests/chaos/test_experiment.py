"""The experiment can pass and can fail: librdkafka through the proxy, with idempotence and without."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import oncelog
from oncelog.chaos.faults import Kind, seeded_schedule
from oncelog.chaos.proxy import FaultProxy
from tests.lives.stored import numbers

MESSAGES = 10_000


@pytest.fixture(scope="module")
def server() -> Iterator[oncelog.Server]:
    with oncelog.Server() as started:
        yield started


def sent_through_faults(server: oncelog.Server, topic: str, *, idempotent: bool) -> list[int]:
    """What stands in the log afterwards."""
    weights = {Kind.CUT: 3, Kind.SWALLOW: 3, Kind.DELAY: 1}
    with FaultProxy(server.bootstrap_servers, seeded_schedule(11, every=8, until=10_000, weights=weights)) as proxy:
        producer = Producer(
            {
                "bootstrap.servers": proxy.bootstrap_servers,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 100,
                "socket.timeout.ms": 300,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 10,
                "retry.backoff.ms": 1,
                "log_level": 0,
            }
        )
        for number in range(MESSAGES):
            producer.produce(topic, str(number).encode(), partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert sum(happened.hit_work for happened in proxy.happened) > 10
        assert proxy.unreadable == []
    return list(numbers(server.bootstrap_servers, topic, 0).tolist())


def test_with_idempotence_every_record_stands_once_and_in_order(server: oncelog.Server) -> None:
    assert sent_through_faults(server, "idempotent", idempotent=True) == list(range(MESSAGES))


def test_without_idempotence_the_same_faults_leave_duplicates(server: oncelog.Server) -> None:
    found = sent_through_faults(server, "careless", idempotent=False)
    assert len(found) > MESSAGES
    assert set(found) == set(range(MESSAGES))
