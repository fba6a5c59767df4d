"""Spark looks for packages whose names begin with `pyspark_`, so `format("oncelog")` needs no registration."""

from oncelog.spark.datasource import OncelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
