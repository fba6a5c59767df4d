"""What people install: a wheel for every machine, which works alone; here by the Python of these tests."""

import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from oncelog import __version__
from oncelog.doctor.packages import PURPOSES
from tests.repo.test_sizes import MOST_CORE_BYTES
from tests.repo.tree import read
from tests.smoke.installing import Failed, build_wheel, make_environment, size_bytes
from tests.smoke.pythons import find, running, supported
from tests.smoke.serving import check


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_is_pure_python_and_typed(wheel: Path) -> None:
    assert wheel.name == f"oncelog-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "oncelog/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {
        "oncelog",
        "pyspark_oncelog",
        f"oncelog-{__version__}.dist-info",
    }
    assert not [name for name in names if name.endswith((".so", ".pyd", ".c", ".pyc"))]


def test_the_wheel_tells_of_every_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        told = Parser().parsestr(archive.read(f"oncelog-{__version__}.dist-info/METADATA").decode())
    assert set(told.get_all("Provides-Extra", [])) == set(PURPOSES)


def test_installed_alone_it_is_small_and_serves_produces_and_consumes(wheel: Path, tmp_path: Path) -> None:
    bin_folder = make_environment(running(), tmp_path / "venv", wheel)
    assert size_bytes(bin_folder) <= MOST_CORE_BYTES
    check(bin_folder, tmp_path, __version__)


def test_the_smoke_test_notices_what_does_not_work(wheel: Path, tmp_path: Path) -> None:
    bin_folder = make_environment(running(), tmp_path / "venv", wheel)
    with pytest.raises(Failed, match="oncelog, version"):
        check(bin_folder, tmp_path, "0.0.0")


def test_the_running_python_is_one_of_those_that_are_supported_and_found() -> None:
    assert running().minor in supported()
    assert running().minor in find(supported())


def test_the_documents_claim_the_pythons_that_are_supported_and_were_run() -> None:
    minors = supported()
    assert f"Python {minors[0]} to {minors[-1]}" in read("README.md")
    ran = re.findall(r"^(3\.\d+)\.\d+ +ok: ", read("docs/install.md"), re.MULTILINE)
    assert ran == minors
