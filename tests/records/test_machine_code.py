"""The machine code of the loops that `oncelog warm` keeps: the same answers as numba's, without numba; and who does not
get it."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from oncelog import machine_code
from oncelog.machine_code import LOOPS, NoMachineCode
from oncelog.records import loop_objects
from oncelog.records.block_loops import Loop, kept_loops
from oncelog.records.loop_objects import NoObject, object_file
from oncelog.records.loop_shapes import Shape, shape
from tests.peers.jars import MissingPeer, need_or_skip
from tests.repo.tree import ROOT

SOURCE = ROOT / "src/oncelog"

EVERYTHING = """
import sys
import numpy as np
from oncelog.client.consumer.decoding import DECODING_LOOPS
from oncelog.client.partition_loops import partitions_of
from oncelog.client.partitioners import partitioner
from oncelog.client.producer.encoding import fetch_compiled_loops
from oncelog.records import header, walk_loops
from oncelog.records.columns import BytesColumn, HeadersColumn, decode, encode

DECODING_LOOPS.fetch(wait=True)
fetch_compiled_loops(wait=True)
cells = BytesColumn.of([b"a", None, b"ccc"])
names = HeadersColumn(np.array([0, 0, 1, 2], np.int32), BytesColumn.of([b"h", b"i"]), BytesColumn.of([b"v", None]))
parts = partitions_of(partitioner("murmur2"), cells.data, cells.ends, 3, cells.valid)
batches = encode(key=cells, value=cells, headers=names, timestamp_ms=np.arange(3), parts=parts, part_count=3)
for batch in batches:
    columns = decode(bytes(batch.data))
    print(batch.part, columns.key.to_list(), columns.value.to_list(), columns.headers.to_list(), *columns.timestamp_ms)
    body = bytes(batch.data)[header.HEADER_BYTES :]
    print(walk_loops.walked(bytearray(body), header.read_header(batch.data)))
print("numba" in sys.modules)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this module's machine code is, and no other."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        need_or_skip(MissingPeer("there is no C compiler on the path, which links the machine code"))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("NUMBA_")]:
            patch.delenv(name)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        machine_code.make()
        yield machine_code.path().parent
    machine_code.kept_library.cache_clear()


def said(folder: Path, program: str = EVERYTHING, **variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"XDG_CACHE_HOME": str(folder.parent), **variables}
    order = [sys.executable, "-c", program]
    done = subprocess.run(order, env=environment, capture_output=True, text=True, timeout=240)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def is_there_now() -> bool:
    machine_code.kept_library.cache_clear()
    return machine_code.is_there()


@pytest.fixture(scope="module")
def without_numba(folder: Path) -> list[str]:
    return said(folder)


def test_loops_are_called_without_numba(without_numba: list[str]) -> None:
    assert without_numba[-1] == "False"


def test_they_answer_the_same(without_numba: list[str], tmp_path: Path) -> None:
    *answers, has_numba = said(tmp_path / "nothing kept")
    assert has_numba == "True" and answers == without_numba[:-1] and len(answers) > 2


def test_without_a_cache_folder_that_others_cannot_write_numba_does_it(folder: Path) -> None:
    place = machine_code.path()
    for mine, mode in ((place, 0o644), (folder, 0o755)):
        for others in (0o020, 0o002, 0o1022):
            mine.chmod(mode | others)
            assert not is_there_now()
        if mine == folder:
            with pytest.raises(NoMachineCode, match="can be written by others"):
                machine_code.make()
        mine.chmod(mode)
    assert is_there_now()


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    place = machine_code.path()
    place.rename(tmp_path / "library")
    try:
        place.symlink_to(tmp_path / "library")
        assert not is_there_now()
    finally:
        (tmp_path / "library").replace(place)
    assert is_there_now()


def test_what_was_looked_at_is_what_is_loaded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes to stand under its name in between."""
    place, load = machine_code.path(), ctypes.CDLL
    swapped = tmp_path / "library"

    def swap_and_load(name: str) -> Any:
        place.rename(swapped)
        place.write_bytes(b"another")
        assert os.path.samefile(name, swapped)
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", swap_and_load)
    try:
        assert is_there_now()
    finally:
        swapped.replace(place)


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_nothing_is_loaded_from_where_a_program_happens_to_run(
    folder: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv(variable, "." if variable == "XDG_CACHE_HOME" else "oncelog")
    assert not machine_code.is_near() and not is_there_now()
    with pytest.raises(NoMachineCode, match="is not absolute"):
        machine_code.make()
    monkeypatch.undo()
    assert is_there_now()


def test_after_an_upgrade_a_running_program_does_not_use_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its callers are those of before, which know other arguments."""
    wanted = _shape("walk_loops", "walk")
    assert machine_code.function("walk", wanted, lambda: lambda *given: None) is not None
    elsewhere = tmp_path / "oncelog"
    shutil.copytree(SOURCE, elsewhere, ignore=shutil.ignore_patterns("__pycache__", "spark", "console", "server"))
    monkeypatch.setattr(machine_code, "SOURCES_IN", elsewhere)
    assert machine_code.is_outdated() and not machine_code.is_near() and not machine_code.is_there()
    assert machine_code.function("walk", wanted, lambda: lambda *given: None) is None
    with pytest.raises(NoMachineCode, match="has been changed since"):
        machine_code.make()


