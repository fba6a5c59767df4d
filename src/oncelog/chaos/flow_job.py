"""A flow of an experiment on Spark, in a process of its own, so that its driver can be killed.

    python -m oncelog.chaos.flow_job '{"servers": "127.0.0.1:9092", "read": "chaos", ...}'

It makes of each number what `pipeline_job.py` makes of it, in two stages: even and odd numbers are read apart and
merged, regrouped into buckets, and counted there. What is written is `NUMBER,COUNT`, under the bucket's name: a bucket
gets its numbers from one partition, in their order, and its counts are 1, 2, 3, ... if the state is the fold of its
input. The order is `pipeline.PipelineOrder`.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oncelog.flow import Context, Flow, Topic, optional, text

BUCKETS: Final = 4  # for each partition; even, so that a bucket has only even or only odd numbers
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
    counted.flat_map(rows).step("count", int, count).write(written)
    return flow


def is_number(value: str) -> bool:
    """What is no number was not sent by the experiment, whose audit tells it."""
    return value.isascii() and value.isdigit()


def rows(number: str) -> list[int]:
    n = int(number)
    return [2 * n + row for row in range(n % 3)]


def count(before: int, row: int, at: Context[str]) -> tuple[int, list[str]]:
    return before + 1, [f"{row},{before + 1}"]


def main(arguments: Iterable[str]) -> int:
    (order,) = arguments
    wanted: Mapping[str, Any] = json.loads(order)
    from oncelog.spark import session

    spark = session("oncelog chaos", wanted["settings"], progress=False)
    flow = flow_of(wanted["read"], wanted["write"], wanted["partitions"])
    flow.run({"bootstrap.servers": wanted["servers"]}, spark=spark, tenure=TENURE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
