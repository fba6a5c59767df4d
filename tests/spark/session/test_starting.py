"""A session whose start is interrupted."""

import subprocess
import sys

import pytest

from oncelog.spark.java import ending_unconnected


def test_the_jvm_that_pyspark_waits_for_is_ended_with_the_start() -> None:
    """It would find the folder gone in which to write its port, and stay for ever."""
    started = []

    def launch_gateway() -> None:  # as PySpark's
        proc = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        started.append(proc)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ending_unconnected():
        launch_gateway()
    assert started[0].returncode is not None
    assert started[0].stdin is not None
    started[0].stdin.close()


def test_pyspark_still_keeps_it_under_that_name() -> None:
    from pyspark.java_gateway import launch_gateway

    code = launch_gateway.__code__
    assert "proc" in code.co_varnames + code.co_cellvars
