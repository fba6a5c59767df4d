"""What holds for all compiled loops."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

import oncelog
from oncelog import machine_code
from oncelog.records.block_loops import Loop, compile_all, kept_loops
from oncelog.records.loop_shapes import Shape, shape

ROOT = Path(oncelog.__file__).parents[1]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(ROOT.rglob("*_loops.py"))]


@pytest.mark.parametrize("module", MODULES)
def test_none_counts_who_holds_its_arrays(module: str) -> None:
    """It would take longer than most of what the loops do."""
    names = vars(import_module(module))
    compile_all()
    left = [each for each in names.values() if isinstance(each, Loop)]
    assert all(each.shape is not None for each in left), "numba finds what it knows under their names"
    loops: list[Any] = [each for each in names.values() if isinstance(each, Dispatcher)]
    loops += [each.compiled for each in left]
    assert loops and all(each.targetoptions["_nrt"] is False for each in loops)


def test_no_loop_calls_one_that_others_call() -> None:
    """It would find no loop of numba's under that name."""
    modules = [vars(import_module(module)) for module in MODULES]
    compile_all()
    loops = [each for names in modules for each in names.values() if isinstance(each, Loop | Dispatcher)]
    assert {id(each) for each in kept_loops().values()} <= {id(each) for each in loops}, "what chooses is called"
    functions = [each.function if isinstance(each, Loop) else each.py_func for each in loops]
    called = [each.__globals__.get(name) for each in functions for name in each.__code__.co_names]
    assert any(isinstance(each, Dispatcher) for each in called)
    assert not any(isinstance(each, Loop) for each in called)


def test_one_call_that_numba_does_leaves_the_others_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    by_numba: list[int] = []

    def doubled(number: int) -> int:
        by_numba.append(number)
        return 2 * number

    def function(name: str, its_shape: Shape, otherwise: Callable[[], Any]) -> Any:
        return lambda number: otherwise()(number) if number < 0 else 2 * number

    monkeypatch.setattr(machine_code, "function", function)
    loop = Loop(doubled, lambda function: function, shape("i8", results=1))
    loop.compile()
    assert [loop(number) for number in (1, -1, 2)] == [2, -2, 4]
    assert by_numba == [-1]
