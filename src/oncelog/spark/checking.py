"""`oncelog.spark.check(df)`: which sink a query may use, and why."""

from dataclasses import dataclass
from typing import Any, Final

from oncelog.spark.checking_plan import Operator, Reason, reasons

DIRECT: Final = "direct"
SEALED: Final = "sealed"
NONE: Final = "none"

_HEADS: Final = {
    DIRECT: "direct: run again, a batch of this query yields the same rows in the same order.",
    SEALED: "sealed: run again, a batch of this query may yield other rows, or the same in another order:",
    NONE: "none: run again, this job may yield other rows, or the same in another order, so `job.id` is not for it:",
}
_ENDS: Final = {
    DIRECT: 'Write it with writeStream.format("oncelog"), or as a batch job with the option job.id.',
    SEALED: "Write it with writeStream.foreachBatch(oncelog.spark.sealed(path=..., topic=...)).",
    NONE: "Without `job.id` it is written at least once. To have it written once, read its input as a stream with "
    "trigger(availableNow=True) and write that with foreachBatch(oncelog.spark.sealed(path=..., topic=...)).",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    sink: str  # "direct", "sealed", or "none": a batch job that must not be run twice
    reasons: tuple[Reason, ...] = ()  # what is not known to repeat

    @property
    def is_repeatable(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return "\n".join([_HEADS[self.sink], *(f"- {reason}" for reason in self.reasons), _ENDS[self.sink]])


def check(df: Any, *, functions_repeat: bool = False) -> Verdict:
    """Looks at the plan of `df`, and runs nothing. `functions_repeat`: the UDFs in it, and the functions of mapInArrow
    and its like, give the same rows in the same order whenever they are given the same."""
    plan = _plan_of(df)
    found = reasons(plan, functions_repeat=functions_repeat)
    if not found:
        return Verdict(DIRECT)
    return Verdict(SEALED if plan.is_streaming else NONE, found)


def _plan_of(df: Any) -> Operator:
    if hasattr(df, "_jdf"):
        from oncelog.spark.checking_classic import read_plan

        return read_plan(df)
    if hasattr(df, "_plan"):
        from oncelog.spark.checking_connect import read_plan as read_remote_plan

        return read_remote_plan(df)
    raise TypeError(f"check() takes a DataFrame of PySpark, not {type(df).__name__}")
