"""A whole copy: once up to the end as it is now, or on and on. The driver's side.

`copy_topic` is what programs call; `oncelog copy` shows progress and says how it ended.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from types import NoneType
from typing import Any, Final

from oncelog.arguments import check_kind, check_text
from oncelog.client import KafkaException
from oncelog.client.door import is_retriable
from oncelog.clock import monotonic_s
from oncelog.spark.copying.copy_planning import Plan, spec_of
from oncelog.spark.copying.job import CopyFailed, CopyRefused, Job, Order, SparkGone, Task
from oncelog.spark.copying.lane import CopyRegister
from oncelog.spark.copying.tasks import Outcome, outcomes, shared_out
from oncelog.spark.jobs import context_of

IDLE_S: Final = 0.2  # between two looks whether there is more
TROUBLE_S: Final = 2.0  # before what failed is tried again
MOST_TASKS: Final = 1000
NOTHING: Final[Mapping[str, str]] = {}
_log: Final = logging.getLogger("oncelog.spark")


@dataclass(slots=True)
class Summary:
    records: int = 0
    size_bytes: int = 0
    found: int = 0
    partitions: int = 0
    took_s: float = 0.0
    lost: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        for each in outcome.copied:
            self.records += each.records
            self.size_bytes += each.size_bytes
            self.found += each.found
            self.lost += each.lost


class Copying:
    """`spark` gives the session, which is not started while there is nothing to copy."""

    def __init__(self, spark: Callable[[], Any], plan: Plan) -> None:
        self._spark = spark
        self._plan = plan
        self.job: Job = plan.job()
        self.register: CopyRegister = plan.register(self.job)
        self.summary = Summary(partitions=self.job.source_partitions)

    def left(self) -> int:
        """About how many records there are to copy; what is under way somewhere counts too."""
        orders = self._plan.orders(self.job, self.register)
        return sum(each.end_offset - self.register.lanes[each.partition].offset for each in orders)

    def once(self) -> Summary:
        """Copy up to the end of each partition as it is now."""
        orders = self._plan.orders(self.job, self.register)
        if orders:
            self._session()
            began_s = monotonic_s()
            self._round(orders)
            self.summary.took_s = monotonic_s() - began_s
        return self.summary

    def follow(self, stop: Event, say: Callable[[str], None]) -> Summary:
        """Copy until it is told to stop. What may pass is waited for; what was refused ends it."""
        began_s = monotonic_s()
        try:
            while not stop.is_set():
                pause_s = self._one_of_many(say)
                if pause_s:
                    stop.wait(pause_s)
        finally:  # also on Ctrl-C
            self.summary.took_s = monotonic_s() - began_s
        return self.summary

    def _one_of_many(self, say: Callable[[str], None]) -> float:
        """Run one round; the pause behind it, in seconds."""
        try:
            return 0.0 if self._next_round() else IDLE_S
        except SparkGone:
            raise
        except CopyFailed as failure:
            say(f"{failure}; trying again")
            return TROUBLE_S

    def _session(self) -> Any:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return self._spark()
        except (PySparkException, Py4JError, ConnectionError, ImportError) as failure:
            why = str(failure).partition("\n")[0]
            raise SparkGone(f"Spark does not start, or has ended ({why}); what it says stands above") from failure

    def _next_round(self) -> bool:
        try:
            if self._plan.has_grown(self.job):
                self.job = self._plan.job()
                self.register = self._plan.register(self.job)
            orders = self._plan.orders(self.job, self.register)
            if orders:
                self._round(orders)
        except KafkaException as failure:
            if not failure.error.retriable() and not is_retriable(failure.error.code()):
                raise
            raise CopyFailed(failure.error.str()) from None
        return bool(orders)

    def _round(self, orders: Sequence[Order]) -> None:
        spark = self._session()
        parts = shared_out(orders, self.register.lanes, _parallelism(spark))
        found = outcomes(spark, [Task(self.job, part, self.register) for part in parts])
        for outcome in found:
            self.summary.add(outcome)
        self._plan.read_again(self.register)
        failures = [outcome for outcome in found if outcome.failure]
        for each in sorted(failures, key=lambda outcome: outcome.may_pass):
            raise CopyFailed(each.failure) if each.may_pass else CopyRefused(each.failure)


def copy_topic(
    source: str,
    destination: str,
    *,
    from_servers: str,
    to_servers: str | None = None,
    name: str | None = None,
    from_properties: Mapping[str, str] = NOTHING,
    to_properties: Mapping[str, str] = NOTHING,
    skip_lost: bool = False,
    follow: Event | None = None,
    spark: Any = None,
) -> Summary:
    """Copy a topic to another one, every record once, up to its end as it is now; with `follow` until that is set.

    Called again with the same topics, or the same `name`, it goes on where it was. `spark` is the session to run on, by
    default `oncelog.spark.session()`'s. Raises CopyRefused where it must not go on, CopyFailed where it may, later.
    """

    def session() -> Any:
        from oncelog.spark.session import session as own

        return own(f"copy {source} to {destination}", progress=False) if spark is None else spark

    for what, text in (("source", source), ("destination", destination), ("from_servers", from_servers)):
        check_text(what, text, "127.0.0.1:9092" if what == "from_servers" else "orders")
    for what, properties in (("from_properties", from_properties), ("to_properties", to_properties)):
        check_kind(what, properties, Mapping, 'a dict of properties, such as {"security.protocol": "ssl"}')
    check_kind("follow", follow, (Event, NoneType), "a threading.Event that is set to end it, or nothing")
    spec = spec_of(
        source,
        destination,
        {**from_properties, "bootstrap.servers": from_servers},
        {**to_properties, "bootstrap.servers": to_servers or from_servers},
        name=name,
        skips_lost=skip_lost,
    )
    with Plan(spec) as plan:
        copying = Copying(session, plan)
        return copying.once() if follow is None else copying.follow(follow, _log.warning)


def _parallelism(spark: Any) -> int:
    """The tasks that run side by side; a cluster that is reached by Spark Connect does not say it."""
    context = context_of(spark)
    return MOST_TASKS if context is None else int(context.defaultParallelism)
