"""What runs inside of tasks before the sink: rows that depend on the attempt, and rows that are held up."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.spark.kills.hooks import reached, task_facts
from tests.spark.kills.queries import DIFFERS

PORTION_ROWS = 100


def another_row_each_attempt(batches: Iterator[Any]) -> Iterator[Any]:
    """Non-determinism that cannot be waited for: some rows say which attempt made them."""
    attempt = task_facts()["attempt"]
    for batch in batches:
        x = batch.column("x").to_numpy(zero_copy_only=False).copy()
        differs = x % DIFFERS == 7
        x[differs] = -x[differs] * 10 - attempt
        yield pa.record_batch(
            [batch.column("partition"), batch.column("offset"), pa.array(x)], names=batch.schema.names
        )


def gate(batches: Iterator[Any]) -> Iterator[Any]:
    """Each batch asks before it goes on to the sink."""
    for number, batch in enumerate(batches):
        reached("gate", {"number": number, "rows": batch.num_rows, "worker": os.getpid()})
        yield batch


def in_order(batches: Iterator[Any]) -> Iterator[Any]:
    """All rows of the partition by their number, in portions."""
    held = list(batches)
    if held:
        yield from pa.Table.from_batches(held).sort_by("x").combine_chunks().to_batches(max_chunksize=PORTION_ROWS)
