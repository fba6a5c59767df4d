"""What a topic's settings cannot make one append, one read or one look cost."""

from array import array
from dataclasses import replace

from oncelog.log.config import MOST_INTERVAL_BYTES
from oncelog.log.handles import LARGE_SEGMENT_BYTES, Handles, Pace, Page
from oncelog.log.partition import PartitionLog
from oncelog.producers import ProducerMap
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, NOW, SMALL, at, open_log, put, values_in

TINY = replace(SMALL, segment_bytes=14)


def test_small_segments_are_closed_at_a_pace_that_all_logs_share() -> None:
    disk = MemoryDisk()
    handles = Handles(disk, pace=Pace(burst=3, pause_ms=100))
    logs = [
        PartitionLog.open(disk, f"{FOLDER}{name}", TINY, ProducerMap(), NOW, handles=handles) for name in ("a", "b")
    ]
    for number in range(5):
        for log in logs:
            put(log, b"%d" % number)
    assert sum(len(log.segments) for log in logs) == 2 + 3
    for late_ms, more in ((99, 0), (100, 1), (101, 0), (300, 2)):
        before = len(logs[0].segments)
        for _ in range(4):
            put(logs[0], b"later", now=at(late_ms))
        assert len(logs[0].segments) == before + more, late_ms
    assert values_in(logs[1]) == [b"%d" % number for number in range(5)]
    assert [log.size_bytes for log in logs] == [sum(each.size_bytes for each in log.segments) for log in logs]


def test_large_segments_are_closed_when_they_are_full() -> None:
    pace = Pace(burst=1, pause_ms=1_000_000)
    assert [pace.allows(size_bytes, NOW) for size_bytes in (1, 1, LARGE_SEGMENT_BYTES)] == [True, False, True]


def test_no_interval_of_an_index_makes_a_read_walk_over_all_of_a_segment() -> None:
    config = replace(SMALL, segment_bytes=2**30, index_interval_bytes=2**31 - 1)
    log = open_log(MemoryDisk(), config)
    kilobytes = bytes(2**16)
    for _ in range(40):
        put(log, kilobytes)
    index = log.segments[0].index
    places = [index.entry(number).position for number in range(index.entries)]
    assert max(b - a for a, b in zip(places, [*places[1:], log.size_bytes], strict=True)) < 2 * MOST_INTERVAL_BYTES


def test_a_folder_that_is_let_go_takes_its_own_files_and_no_others() -> None:
    disk = MemoryDisk()
    handles = Handles(disk, limit=3)
    for folder in ("a", "ab"):
        disk.mkdir(folder)
    for path in ("a/1", "ab/1", "a/2", "a/3"):
        handles.get(path, create=True)
    page = Page(0, (array("q"), array("q"), array("q")))
    for path in ("a/1", "ab/1"):
        handles.keep_page(path, page)
    kept = handles.get("ab/1")
    handles.forget_folder("a")
    assert handles.page("a/1") is None
    assert handles.page("ab/1") is page
    assert handles.get("ab/1") is kept
