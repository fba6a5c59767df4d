"""Strangers fill a partition's ring of leases; producers that were there before and that come later go on at once."""

import pytest

from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from tests.raw import RawConnection, batch
from tests.raw.topics import new_topic

ENTRIES = 16


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("bound", ["oncelog.producer.ring.entries", "oncelog.max.producer.ring.entries"])
def test_producers_go_on_beside_any_number_of_strangers_and_nothing_is_there_twice(bound: str, batches: int) -> None:
    with Server(settings={bound: ENTRIES}) as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        with Producer({"bootstrap.servers": server.bootstrap_servers, "delivery.timeout.ms": 20_000}) as early:
            stored = told(early, topic, b"before")
            granted = [server.call(server.broker.leased_pids.take) for _ in range(64)]
            for sequence in range(batches):
                for pid in granted:
                    stranger = batch([b"stranger"], pid=pid, epoch=7, sequence=sequence)
                    raw.produce(topic, 0, stranger)
            stored += told(early, topic, b"after", b"after", b"after")
        with Producer({"bootstrap.servers": server.bootstrap_servers, "delivery.timeout.ms": 20_000}) as late:
            stored += told(late, topic, b"late", b"late", b"late")
        assert server.call(lambda: sum(log.producers.leases_live for log in server.broker.topics.logs())) <= ENTRIES
        found = raw.fetch(topic, 0, 0).records
        assert [found.count(word) for word in (b"before", b"after", b"late")] == [1, 3, 3]
        assert raw.offset_at(topic, 0, -1).offset == stored + found.count(b"stranger")


def told(producer: Producer, topic: str, *values: bytes) -> int:
    """How many were stored, each on its own."""
    stored: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: stored.append(error))
        assert producer.flush(20) == 0
    return stored.count(None)