def test_what_was_loaded_is_remembered_before_a_loop_is() -> None:
    program = "import sys, oncelog.records.block_loops; print('oncelog.machine_code' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_a_loop_that_it_does_not_have_goes_to_numba(folder: Path) -> None:
    assert machine_code.function("no_such", shape("i8"), lambda: lambda *given: None) is None


def test_what_is_no_library_is_passed_over(folder: Path) -> None:
    place = machine_code.path()
    whole = place.read_bytes()
    place.unlink()  # it is in use: what is written into it would be what runs
    try:
        for damaged in (b"", b"no library", whole[: len(whole) // 2], whole[:-1], whole[:99] + b"x" + whole[100:]):
            place.write_bytes(damaged)
            assert not is_there_now()
    finally:
        place.unlink()
        place.write_bytes(whole)
    assert is_there_now()


@pytest.mark.parametrize("told", ["NUMBA_BOUNDSCHECK", "NUMBA_CPU_NAME", "NUMBA_OPT"])
def test_it_is_for_what_numba_was_told_and_for_nothing_else(
    folder: Path, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine_code.path()
    monkeypatch.setenv(told, "1")
    assert machine_code.path() != before
    assert machine_code.path().parent == before.parent


def test_another_version_orprocessor_has_another_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {machine_code.path()}
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "version", lambda name: "0")
        paths.add(machine_code.path())
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "processor", lambda: "another")
        paths.add(machine_code.path())
    assert len(paths) == 3


def test_an_array_that_is_unlike_goes_to_numba(folder: Path) -> None:
    """Of which the loop knows nothing: for each argument another type, another kind, gaps, or no right to write."""
    asked: list[tuple[Any, ...]] = []
    import_module("oncelog.records.key_loops")
    wanted = kept_loops()["write_numbers"].shape
    assert wanted is not None
    call = machine_code.function("write_numbers", wanted, lambda: lambda *given: asked.append(given))
    assert call is not None
    right = np.array([-12, 7]), np.zeros(3, np.int32), np.zeros(40, np.uint8)
    assert call(*right) == 4 and bytes(right[2][:4]) == b"-127" and list(right[1]) == [0, 3, 4] and not asked
    locked = right[2].view()
    locked.flags.writeable = False
    twice = np.zeros(80, np.uint8)
    unlike = [
        (right[0].astype(np.float64), *right[1:]), (right[0].astype(np.int32), *right[1:]), ([-12, 7], *right[1:]),
        (right[0], right[1], locked), (right[0], right[1], twice[::2]), (right[0], right[1], twice.reshape(2, 40)),
        (None, *right[1:]), (b"", *right[1:]), (right[0].byteswap().view(">i8"), *right[1:]),
        (np.zeros(17, np.uint8)[1:].view(np.int64), *right[1:]),
    ]  # fmt: skip
    for arguments in unlike:
        call(*arguments)
    assert len(asked) == len(unlike)


def test_a_number_that_does_not_fit_goes_to_numba(folder: Path) -> None:
    asked: list[tuple[Any, ...]] = []
    call = machine_code.function("walk", _shape("walk_loops", "walk"), lambda: lambda *given: asked.append(given))
    assert call is not None
    body = np.zeros(8, np.uint8)
    for number in (1 << 63, 0.5, None):
        call(body, number, 8, 1, 0)
    assert len(asked) == 3


BODY = b"\x0e\0\0\0\1\2a\0" + b"\x0e\0\0\2\1\2b\0"  # two records


@pytest.mark.parametrize("by", ["machine code", "numba"])
def test_who_is_bound_to_one_array_hears_the_same(folder: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = _shape("walk_loops", "walk")
    if by == "numba":
        monkeypatch.setattr(machine_code, "kept_library", lambda: None)
    body = np.frombuffer(bytearray(b"__" + BODY + b"_"), np.uint8)
    call = kept_loops()["walk"].bound(body)
    assert (machine_code.bound("walk", wanted, body, _never) is None) == (by == "numba")
    sound, unsound = [(2, 18, 2, 0), (2, 10, 1, -5)], [(2, 18, 3, 0), (2, 19, 2, 0)]
    for _ in range(2):
        assert all(call(*asked) for asked in sound) and not any(call(*asked) for asked in unsound)


def test_who_is_bound_keeps_its_array(folder: Path) -> None:
    call = machine_code.bound("walk", _shape("walk_loops", "walk"), np.frombuffer(bytearray(BODY), np.uint8), _never)
    assert call is not None
    others = [np.full(len(BODY), 0xFF, np.uint8) for _ in range(1000)]
    assert call(0, len(BODY), 2, 0) and others


def test_nobody_is_bound_to_an_array_that_is_unlike(folder: Path) -> None:
    twice = np.zeros(40, np.uint8)
    for unlike in (BODY, None, twice[::2], twice.reshape(2, 20), twice.view(np.int8)):
        assert machine_code.bound("walk", _shape("walk_loops", "walk"), unlike, _never) is None


def test_nobody_is_bound_to_a_loop_that_is_not_there(folder: Path) -> None:
    assert machine_code.bound("no_such", shape("u1[]", "i8"), np.zeros(1, np.uint8), _never) is None


def _never(*asked: Any) -> None:
    raise AssertionError(asked)


def _shape(module: str, name: str) -> Shape:
    import_module(f"oncelog.records.{module}")
    found = kept_loops()[name].shape
    assert found is not None
    return found


def test_a_loop_without_a_compiler_is_not_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_objects, "object_file", lambda loops: b"")
    refusing = shutil.which("false")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoMachineCode, match="none of cc, gcc, clang is on the path"):
        machine_code.make()
    monkeypatch.setenv("CC", str(refusing))
    with pytest.raises(NoMachineCode, match=str(refusing)):
        machine_code.make()
    assert machine_code.is_there(), "what was there before stays"


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("{python} -c 'raise SystemExit(\"told so\")'", "told so"),
        ("{python} -c 'import signal; signal.pause()'", "timed out after"),
        ("{python} 'not closed", "No closing quotation"),
        ("/nowhere/cc", "No such file"),
    ],
)
def test_a_compiler_that_does_not_link_is_no_traceback(
    folder: Path, compiler: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_objects, "object_file", lambda loops: b"")
    monkeypatch.setattr(machine_code, "LINKS_AT_MOST_S", 0.1 if "pause" in compiler else 60)
    monkeypatch.setenv("CC", compiler.format(python=sys.executable))
    with pytest.raises(NoMachineCode, match=said):
        machine_code.make()
    assert is_there_now(), "what was there before stays"


