"""What the driver on a cluster does for the test of flows there: each function gets the session, and is called by
`Driver.ask("call", ...)`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from oncelog.flow.flows import Run
from tests.runner.flows import Billing
from tests.waiting import until

HELD_S = 240.0
TASKS = 2
_runs: dict[str, Run] = {}


def begin(spark: Any, servers: str, flow: str, tenure_s: float) -> None:
    billing = Billing(flow, servers)
    _runs[flow] = billing.flow().start(billing.properties, spark=spark, tasks=TASKS, tenure=tenure_s)


def end(spark: Any, flow: str) -> None:
    run = _runs.pop(flow)
    run.stop()
    error = run.exception()
    if error is not None:
        raise error


def take_slots(spark: Any, slots: int, folder: str) -> None:
    """So many tasks of others stand there, each with a file to show it, until there is one called `let-go`."""

    def hold(numbers: Iterable[int]) -> Iterator[int]:
        for number in numbers:
            (Path(folder) / f"taken-{number}").touch()
            until((Path(folder) / "let-go").exists, "the slots to be let go", give_up_seconds=HELD_S)
            yield number

    spark.sparkContext.parallelize(range(slots), slots).mapPartitions(hold).collect()
