"""How far each log is, noted while the server runs: what is lost of it before any flush is missed by the next start."""

from pathlib import Path

import pytest

from oncelog.embedded import Server
from oncelog.log.disk import RealDisk
from oncelog.log.notes import read_written
from oncelog.server import housekeeping
from oncelog.server.errors import ErrorCode
from tests.raw import RawConnection, batch
from tests.raw.topics import new_topic
from tests.waiting import until


def test_a_log_that_grows_is_noted_and_noted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "NOTES_S", 0.01)
    with Server(data_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        folder = tmp_path / f"{topic}-0"
        for number in range(3):
            assert raw.produce(topic, 0, batch([b"x"])).error_code is ErrorCode.none
            until(lambda: (folder / "written").exists(), "the first note")
            until(lambda: read_written(RealDisk(), str(folder)).offset == number + 1, "the note of it")  # noqa: B023
