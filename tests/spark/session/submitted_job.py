"""A job that spark-submit starts, and a second session after the first was stopped."""

import json
import sys
from typing import Any

import oncelog.spark


def facts(spark: Any) -> dict[str, Any]:
    return {
        "app": spark.sparkContext.appName,
        "master": spark.sparkContext.master,
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "timezone": spark.conf.get("spark.sql.session.timeZone"),
        "ui": spark.sparkContext.uiWebUrl,
        "rows": spark.range(10).repartition(2).count(),
    }


def main() -> None:
    first = oncelog.spark.session("first", spark__sql__session__timeZone="Asia/Tokyo")
    said = [facts(first)]
    first.stop()
    second = oncelog.spark.session("second", master="local[1]")
    said.append(facts(second))
    sys.stdout.write("RESULT " + json.dumps({"sessions": said}) + "\n")


if __name__ == "__main__":
    main()
