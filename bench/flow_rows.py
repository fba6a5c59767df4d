"""The rows of the flows' table. A row runs one contestant once and returns named figures."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from bench.flow_contestant import (
    BYTEWAX,
    KINDS,
    OURS,
    OURS_SHARED,
    OURS_SPARK,
    QUIX,
    QUIX_FAST,
    SPARK,
    STREAMS,
    Contestant,
    Work,
)
from bench.flow_watch import Latency, Outputs, audit, percentiles_ms, send, views
from bench.spark_world import World
from tests.raw import RawConnection

Figures = dict[str, float]

KEYS = 100_000
BEGIN, END = 0.2, 0.8  # of the outputs: what lies between is measured, while nobody starts or comes to an end
KILLED_AT = 0.4
KILL_KEYS = 5_000
RESTORED_KEYS = 1_000_000
IDLE_KEYS = 1_000_000
QUIET_S = 3.0
LATENCY_S = 12.0
GROWTH = (1, 10)
GROWN_RECORDS = 1_000_000  # fewer are written in one go, and their rate is that of the reader
FEW_GROWN = 1_000  # what they cost is the start of a life
GROWN_KEYS = 10_000
FEW_CELLS, MANY_CELLS = 4, 100
LONGER = 4  # times what a row takes of records: files are written fast, and a hundred cells at once
FEW_FILED = 1_000
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    contestants: tuple[str, ...]
    measure: Callable[["Field", str], Figures]
    once: bool = False  # too slow to repeat in every round


@dataclass
class Field:
    """A server, and the topics that were filled so far."""

    world: World
    folder: Path
    scale: float

    def __post_init__(self) -> None:
        self._filled: set[str] = set()

    def records(self, kind: str) -> int:
        return int(KINDS[kind].pace * self.scale)

    def create(self, topic: str, partitions: int) -> str:
        with RawConnection(self.world.port, timeout_s=60) as connection:
            connection.create_topic(topic, partitions, patience_s=60)
        return topic

    def filled(self, records: int, keys: int, partitions: int = 4) -> str:
        topic = f"views-{records}-{keys}-{partitions}"
        if topic not in self._filled:
            self.create(topic, partitions)
            send(self.world.servers, topic, *views(records, keys))
            self._filled.add(topic)
        return topic

    @contextmanager
    def work(self, pipeline: str, source: str, partitions: int = 4, out_partitions: int = 4) -> Iterator[Work]:
        """With topics to write to, which go afterwards, and so does its state."""
        app = self.world.new_name(pipeline)
        between, out = f"{app}-between", f"{app}-out"
        self.create(out, out_partitions)
        if pipeline.startswith("regroup"):
            self.create(between, partitions)
        made = Work(
            pipeline,
            app,
            self.world.servers,
            source,
            out,
            self.folder / f"{app}-state",
            between=between,
            partitions=partitions,
            out_partitions=out_partitions,
        )
        try:
            yield made
        finally:
            shutil.rmtree(made.state, ignore_errors=True)
            self.world.delete(out)
            if pipeline.startswith("regroup"):
                self.world.delete(between)

    def outputs(self, work: Work, *, keeps: bool = False) -> Outputs:
        return Outputs(work.servers, work.out, work.out_partitions, keeps=keeps)


# --- rates


def rate(field: Field, kind: str, work: Work, records: int, before: int = 0) -> Figures:
    """`before`: outputs that are none of the measured ones."""
    with Contestant(kind, work, field.folder) as contestant, field.outputs(work) as outputs:
        started_s = time.monotonic()
        first_s = outputs.until(before + 1, contestant) - started_s
        begun_s = outputs.until(before + int(records * BEGIN), contestant)
        begun, cpu_s, server_s = outputs.seen, contestant.cpu_s(), field.world.server_cpu_s()
        ended_s = outputs.until(before + int(records * END), contestant)
        count = outputs.seen - begun
        return {
            "records_per_s": count / (ended_s - begun_s),
            "cpu_s": (contestant.cpu_s() - cpu_s) / count * 1e6,
            "server_cpu_s": (field.world.server_cpu_s() - server_s) / count * 1e6,
            "peak_mb": contestant.peak_mb(),
            "first_output_s": first_s,
        }


def count(field: Field, kind: str) -> Figures:
    records = field.records(kind)
    with field.work("count", field.filled(field.records(OURS), KEYS)) as work:
        return rate(field, kind, work, records)


def regroup(field: Field, kind: str) -> Figures:
    records = field.records(kind)
    with field.work("regroup", field.filled(field.records(OURS), KEYS)) as work:
        return rate(field, kind, work, records)


def cells(field: Field, kind: str) -> Figures:
    """A hundred of them, and as few as in the other rows, with the same records."""
    records = field.records(kind) * LONGER
    found: Figures = {}
    for name, many in (("few", FEW_CELLS), ("many", MANY_CELLS)):
        with field.work("count", field.filled(records, KEYS, many), partitions=many) as work:
            measured = rate(field, kind, work, records)
        found |= {f"{figure}_{name}": measured[figure] for figure in ("records_per_s", "cpu_s", "peak_mb")}
    return {**found, "kept": found["records_per_s_many"] / found["records_per_s_few"]}


def files(field: Field, kind: str) -> Figures:
    """A topic as Parquet, by a run to its end. What a run of a few records takes, its start, is taken off."""
    many = field.records(OURS) * LONGER
    took: dict[int, tuple[float, float]] = {}
    for records in (FEW_FILED, many):
        with field.work("files", field.filled(records, KEYS)) as work:
            began_s, cpu_s = time.monotonic(), 0.0
            with Contestant(kind, work, field.folder) as contestant:
                while not contestant.has_ended_within(LOOK_S):
                    cpu_s = contestant.cpu_s()
                took[records] = time.monotonic() - began_s, cpu_s
            written = ds.dataset(work.state / "files", partitioning="hive").to_table(["partition", "offset"])
            found = written.group_by(["partition", "offset"]).aggregate([]).num_rows
            if not records == found == written.num_rows:
                raise AssertionError(f"{written.num_rows} rows of {found} records were written, of {records}")
    (start_s, start_cpu_s), (all_s, all_cpu_s) = took[FEW_FILED], took[many]
    rows = many - FEW_FILED
    return {
        "records_per_s": rows / (all_s - start_s),
        "cpu_s": (all_cpu_s - start_cpu_s) / rows * 1e6,
        "start_s": start_s,
    }


def timers(field: Field, kind: str) -> Figures:
    """With as many idle keys whose timers are due tomorrow, and without. A life before has set them, and left."""
    idle, records = int(IDLE_KEYS * field.scale), field.records(kind)
    found: Figures = {}
    for name, waiting in (("without", 0), ("with", idle)):
        source = field.create(field.world.new_name("timed"), 4)
        with field.work("timers", source) as work:
            if waiting:
                send(field.world.servers, source, np.arange(waiting), np.zeros(waiting, np.int64))
                with Contestant(kind, work, field.folder) as before, field.outputs(work) as outputs:
                    outputs.until(waiting, before)
                    before.leave()
            keys, users = views(records, GROWN_KEYS)
            send(field.world.servers, source, keys + 5_000_000, users)
            measured = rate(field, kind, work, records, waiting)
        field.world.delete(source)
        found |= {f"{figure}_{name}": measured[figure] for figure in ("records_per_s", "cpu_s", "peak_mb")}
    found["kept"] = found["records_per_s_with"] / found["records_per_s_without"]
    found["bytes_a_key"] = (found["peak_mb_with"] - found["peak_mb_without"]) * 1e6 / idle
    return found


def growth(field: Field, kind: str) -> Figures:
    """Processor seconds a million records, with one thing ten times as large."""
    found: Figures = {}
    usual = Grown(int(GROWN_RECORDS * field.scale), GROWN_KEYS, 2, 2)
    grown = {
        "usual": usual,
        "records": replace(usual, records=usual.records * 10),
        "keys": replace(usual, keys=usual.keys * 10),
        "cells": replace(usual, cells=usual.cells * 10),
        "partitions": replace(usual, partitions=usual.partitions * 10),
    }
    for name, size in grown.items():
        few = replace(size, records=FEW_GROWN)
        taken_s = life_cpu_s(field, kind, size) - life_cpu_s(field, kind, few)
        found[name] = taken_s / (size.records - few.records) * 1e6
    return found


def life_cpu_s(field: Field, kind: str, size: "Grown") -> float:
    """Processor seconds from a life's start to its last output. Between two outputs would be fewer: the work is ahead
    of the reader that sees them, so a good part of a short life is done before the first of the two."""
    source = field.filled(size.records, size.keys, size.cells)
    with (
        field.work("count", source, partitions=size.cells, out_partitions=size.partitions) as work,
        Contestant(kind, work, field.folder) as contestant,
        field.outputs(work) as outputs,
    ):
        outputs.until(size.records, contestant)
        return contestant.cpu_s()


@dataclass(frozen=True, slots=True)
class Grown:
    records: int
    keys: int
    cells: int
    partitions: int


# --- answers


def latency(field: Field, kind: str, pipeline: str = "count") -> Figures:
    source = field.create(field.world.new_name("sent"), 4)
    with field.work(pipeline, source) as work, Contestant(kind, work, field.folder) as contestant:
        asking = Latency(work.servers, source, work.out, KEYS, work.out_partitions)
        cpu_s, began_s = contestant.cpu_s(), time.monotonic()
        taken = asking.measure(contestant, LATENCY_S * max(field.scale, 0.25))
        cores = (contestant.cpu_s() - cpu_s) / (time.monotonic() - began_s)
        found = {**percentiles_ms(taken), "cores": cores}
    field.world.delete(source)
    return found


def latency_planned(field: Field, kind: str) -> Figures:
    return latency(field, kind, "planned" if kind == OURS else "count")


def hand_over(field: Field, kind: str) -> Figures:
    """While one task of Spark follows another every few seconds; the slowest record waited for that."""
    return latency(field, kind, "handed_over")


def kill(field: Field, kind: str) -> Figures:
    """kill -9 in the midst; the same started again over what it left. Then everything is counted."""
    records = field.records(kind)
    keys, _ = views(records, KILL_KEYS)
    with (
        field.work("count", field.filled(records, KILL_KEYS)) as work,
        field.outputs(work, keeps=True) as outputs,
        Contestant(kind, work, field.folder) as contestant,
    ):
        outputs.until(int(records * KILLED_AT), contestant)
        contestant.end()
        outputs.until_quiet(QUIET_S)  # what was committed before is all in
        contestant.begin()
        started_s = time.monotonic()
        first_s = outputs.until(outputs.seen + 1, contestant) - started_s
        outputs.until(records, contestant)
        outputs.until_quiet(QUIET_S)
        contestant.leave()
        found = audit(outputs.tables, keys)
    return {"first_output_s": first_s, "twice": found.twice, "missing": found.missing, "wrong": found.wrong}


def restore(field: Field, kind: str, *, keeps_copy: bool = False) -> Figures:
    """Started over a state of a million keys: until the first output of what was sent meanwhile."""
    keys = int(RESTORED_KEYS * field.scale)
    source = field.create(field.world.new_name("restored"), 4)
    numbers = np.arange(keys)
    send(field.world.servers, source, numbers, numbers % 9_999 + 1)
    with (
        field.work("count", source) as work,
        field.outputs(work) as outputs,
        Contestant(kind, work, field.folder) as contestant,
    ):
        outputs.until(keys, contestant)
        outputs.until_quiet(QUIET_S)
        contestant.leave()
        if not keeps_copy:
            shutil.rmtree(work.state, ignore_errors=True)
        send(field.world.servers, source, numbers[:1000], numbers[:1000] + 1)
        contestant.begin()
        started_s = time.monotonic()
        found = {"first_output_s": outputs.until(keys + 1, contestant) - started_s, "peak_mb": contestant.peak_mb()}
    field.world.delete(source)
    return found


def restore_copy(field: Field, kind: str) -> Figures:
    return restore(field, kind, keeps_copy=True)


ROWS: list[Row] = [
    Row("count", (OURS, OURS_SHARED, OURS_SPARK, STREAMS, QUIX, BYTEWAX, SPARK), count),
    Row("regroup", (OURS, STREAMS, QUIX, BYTEWAX), regroup),
    Row("latency", (OURS, STREAMS, QUIX_FAST, BYTEWAX), latency),
    Row("latency_planned", (OURS,), latency_planned),
    Row("hand_over", (OURS_SPARK,), hand_over),
    Row("kill", (OURS, STREAMS, QUIX), kill, once=True),
    Row("restore", (OURS, STREAMS), restore, once=True),
    Row("restore_copy", (OURS, STREAMS), restore_copy, once=True),
    Row("files", (OURS, SPARK), files),
    Row("timers", (OURS,), timers),
    Row("cells", (OURS,), cells),
    Row("growth", (OURS, STREAMS), growth, once=True),
]
