"""The flow of an experiment: what it must write, and how its counts are read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncelog.chaos.audit import NOT_A_NUMBER as NO
from oncelog.chaos.audit import Audit
from oncelog.chaos.flow_job import flow_of
from oncelog.chaos.flow_watch import FlowWatch
from oncelog.chaos.guard import Guard
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.outcome import Options, Pipeline
from oncelog.chaos.sinks import FLOW
from oncelog.chaos.topics import create_topic
from oncelog.client import Producer
from oncelog.embedded import Server

END_MS = 10_000
PARTITIONS = 2


def test_the_flow_writes_what_the_audit_expects_of_it(tmp_path: Path) -> None:
    """Each row once, counted within its bucket, and those of a bucket in their order; each timer once, with what waited
    for it; whatever crashes."""
    flow = flow_of("chaos", "chaos-written", PARTITIONS)
    numbers = flow.program.parts[0].branches[0].source
    written = flow.program.parts[-1].sinks[0]
    sent = [numbers.sent(None, str(number), 10 * number) for number in range(120)]
    with Server() as server:
        watch = watching(server, tmp_path, flow.simulate(sent, end=END_MS, crashes=True)[written])
        due, audit = watch.due_of(np.arange(120)), Audit(watch.most_rows)
        audit.confirm(due)
        for part, found in watch.stored():
            audit.take(part, found)
    result = audit.result()
    assert (watch.timers, len(due)) == (3, 123)
    assert result.is_exact and result.all.received == 123, result


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ((("b1", "4,1"), ("b2", "6,1"), ("b1", "5,2"), ("b1", "8,2"), ("b2", "hello")), {1: [4, 5, NO], 2: [6, NO]}),
        ((("b1", "62,1"), ("b1", "62,1,fired")), {1: [62], ~1: [1000 + 2]}),
        ((("b1", "62,1"), ("b1", "62,2,fired")), {1: [62], ~1: [NO]}),
        ((("b1", "62,1"), ("b1", "63,2"), ("b1", "63,2,fired"), ("b1", "64,3")), {1: [62, 63, 64], ~1: [NO]}),
        ((("b1", "62,1,fired"),), {~1: [NO]}),
        ((("b1", "nothing waits in b1 for 1000"),), {1: [NO]}),
    ],
)
def test_a_count_that_is_not_the_next_one_is_told_and_a_timer_that_tells_another(
    tmp_path: Path, rows: tuple[tuple[str, str], ...], found: dict[int, list[int]]
) -> None:
    with Server() as server:
        assert {
            part: numbers.tolist() for part, numbers in watching(server, tmp_path, rows).stored() if len(numbers)
        } == found


def watching(server: Server, folder: Path, rows: Iterable[tuple[Any, Any]]) -> FlowWatch:
    """Of an experiment of 500 messages in which this was written."""
    kafka, options = Kafka(server.bootstrap_servers), Options(500, partitions=1)
    create_topic(kafka, f"{options.topic}-written", 1)
    with Producer(kafka.client) as producer:
        for bucket, value in rows:
            producer.produce(f"{options.topic}-written", key=bucket, value=value)
        producer.flush()
    return FlowWatch(Guard(), folder, kafka, options, Pipeline(sink=FLOW), ())


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "٣"])
def test_what_is_no_number_is_passed_over(value: str) -> None:
    flow = flow_of("chaos", "chaos-written", PARTITIONS)
    numbers = flow.program.parts[0].branches[0].source
    assert flow.simulate([numbers.sent(None, value)])[flow.program.parts[-1].sinks[0]] == []
