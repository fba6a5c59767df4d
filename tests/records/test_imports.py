"""The server's share of this room loads neither numpy, nor numba, nor pyarrow: together they take over 100 MB."""

import subprocess
import sys

CORE = ("header", "codecs", "build", "read", "trim", "varint", "errors")
HEAVY = ("numpy", "numba", "pyarrow", "llvmlite")


def heavy_after(modules: str) -> str:
    code = f"import sys, {modules}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_the_core_loads_without_numpy_numba_and_pyarrow() -> None:
    assert heavy_after(", ".join(f"oncelog.records.{name}" for name in CORE)) == ""


def test_the_columns_do_load_them() -> None:
    assert heavy_after("oncelog.records.columns") == "numpy numba llvmlite"
    assert "pyarrow" in heavy_after("oncelog.records.arrow")
