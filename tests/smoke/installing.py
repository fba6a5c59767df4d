"""A wheel out of this tree, and a fresh environment with nothing in it but that."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.repo.tree import ROOT
from tests.smoke.pythons import Python

STEP_SECONDS = 600


class Failed(Exception):
    """A step that failed, with what it printed."""


def run(command: list[str | Path], **more: object) -> str:
    words = [str(each) for each in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STEP_SECONDS, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    said: str = done.stdout
    return said


def uv() -> str | None:
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


def build_wheel(folder: Path) -> Path:
    """Of a copy of what is in the tree, by the locked build backend that runs these tests."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(python: Python, folder: Path, wheel: Path) -> Path:
    """Its `bin`. Wheels alone are taken, of this package and of all that it needs: there is nothing to compile."""
    program = folder / "bin" / "python"
    tool = uv()
    if tool is not None:
        run([tool, "venv", "--quiet", "--no-project", "--python", python.program, folder])
        run([tool, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", program, wheel])
    else:
        run([python.program, "-m", "venv", folder])
        run([program, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel])
        run([program, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"])
    return program.parent


def size_bytes(bin_folder: Path) -> int:
    """Of all that was installed, without bytecode, which is made by what runs."""
    (packages,) = bin_folder.parent.glob("lib/python3*/site-packages")
    files = (file for file in packages.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return sum(file.stat().st_size for file in files)
