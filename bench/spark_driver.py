"""One contestant: a Spark driver in a process of its own, which does the jobs it is told on its standard input.

One line of JSON each way: `{"job": "read", ...}` and what `bench.spark_jobs` answers, or `{"failed": "..."}`.
"""

import json
import os
import sys
import time
import traceback
from typing import Any

STARTED = time.perf_counter()


def session(conf: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("oncelog bench")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def our_session(conf: dict[str, str]) -> Any:
    """As users of oncelog make it."""
    from oncelog.spark import session as made

    spark = made("oncelog bench", conf, master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    # Spark's JVM writes to the standard output that it inherits; answers go where nobody else writes.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders = iter(sys.stdin.readline, "")
    about = json.loads(next(orders))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = our_session(about["conf"]) if about["ours"] else session(about["conf"])

    from bench import spark_jobs

    spark_jobs.prepare(spark, is_ours=about["ours"])
    answer: dict[str, Any] = {"session_s": time.perf_counter() - STARTED}
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        order = next(orders, "")
        if not order:
            break
        told = json.loads(order)
        try:
            answer = spark_jobs.JOBS[told.pop("job")](spark, **told)
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"[:2000]}
    spark.stop()


if __name__ == "__main__":
    main()
