"""The Spark driver of an experiment, in a process of its own, so that it can be killed.

    python -m oncelog.chaos.pipeline_job '{"servers": "127.0.0.1:9092", "read": "chaos", ...}'

Number n becomes none, one or two rows, as many as it leaves when it is divided by three: 2n, and 2n + 1. Each goes to
the partition that n came from, by the direct sink.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Rows a batch, if there are as many: so that kills fall into the middle of batches, and not all rows into one.
ROWS_A_BATCH: Final = 20_000
SETTINGS: Final = {"spark.driver.memory": "1g", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
# Of local tasks, too, an attempt may fail: a worker is killed.
MASTER: Final = "local[2,8]"


def main(arguments: Iterable[str]) -> int:
    (order,) = arguments
    wanted: Mapping[str, str] = json.loads(order)
    from oncelog.spark import session

    spark = session("oncelog chaos", SETTINGS, master=MASTER, progress=False)
    query = rows(spark, wanted).writeStream.format("oncelog").option("checkpointLocation", wanted["checkpoint"])
    query = query.options(**{"kafka.bootstrap.servers": wanted["servers"], "topic": wanted["write"]})
    query.trigger(processingTime="0 seconds").start().awaitTermination()
    return 0


def rows(spark: Any, wanted: Mapping[str, str]) -> Any:
    numbers = (
        spark.readStream.format("oncelog")
        .options(
            **{
                "kafka.bootstrap.servers": wanted["servers"],
                "subscribe": wanted["read"],
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(ROWS_A_BATCH),
            }
        )
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS n", "partition")
    )
    made = "CASE n % 3 WHEN 0 THEN array() WHEN 1 THEN array(2 * n) ELSE array(2 * n, 2 * n + 1) END"
    return numbers.selectExpr(f"explode({made}) AS made", "partition").selectExpr(
        "CAST(made AS STRING) AS value", "partition"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
