"""A job for a cluster that has Spark and nothing of ours:  cluster_job.py MASTER ARCHIVE SERVERS TOPIC

Started in a folder in which the archive is unpacked, by an interpreter that has oncelog. What its tasks saw goes to
stdout as JSON.
"""

import json
import sys
from typing import Any

ROWS = 1000


def main() -> None:
    master, archive, servers, topic = sys.argv[1:]
    import oncelog.spark

    conf = {
        "spark.archives": f"{archive}#environment",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,
        "spark.locality.wait": 0,
    }
    spark = oncelog.spark.session("cluster", conf, master=master)

    def tell(rows: Any) -> Any:
        import os

        import oncelog

        yield os.environ["SPARK_LOCAL_IP"], sys.prefix, oncelog.__file__

    at = {"kafka.bootstrap.servers": servers, "topic": topic, "job.id": topic}
    rows = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("oncelog").mode("append").options(**at).save()
    found = spark.read.format("oncelog").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    said = {
        "rows": sorted(int(row[0]) for row in found.selectExpr("CAST(value AS STRING)").collect()) == list(range(ROWS)),
        "tasks": spark.sparkContext.parallelize(range(8), 8).mapPartitions(tell).collect(),
        "driver": sys.prefix,
    }
    sys.stdout.write("RESULT " + json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
