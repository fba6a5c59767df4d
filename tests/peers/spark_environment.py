"""Where Spark runs: this interpreter if it has pyspark (as in CI), else an environment of its own in the cache.

Spark is 400 MB to fetch, so outside of CI the environment is made only when asked for: ONCELOG_TEST_SPARK=1.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.peers.jars import MissingPeer, cache_folder, in_ci

PYSPARK = "pyspark==4.2.0"
INSTALL_SECONDS = 900


def python_with_spark() -> Path:
    if importlib.util.find_spec("pyspark") is not None:
        return Path(sys.executable)
    folder = cache_folder() / "spark-venv"
    python = folder / "bin" / "python"
    if (folder / "complete").exists() or _has_spark(python):
        return python
    if not in_ci() and not os.environ.get("ONCELOG_TEST_SPARK"):
        raise MissingPeer("pyspark is not installed (400 MB); set ONCELOG_TEST_SPARK=1 to have it fetched once")
    _make(folder, python)
    return python


def _has_spark(python: Path) -> bool:
    if not python.exists():
        return False
    return subprocess.run([python, "-c", "import pyspark"], capture_output=True, check=False).returncode == 0


def _make(folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    order = [str(python), "-m", "pip", "install", "--quiet", PYSPARK]
    done = subprocess.run(order, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise MissingPeer(f"pip could not install {PYSPARK}: {done.stderr[-600:]}")
    (folder / "complete").touch()
