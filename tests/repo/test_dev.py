"""`./dev` on machines where something is missing: one line that says what, and the remedy."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.repo.advisories import NOT_ASKED
from tests.repo.tree import ROOT

# A sitecustomize that takes ensurepip away, as Debian's python3 without python3-venv does.
WITHOUT_VENV = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: None if name == "ensurepip" else find(name, path, target)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A new clone, as far as setting up goes."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("dev", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def only_python(tmp_path: Path) -> Path:
    """A folder for PATH in which there is Python and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
    return folder


def dev(clone: Path, path: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": str(path), "HOME": str(clone.parent), "PIP_CACHE_DIR": str(clone.parent / "pip"), **env}
    python = str(path / "python3")
    return subprocess.run(
        [python, "dev", *arguments], cwd=clone, env=clean, capture_output=True, text=True, check=False
    )


def load_dev() -> ModuleType:
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    spec = spec_from_loader("dev", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def the_one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("dev: ")
    return line


def test_without_pythons_venv_it_names_the_package_to_install(clone: Path, only_python: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(WITHOUT_VENV)
    line = the_one_line(dev(clone, only_python, "test", PYTHONPATH=str(site)))
    assert "no venv" in line
    assert f"apt-get install python3.{sys.version_info[1]}-venv" in line


def test_without_a_network_it_says_so(clone: Path, only_python: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    off = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), nowhere)
    line = the_one_line(dev(clone, only_python, "run", PIP_RETRIES="0", PIP_NO_INPUT="1", **off))
    assert "no network" in line
    assert "Go online" in line


@pytest.mark.parametrize("answer", [None, 'openjdk version "1.8.0_402"', 'openjdk version "11.0.22" 2024-01-16'])
def test_without_java_17_it_says_what_is_left_out_and_in_ci_it_stops(
    answer: str | None, clone: Path, only_python: Path
) -> None:
    if answer is not None:
        java = only_python / "java"
        java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
        java.chmod(0o755)
    line = the_one_line(dev(clone, only_python, "test", CI="true"))
    assert "Java" in line
    assert "apt-get install" in line
    said: str = load_dev_with_path(only_python)
    assert "are left out" in said


def load_dev_with_path(path: Path) -> str:
    before = os.environ["PATH"]
    os.environ["PATH"] = str(path)
    try:
        trouble: str = load_dev().java_trouble()
        return trouble
    finally:
        os.environ["PATH"] = before


def test_an_old_python_hands_over_to_a_newer_one_or_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = load_dev()
    monkeypatch.setattr(module.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(module.sys, "argv", ["dev", "test"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(module.Trouble, match=r"3\.11 or newer is needed, this is 3\.9"):
        module.use_a_new_enough_python()

    newer = tmp_path / "python3.13"
    newer.write_text("#!/bin/sh\n")
    newer.chmod(0o755)
    ran: list[Mapping[str, object] | list[str]] = []
    monkeypatch.setattr(module.os, "execv", lambda program, arguments: ran.append([program, *arguments]))
    with pytest.raises(module.Trouble):  # only because the stand-in for execv comes back
        module.use_a_new_enough_python()
    assert ran == [[str(newer), str(newer), str(ROOT / "dev"), "test"]]


def test_an_unknown_command_names_the_known_ones(clone: Path, only_python: Path) -> None:
    line = the_one_line(dev(clone, only_python, "tset"))
    assert all(name in line for name in ("run", "test", "format", "bench", "fuzz", "soak", "harm", "lock"))


def test_help_is_printed_without_setting_anything_up(clone: Path, only_python: Path) -> None:
    done = dev(clone, only_python)
    assert done.returncode == 0
    assert "./dev run" in done.stdout
    assert not (clone / ".venv").exists()


def test_a_download_that_takes_too_long_is_said_to_be_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_dev()
    forever = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    monkeypatch.setattr(module, "INSTALL_TAKES_AT_MOST_S", 0.1)
    monkeypatch.setattr(module, "installers", lambda: [("pip", forever)])
    with pytest.raises(module.Trouble, match=r"^the network is too slow: the packages of 'run' could not be fetched"):
        module.install_with_the_first_that_can("run", [["pyspark"]])


def test_what_uv_installs_is_compiled_as_what_pip_installs_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_dev()
    monkeypatch.setattr(module, "find_uv", lambda: "uv")
    monkeypatch.setattr(module, "has_pip", lambda: False)  # of a .venv, which a checkout need not have
    assert "--compile-bytecode" in dict(module.installers())["uv"]


@pytest.mark.parametrize(
    ("is_cached", "asked"), [(True, [["uv", "--offline", "x"]]), (False, [["uv", "--offline", "x"], ["uv", "x"]])]
)
def test_uv_goes_to_the_registry_only_for_what_its_cache_lacks(
    is_cached: bool, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_dev()
    ran: list[list[str]] = []

    def run(command: list[str]) -> str | None:
        ran.append(command)
        return None if is_cached or "--offline" not in command else "not found in the cache"

    monkeypatch.setattr(module, "installers", lambda: [("uv", ["uv"])])
    monkeypatch.setattr(module, "run_quietly", run)
    module.install_with_the_first_that_can("run", [["x"]])
    assert ran == asked


def test_where_the_audit_cannot_be_installed_that_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_dev()

    def install(*groups: str) -> None:
        raise module.Trouble("no network: the packages of 'audit' could not be fetched")

    monkeypatch.setattr(module, "install", install)
    assert module.audit([]) == NOT_ASKED
    assert "NOT AUDITED: no network" in capsys.readouterr().out


def test_what_it_starts_keeps_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in load_dev().tool_env()
