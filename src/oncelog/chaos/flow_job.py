"""A flow of an experiment on Spark, in a process of its own, so that its driver can be killed.

    CHAOS_ORDER='{"servers": "127.0.0.1:9092", "read": "chaos", ...}' python -m oncelog.chaos.flow_job

It makes of each number what `pipeline_job.py` makes of it, in two stages: even and odd numbers are read apart and
merged, regrouped into buckets, and counted there. What is written is `NUMBER,COUNT`, under the bucket's name: a bucket
gets its numbers from one partition, in their order, and its counts are 1, 2, 3, ... if the state is the fold of its
input. Some of them wait in the state for a timer, which writes `NUMBER,COUNT,fired` of each that waited for it. The
order is `pipeline.PipelineOrder`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.chaos.order_variable import told
from oncelog.flow import Context, Flow, Topic, optional, text

BUCKETS: Final = 4  # for each partition; even, so that a bucket has only even or only odd numbers
ONE_IN: Final = 31  # of what is counted waits for a timer: the rows that this divides
GRID_MS: Final = 500  # of timers, so that a bucket has few at a time; they fire one to two of these later
FIRED: Final = ",fired"
TENURE_S: Final = 15.0  # of a task: many tenants in an experiment


def flow_of(read: str, write: str, partitions: int) -> Flow:
    numbers = Topic(read, optional(text), text, partitions)
    buckets = Topic(f"{write}-by-bucket", text, text, partitions)
    written = Topic(write, text, text, partitions)
    flow = Flow(write.replace(".", "-"), version="1")
    odd = flow.read(numbers, name="odd").filter(lambda number: is_number(number) and int(number) % 2 == 1)
    even = flow.read(numbers, name="even").filter(lambda number: is_number(number) and int(number) % 2 == 0)
    both = odd.merge("both", even)
    counted = both.through(buckets, key=lambda number: f"b{int(number) % (partitions * BUCKETS)}")
    counted.flat_map(rows).step("count", Counted, count, on_timer=fire).write(written)
    return flow


def is_number(value: str) -> bool:
    """Whether it is a number: another value was not sent by the experiment, whose audit tells it."""
    return value.isascii() and value.isdigit()


def rows(number: str) -> list[int]:
    n = int(number)
    return [2 * n + row for row in range(n % 3)]


@dataclass(frozen=True)
class Counted:
    count: int = 0
    waiting: tuple[tuple[int, str], ...] = ()  # when each falls due, and what is written then


def count(before: Counted, row: int, at: Context[str]) -> tuple[Counted, list[str]]:
    found = f"{row},{before.count + 1}"
    after = replace(before, count=before.count + 1)
    if row % ONE_IN == 0:
        due_ms = (at.time_ms // GRID_MS + 2) * GRID_MS
        at.timer(due_ms)
        after = replace(after, waiting=(*before.waiting, (due_ms, found)))
    return after, [found]


def fire(before: Counted, bucket: str, at: Context[str]) -> tuple[Counted, list[str]]:
    """A timer that nothing waits for tells that, too: it fired twice, or too early or late."""
    left = tuple(each for each in before.waiting if each[0] != at.time_ms)
    found = [text + FIRED for due_ms, text in before.waiting if due_ms == at.time_ms]
    return replace(before, waiting=left), found or [f"nothing waits in {bucket} for {at.time_ms}"]


def main() -> int:
    wanted: Mapping[str, Any] = told()
    from oncelog.spark import session

    spark = session("oncelog chaos", wanted["settings"], progress=False)
    flow = flow_of(wanted["read"], wanted["write"], wanted["partitions"])
    flow.run({**wanted["login"], "bootstrap.servers": wanted["servers"]}, spark=spark, tenure=TENURE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
