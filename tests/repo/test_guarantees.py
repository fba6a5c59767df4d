"""Each promise of docs/guarantees.md names tests that keep it, and these are there."""

import ast
import re
from functools import cache

import pytest

from tests.repo.tree import ROOT, read

PAGE = "docs/guarantees.md"
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`( \*long\*)?")
HEADINGS = ("kept by", "by")


def rows(text: str) -> list[list[str]]:
    """The cells of every row below a table's head whose last column names tests."""
    found, is_wanted = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            is_wanted = False
        elif is_wanted and not set(line) <= set("|-: "):
            found.append(cells)
        elif cells[-1] in HEADINGS:
            is_wanted = True
    return found


@cache
def found_in(path: str) -> dict[str, bool]:
    """Name -> whether it is marked `long`, by itself or with its whole module."""
    module = ast.parse(read(f"tests/{path}"))
    marks = [
        node for node in module.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
    ]
    all_long = any("mark.long" in ast.unparse(node.value) for node in marks)
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        node.name: all_long or any("mark.long" in ast.unparse(each) for each in node.decorator_list)
        for node in functions
    }


def test_each_promise_names_a_test() -> None:
    promises = rows(read(PAGE))
    assert len(promises) > 30
    assert [cells[0] for cells in promises if not NAMED.search(cells[-1])] == []


def test_each_promise_is_kept_by_a_test_that_the_test_command_runs() -> None:
    """A test that takes minutes may stand beside it."""
    only_long = [cells[0] for cells in rows(read(PAGE)) if all(long for _, _, long in NAMED.findall(cells[-1]))]
    assert only_long == []


@pytest.mark.parametrize(("path", "name", "long"), NAMED.findall(read(PAGE)), ids=lambda value: str(value).strip())
def test_a_named_test_exists_and_is_called_long_where_it_is(path: str, name: str, long: str) -> None:
    assert (ROOT / "tests" / path).is_file()
    assert found_in(path).get(name) is bool(long)


def test_the_reader_of_tables_sees_rows_and_passes_over_others() -> None:
    text = "| promise | kept by |\n|---|---|\n| a | `x.py::test_a` |\n\n| other | table |\n|---|---|\n| b | c |\n"
    assert rows(text) == [["a", "`x.py::test_a`"]]
