"""`oncelog serve --console`: what it says at its start, and what it refuses."""

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from oncelog.chaos.life import Life, free_ports

SERVE = [sys.executable, "-m", "oncelog", "serve", "--listen", "127.0.0.1:0"]
WITHOUT = "import sys; sys.modules[{!r}] = None; from oncelog.cli import main; main(prog_name='oncelog')"


def refusal(command: list[str], folder: Path) -> str:
    """The one line."""
    done = subprocess.run([*command, "--data", str(folder)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (1, 2), done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_the_page_is_named_when_the_server_is_ready_and_goes_with_it(tmp_path: Path) -> None:
    server = Life("the server", tmp_path / "said")
    server.launch([*SERVE, "--data", str(tmp_path / "data"), "--console", "127.0.0.1:0"])
    try:
        address = server.await_words(r"; the page is at (\S+)\n")
        line = server.log_text()
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"<title>oncelog</title>" in answer.read()
        server.stop()
        assert server.process.returncode == 0
        assert server.log_text() == line, "nothing more is said"
    finally:
        server.kill()


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_what_is_missing_is_named_with_the_remedy(tmp_path: Path, module: str) -> None:
    command = [sys.executable, "-c", WITHOUT.format(module), *SERVE[3:], "--console"]
    wanted = f"Error: --console needs {module}, which is not installed: pip install 'oncelog[console]'"
    assert refusal(command, tmp_path / "data") == wanted


@pytest.mark.parametrize("address", ["8080", "nowhere", "127.0.0.1:99999"])
def test_an_impossible_address_is_told_by_its_option(tmp_path: Path, address: str) -> None:
    said = refusal([*SERVE, f"--console={address}"], tmp_path / "data")
    assert f"--console {address}: expected HOST:PORT, such as 127.0.0.1:8080" in said


def test_a_port_that_is_taken_is_refused_in_one_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [*SERVE[:-1], f"127.0.0.1:{port}", "--console", f"127.0.0.1:{port}"]
    said = refusal(command, tmp_path / "data")
    assert said.startswith(f"Error: cannot listen on 127.0.0.1:{port}: ")
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir(0o700)  # else the log has a line about it
    assert refusal(command, tmp_path / "data").startswith(f"Error: cannot serve the page on 127.0.0.1:{port}: ")


def test_a_server_without_the_page_does_not_load_what_it_needs(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from oncelog.embedded import Server\n"
        "with Server(): pass\n"
        "assert not {'starlette', 'uvicorn', 'oncelog.console'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
