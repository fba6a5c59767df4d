"""The arrows between the rooms: import-linter holds them in the test command, and it would notice."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.repo.tree import ROOT

# One broken arrow for each contract of pyproject.toml, in its order: a file, and the import that must not stand in it.
VIOLATIONS = [
    ("log/violation.py", "import oncelog.server"),
    ("client/violation.py", "import oncelog.spark"),
    ("server/violation.py", "import oncelog.client"),
    ("records/violation_kio.py", "import kio"),
    ("producers/violation.py", "import random"),
    ("wire/violation.py", "import socket"),
    ("log/violation_loop.py", "import asyncio"),
    ("client/fetching/violation.py", "import random"),
    ("spark/sink/deciding.py", "import pyspark"),
    ("chaos/sender_report.py", "import socket"),
    ("cluster/violation.py", "import numpy"),
    ("spark/violation_door.py", "import oncelog.client.net.brokers"),
]


def _lint(folder: Path) -> int:
    """How many contracts are broken in the copy of the project that the folder holds."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    env = os.environ | {"PYTHONPATH": str(folder / "src")}
    linted = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    summary = re.search(r"Contracts: \d+ kept, (\d+) broken", linted.stdout)
    assert summary, linted.stdout + linted.stderr
    assert linted.returncode == (summary[1] != "0")
    return int(summary[1])


def _copy(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def test_every_arrow_is_kept(tmp_path: Path) -> None:
    assert _lint(_copy(tmp_path)) == 0


def test_an_import_against_any_arrow_is_noticed(tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    contracts = (copy / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
    assert contracts == len(VIOLATIONS), "name a violation of the new contract here"
    for file, statement in VIOLATIONS:
        (copy / "src/oncelog" / file).write_text(statement + "\n")
    assert _lint(copy) == contracts
