"""The steps of most jobs, so that Spark's JVM loads the classes that they need: a write, a read, a stream.

python -m oncelog.spark.rehearsal SERVERS
"""

import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark import SparkContext

from oncelog.spark.session import session

ROWS: Final = 1000


def main(arguments: Sequence[str]) -> None:
    (servers,) = arguments
    spark = session("rehearsal", master="local[2]", progress=False)
    at: dict[str, Any] = {"kafka.bootstrap.servers": servers}
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("oncelog").options(**at, topic="rehearsed").mode("append").save()
    assert spark.read.format("oncelog").options(**at, subscribe="rehearsed").load().count() == ROWS
    stream = spark.readStream.format("oncelog").options(**at, subscribe="rehearsed", startingOffsets="earliest").load()
    with TemporaryDirectory() as checkpoint:
        writer = stream.select("value").writeStream.format("oncelog").options(**at, topic="streamed")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    java: subprocess.Popen[bytes] = SparkContext._gateway.proc
    assert java.stdin is not None
    java.stdin.close()  # which ends it; then the launcher goes on
    java.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
