"""Python imports this when it starts, in every process whose path leads here: drivers, Spark's workers and their
daemons."""

import os
import sys
from typing import Any

EVENT = "oncelog.spark"  # as in spark/sink/milestones.py, which is not to be imported where nobody else does


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == EVENT:
        from tests.spark.kills.hooks import reached

        reached(*arguments)


if "ONCELOG_TEST_CONTROLLER" in os.environ:
    sys.addaudithook(hook)