def test_a_folder_that_cannot_be_made_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(NoMachineCode, match="Not a directory"):
        machine_code.make()


def test_a_loop_that_returns_more_than_was_said_is_not_made() -> None:
    """Its caller has room for as many as were said."""

    def two(number):  # type: ignore[no-untyped-def]
        return number, number

    loop = Loop(two, numba.njit, shape("i8", results=1))
    loop.compile()
    with pytest.raises(NoObject, match="1 results are said, and 2 returned"):
        object_file({"two": loop})


def test_only_the_newest_few_are_kept(folder: Path) -> None:
    others = [folder / f"loops-{number}.so" for number in range(12)]
    for number, other in enumerate(others):
        other.touch()
        os.utime(other, (number, number))
    forgotten = folder / "loops-gone.so"  # by another one, between the look into the folder and the look at it
    forgotten.symlink_to(folder / "nothing")
    machine_code.forget_old(folder)
    forgotten.unlink()
    assert len(list(folder.glob("loops-*.so"))) == machine_code.MOST_KEPT
    assert machine_code.path().exists() and not others[0].exists() and others[-1].exists()


def test_all_loops_are_looked_at() -> None:
    """Whether their source has changed."""
    assert set(LOOPS) == {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*_loops.py")}


def test_no_two_loops_have_one_name() -> None:
    for each in LOOPS:
        import_module(f"oncelog.{each.removesuffix('.py').replace('/', '.')}")
    found = [line for each in LOOPS for line in (SOURCE / each).read_text().splitlines() if "@kept(" in line]
    assert len(kept_loops()) >= len(found) > 10


@pytest.mark.parametrize("text", ["f8", "i3[]", ""])
def test_a_shape_of_what_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is wanted"):
        shape(text)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["columns", "key_columns", "walking", "hostile", "passing_columns"])
def test_all_that_holds_for_the_loops_holds_for_their_machine_code(folder: Path, name: str) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder.parent)}
    order = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not thorough", f"tests/records/test_{name}.py"]
    done = subprocess.run(order, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert not done.returncode, done.stdout[-3000:]
