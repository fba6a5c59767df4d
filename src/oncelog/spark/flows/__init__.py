"""Flows on Spark: `flow.run(properties, spark=session)` and `flow.stream` lead here."""

from oncelog.spark.flows.starting import start
from oncelog.spark.flows.streaming import stream

__all__ = ["start", "stream"]
