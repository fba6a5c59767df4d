"""How loops are compiled; and what they do with memory as a whole, which numba has no words for: a block copied, a line
fetched early.

No loop makes an array or returns one, so none counts who holds its arrays (`_nrt`). numba would in each that is handed
tuples of arrays, by atomic additions around every call inside, and these take longer than what is called: they were two
thirds of the time that decoding took.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_OPTIONS: Final[dict[str, Any]] = {"cache": True, "nogil": True, "_nrt": False}
compiled: Any = njit(**_OPTIONS)
inlined: Any = njit(forceinline=True, **_OPTIONS)

_TO_WRITE, _KEPT_CLOSE, _DATA = 1, 3, 1  # what LLVM's prefetch takes


@intrinsic
def _copy_block(typing, source, at, size, target, target_at):  # type: ignore[no-untyped-def]
    """memcpy: for a hundred bytes a third of the time that a loop takes, however well that is compiled."""
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
    """At least one byte. The last one goes by its index, which numba can be told to check; of a block it knows nothing.
    Unsigned places, since none counts from the end."""
    first, target_first, count = np.uint64(at), np.uint64(target_at), np.uint64(size)
    target[target_first + count - np.uint64(1)] = source[first + count - np.uint64(1)]
    _copy_block(source, first, count, target, target_first)  # type: ignore[call-arg]


@intrinsic
def prefetch(typing, array, at):  # type: ignore[no-untyped-def]
    """Have the line of this byte near when it is written. A place beyond the array does no harm: nothing is touched."""
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
