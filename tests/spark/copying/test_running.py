"""A copy whose Spark does not start, and one that is interrupted."""

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from oncelog.spark.copying.copy_running import Copying
from oncelog.spark.copying.job import Order, SparkGone


def copying(spark: Any, *orders: Order) -> Copying:
    plan: Any = SimpleNamespace(
        job=lambda: SimpleNamespace(source_partitions=1),
        register=lambda job: SimpleNamespace(lanes={}),
        orders=lambda job, register: orders,
        has_grown=lambda job: False,
    )
    return Copying(spark, plan)


@pytest.mark.parametrize("error", [PySparkRuntimeError("no gateway\nframes"), Py4JError("no gateway\nframes")])
def test_a_spark_that_does_not_start_is_told_in_a_line(error: Exception) -> None:
    def spark() -> None:
        raise error

    with pytest.raises(SparkGone, match=r"does not start, or has ended .*no gateway.*stands above") as once:
        copying(spark, Order(0, 1)).once()
    assert "frames" not in str(once.value)
    with pytest.raises(SparkGone):
        copying(spark, Order(0, 1)).follow(Event(), print)


def test_a_copy_that_is_interrupted_knows_how_long_it_took() -> None:
    class Interrupted(Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    interrupted = copying(None)
    with pytest.raises(KeyboardInterrupt):
        interrupted.follow(Interrupted(), print)
    assert interrupted.summary.took_s > 0
