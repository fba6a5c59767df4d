"""A file's name says of what: nobody finds the one that is meant among four called `checking.py`."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.repo.tree import project_files, read

# Names that say what is done, or that something was, and not to what. One file of the product may have each of them,
# next to which nothing else is meant; these none.
NEVER = {"asking", "reading", "steps", "telling"}
OTHERS = {"asked", "found", "gone", "held", "kept", "known", "replay", "seen", "told", "warm"}

NAMED = re.compile(r"`(?:[\w.-]+/)*([\w.-]+\.py)`")
STANDS_FOR_MANY = "NN_name.py"


def says_only_what_is_done(stem: str) -> bool:
    return stem in NEVER | OTHERS or (stem.endswith("ing") and "_" not in stem)


def ambiguous(paths: Iterable[str]) -> dict[str, list[str]]:
    by_stem: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        stem = path.rpartition("/")[2].removesuffix(".py")
        if says_only_what_is_done(stem):
            by_stem[stem].append(path)
    return {stem: found for stem, found in by_stem.items() if len(found) > 1 or stem in NEVER}


def test_no_two_files_share_a_name_that_does_not_say_of_what() -> None:
    sources = [path for path in project_files() if path.startswith("src/oncelog/") and path.endswith(".py")]
    assert not ambiguous(sources), "say of what, as in `partition_checking.py`"


def test_two_of_a_name_are_found_and_one_that_is_never_clear() -> None:
    paths = ["a/checking.py", "b/checking.py", "a/steps.py", "a/told.py", "a/topics.py", "b/topics.py", "b/fetching.py"]
    assert ambiguous(paths) == {"checking": ["a/checking.py", "b/checking.py"], "steps": ["a/steps.py"]}


def test_each_file_that_a_text_names_is_there() -> None:
    texts = [path for path in project_files() if path.endswith((".py", ".md")) and not path.startswith("news/")]
    there = {Path(path).name for path in texts} | {STANDS_FOR_MANY}
    named = {(path, name) for path in texts for name in NAMED.findall(read(path))}
    assert not sorted((path, name) for path, name in named if name not in there)
