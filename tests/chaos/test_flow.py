"""The flow of an experiment: what it must write, and how its counts are read."""

import pytest

from oncelog.chaos import topics
from oncelog.chaos.audit import NOT_A_NUMBER
from oncelog.chaos.flow_job import BUCKETS, flow_of
from oncelog.chaos.pipeline import outputs_of
from oncelog.client import NewTopic, Producer
from oncelog.client.admin.admin import Admin
from oncelog.embedded import Server

PARTITIONS = 2


def test_the_flow_writes_what_the_audit_expects_of_it() -> None:
    """Each row once, counted within its bucket, and those of a bucket in their order; whatever crashes."""
    flow = flow_of("chaos", "chaos-written", PARTITIONS)
    numbers = flow.parts[0].branches[0].source
    written = flow.parts[-1].sinks[0]
    found = flow.simulate([numbers.sent(None, str(number), number) for number in range(30)], crashes=True)[written]
    buckets: dict[str, list[tuple[int, int]]] = {}
    for bucket, row in found:
        number, count = map(int, row.split(","))
        buckets.setdefault(bucket, []).append((number, count))
    rows = [number for each in buckets.values() for number, _ in each]
    import numpy as np

    assert sorted(rows) == sorted(outputs_of(np.arange(30)).tolist())
    for bucket, each in buckets.items():
        assert each == [(number, at + 1) for at, (number, _) in enumerate(sorted(each))]
        assert {number // 2 % (PARTITIONS * BUCKETS) for number, _ in each} == {int(bucket[1:])}


def test_a_count_that_is_not_the_next_one_is_told() -> None:
    with Server() as server:
        properties = {"bootstrap.servers": server.bootstrap_servers}
        with Admin(properties) as admin:
            admin.create_topics([NewTopic("written", 1, 1)])["written"].result(30)
        with Producer(properties) as producer:
            for bucket, value in (("b1", "4,1"), ("b2", "6,1"), ("b1", "5,2"), ("b1", "8,2"), ("b2", "hello")):
                producer.produce("written", key=bucket, value=value)
            producer.flush()
        found = {
            bucket: numbers.tolist()
            for bucket, numbers in topics.stored_counts(str(server.bootstrap_servers), "written", 1)
        }
    assert found == {1: [4, 5, NOT_A_NUMBER], 2: [6, NOT_A_NUMBER]}


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "٣"])
def test_what_is_no_number_is_passed_over(value: str) -> None:
    flow = flow_of("chaos", "chaos-written", PARTITIONS)
    numbers = flow.parts[0].branches[0].source
    assert flow.simulate([numbers.sent(None, value)])[flow.parts[-1].sinks[0]] == []
