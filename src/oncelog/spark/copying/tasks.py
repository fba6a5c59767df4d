"""A copy as a Spark job: one row for each task, which goes in as a number and comes out as what was copied.

Nothing else passes through the JVM. What fails for a reason that is known comes back as words, since whether to try
again is for the driver to say: Spark itself would try a refusal four times, and a broker that is away as often at once.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import TopicMissing, is_retriable
from oncelog.spark.copying.job import Copied, CopyFailed, CopyRefused, Order, SparkGone, Task
from oncelog.spark.copying.lane import BadState, Lane
from oncelog.spark.jobs import is_gone, is_of_spark, lines, words_of


class Outcome(NamedTuple):
    copied: Sequence[Copied] = ()
    failure: str = ""  # why it ended early
    may_pass: bool = False  # trying again may help


class CopyTasks:
    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    def __call__(self, number: int) -> str:
        return json.dumps(outcome_of(self._tasks[number]))


def outcome_of(task: Task) -> Outcome:
    from oncelog.spark.copying.moving import run

    try:
        return Outcome(run(task, uuid4().hex[:12]))
    except (CopyRefused, BadState) as refused:
        return Outcome(failure=str(refused))
    except KafkaException as failure:
        error = failure.error
        may_pass = error.retriable() or is_retriable(error.code()) or error.code() == KafkaError._MSG_TIMED_OUT
        return Outcome(failure=error.str(), may_pass=may_pass or isinstance(failure, TopicMissing))


def outcomes(spark: Any, tasks: Sequence[Task]) -> list[Outcome]:
    """Run them on Spark, each as a task of its own."""
    try:
        return [_read(line) for line in lines(spark, len(tasks), CopyTasks(tasks))]
    except Exception as error:
        if is_gone(error):
            raise SparkGone(f"Spark's JVM has ended: {error}") from error
        if not is_of_spark(error):
            raise
        raise CopyFailed(f"a task failed: {words_of(str(error))}") from error


def _read(text: str) -> Outcome:
    copied, failure, may_pass = json.loads(text)
    return Outcome([Copied(*each) for each in copied], failure, may_pass)


def shared_out(orders: Sequence[Order], lanes: dict[int, Lane], most_tasks: int) -> list[tuple[Order, ...]]:
    """The orders in a number of parts, about as much work in each: the largest first, to the part with least."""

    def left(order: Order) -> int:
        return max(1, order.end_offset - lanes[order.partition].offset)

    parts: list[list[Order]] = [[] for _ in range(max(1, min(most_tasks, len(orders))))]
    loads = [0] * len(parts)
    for order in sorted(orders, key=left, reverse=True):
        least = loads.index(min(loads))
        parts[least].append(order)
        loads[least] += left(order)
    return [tuple(part) for part in parts if part]
