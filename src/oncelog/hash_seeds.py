"""Finds functions of a flow whose results hang on the order of a set or on `hash()`: other processes have other ones.

    def simulated():
        return flow.simulate(SENT)

    def test_no_result_hangs_on_hashes():
        check_hash_seeds(simulated)

The flow is simulated in two other processes, each with a PYTHONHASHSEED of its own; `flow.simulate` itself starts none.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

SEEDS: Final = 1, 2
TIMEOUT_S: Final = 300.0

_CHILD: Final = """
import importlib, importlib.util, json, sys
answer, path, file, module, name = sys.argv[1:]
sys.path[:] = json.loads(path)
try:
    found = None if module == "__main__" else importlib.import_module(module)
except ImportError:
    found = None
if found is None or getattr(found, "__file__", None) != file:
    spec = importlib.util.spec_from_file_location("simulated", file)
    found = sys.modules["simulated"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
stands = getattr(found, name)().stands
with open(answer, "w") as out:
    json.dump({topic: [str(tuple(each)) for each in records] for topic, records in stands.items()}, out)
"""


class HashDependent(AssertionError):
    """The outputs of a flow differ from one process to the next."""


def check_hash_seeds(simulated: Callable[[], Any], seeds: Sequence[int] = SEEDS, timeout_s: float = TIMEOUT_S) -> None:
    """`simulated` is a function of a module, without arguments, that gives what `flow.simulate` gives. Raises
    HashDependent where that is not the same under all these seeds."""
    code = getattr(simulated, "__code__", None)
    name, module = getattr(simulated, "__qualname__", ""), getattr(simulated, "__module__", "")
    if code is None or not name.isidentifier():
        raise ValueError(f"{name or simulated!r} is no function of a module: other processes find it by its name")
    first, *others = [_stands(code.co_filename, module, name, seed, timeout_s) for seed in seeds]
    for seed, other in zip(seeds[1:], others, strict=True):
        _compare(first, other, (seeds[0], seed))


def _stands(file: str, module: str, name: str, seed: int, timeout_s: float) -> dict[str, list[str]]:
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        about = [str(answer), json.dumps(sys.path), file, module, name]
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, *about],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if child.returncode:
            raise HashDependent(f"with PYTHONHASHSEED={seed} {name} of {file} failed:\n{child.stderr}")
        found: dict[str, list[str]] = json.loads(answer.read_text())
        return found


def _compare(first: dict[str, list[str]], other: dict[str, list[str]], seeds: tuple[int, int]) -> None:
    for topic in sorted({*first, *other}):
        one, two = first.get(topic, []), other.get(topic, [])
        if one == two:
            continue
        at = next((at for at, both in enumerate(zip(one, two, strict=False)) if both[0] != both[1]), -1)
        records = f"{len(one)} and {len(two)} records" if at < 0 else f"{one[at]} and {two[at]} as record {at}"
        raise HashDependent(
            f"{topic} has {records} with PYTHONHASHSEED={seeds[0]} and {seeds[1]}: a function gives something else by "
            "the order of a set or by hash(). Sort the set; take zlib.crc32 of bytes for the hash"
        )
