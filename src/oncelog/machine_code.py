"""The machine code of the compiled loops, kept on the disk: numba is imported once, by `oncelog warm`, and not again.

It is a shared library that the machine's C compiler links. Its name says what it was made of and for: the loops, the
versions of Python, numpy and numba, how numba was told to compile, the processor. What is not there by that name, or
does not pass a look at how arrays lie in memory, or is called with something else than was foreseen, numba does.
"""

import ctypes
import hashlib
import importlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from struct import Struct
from struct import error as StructError
from tempfile import TemporaryDirectory
from typing import Any, Final

from oncelog.cache_folder import cache_folder, make_cache_folder
from oncelog.records.loop_shapes import KINDS, PROBE, PROBE_SHAPE, Argument, Shape

LOOPS: Final = (
    "client/partition_loops.py",
    "records/block_loops.py",
    "records/decode_loops.py",
    "records/encode_loops.py",
    "records/key_loops.py",
    "records/walk_loops.py",
)
_MAKERS: Final = ("machine_code.py", "records/loop_objects.py", "records/loop_shapes.py")
_SOURCES: Final = (*LOOPS, *_MAKERS)
SOURCES_IN: Final = Path(__file__).parent
_MADE: Final = "loops-*.so"
MOST_KEPT: Final = 8  # of other versions and of other Pythons of this machine
_COMPILERS: Final = ("cc", "gcc", "clang")
LINKS_AT_MOST_S: Final = 120
_OTHERS_MAY_WRITE: Final = 0o022
_DIGEST_BYTES: Final = 32  # behind the library, where no loader looks
_WORD_BYTES: Final = 8
_CPU_BYTES: Final = 8192  # what the kernel says of the first processors

Function = Callable[..., Any]


class NoMachineCode(RuntimeError):
    """There is no machine code; the text says why."""


def path() -> Path:
    """The path of the file, once it was made."""
    return cache_folder(os.environ.get("NUMBA_CACHE_DIR")) / _MADE.replace("*", _key())


def _key() -> str:
    told = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_"))
    made_for = [sys.version, sys.abiflags, platform.machine(), processor()]
    made_of = [version(name) for name in ("numba", "llvmlite", "numpy")]
    files = [(SOURCES_IN / name).read_bytes() for name in _SOURCES]
    if is_outdated():
        raise OSError("oncelog has been changed since this program has loaded it")
    said = "\n".join([*made_for, *made_of, *(each for each in told if not each.startswith("NUMBA_CACHE_DIR="))])
    return hashlib.sha256(b"\0".join([said.encode(), *files])).hexdigest()[:32]


def _seen() -> list[tuple[int, int, int]]:
    try:
        found = [os.stat(SOURCES_IN / name) for name in _SOURCES]
    except OSError:
        return []
    return [(about.st_ino, about.st_size, about.st_mtime_ns) for about in found]


# Before any loop is loaded, which `block_loops.py` sees to.
_SEEN_FIRST: Final = _seen()


def is_outdated() -> bool:
    """Whether the sources are no longer those that were loaded, as after an upgrade under a running program: a library
    of the new ones would be called as the old ones say."""
    return not _SEEN_FIRST or _seen() != _SEEN_FIRST


def processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as said:
        lines = said.read(_CPU_BYTES).splitlines()
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    found = [line for line in lines if line.startswith(wanted)]
    if not any(line.startswith(("flags", "Features")) for line in found):
        raise OSError("it is not known what the processor can do")
    return "\n".join(dict.fromkeys(found))


# --- calling


def function(name: str, its_shape: Shape, otherwise: Callable[[], Function]) -> Function | None:
    """The loop of this name, which asks `otherwise` for the one that numba compiles where an argument is unlike."""
    library = kept_library()
    if library is None or is_outdated():
        return None
    try:
        return _callable(library, name, its_shape, otherwise)
    except AttributeError:  # it has no such loop
        return None


