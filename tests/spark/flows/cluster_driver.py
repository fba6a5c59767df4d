"""A driver whose flow is at work on a cluster, until its input ends: CLUSTER SERVERS FLOW. For each line of its input it
has other tasks take all slots that are left, until there is a file of that name."""

import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Thread

import oncelog.spark
from tests.runner.flows import Billing
from tests.waiting import until

HELD_S = 120.0
TENURE_S = 8.0
LEFT = 2  # slots


def held(released: str) -> object:
    def hold(rows: Iterable[int]) -> list[int]:
        found = [*rows]
        Path(f"{released}-{found[0]}").touch()
        until(Path(released).exists, "the slots to be let go", give_up_seconds=HELD_S)
        return found

    return hold


if __name__ == "__main__":
    cluster, servers, name = sys.argv[1:]
    spark = oncelog.spark.session("flow", master=cluster, progress=False)
    billing = Billing(name, servers)
    run = billing.flow().start(billing.properties, spark=spark, tasks=2, tenure=TENURE_S)
    print("it is at work", flush=True)
    for line in sys.stdin:
        others = spark.sparkContext.parallelize(range(LEFT), LEFT).mapPartitions(held(line.strip()))
        Thread(target=others.collect, daemon=True).start()
    run.stop()
    print(f"it has ended: {run.exception()}", flush=True)
    spark.stop()
