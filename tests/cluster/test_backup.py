"""A data folder is copied while its server works, and the copy is served."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.cluster.backup import PIDS_LEFT_OUT, Unfinished, back_up, leave_out_pids
from oncelog.cluster.file import TREE_FOLDER, DamagedFolder, UnfitFolder, read_state, write_state
from oncelog.cluster.folder_checking import check_folder
from oncelog.embedded import Server
from oncelog.log.disk import RealDisk, RealFile
from oncelog.producers.leases import END_OF_LEASED_PIDS
from oncelog.records.header import headers
from oncelog.records.read import records_of
from oncelog.server.ports import PidKind
from tests.raw import RawConnection, Rec, batch

PARTITIONS = 3
SETTINGS: dict[str, str | int | float | bool] = {
    "log.segment.bytes": 20_000,
    "oncelog.flush": "every",
    "oncelog.recovery.max.bytes": 2**20,
}


def values_in(server: Server, topic: str, partition: int) -> list[int]:
    found = server.broker.topics.partition(topic, partition)
    assert found is not None and found.log.offline is None
    log, values = found.log, []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        batch = server.call(lambda at: bytes(log.read(at, 1)), offset)  # where compaction goes on
        values += [int(record.value or b"-1") for record in records_of(batch)]
        offset = max(header.last_offset for _, header in headers(batch)) + 1  # a batch may have no record left
    return values


class Load:
    """A thread for each partition that sends 0, 1, 2 ... in batches, and notes what was acknowledged."""

    def __init__(self, server: Server, topic: str) -> None:
        self.acknowledged = [0] * PARTITIONS
        self.enough = threading.Event()
        self._stop = threading.Event()
        self._server = server
        self._topic = topic
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(PARTITIONS)]
        for thread in self._threads:
            thread.start()

    def _send(self, partition: int) -> None:
        with RawConnection(self._server.bootstrap_servers) as raw:
            while not self._stop.is_set():
                first = self.acknowledged[partition]
                records = [Rec(b"%d" % value, b"%d" % (value % 50)) for value in range(first, first + 20)]
                assert raw.produce(self._topic, partition, batch(records)).error_code == 0
                self.acknowledged[partition] = first + 20
                if min(self.acknowledged) >= 1000:
                    self.enough.set()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def copy(folder: Path, to: Path) -> list[str]:
    return [each.name for each in back_up(RealDisk(), str(folder), str(to))]


def test_a_copy_that_is_made_under_load_has_every_record_that_was_acknowledged_before_it_began(tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path / "data"), settings=SETTINGS) as server:
        with RawConnection(server.bootstrap_servers) as raw:
            raw.create_topic("orders", PARTITIONS)
        load = Load(server, "orders")
        try:
            assert load.enough.wait(60)
            before = list(load.acknowledged)
            done = copy(tmp_path / "data", tmp_path / "copy")
        finally:
            load.stop()
        after = list(load.acknowledged)
        next_pid = server.call(server.broker.cluster.reserve_pids, PidKind.LEASED, 1).first_pid
    assert done == ["__oncelog_metadata-0", *(f"orders-{number}" for number in range(PARTITIONS)), "server.meta"]
    assert [each.damage for each in check_folder(RealDisk(), str(tmp_path / "copy"))] == [[]] * len(done)
    with Server(data_dir=str(tmp_path / "copy"), settings=SETTINGS) as server:
        for number in range(PARTITIONS):
            values = values_in(server, "orders", number)
            assert values == list(range(len(values)))
            assert before[number] <= len(values) <= after[number]
        assert server.call(server.broker.cluster.reserve_pids, PidKind.LEASED, 1).first_pid > next_pid


def test_a_copy_is_made_while_compaction_and_retention_change_files(tmp_path: Path) -> None:
    settings = {**SETTINGS, "log.cleaner.backoff.ms": 1, "log.cleaner.min.cleanable.ratio": 0.01}
    settings |= {"log.retention.check.interval.ms": 5, "oncelog.flush": "os"}
    with Server(data_dir=str(tmp_path / "data"), settings=settings) as server:
        with RawConnection(server.bootstrap_servers) as raw:
            raw.create_topic("kept", PARTITIONS, configs={"cleanup.policy": "compact"})
        load = Load(server, "kept")
        try:
            assert load.enough.wait(60)
            before = list(load.acknowledged)
            copy(tmp_path / "data", tmp_path / "copy")
        finally:
            load.stop()
    assert [each.damage for each in check_folder(RealDisk(), str(tmp_path / "copy")) if each.damage] == []
    with Server(data_dir=str(tmp_path / "copy"), settings=settings) as server:
        for number in range(PARTITIONS):
            values = values_in(server, "kept", number)
            assert values == sorted(set(values)) and values[-1] >= before[number] - 1
            newest = {value % 50: value for value in values}
            assert len(newest) == 50 and min(newest.values()) >= values[-1] - 50


class CompactedMeanwhile(RealDisk):
    """Once, before the first segment of a topic is opened, `compact` is called."""

    def __init__(self, topic: str, compact: Callable[[], None]) -> None:
        self._segment = f"/{topic}-0/{0:020d}.log"
        self._compact: Callable[[], None] | None = compact

    def open(self, path: str, *, write: bool = False, create: bool = False) -> RealFile:
        compact = self._compact
        if compact is not None and not create and path.endswith(self._segment):
            self._compact = None
            compact()
        return super().open(path, write=write, create=create)


def test_a_first_compaction_of_a_segment_that_is_closed_meanwhile_is_noticed(tmp_path: Path) -> None:
    settings = {**SETTINGS, "log.cleaner.enable": False}
    with (
        Server(data_dir=str(tmp_path / "data"), settings=settings) as server,
        RawConnection(server.bootstrap_servers) as raw,
    ):
        raw.create_topic("kept", 1, configs={"cleanup.policy": "compact"})

        def send(first: int) -> None:
            records = [Rec(b"%d" % value, b"%d" % (value % 50)) for value in range(first, first + 20)]
            assert raw.produce("kept", 0, batch(records)).error_code == 0

        def compact() -> None:
            found = server.broker.topics.partition("kept", 0)
            assert found is not None
            for first in range(20, 2000, 20):
                send(first)
            assert len(found.log.segments) > 1
            assert server.call(found.log.compact, server.broker.clock.now())

        send(0)
        copied = back_up(CompactedMeanwhile("kept", compact), str(tmp_path / "data"), str(tmp_path / "copy"))
        assert "kept-0" in [each.name for each in copied]
    assert [each.damage for each in check_folder(RealDisk(), str(tmp_path / "copy")) if each.damage] == []


def test_a_copy_goes_into_an_empty_place_and_comes_from_a_data_folder(tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path / "data")):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(Unfinished, match="is not empty"):
        copy(tmp_path / "data", tmp_path / "full")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnfitFolder, match="is no data folder"):
        copy(tmp_path / "empty", tmp_path / "copy")
    (tmp_path / "data" / "server.meta").write_text("{")
    with pytest.raises(DamagedFolder):
        copy(tmp_path / "data", tmp_path / "copy")


def test_what_belongs_to_a_cluster_is_refused_with_words(tmp_path: Path) -> None:
    broker = tmp_path / "1"
    with Server(data_dir=str(broker)):
        pass
    write_state(RealDisk(), str(broker), read_state(RealDisk(), str(broker)) | {"is_member": True})
    with pytest.raises(UnfitFolder, match="belongs to a broker of a cluster: its topics"):
        copy(broker, tmp_path / "copy")
    (tmp_path / TREE_FOLDER).mkdir()
    with pytest.raises(UnfitFolder, match="is the folder of a whole cluster: its topics"):
        copy(tmp_path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("hit", [0, -1], ids=["first batch", "last batch"])
def test_a_byte_that_turns_in_a_copy_is_damage_and_a_start_cuts_nothing(tmp_path: Path, hit: int) -> None:
    with Server(data_dir=str(tmp_path / "data")) as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("five", 1)
        for number in range(5):
            assert raw.produce("five", 0, batch([b"%d" % number])).error_code == 0
        copy(tmp_path / "data", tmp_path / "copy")
    log = tmp_path / "copy" / "five-0" / f"{0:020d}.log"
    found = bytearray(log.read_bytes())
    found[70 if hit == 0 else -1] ^= 1
    log.write_bytes(found)
    (checked,) = [each for each in check_folder(RealDisk(), str(tmp_path / "copy")) if each.name == "five-0"]
    assert len(checked.damage) == 1
    with Server(data_dir=str(tmp_path / "copy")) as server:
        partition = server.broker.topics.partition("five", 0)
        assert partition is not None and partition.log.offline is not None
        assert "offset 5 were on the disk" in partition.log.offline
    assert log.read_bytes() == found


def test_pids_that_may_be_granted_after_the_copy_are_left_out() -> None:
    pids = {"leased": 301, "kafka": 2**32 + 100}
    leave_out_pids(pids)
    assert pids == {"leased": 301 + PIDS_LEFT_OUT, "kafka": 2**32 + 100 + PIDS_LEFT_OUT}
    pids["leased"] = END_OF_LEASED_PIDS - 5
    leave_out_pids(pids)
    assert pids["leased"] == 1