def bound(name: str, its_shape: Shape, first: Any, otherwise: Function) -> Function | None:
    """The same for who calls it with one array, then numbers, and asks for its first result alone: a third of the time.

    What it is called with and what it finds lie in one place each, and the interpreter's lock is kept: so it is for
    one thread, and for what takes less than others would wait for the lock to be given back.
    """
    library = kept_library()
    if library is None or is_outdated():
        return None
    try:
        call = ctypes.PyDLL(None, handle=library._handle)[f"oncelog_{name}"]
    except AttributeError:  # it has no such loop
        return None
    numbers = Struct(_codes(its_shape)[1:])
    words, found, known = bytearray(_WORD_BYTES + numbers.size), (ctypes.c_int64 * (its_shape.results + 1))(), _known()
    words[:_WORD_BYTES] = Struct("P").pack(id(first))
    within = {
        "pack": numbers.pack_into,
        "words": words,
        "found": found,
        "call": call,
        "known_at": ctypes.c_char_p(known),
        "words_at": ctypes.byref((ctypes.c_char * len(words)).from_buffer(words)),
        "found_at": ctypes.byref(found),
        "otherwise": otherwise,
        "kept": first,  # for as long as its address is called with
    }
    names = ", ".join(f"at_{at}" for at in range(1, len(its_shape.arguments)))
    called = f"call(known_at, words_at, found_at) == 0 else otherwise({names})"
    made: Function = eval(f"lambda {names}: pack(words, {_WORD_BYTES}, {names}) or (found[1] if {called})", within)
    made(*(0 for _ in its_shape.arguments[1:]))
    return made if found[0] else None


def is_there() -> bool:
    return kept_library() is not None and not is_outdated()


def is_near() -> bool:
    """Whether there is something to load, which takes a hundredth of a second where numba takes half of one. Nothing is
    loaded yet."""
    try:
        return path().exists()
    except (OSError, PackageNotFoundError):
        return False


@lru_cache(maxsize=1)
def kept_library() -> Any:
    try:
        return _loaded(path())
    except (OSError, AttributeError, PackageNotFoundError):
        return None


def _loaded(place: Path) -> Any:
    """An OSError says why not. It is opened once: by its name another one could come between the look and the load."""
    folder = _opened_folder(place.parent)
    try:
        file = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _refuse_others(file, place)
        _refuse_part(file, place)
        library = ctypes.CDLL(f"/proc/self/fd/{file}")
    except BaseException:
        os.close(file)
        raise
    # The file stays open: the loader takes whatever has the name of a library that it knows for that library.
    if not _reads_arrays(library):
        raise OSError(f"{place} does not read numpy's arrays")
    return library


def _opened_folder(place: Path) -> int:
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _refuse_others(folder, place)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _refuse_others(opened: int, place: Path) -> None:
    """Nobody else has written it, nor can, nor puts another one into its place."""
    about = os.fstat(opened)
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(f"{place} can be written by others")


