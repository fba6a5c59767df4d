"""The door for those that build upon the client: every name of it is there, and costs its own home alone."""

import ast
import subprocess
import sys
from pathlib import Path

from oncelog.client import door


def test_what_is_declared_for_types_is_what_is_there() -> None:
    declared = {
        alias.name
        for node in ast.walk(ast.parse(Path(door.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("oncelog.")
        for alias in node.names
    }
    assert {each for each in dir(door) if each not in vars(door)} == declared
    for name in declared:
        assert getattr(door, name) is not None


def test_an_offset_is_asked_for_without_numba_or_arrow() -> None:
    program = (
        "import sys; from oncelog.client.door import Patience, end_offsets, warm; "
        "print({'numba', 'pyarrow', 'numpy'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "set()"
