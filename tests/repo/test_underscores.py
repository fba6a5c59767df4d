"""A test uses what the product offers: no name of it that begins with an underscore.

Such a test breaks when a part is mended inside, and holds nobody to a promise. Where something cannot be seen or done
by public names, the part lacks a seam.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import ROOT

SOURCE, TESTS = ROOT / "src", ROOT / "tests"
# Of named tuples, of `os`, and of PySpark, which offers no other way to its JVM.
OF_OTHERS = {"_asdict", "_fields", "_make", "_replace", "_exit", "_jdf", "_jsparkSession", "_jvm"}

# How many uses are left below each folder of tests. They only become fewer.
LEFT: dict[str, int] = {
    "chaos": 6,
    "cli": 9,
    "client": 55,
    "console": 2,
    "spark": 1,
}


def hidden_names(source: Path) -> set[str]:
    """Every name with an underscore that the product gives to a function, a class, a module or an attribute."""
    found = set()
    for path in source.rglob("*.py"):
        found |= {part for part in path.relative_to(source).with_suffix("").parts if is_hidden(part)}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return {name for name in found if is_hidden(name)} - OF_OTHERS


def is_hidden(name: str) -> bool:
    """Names of constants are not: librdkafka's own error codes, such as `_TIMED_OUT`, are public."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and not name.isupper()


def own_names(tree: ast.AST) -> set[str]:
    """What the test file itself defines."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            found.add(node.attr)
    return found


def uses(tree: ast.AST, hidden: set[str]) -> Iterator[tuple[int, str]]:
    """Attributes of others, imports, and what `monkeypatch` and `getattr` name in quotes."""
    theirs = hidden - own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in theirs:
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncelog"):
            for name in [*(node.module or "").split("."), *(alias.name for alias in node.names)]:
                if is_hidden(name):
                    yield node.lineno, name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("setattr", "delattr", "getattr"):
                for each in node.args:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        last = each.value.rpartition(".")[2]
                        if last in theirs:
                            yield node.lineno, last


def found() -> dict[str, list[str]]:
    """By folder: each place, and the name that it uses."""
    hidden = hidden_names(SOURCE)
    told: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        used = list(uses(ast.parse(path.read_text(encoding="utf-8")), hidden))
        for line, name in used:
            told[path.relative_to(TESTS).parts[0]].append(f"{path.relative_to(ROOT)}:{line} {name}")
    return told


def test_no_test_reaches_for_what_the_product_keeps_to_itself() -> None:
    told = found()
    for folder, places in told.items():
        left = LEFT.get(folder, 0)
        assert len(places) <= left, f"use public names, or give the part a seam; {left} are left:\n" + "\n".join(places)
    fewer = {folder: len(told[folder]) for folder, left in LEFT.items() if len(told[folder]) < left}
    assert not fewer, f"fewer than the list says, so lower its numbers: {fewer}"


def test_what_is_looked_for_is_found() -> None:
    tree = ast.parse(
        "from oncelog.log import _inner\nfrom oncelog._room import thing\nlog._rows = 1\nself._own = 2\nlog._own\n"
        'patch.setattr(log, "_rows", 3)\nrow._replace(a=1)\nlog.public._deep()\n'
    )
    assert [name for _, name in sorted(uses(tree, {"_inner", "_room", "_rows", "_own", "_deep"}))] == [
        "_inner",
        "_room",
        "_rows",
        "_rows",
        "_deep",
    ]
