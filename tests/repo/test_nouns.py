"""One word, one thing: a noun of the glossary is not given to a second type."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.repo.tree import ROOT, project_files

# A group of KIP-848 names a topic by its id, at the server and at its members: another place, as the glossary says.
GROUPS = {"server/groups/consumer/values.py", "client/groups/membership_steps.py"}
NOUNS = {
    "Identity": {"slots/identity.py"},
    "Place": {"slots/identity.py", *GROUPS},
    "Span": {"slots/identity.py"},
    "Tenure": {"slots/tenure.py"},
    "Register": {"slots/register.py"},
    "Lane": {"spark/copying/lane.py"},
}


def defined(tree: ast.Module) -> Iterator[str]:
    """Classes, aliases and type variables of a file."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def defining(prefix: str) -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in project_files():
        if path.startswith(prefix) and path.endswith(".py"):
            for name in defined(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                found[name].add(path.removeprefix(prefix))
    return found


def test_a_noun_of_the_glossary_is_one_type() -> None:
    found = defining("src/oncelog/")
    assert {noun: found[noun] for noun in NOUNS} == NOUNS


def test_classes_aliases_and_variables_are_found() -> None:
    tree = ast.parse("class A: ...\nB = tuple[str, int]\nC: Final = 1\ndef d():\n    E = 1\n")
    assert list(defined(tree)) == ["A", "B", "C"]
