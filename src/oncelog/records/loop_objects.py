"""The machine code of loops as an object file, whose functions are called without numba.

Each gets three pointers: to what arrays are known by, to its arguments, and to where its results go. An array comes as
the address of its Python object, and is read as numpy's C interface lays it out, once it has been recognized: another
type, another kind of number, or memory with gaps, and the function does nothing, so that the caller goes to numba.
"""

from collections.abc import Mapping
from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numba.extending
from llvmlite import ir
from numba.core import cgutils
from numba.core.errors import NumbaError

from oncelog.records.block_loops import OPTIONS, Loop
from oncelog.records.loop_shapes import KINDS, PROBE, PROBE_SHAPE, Argument, Shape

# Untyped, most of it.
types: Any = numba.types
njit: Any = numba.njit
intrinsic: Any = numba.extending.intrinsic

# numpy's PyArrayObject, behind the head that each Python object has (ndarraytypes.h, unchanged since numpy 1.0).
_HEAD_BYTES: Final = object.__basicsize__
_TYPE_AT, _DATA_AT, _NUMBER_AT, _SIZES_AT = (_HEAD_BYTES + each for each in (-8, 0, 8, 16))
_KIND_AT, _FLAGS_AT = (_HEAD_BYTES + each for each in (40, 48))
_HAS_NO_GAPS, _IS_ALIGNED, _IS_WRITEABLE = 0x0001, 0x0100, 0x0400

_NUMBERS: Final = {
    "?": types.boolean,
    "u1": types.uint8,
    "i4": types.int32,
    "u4": types.uint32,
    "i8": types.int64,
    "u8": types.uint64,
}
_WORDS: Final = types.CPointer(types.int64)
_WORD, _HALF = ir.IntType(64), ir.IntType(32)

_NOT_CACHED: Final = OPTIONS | {"cache": False}

_DOOR: Final = """
define i32 @"{door}"(ptr %known, ptr %arguments, ptr %results) {{
  %nothing = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{name}"(ptr %nothing, ptr %error, ptr %known, ptr %arguments, ptr %results)
  ret i32 %status
}}
declare i32 @"{name}"(ptr, ptr, ptr, ptr, ptr)
"""


class NoObject(RuntimeError):
    """This numba makes no such code; the text says why."""


def object_file(loops: Mapping[str, Loop]) -> bytes:
    try:
        return _object_file(loops)
    except (NumbaError, RuntimeError, AttributeError, TypeError) as error:
        raise NoObject(f"{type(error).__name__}: {error}") from error


def _object_file(loops: Mapping[str, Loop]) -> bytes:
    whole = llvm.parse_assembly("")
    for name, (loop, its_shape) in {
        PROBE: (njit(**_NOT_CACHED)(_probe), PROBE_SHAPE),
        **{name: (each.by_numba(), each.shape) for name, each in loops.items() if each.shape is not None},
    }.items():
        function = njit(**_NOT_CACHED, no_cpython_wrapper=True, no_cfunc_wrapper=True)(_entry(loop, its_shape))
        signature = types.void(_WORDS, _WORDS, _WORDS)
        function.compile(signature)
        compiled = function.overloads[signature.args]
        module = llvm.parse_assembly(compiled.library.get_llvm_str())
        door = _DOOR.format(door=f"oncelog_{name}", name=compiled.fndesc.llvm_func_name)
        module.link_in(llvm.parse_assembly(door))
        whole.link_in(module)
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, reloc="pic"
    )
    whole.verify()
    return bytes(machine.emit_object(whole))


def _probe(first, second, number):  # type: ignore[no-untyped-def]
    """The addresses and lengths of the arrays: nothing of them is read, so this shows whether they are read as they
    lie."""
    rows, columns = second.shape
    return first.ctypes.data, len(first), second.ctypes.data, rows, columns


def _entry(loop: Any, its_shape: Shape) -> Any:
    fits, arguments, put = _fits(its_shape), _arguments(its_shape), _put(its_shape)

    def entry(known, words, results):  # type: ignore[no-untyped-def]
        if fits(known, words):
            put(results, loop(*arguments(words)))

    return entry


def _read(builder: Any, pointer: Any, at_bytes: int, kind: Any) -> Any:
    place = builder.gep(builder.bitcast(pointer, ir.IntType(8).as_pointer()), [_WORD(at_bytes)])
    return builder.load(builder.bitcast(place, kind.as_pointer()))


def _object(builder: Any, words: Any, at: int) -> Any:
    return builder.inttoptr(builder.load(builder.gep(words, [_WORD(at)])), ir.IntType(8).as_pointer())


