"""The installed command serves, produces and consumes, and so does the installed package."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.chaos.life import Life
from oncelog.chaos.stopped import DidNotStart
from tests.smoke.installing import Failed, run

LINES = [f"record {number}" for number in range(1000)]
STOP_SECONDS = 30
IN_ONE_PROCESS = """
import oncelog
from oncelog.client import Consumer, Producer

with oncelog.Server() as server:
    address = {"bootstrap.servers": server.bootstrap_servers}
    with Producer(address) as producer:
        for number in range(100):
            producer.produce("numbers", str(number))
        assert producer.flush(30) == 0
    group = {"group.id": "smoke", "auto.offset.reset": "earliest"}
    with Consumer(address | group) as consumer:
        consumer.subscribe(["numbers"])
        values = [message.value() for message in consumer.consume(100, timeout=30)]
    assert values == [b"%d" % number for number in range(100)], values
"""


def check(bin_folder: Path, folder: Path, version: str) -> None:
    """Everything in `folder`; the first thing that is not as it should be is raised as `Failed`."""
    python, oncelog = bin_folder / "python", bin_folder / "oncelog"
    commands: list[list[str | Path]] = [[oncelog, "--version"], [python, "-m", "oncelog", "--version"]]
    for command in commands:
        said = run(command, env=environment_of(bin_folder), cwd=folder)
        _expect(said.strip() == f"oncelog, version {version}", f"{command} says {said!r}")
    words: list[str | Path] = [oncelog, "serve", "--listen", "127.0.0.1:0", "--data", folder / "data"]
    with serving(words, folder) as address:
        run([oncelog, "doctor", "-b", address], env=environment_of(bin_folder), cwd=folder)
        text = "".join(f"{line}\n" for line in LINES)
        run([oncelog, "produce", "-b", address, "-t", "smoke"], env=environment_of(bin_folder), cwd=folder, input=text)
        back = run(
            [oncelog, "consume", "-b", address, "-t", "smoke", "-e", "-q"], env=environment_of(bin_folder), cwd=folder
        )
        _expect(
            back.splitlines() == LINES, f"consumed were {len(back.splitlines())} lines, not the {len(LINES)} produced"
        )
    run([python, "-c", IN_ONE_PROCESS], env=environment_of(bin_folder), cwd=folder)


@contextmanager
def serving(command: list[str | Path], folder: Path) -> Iterator[str]:
    """The address of the server that the command is; at the end it is to stop by SIGTERM with exit code 0."""
    server = Life("the server", folder / "serve.log")
    server.log.unlink(missing_ok=True)  # of another check
    environment = environment_of(Path(command[0]).parent)
    server.launch([str(word) for word in command], stdin=subprocess.DEVNULL, env=environment, cwd=folder)
    try:
        yield server.await_words(r"oncelog listens on (127\.0\.0\.1:\d+)")
        server.stop(STOP_SECONDS)
        code = server.process.returncode
        _expect(code == 0, f"the server ended with {code}: {server.log_text()}")
    except DidNotStart as failure:
        raise Failed(str(failure)) from failure
    finally:
        server.kill()


def environment_of(bin_folder: Path) -> dict[str, str]:
    """Nothing of this project's own environment is in reach."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONCELOG_", "PYTHON", "VIRTUAL"))}
    return kept | {"PATH": str(bin_folder) + os.pathsep + os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}


def _expect(is_so: bool, words: str) -> None:
    if not is_so:
        raise Failed(words)
