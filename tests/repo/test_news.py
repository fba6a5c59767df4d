"""News fragments are what towncrier can read and a user would want to."""

import re
import subprocess
import sys

from tests.repo.tree import ROOT, project_files, read

FRAGMENT = re.compile(r"news/[a-z0-9+-]+\.(added|changed|fixed|removed)\.md")


def test_every_fragment_is_named_after_its_kind_and_is_a_sentence() -> None:
    fragments = [name for name in project_files() if name.startswith("news/") and name != "news/.gitkeep"]
    wrong = [name for name in fragments if not FRAGMENT.fullmatch(name) or not read(name).strip().endswith(".")]
    assert not wrong, f"news/<slug>.<added|changed|fixed|removed>.md, in whole sentences: {wrong}"


def test_towncrier_can_build_the_news() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0.0.0"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    for name in project_files():
        if FRAGMENT.fullmatch(name):
            assert read(name).split()[0] in built.stdout
