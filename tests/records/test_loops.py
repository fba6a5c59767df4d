"""What holds for all compiled loops."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

import oncelog
from oncelog.records.block_loops import Loop, compile_all

ROOT = Path(oncelog.__file__).parents[1]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(ROOT.rglob("*_loops.py"))]


@pytest.mark.parametrize("module", MODULES)
def test_none_counts_who_holds_its_arrays(module: str) -> None:
    """It would take longer than most of what the loops do."""
    names = vars(import_module(module))
    compile_all()
    assert not any(isinstance(each, Loop) for each in names.values()), "numba finds what it knows under their names"
    loops: list[Any] = [each for each in names.values() if isinstance(each, Dispatcher)]
    assert loops and all(each.targetoptions["_nrt"] is False for each in loops)