def _fits(its_shape: Shape) -> Any:
    @intrinsic
    def fits(typing, known, words):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            known, words = arguments
            found = cgutils.alloca_once_value(builder, cgutils.true_bit)  # type: ignore[no-untyped-call]
            for at, argument in enumerate(its_shape.flat):
                if argument.dimensions:
                    _check(builder, found, known, _object(builder, words, at), argument)
            return builder.load(found)

        return types.boolean(known, words), generate

    return fits


def _check(builder: Any, found: Any, known: Any, array: Any, argument: Argument) -> None:
    """One step after the other: of what is no array, nothing behind its type is looked at."""

    def knows(which: int, at_bytes: int) -> Any:
        own = builder.load(builder.gep(known, [_WORD(which)]))
        return builder.icmp_unsigned("==", _read(builder, array, at_bytes, _WORD), own)

    with builder.if_then(builder.load(found)):
        builder.store(knows(0, _TYPE_AT), found)
    with builder.if_then(builder.load(found)):
        flags = _HAS_NO_GAPS | _IS_ALIGNED | (_IS_WRITEABLE if argument.is_written else 0)
        has_flags = builder.icmp_unsigned(
            "==", builder.and_(_read(builder, array, _FLAGS_AT, _HALF), _HALF(flags)), _HALF(flags)
        )
        has_dimensions = builder.icmp_unsigned(
            "==", _read(builder, array, _NUMBER_AT, _HALF), _HALF(argument.dimensions)
        )
        is_kind = knows(1 + KINDS.index(argument.kind), _KIND_AT)
        builder.store(builder.and_(is_kind, builder.and_(has_flags, has_dimensions)), found)


def _arguments(its_shape: Shape) -> Any:
    wanted = types.Tuple([_type(each) for each in its_shape.arguments])

    @intrinsic
    def arguments(typing, words):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            places = iter(range(len(list(its_shape.flat))))

            def made(kind: Any) -> Any:
                if isinstance(kind, types.BaseTuple):
                    return context.make_tuple(builder, kind, [made(each) for each in kind])
                if isinstance(kind, types.Array):
                    return _array(context, builder, _object(builder, arguments[0], next(places)), kind)
                word = builder.load(builder.gep(arguments[0], [_WORD(next(places))]))
                width = context.get_value_type(kind)
                return word if width == _WORD else builder.trunc(word, width)

            return made(wanted)

        return wanted(words), generate

    return arguments


def _type(argument: Argument | tuple[Argument, ...]) -> Any:
    if not isinstance(argument, Argument):
        return types.Tuple([_type(each) for each in argument])
    number = _NUMBERS[argument.kind]
    if not argument.dimensions:
        return number
    return types.Array(number, argument.dimensions, "C", readonly=not argument.is_written)


def _array(context: Any, builder: Any, address: Any, kind: Any) -> Any:
    made = context.make_array(kind)(context, builder)
    sizes = _read(builder, address, _SIZES_AT, _WORD.as_pointer())
    shape = [builder.load(builder.gep(sizes, [_WORD(at)])) for at in range(kind.ndim)]
    width = _WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides, count = [width], shape[-1]
    for size in reversed(shape[:-1]):
        strides.insert(0, builder.mul(strides[0], shape[len(shape) - len(strides)]))
        count = builder.mul(count, size)
    made.data = _read(builder, address, _DATA_AT, made.data.type)
    made.shape = cgutils.pack_array(builder, shape)  # type: ignore[no-untyped-call]
    made.strides = cgutils.pack_array(builder, strides)  # type: ignore[no-untyped-call]
    made.itemsize, made.nitems = width, count
    made.meminfo, made.parent = (cgutils.get_null_value(each.type) for each in (made.meminfo, made.parent))  # type: ignore[no-untyped-call]
    return made._getvalue()


def _put(its_shape: Shape) -> Any:
    """Put it behind a one, which says that the loop ran."""

    @intrinsic
    def put(typing, results, value):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            results, value = arguments
            kinds = list(signature.args[1]) if isinstance(signature.args[1], types.BaseTuple) else [signature.args[1]]
            values = cgutils.unpack_tuple(builder, value) if isinstance(signature.args[1], types.BaseTuple) else [value]  # type: ignore[no-untyped-call]
            words = [_WORD(1)]
            for kind, each in zip(kinds, values, strict=True):
                if not isinstance(kind, types.NoneType):
                    words.append(context.cast(builder, each, kind, types.int64))
            if len(words) != its_shape.results + 1:  # the caller has room for no more
                raise TypeError(f"{its_shape.results} results are said, and {len(words) - 1} returned")
            for at, word in enumerate(words):
                builder.store(word, builder.gep(results, [_WORD(at)]))
            return context.get_dummy_value()

        return types.void(results, value), generate

    return put
