"""Files of a running flow: each record in one of them, and the `_SUCCESS` of hours that are over."""

import errno
import os
import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from oncelog.client import AdminClient, NewTopic, Producer
from oncelog.embedded import Server
from oncelog.flow import Flow, FlowRefused, Topic, json_of, raw
from oncelog.flow.filing import folder_of
from oncelog.runner import holder
from oncelog.runner.storing.hours import Hours
from oncelog.runner.storing.place import FilePlace, Unreachable, put_in_place
from oncelog.runner.storing.writing import Differs, FileWriter
from tests.runner.flows import Order
from tests.waiting import until

HOUR_MS = 3_600_000
BEGIN_MS = 495_000 * HOUR_MS


def send(servers: str, topic: str, numbers: range, *, partitions: int = 2) -> None:
    with AdminClient({"bootstrap.servers": servers}) as admin:
        if topic not in admin.list_topics().topics:
            config = {"retention.ms": "-1"}  # by their times the records are old
            admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in numbers:
            value = json_of(Order).encode(Order(f"c{number}", number))
            producer.produce(topic, key=f"k{number}", value=value, timestamp=BEGIN_MS + number * HOUR_MS // 10)
        producer.flush()


def rows(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(place, partitioning="hive").to_table().to_pylist()
    return found


def filing(topic: str, place: Path | str) -> Flow:
    flow = Flow(f"{topic}-flow", version="1")
    flow.read(Topic(topic, raw, json_of(Order), partitions=2), name="orders").files(str(place))
    return flow


def test_each_record_is_in_one_file_and_another_run_adds_what_is_new(servers: str, topic: str, tmp_path: Path) -> None:
    properties = {"bootstrap.servers": servers}
    send(servers, topic, range(100))
    filing(topic, tmp_path).run(properties, until="end")
    assert sorted(row["amount"] for row in rows(tmp_path)) == list(range(100))
    send(servers, topic, range(100, 130))
    filing(topic, tmp_path).run(properties, until="end")
    found = rows(tmp_path)
    assert sorted(row["amount"] for row in found) == list(range(130))
    assert all(f"{row['kafka_timestamp']:%Y-%m-%dT%H}" == row["hour"] for row in found)
    assert not list(tmp_path.glob(".*"))


def test_the_name_and_the_metadata_say_what_a_file_has(servers: str, topic: str, tmp_path: Path) -> None:
    send(servers, topic, range(5), partitions=2)
    filing(topic, tmp_path).run({"bootstrap.servers": servers}, until="end")
    for path in tmp_path.glob("hour=*/*.parquet"):
        stage, cell, first, end = path.stem.rsplit("-", 3)
        about = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
        assert (stage, about["oncelog.partition"], about["oncelog.offsets"]) == ("orders-files", cell, f"{first}-{end}")
        assert about["oncelog.topic"] == topic


def test_hours_get_their_success_when_all_cells_are_past_them(servers: str, topic: str, tmp_path: Path) -> None:
    """Inputs that are read to their end count as now."""
    send(servers, topic, range(100))
    filing(topic, tmp_path).run({"bootstrap.servers": servers}, until="end")
    assert {path.parent.name for path in tmp_path.glob("hour=2026-06-21*/_SUCCESS")} == {
        f"hour=2026-06-21T{hour:02}" for hour in range(10)
    }


def test_an_hour_is_complete_when_the_watermark_has_passed_it_and_not_before(tmp_path: Path) -> None:
    place = FilePlace(str(tmp_path))
    for hour in (0, 2, 3):
        (tmp_path / folder_of(BEGIN_MS + hour * HOUR_MS)).mkdir()
    hours = Hours(place)
    end_ms = BEGIN_MS + 3 * HOUR_MS
    assert hours.close(end_ms - 1) == ["hour=2026-06-21T00", "hour=2026-06-21T01"]
    assert not hours.is_due(end_ms - 1) and hours.is_due(end_ms)
    assert hours.close(end_ms) == ["hour=2026-06-21T02"]
    assert Hours(place).close(end_ms) == []
    assert not (tmp_path / "hour=2026-06-21T03" / "_SUCCESS").exists()


def batch(first: int, count: int) -> Any:
    return pa.RecordBatch.from_pydict({"n": list(range(first, first + count)), "t": ["x" * 50] * count})


def write(place: FilePlace, name: str, pieces: list[int]) -> FileWriter:
    writer = FileWriter(place, "s-0", lambda: 0)
    first = 0
    for count in pieces:
        writer.write(name, batch(first, count))
        first += count
    return writer


def test_the_same_rows_are_the_same_bytes_in_whatever_pieces_they_came(tmp_path: Path) -> None:
    place = FilePlace(str(tmp_path))
    for name, pieces in (("hour=1/a.parquet", [200_000]), ("hour=1/b.parquet", [1, 70_000, 129_999])):
        write(place, name, pieces).finish({"about": "x"}, 1)
    with place.open("hour=1/a.parquet") as one, place.open("hour=1/b.parquet") as other:
        found = one.read()
        assert found == other.read()
    footer = pq.read_metadata(pa.BufferReader(found))
    assert footer.num_rows == 200_000 and footer.num_row_groups == 2


def test_offsets_have_no_dictionary_and_what_repeats_has_one(tmp_path: Path) -> None:
    """Inner columns too."""
    count = 1_000
    orders = [[{"customer": "anna"}]] * count
    rows = pa.RecordBatch.from_pydict({"orders": orders, "kafka_key": ["k"] * count, "kafka_offset": range(count)})
    place = FilePlace(str(tmp_path))
    writer = FileWriter(place, "s-0", lambda: 0)
    writer.write("hour=1/a.parquet", rows)
    writer.finish({}, 1)
    group = pq.read_metadata(tmp_path / "hour=1/a.parquet").row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema: column.has_dictionary_page for column in columns} == {
        "orders.list.element.customer": True,
        "kafka_key": True,
        "kafka_offset": False,
    }


def test_who_comes_second_finds_the_same_or_is_stopped(tmp_path: Path) -> None:
    place = FilePlace(str(tmp_path))
    name = "hour=1/s-0-0-3.parquet"
    write(place, name, [3]).finish({"oncelog.flow": "f"}, 1)
    stands = (tmp_path / name).stat()
    write(place, name, [1, 2]).finish({"oncelog.flow": "f"}, 1)
    assert (tmp_path / name).stat() == stands
    with pytest.raises(Differs, match=r"is there already with 3 rows of .*and it would have 4 rows"):
        write(place, name, [4]).finish({"oncelog.flow": "f"}, 1)
    with pytest.raises(Differs, match="another flow, or another version"):
        write(place, name, [3]).finish({"oncelog.flow": "g"}, 1)


def test_what_is_not_finished_is_not_seen_and_goes_with_the_next_writer(tmp_path: Path) -> None:
    place = FilePlace(str(tmp_path))
    killed = write(place, "hour=1/s-0-0-9.parquet", [300_000])
    assert killed is not None and list(tmp_path.glob(".s-0.*"))
    assert ds.dataset(tmp_path, format="parquet").count_rows() == 0
    write(place, "hour=1/s-0-0-3.parquet", [3]).finish({}, 1)
    assert not list(tmp_path.glob(".s-0.*"))
    with pytest.raises(Unreachable):  # who only slept, too, finds that it is over
        killed.finish({}, 1)
    assert [path.name for path in tmp_path.glob("*/*")] == ["s-0-0-3.parquet"]


def test_nothing_gets_its_name_behind_the_deadline(tmp_path: Path) -> None:
    writer = write(FilePlace(str(tmp_path)), "hour=1/s-0-0-3.parquet", [3])
    with pytest.raises(Unreachable, match="was written for too long"):
        writer.finish({}, 0)
    writer.abandon()
    assert not list(tmp_path.rglob("*.parquet")) and not list(tmp_path.glob(".*"))


def test_a_place_that_is_none_is_refused(servers: str, topic: str) -> None:
    flow = Flow("f", version="1")
    flow.read(Topic(topic, raw, raw)).files("nowhere://bucket/x")
    with pytest.raises(FlowRefused, match="flow f: nowhere://bucket/x is no place for files"):
        flow.run({"bootstrap.servers": servers})


ENDLESS = """
import sys
from oncelog.flow import Flow, Topic, json_of, raw
from tests.runner.flows import Order

topic, place, servers = sys.argv[1:]
flow = Flow(topic + "-flow", version="1")
read = flow.read(Topic(topic, raw, json_of(Order), partitions=2), name="orders")
read.files(place, every_ms=100, most_records=300)
flow.run({"bootstrap.servers": servers})
"""


@pytest.mark.thorough
def test_whatever_is_killed_every_reader_of_parquet_sees_each_record_once(
    servers: str, topic: str, tmp_path: Path
) -> None:
    pandas = import_module("pandas")

    def goes_on(files: int, process: subprocess.Popen[bytes]) -> bool:
        return len(list(tmp_path.rglob("*.parquet"))) >= files or process.poll() is not None

    count = 3_000
    send(servers, topic, range(count))
    for files in range(1, 22, 4):
        with subprocess.Popen([sys.executable, "-c", ENDLESS, topic, str(tmp_path), servers]) as process:
            try:
                until(partial(goes_on, files * 20, process), "more files", give_up_seconds=120)
                assert process.poll() is None
            finally:
                process.kill()
    filing(topic, tmp_path).run({"bootstrap.servers": servers}, until="end")
    assert sorted(row["amount"] for row in rows(tmp_path)) == list(range(count))
    assert sorted(pandas.read_parquet(tmp_path)["amount"].tolist()) == list(range(count))


def failing(monkeypatch: pytest.MonkeyPatch, what: str, failure: OSError) -> None:
    def fail(*about: object) -> None:
        raise failure

    monkeypatch.setattr(f"oncelog.runner.storing.{what}", fail)


def test_a_folder_that_cannot_be_written_is_refused(own_server: Server, topic: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FlowRefused, match=r"flow .*-flow: .*/file/lake is no place for files: .*Not a directory"):
        filing(topic, tmp_path / "file" / "lake").run({"bootstrap.servers": own_server.bootstrap_servers})


def test_what_is_to_be_done_about_a_place_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write(FilePlace(str(tmp_path)), "hour=1/s-0-0-3.parquet", [3])
    failing(monkeypatch, "place.put_in_place", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(Unreachable, match=r"s-0-0-3.parquet cannot be written: .*No space left.*Make room there"):
        writer.finish({}, 1)
    failing(monkeypatch, "place.FilePlace.unfinished", PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(Unreachable, match=r"is no place for files: .*Permission denied. Let this process write there"):
        FilePlace(str(tmp_path)).begin()


def test_what_goes_elsewhere_is_written_here_first_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.runner.storing.place.gettempdir", lambda: str(tmp_path))
    place = FilePlace(f"memory://{uuid4().hex}")
    killed = write(place, "hour=1/s-0-0-9.parquet", [300_000])
    (unfinished,) = tmp_path.glob("*/.s-0.*")
    assert killed is not None and unfinished.parent.stat().st_mode & 0o777 == 0o700
    write(FilePlace(place.shown), "hour=1/s-0-0-3.parquet", [3]).finish({}, 1)
    assert place.files("hour=1") == ["hour=1/s-0-0-3.parquet"]
    assert not list(tmp_path.glob("*/.*"))
    own, other = os.getuid(), os.getuid() + 1
    (tmp_path / unfinished.parent.name.replace(f"-{own}-", f"-{other}-")).mkdir()
    monkeypatch.setattr("os.getuid", lambda: other)
    with pytest.raises(Unreachable, match="somebody else's"):
        FilePlace(place.shown)


def test_where_files_can_be_renamed_they_are_copied_under_a_hidden_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied to a folder is not there at once."""
    place, name = FilePlace(f"memory://{uuid4().hex}"), "hour=1/s-0-0-3.parquet"
    move = import_module("fsspec").AbstractFileSystem.mv
    renamed: list[str] = []

    def rename(files: Any, before: str, after: str) -> None:
        renamed.append(before)
        if len(renamed) == 1:
            raise OSError("killed before the rename")
        move(files, before, after)

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.mv", rename)
    with pytest.raises(Unreachable, match="killed before the rename"):
        write(place, name, [3]).finish({}, 1)
    assert place.exists([name]) == [False]
    write(place, name, [3]).finish({}, 1)
    assert place.exists([name, renamed[1]]) == [True, False]
    assert all(each.rpartition("/")[2].startswith(".s-0-0-3.parquet.") for each in renamed)


def test_an_object_that_stands_there_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it came behind the look whether it is there."""
    place, name = FilePlace(f"memory://{uuid4().hex}"), "hour=1/s-0-0-3.parquet"
    write(place, name, [3]).finish({"oncelog.flow": "f"}, 1)
    monkeypatch.setattr(place, "exists", lambda names: [False])
    with pytest.raises(Differs, match="is there already with 3 rows"):
        write(place, name, [4]).finish({"oncelog.flow": "f"}, 1)


def test_a_foreign_file_of_the_same_name_stops_the_cell_and_is_named(tmp_path: Path) -> None:
    name = "hour=1/s-0-0-3.parquet"
    (tmp_path / "hour=1").mkdir()
    (tmp_path / name).write_bytes(b"PAR")
    with pytest.raises(Differs, match=rf"{name} is there already and cannot be read as Parquet \(.*Remove it, or give"):
        write(FilePlace(str(tmp_path)), name, [3]).finish({}, 1)
    assert (tmp_path / name).read_bytes() == b"PAR"


def test_a_column_that_has_another_type_now_stops_the_cell(tmp_path: Path) -> None:
    place = FilePlace(str(tmp_path))
    first, second = (f"{folder_of(BEGIN_MS + hour * HOUR_MS)}/s-0-{hour}-9.parquet" for hour in (0, 1))
    write(place, first, [3]).finish({"oncelog.flow": "f"}, 1)
    place.mark(f"{folder_of(BEGIN_MS + HOUR_MS)}/_SUCCESS")
    (tmp_path / folder_of(BEGIN_MS) / "foreign.parquet").write_bytes(b"PAR")
    write(place, second, [3]).finish({"oncelog.flow": "f"}, 1)
    for rows in ({"n": [1], "more": ["x"]}, {"t": ["x"]}):
        FileWriter(place, "s-0", lambda: 0).write("hour=1/x.parquet", pa.RecordBatch.from_pydict(rows))
    (tmp_path / second).unlink()
    texts = pa.RecordBatch.from_pydict({"n": ["1"], "t": ["x"]})
    with pytest.raises(Differs, match=rf"{first} has the column n as int64, and it would be string now: readers"):
        FileWriter(place, "s-0", lambda: 0).write(second, texts)


def test_a_person_hears_once_a_minute_of_what_keeps_files_from_being_written(
    own_server: Server, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And it goes on by itself when that is over."""
    send(own_server.bootstrap_servers, topic, range(5))
    monkeypatch.setattr(holder, "MOST_PAUSE_S", 0.02)
    monkeypatch.setattr(holder, "LASTING_PAUSE_S", 0.02)
    lives: list[int] = []

    def full(unfinished: str, path: str) -> bool:
        lives.append(1)
        if len(lives) < 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put_in_place(unfinished, path)

    monkeypatch.setattr("oncelog.runner.storing.place.put_in_place", full)
    filing(topic, tmp_path).run({"bootstrap.servers": own_server.bootstrap_servers}, until="end")
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    cells = [line.partition(" begins again: ")[0] for line in told]
    assert cells and len(cells) == len(set(cells))
    words = (
        r".*, cell \d begins again: \S*orders-files-\d-0-\d.parquet cannot be written: .*No space left.*Make room there"
    )
    assert all(re.fullmatch(words, line) for line in told)
    assert sorted(row["amount"] for row in rows(tmp_path)) == list(range(5))


@pytest.mark.parametrize("is_there", [False, True], ids=["first", "second"])
def test_a_name_is_on_the_disk_before_it_is_told_that_the_file_is_there(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes second tells it too: the first one may have been killed before that."""
    synced: list[tuple[str, bool]] = []
    sync, path = os.fsync, tmp_path / "hour=1" / "a.parquet"

    def syncing(fd: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), path.exists()))
        sync(fd)

    unfinished = tmp_path / "unfinished"
    unfinished.touch()
    if is_there:
        put_in_place(str(unfinished), str(path))
    monkeypatch.setattr(os, "fsync", syncing)
    assert put_in_place(str(unfinished), str(path)) is not is_there
    assert synced == [("unfinished", is_there), ("hour=1", True), (tmp_path.name, True)]
