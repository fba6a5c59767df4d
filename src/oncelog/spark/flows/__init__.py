"""Flows on Spark: `flow.run(properties, spark=session)` leads here."""

from oncelog.spark.flows.starting import start

__all__ = ["start"]
