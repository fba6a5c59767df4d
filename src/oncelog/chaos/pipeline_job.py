"""The Spark driver of an experiment, in a process of its own, so that it can be killed.

    python -m oncelog.chaos.pipeline_job '{"servers": "127.0.0.1:9092", "read": "chaos", ...}'

Number n becomes none, one or two rows, as many as it leaves when it is divided by three: 2n, and 2n + 1. Each goes to
the partition that n came from. The order is `pipeline.PipelineOrder`.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog.chaos import sinks


def main(arguments: Iterable[str]) -> int:
    (order,) = arguments
    wanted: Mapping[str, Any] = json.loads(order)
    from oncelog.spark import session

    spark = session("oncelog chaos", wanted["settings"], progress=False)
    query = written(rows(spark, wanted).writeStream, wanted)
    query.option("checkpointLocation", f"{wanted['folder']}/checkpoint").trigger(processingTime="0 seconds")
    query.start().awaitTermination()
    return 0


def written(writer: Any, wanted: Mapping[str, Any]) -> Any:
    options = {"kafka.bootstrap.servers": wanted["servers"], "topic": wanted["write"]}
    match wanted["sink"]:
        case sinks.DIRECT:
            return writer.format("oncelog").options(**options)
        case sinks.KAFKA:
            return writer.format("kafka").options(**options)
        case sinks.SEALED:
            from oncelog.spark import sealed

            return writer.foreachBatch(sealed(path=f"{wanted['folder']}/sealed", **options))
        case other:
            raise ValueError(f"no sink is called {other!r}")


def rows(spark: Any, wanted: Mapping[str, Any]) -> Any:
    numbers = (
        spark.readStream.format("oncelog")
        .options(
            **{
                "kafka.bootstrap.servers": wanted["servers"],
                "subscribe": wanted["read"],
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(wanted["rows_a_batch"]),
            }
        )
        .load()
        .selectExpr("TRY_CAST(CAST(value AS STRING) AS BIGINT) AS n", "partition")
        .where("n >= 0")  # what is no number was not sent by the experiment, whose audit tells it
    )
    made = "CASE n % 3 WHEN 0 THEN array() WHEN 1 THEN array(2 * n) ELSE array(2 * n, 2 * n + 1) END"
    return numbers.selectExpr(f"explode({made}) AS made", "partition").selectExpr(
        "CAST(made AS STRING) AS value", "partition"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
