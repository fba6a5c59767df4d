"""The cold start: a new driver, its first read and its second, with the compiled loops in the cache and without."""

import os
from pathlib import Path
from typing import Any

from bench.spark_contestant import OURS, SPARK, Contestant
from bench.spark_run import Run
from bench.spark_world import Shape

FEW = Shape(1000, 100, 1)
KINDS = {"spark": SPARK, "cached": OURS, "uncached": OURS}


def cold(run: Run, kind: str) -> dict[str, float]:
    topic = run.world.filled(FEW)
    folder = Path(run.new_folder(f"cold-{kind}"))
    variables = {}
    if kind != "spark":
        # Where numba keeps what it has compiled: in one place for all rounds, or in a new one.
        place = folder / "numba" if kind == "uncached" else run.folder / "numba"
        place.mkdir(parents=True, exist_ok=True)
        variables["NUMBA_CACHE_DIR"] = os.fspath(place)
    order: dict[str, Any] = {
        "format": "kafka" if kind == "spark" else "oncelog",
        "options": run.world.source_options(topic),
        "columns": [],
    }
    with Contestant(KINDS[kind], folder, variables=variables) as contestant:
        first, second = contestant.do("read", **order), contestant.do("read", **order)
        return {"session_s": contestant.session_s, "first_s": first["seconds"], "second_s": second["seconds"]}
