"""A stop does not take longer than it must: what can be done again is given up, what must be on the disk goes there."""

import threading
from pathlib import Path
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.log.compaction import CompactionJob
from oncelog.log.flush import Flusher
from tests.raw import RawConnection, Rec, batch
from tests.raw.topics import new_topic
from tests.waiting import until


def test_a_stop_gives_up_the_compaction_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = threading.Event()
    stopped: list[bool] = []

    def run(self: CompactionJob) -> None:
        runs.set()
        stopped.append(self._stop.wait(30))

    monkeypatch.setattr(CompactionJob, "run", run)
    with (
        Server(data_dir=str(tmp_path / "data"), log_cleaner_backoff_ms=10) as server,
        RawConnection(server.bootstrap_servers) as raw,
    ):
        topic = new_topic(raw, cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0.01")
        for number in range(20):
            raw.produce(topic, 0, batch([Rec(b"%d" % number * 50, key=b"k")]))
        until(runs.is_set, "a compaction")
    assert stopped == [True]


def test_logs_are_closed_several_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=30)  # where they come one after the other, nobody gets past it
    is_closing = threading.Event()
    sync = Flusher.sync

    def sync_together(self: Flusher, *paths: str) -> None:
        if is_closing.is_set() and "many" in self.folder:
            together.wait()
        sync(self, *paths)

    monkeypatch.setattr(Flusher, "sync", sync_together)
    data = str(tmp_path / "data")
    with Server(data_dir=data) as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("many", 8)
        for index in range(8):
            assert raw.produce("many", index, batch([b"x"])).error_code == 0
        is_closing.set()
    is_closing.clear()

    def scanned(again: Server) -> list[Any]:
        topic = again.broker.topics.get("many")
        assert topic is not None
        return [(each.log.recovered.scanned_bytes, each.log.next_offset) for each in topic.partitions]

    with Server(data_dir=data) as again:
        assert again.call(scanned, again) == [(0, 1)] * 8


def test_one_log_that_cannot_be_closed_does_not_keep_others_from_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sync = Flusher.sync
    is_closing = threading.Event()

    def sync_or_fail(self: Flusher, *paths: str) -> None:
        if is_closing.is_set() and self.folder.endswith("many-1"):
            raise OSError(5, "no")
        sync(self, *paths)

    monkeypatch.setattr(Flusher, "sync", sync_or_fail)
    data = str(tmp_path / "data")
    with Server(data_dir=data) as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("many", 3)
        for index in range(3):
            assert raw.produce("many", index, batch([b"x"])).error_code == 0
        is_closing.set()
    is_closing.clear()
    assert [each for each in caplog.messages if "many-" in each] == [
        f"{data}/many-1 is not closed cleanly: [Errno 5] no"
    ]

    def scanned(again: Server) -> list[bool]:
        topic = again.broker.topics.get("many")
        assert topic is not None
        return [each.log.recovered.scanned_bytes > 0 for each in topic.partitions]

    with Server(data_dir=data) as again:
        assert again.call(scanned, again) == [False, True, False]
