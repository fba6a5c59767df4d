"""Spark's transformWithState in Python (Row version) between its own connector's source and sink, at least once.

files    its own connector and its file sink, to the end of the source
"""

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructField, StructType

from bench.flow_peers import setting

# As ours: the codec at its level, and how many rows a group has.
OURS = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",
    "parquet.block.row.count.limit": "131072",
}

COUNT = StructType([StructField("seen", LongType())])
COUNTED = StructType([StructField("key", StringType()), StructField("value", StringType())])
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Count(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", COUNT)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        before = self.seen.get()
        seen = before[0] if before else 0
        for _ in rows:
            seen += 1
            yield Row(key=key[0], value=str(seen))
        self.seen.update((seen,))

    def close(self) -> None:
        pass


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", os.environ["FLOW_JARS"])
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "2g")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.local.dir", setting.state)
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.sql.streaming.stateStore.providerClass", STORE)
    .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .getOrCreate()
)
brokers = {"kafka.bootstrap.servers": setting.servers}
reader = spark.readStream.format("kafka").options(**brokers, subscribe=setting.source, startingOffsets="earliest")
if setting.pipeline == "files":
    rows = reader.load().select("key", "value", "partition", "offset", "timestamp")
    writer = rows.writeStream.format("parquet").options(path=setting.files, **OURS).trigger(availableNow=True)
else:
    keys = reader.option("maxOffsetsPerTrigger", "4000").load().selectExpr("CAST(key AS STRING) key")
    counts = keys.groupBy("key").transformWithState(Count(), COUNTED, "Update", "None")
    writer = counts.writeStream.outputMode("update").format("kafka").options(**brokers, topic=setting.out)
writer.option("checkpointLocation", f"{setting.state}/checkpoint").start().awaitTermination()
