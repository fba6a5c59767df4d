"""A start that is refused: one message that speaks of what was typed."""

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

FAILED, MISUSED = 1, 2


def refusal(*arguments: str, codes: tuple[int, ...] = (FAILED, MISUSED)) -> str:
    command = [sys.executable, "-m", "oncelog", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    assert "Errno" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("address", ["foo", "9092", "127.0.0.1:99999"])
@pytest.mark.parametrize("option", ["--listen", "--metrics"])
def test_an_impossible_address_is_told_by_its_option(option: str, address: str) -> None:
    assert f"{option} {address}: expected HOST:PORT" in refusal(option, address)


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_file_in_place_of_the_data_folder_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    data = f"{tmp_path}/file{below}"
    assert f"{data} cannot be used: not a folder" in refusal("--listen", "127.0.0.1:0", "--data", data)


def test_a_data_folder_that_takes_no_writing_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "server.meta.tmp").mkdir()  # stands for a full disk, which refuses just this write
    (said,) = refusal("--listen", "127.0.0.1:0", "--data", str(tmp_path)).splitlines()
    assert said == f"Error: cannot write {tmp_path}/server.meta: Is a directory"


@pytest.mark.parametrize("option", ["--listen", "--data", "--metrics"])
def test_an_option_that_is_given_nothing_is_refused_with_an_example(option: str) -> None:
    said = refusal(option, "")
    assert f"{option} is empty: " in said
    assert "such as" in said


def test_everything_that_is_wrong_is_said_one_line_each() -> None:
    said = refusal("--set", "a=1", "--set", "num.partitions=x", "--set", "b", codes=(MISUSED,)).splitlines()
    assert said[0] == "Error: 3 things are wrong"
    assert len(said) == 4


def test_a_signal_ends_it_though_its_input_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oncelog", "serve", "--until-input-ends", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--data", str(tmp_path)], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None and process.stdout.readline().startswith(b"oncelog listens on ")
    process.terminate()
    code = process.wait(60)
    _, said = process.communicate()
    assert (code, said) == (0, b"")
