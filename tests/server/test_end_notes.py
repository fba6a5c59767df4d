"""How far each log is, noted while the server runs: what is lost of it before any flush is missed by the next start."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

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


def test_a_log_is_noted_while_compaction_and_checkpoints_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = Event()

    def taken(count: int, thread_name_prefix: str) -> ThreadPoolExecutor:
        """All threads that checkpoints, retention and compaction have are at work, until the end."""
        threads = ThreadPoolExecutor(count, thread_name_prefix)
        for _ in range(count if thread_name_prefix == "oncelog-housekeeping" else 0):
            threads.submit(is_over.wait)
        return threads

    monkeypatch.setattr(housekeeping, "ThreadPoolExecutor", taken)
    monkeypatch.setattr(housekeeping, "NOTES_S", 0.01)
    with Server(data_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
        try:
            topic = new_topic(raw)
            assert raw.produce(topic, 0, batch([b"x"])).error_code is ErrorCode.none
            until(lambda: (tmp_path / f"{topic}-0" / "written").exists(), "the note")
        finally:
            is_over.set()
