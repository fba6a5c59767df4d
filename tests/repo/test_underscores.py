"""A test uses what the product offers: no name of it that begins with an underscore, also not in the programs that it
holds in strings; and what these import is there.

Such a test breaks when a part is mended inside, and holds nobody to a promise. Where something cannot be seen or done
by public names, the part lacks a seam.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

from tests.repo.tree import ROOT

SOURCE, TESTS = ROOT / "src", ROOT / "tests"
# Of named tuples, of `os` and `sys`, of click, and of PySpark, which offers no other way to its JVM.
OF_OTHERS = {"_asdict", "_fields", "_make", "_replace", "_exit", "_base_executable"}
OF_OTHERS |= {"_complete", "_jdf", "_jsc", "_jsparkSession", "_jvm"}

# The one way into what a user holds, for tests that step in between two steps of a client.
WAYS_IN = {"tests/client/inside.py": ["_engine", "_thread", "_driver"]}


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


def uses(tree: ast.AST, theirs: set[str]) -> Iterator[tuple[int, str]]:
    """Attributes of others, imports, and what is named in quotes: alone, or with dots."""
    pieces: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pieces.update(node.values)
        elif isinstance(node, ast.Attribute) and node.attr in theirs:
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncelog"):
            for name in [*(node.module or "").split("."), *(alias.name for alias in node.names)]:
                if is_hidden(name):
                    yield node.lineno, name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in pieces:
            *before, last = node.value.split(".")
            if last in theirs and all(map(str.isidentifier, before)):
                yield node.lineno, last


def programs(tree: ast.AST) -> Iterator[tuple[int, ast.Module]]:
    """What stands in strings and is Python that imports something of the product."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "0" for each in node.values)
        elif isinstance(node, ast.Constant):
            text = str(node.value)
        else:
            continue
        if "oncelog" in text and "import " in text:
            try:
                yield node.lineno, ast.parse(dedent(text))
            except SyntaxError:
                continue  # it is prose, or a piece of a program


def hidden_in(program: ast.Module) -> set[str]:
    """All that others keep to themselves, also what is there no more."""
    named = {node.attr for node in ast.walk(program) if isinstance(node, ast.Attribute)}
    imported = {each.name for node in ast.walk(program) if isinstance(node, ast.ImportFrom) for each in node.names}
    return {name for name in named | imported if is_hidden(name)} - OF_OTHERS - own_names(program)


@cache
def names_of(module: str) -> frozenset[str] | None:
    """All that can be imported from it; None where it is not there, or makes its names when it is asked."""
    path = SOURCE.joinpath(*module.split("."))
    inside = {each.stem for each in path.iterdir()} if path.is_dir() else set()
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            inside.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            inside |= {(each.asname or each.name).partition(".")[0] for each in node.names}
    return None if "__getattr__" in inside else frozenset(inside)


def missing_in(program: ast.AST) -> Iterator[str]:
    """What it imports from the product, or takes from a module of it, and is not there."""
    modules: dict[str, str] = {}
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "oncelog":
            known = names_of(node.module or "")
            for each in node.names:
                if known is not None and each.name not in known:
                    yield f"{node.module}.{each.name}"
                whole = f"{node.module}.{each.name}"
                if SOURCE.joinpath(*whole.split(".")).with_suffix(".py").exists():
                    modules[each.asname or each.name] = whole
    for node in ast.walk(program):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            known = names_of(modules[node.value.id])
            if known is not None and node.attr not in known:
                yield f"{modules[node.value.id]}.{node.attr}"


@cache
def trees() -> list[tuple[str, ast.Module]]:
    others = sorted(each for each in TESTS.rglob("*.py") if each != Path(__file__))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in others]


def test_no_test_reaches_for_what_the_product_keeps_to_itself() -> None:
    hidden = hidden_names(SOURCE)
    told, ways_in = [], {}
    for path, tree in trees():
        used = list(uses(tree, hidden - own_names(tree)))
        if path in WAYS_IN:
            ways_in[path] = [name for _, name in used]
        else:
            told += [f"{path}:{line} {name}" for line, name in used]
        told += [f"{path}:{line} {name}" for line, each in programs(tree) for name in hidden_in(each)]
    assert not told, "use public names, or give the part a seam:\n" + "\n".join(told)
    assert ways_in == WAYS_IN


def test_what_programs_in_strings_take_from_the_product_is_there() -> None:
    held = [(f"{path}:{line}", program) for path, tree in trees() for line, program in programs(tree)]
    assert len(held) > 20
    told = [f"{where} {name}" for where, program in held for name in missing_in(program)]
    assert not told, "\n".join(told)


def test_what_is_looked_for_is_found() -> None:
    tree = ast.parse(
        "from oncelog.log import _inner\nfrom oncelog._room import thing\nlog._rows = 1\nself._own = 2\nlog._own\n"
        'patch.setattr(log, "_rows", 3)\nrow._replace(a=1)\nlog.public._deep()\n(log, "a.b._rows", "no _rows")\n'
    )
    theirs = {"_inner", "_room", "_rows", "_own", "_deep"} - own_names(tree)
    assert [name for _, name in sorted(uses(tree, theirs))] == ["_inner", "_room", "_rows", "_rows", "_deep", "_rows"]


PROGRAM = """
    from oncelog.server import sleepers
    from oncelog.log import partition, nothing
    sleepers._Settling(1)
    partition.PartitionLog
    partition.PartitionLogs
    self._own = 1
"""


def test_what_is_looked_for_is_found_in_programs_too() -> None:
    tree = ast.parse(f"order = [python, '-c', {PROGRAM!r}]\nsaid = 'import oncelog, and then'\n")
    ((line, program),) = programs(tree)
    assert (line, hidden_in(program)) == (1, {"_Settling"})
    assert set(missing_in(program)) == {
        "oncelog.log.nothing",
        "oncelog.server.sleepers._Settling",
        "oncelog.log.partition.PartitionLogs",
    }
