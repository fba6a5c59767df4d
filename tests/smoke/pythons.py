"""The Pythons of this machine that oncelog says it supports: on the path, of pyenv, of uv, and those of `debian.py`."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.repo.tree import read

ASK = "import platform, sys; print(platform.python_implementation(), platform.python_version(), sys._base_executable)"
ASK_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Python:
    program: Path
    version: str
    implementation: str

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])


def supported() -> list[str]:
    """As the package's own classifiers say."""
    classifiers = tomllib.loads(read("pyproject.toml"))["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in classifiers)
    return [match[1] for match in found if match is not None]


def running() -> Python:
    found = _python_at(Path(sys.executable))
    assert found is not None
    return found


def find(minors: list[str]) -> dict[str, Python]:
    """The first of each minor version that starts."""
    found: dict[str, Python] = {}
    for program in _programs(minors):
        python = _python_at(program)
        if python is not None and python.minor in minors and python.implementation == "CPython":
            found.setdefault(python.minor, python)
    return {minor: found[minor] for minor in minors if minor in found}


def of_debian() -> Path:
    """The folder in which `debian.py` puts what it has brought."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "oncelog-pythons"


def _programs(minors: list[str]) -> Iterator[Path]:
    for minor in minors:
        on_path = shutil.which(f"python{minor}")
        if on_path is not None:
            yield Path(on_path)
    homes = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions",
        Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local/share")) / "uv/python",
    )
    for home in homes:
        yield from sorted(home.glob("*/bin/python3"))
    yield from sorted(of_debian().glob("*/usr/bin/python3.*[0-9]"))


def _python_at(program: Path) -> Python | None:
    """None where it does not start, as a shim of pyenv does that stands for nothing; the real program otherwise."""
    try:
        said = subprocess.run([program, "-c", ASK], capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if said.returncode:
        return None
    implementation, version, real = said.stdout.strip().split(" ", 2)
    return Python(Path(real), version, implementation)
