"""A task's rows, at least once: the idempotent producer, without anything that is saved."""

from collections.abc import Iterable

import pyarrow as pa

from oncelog.client.errors import KafkaException
from oncelog.client.producer.bulk import BulkSend
from oncelog.client.producer.producer import Producer
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.rows import chosen, columns_of, portions
from oncelog.spark.sink.warm import lane_properties


def write_plain(options: SinkOptions, iterator: Iterable[pa.RecordBatch]) -> None:
    row = 0
    with Producer(lane_properties(options)) as producer:
        handles: list[BulkSend] = []
        try:
            for batch in iterator:
                rows = chosen(batch, columns_of(batch, options.topic))
                for portion in portions(rows, options.topic, row):
                    handles = [each for each in handles if not each.done() or each.error is not None]
                    handles.append(producer.send(portion.topic, portion.rows))
                row += batch.num_rows
            for handle in handles:
                handle.result()
        except KafkaException as failure:
            raise SinkRefused(f"in the rows up to {row}: {failure.error.str()}") from failure
