"""The Spark driver of an experiment, in a process of its own, so that it can be killed.

    CHAOS_ORDER='{"servers": "127.0.0.1:9092", "read": "chaos", ...}' python -m oncelog.chaos.pipeline_job

Number n becomes none, one or two rows, as many as it leaves when it is divided by three: 2n, and 2n + 1. Each goes to
the partition that n came from. The order is `pipeline.PipelineOrder`.
"""

import sys
from collections.abc import Mapping
from typing import Any

from oncelog.chaos import sinks
from oncelog.chaos.kafka_login import for_java
from oncelog.chaos.order_variable import told


def main() -> int:
    wanted: Mapping[str, Any] = told()
    from oncelog.spark import session

    spark = session("oncelog chaos", wanted["settings"], progress=False)
    query = written(rows(spark, wanted).writeStream, wanted)
    query.option("checkpointLocation", f"{wanted['folder']}/checkpoint").trigger(processingTime="0 seconds")
    query.start().awaitTermination()
    return 0


def written(writer: Any, wanted: Mapping[str, Any]) -> Any:
    options = {**_reaching(wanted, wanted["login"]), "topic": wanted["write"]}
    match wanted["sink"]:
        case sinks.DIRECT:
            return writer.format("oncelog").options(**options)
        case sinks.KAFKA:
            options = {**_reaching(wanted, for_java(wanted["login"])), "topic": wanted["write"]}
            return writer.format("kafka").options(**options)
        case sinks.SEALED:
            from oncelog.spark import sealed

            return writer.foreachBatch(sealed(path=f"{wanted['folder']}/sealed", **options))
        case other:
            raise ValueError(f"no sink is called {other!r}")


def _reaching(wanted: Mapping[str, Any], login: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in {**login, "bootstrap.servers": wanted["servers"]}.items()}


def rows(spark: Any, wanted: Mapping[str, Any]) -> Any:
    numbers = (
        spark.readStream.format("oncelog")
        .options(
            **{
                **_reaching(wanted, wanted["login"]),
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
    sys.exit(main())
