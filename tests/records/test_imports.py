"""The server's share of this room loads neither numpy, nor numba, nor pyarrow: together they take over 100 MB."""

import subprocess
import sys

CORE = ("header", "codecs", "build", "read", "trim", "varint", "errors")
HEAVY = ("numpy", "numba", "pyarrow", "llvmlite")


def heavy_after(modules: str, then: str = "pass") -> str:
    code = f"import sys, {modules}; {then}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_the_core_loads_without_numpy_numba_and_pyarrow() -> None:
    assert heavy_after(", ".join(f"oncelog.records.{name}" for name in CORE)) == ""


def test_the_columns_do_load_them() -> None:
    """numba where a loop is called, and none is kept (`test_machine_code.py`)."""
    assert heavy_after("oncelog.records.columns") == "numpy"
    nothing_kept = "import os; os.environ['XDG_CACHE_HOME'] = '/nowhere'"
    decoding = "oncelog.records.columns.decode(b'')"
    assert heavy_after("oncelog.records.columns", f"{nothing_kept}; {decoding}") == "numpy numba llvmlite"
    assert "pyarrow" in heavy_after("oncelog.records.arrow")
