"""The base of loops: how they are compiled, and operations on memory as a whole, which numba has no words for:
a block copied, a line fetched early.

A loop is compiled when it is first called, or its machine code is found where `oncelog warm` has kept it
(`oncelog/machine_code.py`): then numba, half a second of the processor and 120 MB of memory, is not even imported.

No loop makes an array or returns one, so none counts who holds its arrays (`_nrt`). numba would in each that is handed
tuples of arrays, by atomic additions around every call inside, and these take longer than what is called: they were two
thirds of the time that decoding took.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np

from oncelog.records.loop_shapes import Shape, shape

OPTIONS: Final[dict[str, Any]] = {"cache": True, "nogil": True, "_nrt": False}

_TO_WRITE, _KEPT_CLOSE, _DATA = 1, 3, 1  # what LLVM's prefetch takes

_LOOPS: Final[list["Loop"]] = []

# By its name, as it looks on the disk; and now, as it remembers which sources are loaded from here on.
_machine_code: Final[Any] = import_module("oncelog.machine_code")


class Loop:
    """A function that is compiled later. `shape` is that of loops that others call, whose machine code may be kept."""

    def __init__(self, function: Any, compile_it: Callable[[Any], Any], shape: Shape | None = None) -> None:
        self.function = function
        self.shape = shape
        self.compiled: Any = None
        self.called: Any = None
        self._compile = compile_it

    def __call__(self, *arguments: Any) -> Any:
        return (self.called or self._find())(*arguments)

    def bound(self, first: Any) -> Any:
        """The loop bound to its first argument: called with the numbers behind it, for the first result, from one
        thread."""

        def by_numba(*numbers: int) -> Any:
            return self.by_numba()(first, *numbers)[0]

        kept = self.shape and _machine_code.bound(self.function.__name__, self.shape, first, by_numba)
        return kept or by_numba

    def _find(self) -> Any:
        """Found once: what numba does for one call that is unlike the others, it does for no other."""
        kept = self.shape and _machine_code.function(self.function.__name__, self.shape, self.by_numba)
        self.called = kept or self.by_numba()
        return self.called

    def by_numba(self) -> Any:
        if self.compiled is None:
            compile_all()
        return self.compiled

    def compile(self) -> None:
        self.compiled = self.compiled or self._compile(self.function)


def compile_all() -> None:
    """Together, as they call each other: numba must find what it knows under their names. It compiles each when that
    is called. Loops that others call, no loop calls: they stay what chooses between numba and what is kept."""
    for each in tuple(_LOOPS):
        each.compile()
    for each in tuple(_LOOPS):
        names = each.function.__globals__
        found = [(name, loop) for name, loop in tuple(names.items()) if isinstance(loop, Loop)]
        names.update({name: loop.compiled for name, loop in found if loop.shape is None})


def _njit(function: Any, **options: Any) -> Any:
    from numba import njit

    return njit(**OPTIONS, **options)(function)


def _intrinsic(function: Any) -> Any:
    from numba.extending import intrinsic

    return intrinsic(function)


def _later(function: Any, compile_it: Callable[[Any], Any], shape: Shape | None = None) -> Any:
    made = Loop(function, compile_it, shape)
    _LOOPS.append(made)
    return made


def compiled(function: Any) -> Any:
    return _later(function, _njit)


def inlined(function: Any) -> Any:
    return _later(function, partial(_njit, forceinline=True))


def kept(*arguments: str | tuple[str, ...], results: int = 0) -> Callable[[Any], Any]:
    """Compiled, too, for what it is called with, which `loop_shapes.py` has the words for."""
    return lambda function: _later(function, _njit, shape(*arguments, results=results))


def kept_loops() -> dict[str, Loop]:
    """The kept loops of all modules that were imported, by their names."""
    return {each.function.__name__: each for each in _LOOPS if each.shape is not None}


def intrinsic(function: Any) -> Any:
    return _later(function, _intrinsic)


@intrinsic
def _copy_block(typing, source, at, size, target, target_at):  # type: ignore[no-untyped-def]
    """memcpy: for a hundred bytes a third of the time that a loop takes, however well that is compiled."""
    from numba import types
    from numba.core import cgutils

    signature = types.void(source, types.uint64, types.uint64, target, types.uint64)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source_type, _, _, target_type, _ = signature.args
        source, at, size, target, target_at = arguments
        first = builder.gep(context.make_array(source_type)(context, builder, source).data, [at])
        target_first = builder.gep(context.make_array(target_type)(context, builder, target).data, [target_at])
        cgutils.raw_memcpy(builder, target_first, first, size, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return signature, generate


@inlined
def copy(source, at, size, target, target_at):  # type: ignore[no-untyped-def]
    """Copy at least one byte. The last one goes by its index, which numba can be told to check; of a block it knows
    nothing. Places are unsigned, since none counts from the end."""
    first, target_first, count = np.uint64(at), np.uint64(target_at), np.uint64(size)
    target[target_first + count - np.uint64(1)] = source[first + count - np.uint64(1)]
    _copy_block(source, first, count, target, target_first)


@intrinsic
def prefetch(typing, array, at):  # type: ignore[no-untyped-def]
    """Have the line of this byte near when it is written. A place beyond the array does no harm: nothing is touched."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    signature = types.void(array, types.uint64)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, at = arguments
        place = builder.gep(context.make_array(signature.args[0])(context, builder, array).data, [at])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        builder.call(function, [place, number(_TO_WRITE), number(_KEPT_CLOSE), number(_DATA)])
        return context.get_dummy_value()

    return signature, generate
