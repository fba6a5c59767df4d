"""Consumers through the same faults: every record once and in order, whatever is cut."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from oncelog.chaos.faults import Fault, Kind, Sides, seeded_schedule
from oncelog.chaos.proxy import FaultProxy
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.producer.producer import Producer
from oncelog.client.types import TopicPartition
from tests.client.faults.case import KAFKA, ONCELOG
from tests.client.faults.sending import Int64s, number_in, table
from tests.raw import RawConnection

RECORDS: Final = 150_000
PARTITIONS: Final = 3
LEAST_FAULTS: Final = 10
PATIENCE_S: Final = 30.0


def faults(seed: int) -> list[Fault]:
    """On Fetch everything may happen; other requests are cut so that both sides know, since an answer to JoinGroup is
    waited for as long as members may take to come."""
    weights = {Kind.CUT: 5, Kind.SWALLOW: 2, Kind.DELAY: 2, Kind.STALL: 1, Kind.REFUSE: 1}
    on_fetch = seeded_schedule(
        seed, every=6, until=100_000, counter="fetch answers", api="fetch", weights=weights, stall_ms=300
    )
    anywhere = seeded_schedule(
        f"{seed} anywhere", every=20, until=100_000, counter="answers", api=None, weights={Kind.CUT: 1}
    )
    return on_fetch + [replace(fault, sides=Sides.BOTH) for fault in anywhere]


def properties(servers: str, group: str) -> dict[str, object]:
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
        "fetch.message.max.bytes": 20_000,
        "fetch.error.backoff.ms": 5,
        "socket.timeout.ms": 300,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 20,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 20,
    }


@pytest.mark.parametrize(
    ("server", "is_group"),
    [
        pytest.param(ONCELOG, False, id="oncelog-assigned"),
        pytest.param(ONCELOG, True, id="oncelog-in a group"),
        pytest.param(KAFKA, False, id="kafka-assigned", marks=pytest.mark.thorough),
        pytest.param(KAFKA, True, id="kafka-in a group"),
    ],
)
def test_a_consumer_reads_every_record_once_and_in_order_in_spite_of_faults(
    server: str, is_group: bool, request: pytest.FixtureRequest
) -> None:
    servers, topic = request.getfixturevalue(f"{server}_servers"), f"reading-{is_group}"
    with RawConnection(servers) as raw:
        assert raw.create_topic(topic, PARTITIONS) == 0
    with Producer({"bootstrap.servers": servers, "batch.size": 8_000}) as producer:
        producer.send(topic, table(np.arange(RECORDS, dtype=np.int64), PARTITIONS)).result(60)
    with FaultProxy(servers, faults(3)) as proxy:
        with Consumer(properties(proxy.bootstrap_servers, topic)) as consumer:
            if is_group:
                consumer.subscribe([topic])
            else:
                consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
            found = read(consumer)
        assert len(proxy.happened) >= LEAST_FAULTS
    for index in range(PARTITIONS):
        assert np.array_equal(found[index], np.arange(index, RECORDS, PARTITIONS))


def read(consumer: Consumer) -> list[Int64s]:
    """The numbers of each partition, in the order in which they came."""
    numbers: list[list[int]] = [[] for _ in range(PARTITIONS)]
    count = 0
    while count < RECORDS:
        got = consumer.consume_arrow(RECORDS - count, PATIENCE_S)
        assert got.num_rows, "nothing more comes"
        count += got.num_rows
        for partition, value in zip(got["partition"].to_pylist(), got["value"].to_pylist(), strict=True):
            numbers[partition].append(number_in(value))
    return [np.array(each, np.int64) for each in numbers]
