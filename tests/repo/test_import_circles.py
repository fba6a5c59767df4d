"""No two files import each other, by whatever way round: imports under TYPE_CHECKING and within functions count too."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.repo.tree import ROOT

SOURCE = ROOT / "src"

# Circles still to be mended: the files of each. None may be added.
KNOWN: list[set[str]] = []


def modules(source: Path) -> dict[str, Path]:
    found = {}
    for path in sorted(source.rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules that a file names. The packages that Python loads on the way there do not count."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                found.add(f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base)
    return {each for each in found if each in known and each != name}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """A shortest way round for each group of files that all reach each other."""
    reached = {name: _reach(graph, name) for name in graph}
    done: set[str] = set()
    found = []
    for name in sorted(graph):
        if name in reached[name] and name not in done:
            done |= {each for each in reached[name] if name in reached[each]}
            found.append(_way_round(graph, name))
    return found


def _reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    left = list(graph[start])
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            left += graph[each]
    return seen


def _way_round(graph: Mapping[str, set[str]], start: str) -> list[str]:
    ways = [[start]]
    for way in ways:
        for each in sorted(graph[way[-1]]):
            if each == start:
                return [*way, start]
            if each not in way:
                ways.append([*way, each])
    raise AssertionError(f"{start} is in no circle")


def _files() -> Iterator[tuple[str, set[str]]]:
    known = modules(SOURCE)
    for name, path in known.items():
        yield name, imports(name, path, known)


def test_no_file_imports_itself_by_way_of_others() -> None:
    found = circles(dict(_files()))
    new = [" -> ".join(way) for way in found if not any(set(way) <= known for known in KNOWN)]
    assert not new, "these files import each other:\n" + "\n".join(new)
    mended = [sorted(known) for known in KNOWN if not any(set(way) <= known for way in found)]
    assert not mended, f"no circle any more, take it off the list: {mended}"


def test_a_circle_is_named() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set(), "e": {"a"}}
    assert circles(graph) == [["a", "b", "c", "a"]]


def test_imports_of_every_kind_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from p import two\n"
        "def late():\n    from .three import name\n"
        "import p.four\n"
    )
    for name in ("two", "three", "four"):
        (package / f"{name}.py").write_text("")
    known = modules(tmp_path)
    assert imports("p.one", known["p.one"], known) == {"p.two", "p.three", "p.four"}
