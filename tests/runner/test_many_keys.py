"""A state of a million keys, read back from its journal by a life that has nothing else."""

from collections import Counter

import numpy as np
import pyarrow.compute as pc
import pytest

from bench.flow_watch import send
from oncelog.client import OFFSET_BEGINNING, Consumer, TopicPartition
from oncelog.flow import Context, Flow, Topic, json_of, raw
from tests.runner.flows import make_topic

KEYS = 1_000_000
AGAIN = 997  # each so many-th key comes once more
MOST_ROWS = 100_000
WAIT_S = 30.0


def count(seen: int, _: bytes, at: Context[bytes]) -> tuple[int, list[int]]:
    return seen + 1, [seen + 1]


def counts_in(servers: str, topic: Topic[bytes, int], rows: int) -> Counter[bytes]:
    """How often each count was written."""
    found: Counter[bytes] = Counter()
    with Consumer({"bootstrap.servers": servers}) as consumer:
        consumer.assign([TopicPartition(topic.name, index, OFFSET_BEGINNING) for index in range(topic.partitions)])
        while found.total() < rows:
            table = consumer.consume_arrow(MOST_ROWS, WAIT_S)
            assert table.num_rows, f"{found.total()} of {rows} outputs are there"
            found.update({each["values"]: each["counts"] for each in pc.value_counts(table["value"]).to_pylist()})
    return found


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_million_keys_are_what_they_were(servers: str, topic: str) -> None:
    source = Topic(f"{topic}-in", raw, raw, partitions=2)
    counts = Topic(f"{topic}-out", raw, json_of(int), partitions=2)
    flow = Flow(topic, version="1")
    flow.read(source, name="views").step("count", int, count).write(counts)
    for each in (source, counts):
        make_topic(servers, each.name, each.partitions)
    properties, numbers = {"bootstrap.servers": servers}, np.arange(KEYS)
    send(servers, source.name, numbers, numbers)
    flow.run(properties, until="end")
    again = numbers[::AGAIN]
    send(servers, source.name, again, again)
    run = flow.start(properties)
    assert counts_in(servers, counts, KEYS + len(again)) == {b"1": KEYS, b"2": len(again)}
    run.stop()
    last = run.last_progress
    assert last is not None and last["stages"]["views"]["state"] == KEYS
