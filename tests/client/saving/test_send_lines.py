"""`examples/send_lines.py` sends each line of a file once, wherever it ends and begins again."""

import os
import runpy
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.client.saving.stored import stored
from tests.raw import RawConnection
from tests.waiting import until

JOB = Path(__file__).parents[3] / "examples" / "send_lines.py"
LINES = 25_000  # a save at the beginning, two between them, and one at the end
UNSAVED = 12_000  # of them, the last save being that of 10,000


class Died(BaseException):
    """As a kill: nothing is left to be done about it."""


def test_each_line_is_sent_once_wherever_it_dies(
    bootstrap_servers: str, raw: RawConnection, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time just before a save counts, so that all behind the one before it is sent again."""
    raw.create_topic(topic, 3)
    (tmp_path / "lines").write_text("".join(f"line {number}\r\n" for number in range(LINES)))
    monkeypatch.setattr(sys, "argv", f"{JOB} {tmp_path}/lines --servers {bootstrap_servers} --topic {topic}".split())
    replace, kept = os.replace, tmp_path / "lines.sent"

    def begin(dies_at: int) -> None:
        saves = count(1)

        def replacing(new: Path, old: Path) -> None:
            if old == kept and next(saves) == dies_at:  # the server in this process has files of its own
                raise Died
            replace(new, old)

        monkeypatch.setattr(os, "replace", replacing)
        runpy.run_path(str(JOB), run_name="__main__")

    for dies_at in (1, 2, 3, 2):
        with pytest.raises(Died):
            begin(dies_at)
    begin(0)
    begin(0)  # nothing is left to be sent
    found = stored(raw, topic)
    assert (found.total, sorted(found.numbers())) == (LINES, list(range(LINES)))
    assert all(numbers == sorted(numbers) for numbers in found.by_partition().values())


@pytest.mark.thorough
def test_what_was_sent_behind_the_last_save_stands_once(
    bootstrap_servers: str, raw: RawConnection, topic: str, tmp_path: Path
) -> None:
    """A process that is killed while its lines are on their way; another one is refused meanwhile."""
    raw.create_topic(topic, 3)
    path, all_lines = tmp_path / "lines", b"".join(b"line %d\n" % number for number in range(LINES))
    job = [sys.executable, str(JOB), str(path), "--servers", bootstrap_servers, "--topic", topic]
    os.mkfifo(path)  # it waits for more than it is given
    with subprocess.Popen(job) as first:
        try:
            with open(path, "wb") as lines:
                lines.write(b"".join(all_lines.splitlines(keepends=True)[:UNSAVED]))
                lines.flush()
                until(lambda: stored(raw, topic).total > UNSAVED - 1_000, "lines behind the save to stand in the log")
                second = subprocess.run(job, capture_output=True, text=True, timeout=120)
                assert (second.returncode, second.stderr) == (1, f"another process sends {path}\n")
                first.kill()
                first.wait()
        finally:
            first.kill()
    path.unlink()
    path.write_bytes(all_lines + b"line ")  # the last one is being written
    for stand in (LINES, LINES + 1):
        subprocess.run(job, check=True, timeout=240)
        found = stored(raw, topic)
        assert (found.total, sorted(found.numbers())) == (stand, list(range(stand)))
        path.write_bytes(all_lines + b"line %d\n" % LINES)
