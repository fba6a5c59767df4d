"""The locked versions are those that pyproject.toml asks for, checked by hash, and bound to no registry."""

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repo.tree import project_files, read

LOCKS = ("core", "columns", "zookeeper", "run", "test", "spark", "build", "docs", "uv", "frameworks", "stores", "audit")
OF_THEIR_OWN = ("test", "uv", "frameworks", "stores")
PINNED = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)", re.MULTILINE)


def _pinned(lock: str) -> dict[str, set[str]]:
    """Package -> its versions: there may be one for older Pythons and one for newer."""
    found: dict[str, set[str]] = {}
    for match in PINNED.finditer(read(f"requirements/{lock}.txt")):
        found.setdefault(match["name"], set()).add(match["version"])
    return found


def _group(project: dict[str, Any], name: str) -> list[str]:
    wanted: list[str] = []
    for entry in project["dependency-groups"][name]:
        wanted += _group(project, entry["include-group"]) if isinstance(entry, dict) else [entry]
    return wanted


def _wanted(lock: str) -> list[str]:
    project = tomllib.loads(read("pyproject.toml"))
    core: list[str] = project["project"]["dependencies"]
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    return {
        "core": core,
        "columns": core + extras["columns"],
        "zookeeper": core + extras["zookeeper"],
        "spark": core + extras["spark"] + extras["connect"],
        "run": core + extras["spark"] + _group(project, "run"),
        "test": core + extras["columns"] + _group(project, "test"),
        "build": _group(project, "build"),
        "docs": _group(project, "docs"),
        "uv": _group(project, "uv"),
        "frameworks": _group(project, "frameworks"),
        "stores": _group(project, "stores"),
        "audit": _group(project, "audit"),
    }[lock]


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_asked_for_is_locked_in_a_version_that_fits(lock: str) -> None:
    pinned = _pinned(lock)
    for text in _wanted(lock):
        requirement = Requirement(text)
        versions = pinned.get(canonicalize_name(requirement.name))
        assert versions, f"{requirement.name} is missing from requirements/{lock}.txt: run ./dev lock"
        assert all(requirement.specifier.contains(version) for version in versions), f"{text}: run ./dev lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash_and_no_address(lock: str) -> None:
    text = read(f"requirements/{lock}.txt")
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text
    assert not re.search(r"^\s*--(index|extra-index|find-links|trusted-host)", text, re.MULTILINE)


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock not in OF_THEIR_OWN])
def test_the_locks_agree_where_they_share_a_package(lock: str) -> None:
    tested = _pinned("test")
    assert {name: versions for name, versions in _pinned(lock).items() if versions != tested.get(name, versions)} == {}


def test_every_file_of_requirements_is_known() -> None:
    found = {name for name in project_files() if name.startswith("requirements/")}
    assert found == {f"requirements/{lock}.txt" for lock in LOCKS} | {"requirements/pins.txt"}
