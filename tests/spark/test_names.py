"""What `oncelog.spark` exports, asked for in processes that have imported nothing of it, as imports leave traces."""

import json
import subprocess
import sys

import pytest

MODULES = {"check": "checking", "copy_topic": "copying.copy_running", "sealed": "sealed.sealing", "session": "session"}
SPELLINGS = (
    "from oncelog.spark import {name} as found",
    "import oncelog.spark.{where}; from oncelog.spark import {name} as found",
    "import oncelog.spark; import oncelog.spark.{where}; found = oncelog.spark.{name}",
)
# PySpark is imported once, and every line is tried in a copy of the process.
TRY_EACH = """
import json, os, sys, traceback, types
import pyspark.sql, numba, pyarrow
for line in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            names = {}
            exec(line, names)
            assert isinstance(names["found"], types.FunctionType), names["found"]
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    print(json.dumps([line, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
"""


def spelled(asking: str, name: str) -> str:
    return asking.format(name=name, where=MODULES[name])


@pytest.fixture(scope="module")
def tried() -> tuple[dict[str, int], str]:
    """Line -> exit code, and what was complained of."""
    lines = [spelled(asking, name) for asking in SPELLINGS for name in MODULES]
    command = [sys.executable, "-c", TRY_EACH, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(json.loads(line) for line in done.stdout.splitlines()), done.stderr


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("asking", SPELLINGS)
def test_a_function_is_had_by_its_name_however_it_is_imported(
    asking: str, name: str, tried: tuple[dict[str, int], str]
) -> None:
    codes, complaints = tried
    assert codes.get(spelled(asking, name)) == 0, complaints


def test_what_is_not_exported_is_no_attribute() -> None:
    import oncelog.spark

    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        getattr(oncelog.spark, "sesion")  # noqa: B009
