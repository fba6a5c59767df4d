"""What is installed to serve, produce and consume stays small."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.repo.tree import ROOT

MOST_CORE_BYTES = 60_000_000
HEAVY = {"numpy", "numba", "llvmlite", "pyarrow", "pyspark"}


def _install(target: Path, *what: str) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    tool = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    installed = subprocess.run(
        [*tool, "--quiet", "--target", str(target), *what], capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr


def test_the_core_takes_at_most_60_mb_without_any_heavy_library(tmp_path: Path) -> None:
    target = tmp_path / "core"
    _install(target, "--require-hashes", "-r", str(ROOT / "requirements/core.txt"))
    _install(target, "--no-build-isolation", "--no-deps", str(ROOT))
    size_bytes = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    installed = {entry.name for entry in target.iterdir()}
    assert {"oncelog", "pyspark_oncelog"} <= installed, "Spark finds the format by the second"
    assert (target / "oncelog" / "spark" / "log4j2.properties").is_file()
    assert (target / "oncelog" / "console" / "static" / "index.html").is_file(), "the page's files are packaged"
    assert not installed & HEAVY
    assert size_bytes <= MOST_CORE_BYTES, f"{size_bytes / 1e6:.1f} MB"
