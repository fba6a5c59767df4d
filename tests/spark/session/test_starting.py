"""A session whose start is interrupted, and the second one of a process."""

import subprocess
import sys

import pytest

from oncelog.spark.java import ending_unconnected
from tests.spark.session.running import environment


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


TWICE = """
import oncelog.spark
for _ in range(2):
    spark = oncelog.spark.session("twice", master="local[1]", progress=False)
    print("PYTHON", spark.sparkContext.pythonExec)
    spark.stop()
"""


@pytest.mark.thorough
def test_a_second_session_of_a_process_has_the_workers_of_the_first() -> None:
    """PySpark asks the environment anew, in which the first session has left this interpreter."""
    done = subprocess.run([sys.executable, "-c", TWICE], env=environment(), capture_output=True, text=True, check=True)
    first, second = [line for line in done.stdout.splitlines() if line.startswith("PYTHON ")]
    assert first == second != f"PYTHON {sys.executable}"
