"""The map of the code is short, names every room, and points at nothing that has moved."""

import re

from tests.repo.tree import ROOT, read

PAGE = "docs/ARCHITECTURE.md"
MOST_WORDS = 2500
NAMED = re.compile(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.py)?)`|`(tests/[a-z0-9_/]+)`")
BELOW = ("", "src/oncelog/", "src/oncelog/client/")


def test_it_is_read_in_one_sitting() -> None:
    assert len(read(PAGE).split()) <= MOST_WORDS


def test_every_room_has_its_line_in_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "src/oncelog").glob("*/__init__.py")}
    mapped = set(re.findall(r"^  ([a-z_]+)/ ", read(PAGE), re.MULTILINE))
    assert rooms == mapped


def test_every_place_that_it_names_is_there() -> None:
    named = [one or other for one, other in NAMED.findall(read(PAGE))]
    missing = [name for name in named if not any((ROOT / f"{below}{name}").exists() for below in BELOW)]
    assert len(named) > 40 and not missing


def test_sequences_are_chosen_in_the_one_file_that_it_names() -> None:
    chosen = re.compile(r"^(?!\s*self\.)\s*[\w.]+\.next_sequence = |\.stamp\(", re.MULTILINE)
    paths = [
        path for room in ("slots", "client", "flow", "spark") for path in (ROOT / "src/oncelog" / room).rglob("*.py")
    ]
    found = {path.name for path in paths if chosen.search(path.read_text())}
    assert found == {"stamping.py"}
