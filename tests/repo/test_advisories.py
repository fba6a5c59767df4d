"""What CI makes of pip-audit's answers: nothing known, something known, and nobody there to be asked."""

import json
from typing import Any

import pytest

from tests.repo import advisories
from tests.repo.advisories import CLEAN, KNOWN, NOT_ASKED, command, locks, verdict
from tests.repo.tree import read

GOOD = {"name": "click", "version": "8", "vulns": []}
BAD = {
    "name": "h11",
    "version": "0.15",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["0.16"], "description": "bad"}],
}
OFFLINE = "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed"


def said(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_where_nothing_is_known_it_says_of_how_many() -> None:
    assert verdict(said(GOOD, GOOD), "") == (CLEAN, ("nothing is known against 2 locked packages",))


def test_what_is_known_is_told_with_its_remedy() -> None:
    assert verdict(said(GOOD, BAD), "Found 1") == (KNOWN, ("h11 0.15: PYSEC-1, fixed in 0.16",))


def test_what_was_judged_and_does_no_harm_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisories, "ACCEPTED", {"CVE-1": "it is not called"})
    assert verdict(said(BAD), "")[0] == CLEAN


@pytest.mark.parametrize(("output", "errors"), [("", OFFLINE), ("", ""), ("[]", OFFLINE)])
def test_where_nobody_can_be_asked_that_is_said_and_is_no_verdict(output: str, errors: str) -> None:
    code, (line,) = verdict(output, errors)
    assert code == NOT_ASKED and line.startswith("NOT AUDITED") and (OFFLINE in line) == bool(errors)


def test_a_package_that_could_not_be_asked_about_is_not_passed_over() -> None:
    skipped = {"name": "oncelog", "skip_reason": "not found on PyPI"}
    assert verdict(said(GOOD, skipped), "")[0] == NOT_ASKED
    assert verdict(said(BAD, skipped), "")[0] == KNOWN


def test_where_the_database_knows_none_of_them_that_is_one_line() -> None:
    """As where a registry of one's own stands in PyPI's place."""
    code, (line,) = verdict(said(*({"name": "click", "skip_reason": "not found on PyPI"} for _ in range(200))), "")
    assert code == NOT_ASKED and line.startswith("NOT AUDITED") and "click: not found on PyPI" in line


def test_every_lock_is_looked_at() -> None:
    looked_at = {word.rpartition("/")[2] for word in command(locks()) if word.endswith(".txt")}
    assert {"core.txt", "test.txt", "spark.txt", "frameworks.txt", "audit.txt"} <= looked_at
    assert "pins.txt" not in looked_at


def test_ci_asks_and_only_what_is_known_fails_it() -> None:
    run = read(".ci/run")
    assert "./dev audit || audit=$?" in run and f'[ "$audit" = {CLEAN} ] || [ "$audit" = {NOT_ASKED} ] ||' in run
