"""The orders and reports of tasks. Small values that Spark pickles: options and numbers, never connections."""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.spark.copying.cluster import Cluster
from oncelog.spark.copying.lane import CopyRegister, Side


class CopyRefused(Exception):
    """The copy stops, since going on could write a record twice or leave one out; the words say what to do."""


class CopyFailed(Exception):
    """Something that may pass: the same copy, started again, goes on where it was."""


class SparkGone(CopyFailed):
    """Nothing more can be done in this process."""


@dataclass(frozen=True, slots=True)
class Job:
    """The part of the order that all tasks of a copy have in common."""

    name: str
    source: Cluster
    destination: Cluster
    source_side: Side
    destination_side: Side
    source_partitions: int
    destination_partitions: int
    most_batch_bytes: int  # that the destination takes
    is_compacted: bool  # the source is, so that holes may come to be where none were
    is_destination_compacted: bool
    skips_lost: bool  # records that are gone from the source before they were copied are passed over

    @property
    def source_topic(self) -> str:
        return self.source_side.topic

    @property
    def destination_topic(self) -> str:
        return self.destination_side.topic


class Order(NamedTuple):
    """One partition's share of a task."""

    partition: int
    end_offset: int  # of the source, not included


@dataclass(frozen=True, slots=True)
class Task:
    job: Job
    orders: tuple[Order, ...]
    register: CopyRegister  # what the driver has read


class Copied(NamedTuple):
    """The report of a task about one partition."""

    partition: int
    records: int
    size_bytes: int  # as they travelled
    found: int  # that stood there already, beyond what was written down
    lost: tuple[str, ...] = ()  # what is gone from the source, in words
