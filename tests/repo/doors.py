"""docs/doors.md, made from the code: what each room offers the others, which is what they import from it.

`python -m tests.repo.doors` writes the page anew.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.repo.tree import ROOT, project_files, read

PAGE = "docs/doors.md"
LONGEST = 200  # characters of a signature; what is longer is cut
HEAD = """# Doors

What each room of `src/oncelog/` offers the others: the names that another room imports, with their signatures, read
from the code. `python -m tests.repo.doors` writes this page, and a test compares it with the code.
[ARCHITECTURE.md](ARCHITECTURE.md) has the map of the rooms.
"""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def page() -> str:
    lines = [HEAD]
    for room, modules in sorted(doors().items()):
        lines.append(f"## {room}\n")
        for module, names in sorted(modules.items()):
            lines.append(f"### `{module}`\n")
            summary = _first_sentence(ast.get_docstring(_parsed(_file_of(module))))
            if summary:
                lines.append(f"{summary}\n")
            lines += [_entry(module, name) for name in sorted(names)]
            lines.append("")
    return "\n".join(lines)


def doors() -> dict[str, dict[str, set[str]]]:
    """Room, module, and the names that other rooms import from it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in _sources():
        here = _room(_module_of(file))
        for node in ast.walk(_parsed(file)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("oncelog."):
                continue
            assert node.module is not None
            for alias in node.names:
                module, name = node.module, alias.name
                if f"{module}.{name}" in _modules():
                    module, name = f"{module}.{name}", ""
                if _room(module) != here:
                    found[_room(module)][module].add(name)
    return found


def _entry(module: str, name: str) -> str:
    if not name:
        return "- the module as a whole"
    defined_in, node = _definition(module, name)
    if not isinstance(node, Definition):
        return f"- `{name}`"
    said = _first_sentence(ast.get_docstring(node))
    moved = "" if defined_in == module else f" (in `{defined_in}`)"
    return f"- `{_signature(node)}`{moved}" + (f": {said}" if said else "")


def _signature(node: Definition) -> str:
    if isinstance(node, ast.ClassDef):
        made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
        if made is None:
            fields = [
                f"{each.target.id}: {ast.unparse(each.annotation)}"
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            ]
            return _cut(f"class {node.name}({', '.join(fields)})" if fields else f"class {node.name}")
        arguments = ast.unparse(made.args).removeprefix("self, ").removeprefix("self")
        return _cut(f"class {node.name}({arguments})")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _cut(f"{word}{node.name}({ast.unparse(node.args)}){returns}")


def _cut(signature: str) -> str:
    one_line = " ".join(signature.split())
    return one_line if len(one_line) <= LONGEST else one_line[: LONGEST - 1] + "…"


def _first_sentence(docstring: str | None) -> str:
    paragraph = " ".join((docstring or "").split("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".:") if paragraph else ""


def _definition(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Where a name is defined: behind re-exports, too."""
    for node in ast.walk(_parsed(_file_of(module))):
        if isinstance(node, Definition) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncelog."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    assert node.module is not None
                    return _definition(node.module, alias.name)
    return module, None


@cache
def _modules() -> frozenset[str]:
    return frozenset(_module_of(file) for file in _sources())


def _sources() -> Iterator[str]:
    return (name for name in project_files() if name.startswith("src/oncelog/") and name.endswith(".py"))


def _module_of(file: str) -> str:
    return file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _file_of(module: str) -> str:
    path = "src/" + module.replace(".", "/")
    return f"{path}.py" if (ROOT / f"{path}.py").is_file() else f"{path}/__init__.py"


def _room(module: str) -> str:
    return [*module.split("."), ""][1]


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse(read(file))


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
