"""The orders of an experiment, its notes while it runs, and its outcome. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from oncelog.chaos.audit import Result
from oncelog.chaos.plan import Event, Target
from oncelog.chaos.sinks import DIRECT


class Verdict(IntEnum):
    """The exit code."""

    EXACT = 0
    NOT_EXACT = 1
    INCONCLUSIVE = 2  # a kind of fault that was asked for never hit anything, or nobody knows what became of messages


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The order for a pipeline on Spark."""

    sink: str = DIRECT
    is_cluster: bool = False  # executors of their own, where otherwise all tasks run beside the driver
    conf: Mapping[str, str] = field(default_factory=dict)  # of the session; goes before the experiment's own
    rows_a_batch: int = 20_000  # so that kills fall into the middle of batches, and not all rows into one


@dataclass(frozen=True, slots=True)
class Options:
    messages: int
    topic: str = "chaos"
    partitions: int = 1
    client: str = "oncelog"
    is_idempotent: bool = True
    linger_ms: int = 5
    targets: frozenset[Target] = frozenset()
    every: int = 10_000
    seed: int = 1
    servers: str = ""  # an own Kafka; where empty, a server of ours is started
    login: Mapping[str, str] = field(default_factory=dict, repr=False)  # properties by which one gets into it
    brokers: int = 0  # of a cluster of ours, in the place of that server
    is_kept: bool = False  # what was made on an own Kafka; it always is where there is something to look at
    rate: int = 0  # messages a second at most; 0 for as fast as it goes
    seconds: float = 0.0  # then nothing more is sent; 0 for until all were
    kafka_libs: str = ""  # the jars of Kafka's Java client, where that sends
    spark: Pipeline | None = None  # goes on from what was sent


@dataclass(frozen=True, slots=True)
class Killed:
    """An event as it came about."""

    target: Target
    planned_at: int
    confirmed: int  # by then
    in_flight: int  # messages sent and not confirmed, or requests not answered
    seconds: float
    words: str
    gap_s: float | None = None  # the longest of any partition without a confirmation that is put down to it

    @property
    def hit_work(self) -> bool:
        return self.in_flight > 0


class Replicas(NamedTuple):
    """The records that several brokers have in common, compared byte for byte."""

    records: int  # that were compared
    damage: tuple[str, ...]  # where they differ, or one of them is not whole


class Sample(NamedTuple):
    seconds: float
    confirmed: int  # by then
    slowest_ms: float  # from a message's sending to its confirmation, since the sample before
    written: int = 0  # by the pipeline, by then


@dataclass(frozen=True, slots=True)
class Outcome:
    options: Options
    planned: list[Event]
    happened: list[Killed]
    result: Result
    failed: int  # messages that the client gave up
    seconds: float
    samples: list[Sample] = field(default_factory=list)
    written: Result | None = None  # by the pipeline; what it should have written counts as confirmed
    timers: int = 0  # that were due in the pipeline; each of them a row
    left: tuple[str, ...] = ()  # topics that still are on an own Kafka
    restarts: int = 0  # of a pipeline that ended by itself
    replicas: Replicas | None = None  # of a cluster

    @property
    def idle_targets(self) -> list[Target]:
        """The targets that were asked for and never hit at work."""
        hit = {each.target for each in self.happened if each.hit_work}
        return sorted(self.options.targets - hit)

    @property
    def untold(self) -> int:
        """Messages of which the client said neither that they are stored nor that it gave them up. A producer that was
        killed and is out of time never comes back to some."""
        return 0 if self.options.seconds else max(0, self.result.sent - self.result.confirmed - self.failed)

    @property
    def verdict(self) -> Verdict:
        if not self.result.is_exact or not (self.written is None or _is_whole(self.written)):
            return Verdict.NOT_EXACT
        if self.replicas is not None and self.replicas.damage:
            return Verdict.NOT_EXACT
        is_shown = self.result.confirmed and not self.untold and not self.idle_targets
        return Verdict.EXACT if is_shown else Verdict.INCONCLUSIVE


def _is_whole(written: Result) -> bool:
    """Rows that the pipeline should not have written are as wrong as rows that it did not write."""
    return written.is_exact and not written.unconfirmed_there


@dataclass(slots=True)
class Progress:
    """The progress that a display may look at while the experiment runs."""

    sent: int = 0
    confirmed: int = 0
    written: int = 0  # by the pipeline
    failed: int = 0
    faults: Counter[Target] = field(default_factory=Counter)
    last_fault: str = ""  # in words
    happened: list[tuple[Target, str]] = field(default_factory=list)  # every fault so far, in words
    seconds: float = 0.0
    phase: str = ""
    is_spark_starting: bool = False
