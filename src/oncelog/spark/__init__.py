"""PySpark on oncelog and on any Kafka: `spark.readStream.format("oncelog")`, and sinks that write every row once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.spark.checking import check as check
    from oncelog.spark.sealed.sealing import sealed as sealed
    from oncelog.spark.session import session as session

__all__ = ["check", "sealed", "session"]

_WHERE = {"check": "checking", "sealed": "sealed.sealing", "session": "session"}


def __getattr__(name: str) -> Any:
    # A Spark worker that only reads must not load what only a driver needs.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"oncelog.spark.{_WHERE[name]}"), name)
