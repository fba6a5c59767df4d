"""An environment to ship to a cluster, as docs/spark.md makes it, out of what is installed here: no network."""

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


def make_environment(folder: Path) -> Path:
    """A virtual environment with oncelog[columns]; PySpark is on the executors anyway, where Spark is."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    for name in sorted(_needed("oncelog", {"columns"})):
        for file in distribution(name).files or ():
            target = packages / file
            if target.resolve().is_relative_to(packages) and file.suffix != ".pyc":
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(Path(str(file.locate())), target)
    for name in ("oncelog", "pyspark_oncelog"):
        # Loops that were compiled here need not be compiled there: their files stand beside the sources.
        shutil.copytree(ROOT / "src" / name, packages / name, ignore=shutil.ignore_patterns("*.pyc"))
    return environment


def _needed(name: str, extras: set[str]) -> set[str]:
    found: set[str] = set()
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            found |= {wanted.name} | _needed(wanted.name, wanted.extras)
    return found


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def pack(environment: Path) -> Path:
    """As `tar -czf environment.tar.gz -C environment .` does, in a hurry. A plain `.tar` would not do: Spark unpacks it
    by itself, without links and permissions, and `.tar.gz` by the system's tar."""
    archive = environment.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        tar.add(environment, arcname=".")
    return archive
