"""A task's rows, at least once: the idempotent producer, without anything that is saved."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from oncelog.client import KafkaError, KafkaException, Producer
from oncelog.client.door import BulkSend
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink.errors import SinkRefused, refused
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.rows import Portion, chosen, columns_of, portions
from oncelog.spark.sink.under_way import in_lane

_UNANSWERED: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


def write_plain(options: SinkOptions, iterator: Iterable[pa.RecordBatch]) -> None:
    row = 0
    under_way: deque[tuple[BulkSend, Portion]] = deque()

    def take_answers(*, everything: bool = False) -> None:
        """A failed row ends the task at once: the next attempt would write all rows behind it again."""
        while under_way and (everything or under_way[0][0].done()):
            handle, portion = under_way.popleft()
            with _in_words(options, portion):
                handle.result()

    with Producer(lane_properties(options)) as producer:
        for batch in iterator:
            rows = chosen(batch, columns_of(batch, options.topic))
            for portion in _divided(options, rows, row):
                take_answers()
                with _in_words(options, portion):
                    under_way.append((producer.send(portion.topic, portion.rows), portion))
            row += batch.num_rows
        take_answers(everything=True)


def _divided(options: SinkOptions, rows: pa.RecordBatch, first_row: int) -> list[Portion]:
    try:
        return list(portions(rows, options.topic, first_row))
    except ValueError as failure:
        raise SinkRefused(f"rows cannot be written: {failure}") from None


@contextmanager
def _in_words(options: SinkOptions, portion: Portion) -> Iterator[None]:
    """A failure inside is raised with the topic, and with the row where it is one of the portion's."""
    try:
        yield
    except (KafkaException, ValueError, TypeError) as failure:
        error = failure.error if isinstance(failure, KafkaException) else None
        words = str(failure) if error is None else error.str()
        row = in_lane(words, portion.numbers)
        if row is not None:
            words = row
        elif error is not None and error.code() in _UNANSWERED:
            words += f"; `bootstrap.servers` is {options.client['bootstrap.servers']}"
        raise refused(f"rows cannot be written to topic {portion.topic!r}: {words}", failure) from failure
