"""The cold start: a new driver and its first two reads, another new one and its first streaming copy; with the compiled
loops in the cache and without. Seconds as a user waits, and processor seconds of the driver and all it has started,
which other work on the machine hardly changes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.spark_contestant import OURS, SPARK, Contestant, session_cpu_seconds
from bench.spark_run import Run
from bench.spark_world import Shape

FEW = Shape(1000, 100, 1)
KINDS = {"spark": SPARK, "cached": OURS, "uncached": OURS}


def cold(run: Run, kind: str) -> dict[str, float]:
    format = "kafka" if kind == "spark" else "oncelog"
    options = run.world.source_options(run.world.filled(FEW))
    with _new_driver(run, kind) as driver:
        session_cpu_s = session_cpu_seconds(driver.pid)
        first, second = (driver.do("read", format=format, options=options, columns=[]) for _ in range(2))
        session_s = driver.session_s
    with _new_driver(run, kind) as driver, run.world.topic(FEW.partitions) as out:
        copied = driver.do(
            "query",
            format=format,
            options=options,
            columns=["value"],
            sink_format=format,
            sink_options={"kafka.bootstrap.servers": run.world.servers, "topic": out},
            checkpoint=run.new_folder("checkpoint"),
        )
        run.check_written(KINDS[kind], out, FEW.records)
    return {
        "session_s": session_s,
        "session_cpu_s": session_cpu_s,
        "first_s": first["seconds"],
        "first_cpu_s": first["cpu_s"],
        "second_s": second["seconds"],
        "copy_s": copied["seconds"],
        "copy_cpu_s": copied["cpu_s"],
    }


@contextmanager
def _new_driver(run: Run, kind: str) -> Iterator[Contestant]:
    folder = Path(run.new_folder(f"cold-{kind}"))
    variables = {}
    if kind != "spark":
        # Where numba keeps what it has compiled: in one place for all rounds, or in a new one.
        place = folder / "numba" if kind == "uncached" else run.folder / "numba"
        place.mkdir(parents=True, exist_ok=True)
        variables["NUMBA_CACHE_DIR"] = os.fspath(place)
    with Contestant(KINDS[kind], folder, variables=variables) as contestant:
        yield contestant
