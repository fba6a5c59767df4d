"""The result that a task's `write` hands to the driver's `commit`: how far its lane got, or why it refused its rows.

Spark runs a task again that fails, four times by default, and prints what it failed with each time. A refusal comes out
the same whenever the rows are the same, so the task ends well and hands it to the driver, which fails the batch once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import LaneMessage


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    lane: LaneMessage | None = None  # None where nothing is to be saved
    refusal: str | None = None


def attempt(write: Callable[[], LaneMessage | None], rows: Iterator[object]) -> TaskMessage:
    """`rows`, the input, is read to its end even if refused: to Spark a task that leaves some of it is broken."""
    try:
        return TaskMessage(write())
    except MayPass:
        raise
    except SinkRefused as refused:
        for _ in rows:
            pass
        return TaskMessage(refusal=str(refused))


def lanes_of(messages: Iterable[TaskMessage | None]) -> list[LaneMessage | None]:
    """Raises what a task refused; a task that handed over nothing is None."""
    messages = list(messages)
    for message in messages:
        if message is not None and message.refusal is not None:
            raise SinkRefused(message.refusal)
    return [None if message is None else message.lane for message in messages]
