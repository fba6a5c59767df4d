"""`examples/send_lines.py` sends each line of a file once, wherever it ends and begins again."""

import os
import runpy
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.client.saving.stored import stored
from tests.raw import RawConnection

JOB = Path(__file__).parents[3] / "examples" / "send_lines.py"
LINES = 25_000  # a save at the beginning, two between them, and one at the end


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
