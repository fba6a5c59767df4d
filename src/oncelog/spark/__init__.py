"""PySpark on oncelog and on any Kafka: `spark.readStream.format("oncelog")`, and sinks that write every row once."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from oncelog.spark.idle_workers import end_quietly

if TYPE_CHECKING:
    from oncelog.spark.checking import check as check
    from oncelog.spark.copying.copy_running import copy_topic as copy_topic
    from oncelog.spark.sealed.sealing import sealed as sealed
    from oncelog.spark.session import session as session

__all__ = ["check", "copy_topic", "sealed", "session"]

_WHERE = {"check": "checking", "copy_topic": "copying.copy_running", "sealed": "sealed.sealing", "session": "session"}


class _Exported:
    """A function, imported when it is asked for: a Spark worker that only reads must not load what a driver needs.

    On the module's class, because two functions have the name of what they are kept in: importing that would put the
    module in their place.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: object, kind: type | None = None) -> Any:
        try:
            return getattr(import_module(f"oncelog.spark.{_WHERE[self._name]}"), self._name)
        except ModuleNotFoundError as missing:
            if not (missing.name or "").startswith("pyspark"):
                raise
            raise ImportError(
                "oncelog.spark needs pyspark, which is not installed: pip install 'oncelog[spark]'"
            ) from missing

    def __set__(self, module: object, value: object) -> None:
        """An import of a module sets its name on the package: it is left unset."""


class _Spark(ModuleType):
    check = _Exported("check")
    copy_topic = _Exported("copy_topic")
    sealed = _Exported("sealed")
    session = _Exported("session")


sys.modules[__name__].__class__ = _Spark
end_quietly()
