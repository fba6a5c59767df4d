"""What docs/replication-read.md names of this code is there: functions, tests, and mutants that are caught."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.replication.mutants import MUTANTS
from tests.repo.tree import ROOT, read

TEXT = read("docs/replication-read.md")
MEMBERS = sorted(set(re.findall(r"`(\w+)\.(\w+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(test_\w+)`", TEXT)))
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> dict[Path, str]:
    return {file: file.read_text() for folder in ("src", "tests") for file in (ROOT / folder).rglob("*.py")}


def members_of(owner: str) -> set[str]:
    """Of a class or a module."""
    found: set[str] = set()
    for file, text in files().items():
        if file.stem == owner:
            found.update(re.findall(r"^(?:async )?def (\w+)", text, re.MULTILINE))
        if re.search(rf"^class {owner}\b", text, re.MULTILINE):
            classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == owner]
            found.update(each.name for each in classes[0].body if isinstance(each, FUNCTION))
    return found


def test_functions_and_tests_that_the_page_names_are_there() -> None:
    assert len(MEMBERS) > 30 and len(TESTS) > 20
    assert [(owner, member) for owner, member in MEMBERS if member not in members_of(owner)] == []
    tests = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(files().values()), re.MULTILINE))
    assert [each for each in TESTS if each not in tests] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_each_mutant_is_on_the_page(mutant: object) -> None:
    assert f'"{mutant}"' in TEXT.replace("\n", " ")
