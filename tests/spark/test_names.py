"""What `oncelog.spark` exports, asked for in a process of its own, as imports leave traces."""

import subprocess
import sys

import pytest

FUNCTIONS = ("check", "copy_topic", "sealed", "session")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "asking",
    [
        "from oncelog.spark import {name} as found",
        "import oncelog.spark.{where}; from oncelog.spark import {name} as found",
        "import oncelog.spark; import oncelog.spark.{where}; found = oncelog.spark.{name}",
    ],
)
def test_a_function_is_had_by_its_name_however_it_is_imported(asking: str, name: str) -> None:
    modules = {"check": "checking", "copy_topic": "copying.running", "sealed": "sealed.sealing", "session": "session"}
    where = modules[name]
    code = asking.format(name=name, where=where) + "; import types; assert isinstance(found, types.FunctionType), found"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_not_exported_is_no_attribute() -> None:
    import oncelog.spark

    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        getattr(oncelog.spark, "sesion")  # noqa: B009
