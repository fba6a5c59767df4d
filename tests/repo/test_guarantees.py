"""Each promise of docs/guarantees.md, docs/rights.md and docs/security.md, and each bound of docs/limits.md, names
tests that keep it; these are there."""

import ast
import re
from functools import cache

import pytest

from tests.repo.tree import ROOT, read

PAGES = {
    "docs/guarantees.md": 30,
    "docs/limits.md": 25,
    "docs/rights.md": 8,
    "docs/security.md": 25,
}  # with so many promises at least
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`( \*long\*)?")
ALL_NAMED = NAMED.findall("".join(map(read, PAGES)))
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


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_names_a_test(page: str) -> None:
    promises = rows(read(page))
    assert len(promises) > PAGES[page]
    assert [cells[0] for cells in promises if not NAMED.search(cells[-1])] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_is_kept_by_a_test_that_the_test_command_runs(page: str) -> None:
    """A test that takes minutes may stand beside it."""
    only_long = [cells[0] for cells in rows(read(page)) if all(long for _, _, long in NAMED.findall(cells[-1]))]
    assert only_long == []


@pytest.mark.parametrize(("path", "name", "long"), ALL_NAMED, ids=lambda value: str(value).strip())
def test_a_named_test_exists_and_is_called_long_where_it_is(path: str, name: str, long: str) -> None:
    assert (ROOT / "tests" / path).is_file()
    assert found_in(path).get(name) is bool(long)


def test_the_reader_of_tables_sees_rows_and_passes_over_others() -> None:
    text = "| promise | kept by |\n|---|---|\n| a | `x.py::test_a` |\n\n| other | table |\n|---|---|\n| b | c |\n"
    assert rows(text) == [["a", "`x.py::test_a`"]]
