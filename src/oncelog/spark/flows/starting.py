"""The start of a flow on Spark."""

import copyreg
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from pyspark import cloudpickle

from oncelog.flow.errors import FlowRefused
from oncelog.flow.program import Program
from oncelog.runner.run import Run, has_end
from oncelog.spark.flows.driving import TENURE_S, SparkEngine, slots_for

# The classes of a script are sent to tasks by value, and with them what says that a field has no default. It must
# arrive as what it is: a copy would be taken for a default.
copyreg.pickle(type(MISSING), lambda _: "MISSING")


def tasks_for(program: Program, spark: Any, tasks: int | None) -> int:
    """The number of tasks at a time. Raises FlowRefused where the flow cannot be sent to them."""
    if tasks is not None and tasks < 1:
        raise FlowRefused(f"flow {program.name}: tasks={tasks} holds no cell. Say 1 or more")
    try:
        cloudpickle.dumps(program)
    except Exception as error:
        raise FlowRefused(
            f"flow {program.name} cannot be sent to Spark's tasks: {error}. Let its functions make what they need "
            "(connections, locks, clients) where they run"
        ) from error
    return tasks or slots_for(spark, program.name)


def start(
    program: Program,
    properties: Mapping[str, Any],
    *,
    spark: Any,
    until: str | None = None,
    run_id: str | None = None,
    tasks: int | None = None,
    tenure: float = TENURE_S,
    metrics: str | None = None,
) -> Run:
    engine = SparkEngine(
        program,
        properties,
        run_id,
        until_end=has_end(until),
        spark=spark,
        tasks=tasks_for(program, spark, tasks),
        tenure_s=tenure,
    )
    return Run(engine, metrics)