def _refuse_part(opened: int, place: Path) -> None:
    """A library of which a part is missing would be loaded, and end the process where it is touched."""
    with open(opened, "rb", closefd=False) as file:
        data = file.read()
    if hashlib.sha256(data[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        raise OSError(f"{place} is not whole")


def _callable(library: Any, name: str, its_shape: Shape, otherwise: Callable[[], Function]) -> Function:
    results, has_many = ctypes.c_int64 * (its_shape.results + 1), its_shape.results > 1
    call = library[f"oncelog_{name}"]
    call.argtypes, call.restype = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(results)], ctypes.c_int
    packed, known = _packed(its_shape), _known()

    def called(*arguments: Any) -> Any:
        found = results()
        try:
            fits = call(known, packed(*arguments), found) == 0 and found[0]
        except (StructError, TypeError, IndexError):
            fits = False
        if not fits:
            return otherwise()(*arguments)
        return tuple(found[1:]) if has_many else found[1] if its_shape.results else None

    return called


def _packed(its_shape: Shape) -> Callable[..., bytes]:
    """Its arguments as the words that the code takes: numbers, and the addresses of arrays. A loop over the arguments
    would take longer than the call."""
    names, words = [], []
    for at, argument in enumerate(its_shape.arguments):
        name, parts = f"at_{at}", (argument,) if isinstance(argument, Argument) else argument
        names.append(name)
        for part_at, part in enumerate(parts):
            word = name if parts == (argument,) else f"{name}[{part_at}]"
            words.append(f"id({word})" if part.dimensions else word)
    text = f"lambda {', '.join(names)}: pack({', '.join(words)})"
    made: Callable[..., bytes] = eval(text, {"pack": Struct(_codes(its_shape)).pack, "id": id})
    return made


def _codes(its_shape: Shape) -> str:
    return "".join("P" if each.dimensions else "Q" if each.kind.startswith("u") else "q" for each in its_shape.flat)


def _known() -> bytes:
    """The marks of arrays: their type, and the object that numpy keeps once for each kind of number."""
    import numpy as np

    kinds = [np.dtype(each) for each in KINDS]
    return Struct(f"{1 + len(kinds)}P").pack(id(np.ndarray), *map(id, kinds))


def _reads_arrays(library: Any) -> bool:
    """Whether numpy's arrays lie as the code expects, and whether it refuses what it must."""
    import numpy as np

    if np.ndarray.__basicsize__ < object.__basicsize__ + 64:
        return False
    refused: list[object] = []
    probe = _callable(library, PROBE, PROBE_SHAPE, lambda: lambda *arguments: refused.append(arguments))
    flat, square = np.arange(7, dtype=np.uint8), np.arange(6, dtype=np.int64).reshape(2, 3)
    locked = square.view()
    locked.flags.writeable = False
    right = (flat.ctypes.data, len(flat), square.ctypes.data, *square.shape)
    if probe(flat, square, -5) != right or probe(flat[2:4], square[1:], 0) != (
        flat.ctypes.data + 2,
        2,
        square.ctypes.data + 3 * 8,
        1,
        3,
    ):
        return False
    unlike = [
        (flat[::2], square), (flat.view(np.int8), square), (b"1234567", square), (None, square), (square, square),
        (flat, flat), (flat, locked), (flat, square.T), (flat, square.astype(np.int32)),
    ]  # fmt: skip
    for arguments in unlike:
        probe(*arguments, 0)
    return len(refused) == len(unlike)


# --- making


def make() -> Path:
    """Make it, in the place of what is there by this name."""
    try:
        return _made()
    except (ImportError, OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        raise NoMachineCode(str(error)) from error


def _made() -> Path:
    from oncelog.records.block_loops import kept_loops
    from oncelog.records.loop_objects import NoObject, object_file

    for each in LOOPS:
        importlib.import_module(f"oncelog.{each.removesuffix('.py').replace('/', '.')}")
    place, compiler = path(), _compiler()
    make_cache_folder(place.parent)
    os.close(_opened_folder(place.parent))
    try:
        code = object_file(kept_loops())
    except NoObject as error:
        raise NoMachineCode(str(error)) from error
    with TemporaryDirectory(dir=place.parent, prefix="making-") as folder:
        library, made = _linked(compiler, code, Path(folder)), Path(folder, "made")
        with open(made, "xb") as file:
            file.write(library + hashlib.sha256(library).digest())
            file.flush()
            os.fsync(file.fileno())
        made.chmod(0o644)
        made.replace(place)
    kept_library.cache_clear()
    try:
        _loaded(place)
    except (OSError, AttributeError):
        place.unlink(missing_ok=True)
        raise
    forget_old(place.parent)
    return place


def forget_old(folder: Path) -> None:
    """Others may do the same at this moment."""
    written_at: dict[Path, float] = {}
    for each in folder.glob(_MADE):
        with suppress(OSError):
            written_at[each] = each.stat().st_mtime
    for old in sorted(written_at, key=written_at.__getitem__, reverse=True)[MOST_KEPT:]:
        with suppress(OSError):
            old.unlink()


def _compiler() -> list[str]:
    found = os.environ.get("CC") or next(filter(None, map(shutil.which, _COMPILERS)), None)
    if found is None:
        raise NoMachineCode(f"none of {', '.join(_COMPILERS)} is on the path, which would link it")
    return shlex.split(found)


def _linked(compiler: list[str], code: bytes, folder: Path) -> bytes:
    """Nothing may stay open that only numba has."""
    source, target = folder / "loops.o", folder / "loops.so"
    source.write_bytes(code)
    order = [*compiler, "-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic", "-o", os.fspath(target), os.fspath(source), "-lm"]
    linked = subprocess.run(order, capture_output=True, text=True, timeout=LINKS_AT_MOST_S, check=False)
    if linked.returncode or not target.exists():
        raise NoMachineCode(f"{shlex.join(compiler)}: {linked.stderr.strip()[-1000:]}")
    return target.read_bytes()
