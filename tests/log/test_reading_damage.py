"""Readers of a log that has rotted: they are told so, and everything else is served as before."""

from collections.abc import Iterator
from threading import Event

import pytest

from oncelog.log.config import LogConfig
from oncelog.log.errors import Damaged
from oncelog.log.index import ENTRY_BYTES
from oncelog.log.partition import PartitionLog
from oncelog.log.scrubbing import Reached, Rotten, read_stretch
from oncelog.log.segment import Segment
from oncelog.records.header import BatchHeader
from tests.log.memory_disk import MemoryDisk
from tests.log.support import NOW, SMALL, at, open_log, put, values_in

LARGE = LogConfig(retention_ms=-1, index_interval_bytes=300)
COUNT = 60


def filled(config: LogConfig = SMALL) -> tuple[MemoryDisk, PartitionLog]:
    """A log that was closed and opened again, as old segments are."""
    disk = MemoryDisk()
    log = open_log(disk, config)
    for number in range(COUNT):
        put(log, b"%02d" % number, now=at(number))
    log.close()
    return disk, open_log(disk, config)


def zero(disk: MemoryDisk, path: str, start: int = 0) -> None:
    disk.open(path, write=True).pwritev([bytes(disk.size(path) - start)], start)


def told(log: PartitionLog) -> set[int]:
    """The offsets of which a reader is told that they are damaged; all others must be right."""
    found = set()
    for offset in range(log.log_start_offset, log.next_offset):
        try:
            data = log.read(offset, 1)
        except Damaged:
            found.add(offset)
        else:
            assert b"%02d" % offset in data, offset
    return found


def test_readers_of_a_zeroed_segment_are_told_and_the_others_are_served() -> None:
    disk, log = filled()
    segment = log.segments[2]
    zero(disk, segment.log_path)
    assert told(log) == set(range(segment.base_offset, segment.end_offset))


@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_a_wrong_offset_of_one_batch_keeps_no_other_from_its_readers(config: LogConfig) -> None:
    for bit in (62, 40, 10):
        for offset in range(COUNT - 1):  # behind the last one nothing tells which of the two is wrong
            disk, log = filled(config)
            segment = log.segments[log.segments.number_of(offset)]
            place = segment.find(offset)
            assert place is not None
            disk.flip(segment.log_path, place[0] + 7 - bit // 8, bit % 8)
            assert told(log) == {offset}, (bit, offset)


@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_an_offset_that_is_wrong_by_little_hands_nobody_the_records_of_another(config: LogConfig) -> None:
    for first in range(0, COUNT, 5):
        for byte, bit in ((7, 0), (7, 1), (7, 2), (26, 2)):  # of the base offset; the last one's delta becomes 0
            log = open_log(disk := MemoryDisk(), config)
            for number in range(0, COUNT, 5):
                put(log, *(b"%02d" % each for each in range(number, number + 5)))
            segment = log.segments[log.segments.number_of(first)]
            place = segment.find(first)
            assert place is not None
            disk.flip(segment.log_path, place[0] + byte, bit)
            assert told(log) == set(range(first + (byte != 7), first + 5)), (first, byte, bit)


def test_an_index_that_names_a_later_place_hides_nothing_of_a_segment_with_gaps() -> None:
    disk, log = filled(LARGE)
    segment = log.segments[0]
    segment.has_gaps = True
    one, later = (segment.index.entry(number) for number in (2, 3))
    index = disk.open(segment.index.path, write=True)
    index.pwritev([later.position.to_bytes(8, "big")], 2 * ENTRY_BYTES + 8)
    segment.forget_handles()
    assert segment.index.at_offset(one.offset).position == later.position
    assert told(log) == set()


@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "second", "active"])
def test_a_wrong_offset_of_the_only_batch_of_a_segment_with_gaps_is_told(number: int) -> None:
    """Whatever stands there may follow a gap: no other batch contradicts it, and readers would wait for it for ever."""
    config = LogConfig(segment_bytes=70, retention_ms=-1, cleanup_policy=("compact",))
    disk = MemoryDisk()
    log = open_log(disk, config)
    for value in range(8):
        put(log, b"%02d" % value, key=b"k%d" % (value % 3))
    assert log.compact(NOW)
    log.close()
    log = open_log(disk, config)
    segment = log.segments[number]
    (header,) = (header for _, header in segment.walk())
    disk.flip(segment.log_path, 7, bit=6)
    with pytest.raises(Damaged):
        log.read(header.base_offset, 1)


def test_readers_of_two_segments_that_changed_places_are_told() -> None:
    disk, log = filled()
    one, other = log.segments[1], log.segments[3]
    assert one.size_bytes == other.size_bytes
    first, second = (disk.open(each.log_path).pread(1 << 20, 0) for each in (one, other))
    disk.open(one.log_path, write=True).pwritev([second], 0)
    disk.open(other.log_path, write=True).pwritev([first], 0)
    gone = {*range(one.base_offset, one.end_offset), *range(other.base_offset, other.end_offset)}
    assert told(log) == gone
    again = open_log(disk.crash(keep_all=True))
    assert again.offline is None  # a start knows closed segments by their sizes
    assert told(again) == gone


@pytest.mark.parametrize(("field", "bit"), [(0, 6), (6, 0), (7, 0), (8, 7), (8, 6), (10, 5), (12, 6), (14, 3), (16, 0)])
def test_a_header_that_cannot_be_the_asked_for_one_is_told(field: int, bit: int) -> None:
    """Base offset, length, leader epoch and magic: none of them is covered by what a consumer checks."""
    for number in (0, 3, 17):
        disk, log = filled(LARGE)
        place = log.segments[0].find(number)
        assert place is not None
        disk.flip(log.segments[0].log_path, place[0] + field, bit)
        with pytest.raises(Damaged):
            log.read(number, 1)


def test_an_index_outlives_the_search_for_what_has_rotted() -> None:
    disk, log = filled(LARGE)
    segment = log.segments[0]
    before = disk.open(segment.index.path).pread(1 << 20, 0)
    zero(disk, segment.log_path, segment.size_bytes // 2)
    gone = told(log)
    assert max(gone) == COUNT - 1 and min(gone) == COUNT // 2
    assert disk.open(segment.index.path).pread(1 << 20, 0) == before


def test_a_segment_that_cannot_be_walked_through_is_walked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, log = filled(LARGE)
    zero(disk, log.segments[0].log_path)
    walks: list[int] = []
    walk = Segment.walk

    def counted(segment: Segment, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        walks.append(position)
        return walk(segment, position, end)

    monkeypatch.setattr(Segment, "walk", counted)
    assert told(log) == set(range(COUNT)) and len(walks) == 1


def test_damage_that_is_told_often_grows_no_more_each_time() -> None:
    """An error that is raised again keeps the frames of all times before, and what they held."""
    disk, log = filled(LARGE)
    zero(disk, log.segments[0].log_path)
    frames = []
    for _ in range(3):
        with pytest.raises(Damaged) as told_so:
            log.segments[0].rebuild_index(1)
        frames.append(len(told_so.traceback))
    assert frames[1] == frames[2]


def test_a_place_that_was_found_rotten_is_kept_from_readers_and_the_rest_is_not() -> None:
    disk, log = filled(LARGE)
    segment = log.segments[0]
    place = segment.find(20)
    assert place is not None
    disk.flip(segment.log_path, place[0] + 63)  # in a body: no header shows it
    segment.rots(place[0], place[0] + place[1])
    assert told(log) == {20}
    assert len(log.read(15, 1 << 20)) == 5 * place[1]  # up to there, not over it
    assert len(log.read(21, 1 << 20)) == (COUNT - 21) * place[1]


def scrub(disk: MemoryDisk, log: PartitionLog) -> dict[str, list[Rotten]]:
    found: dict[str, list[Rotten]] = {}
    for segment in log.segments:
        place = Reached(0, segment.base_offset)
        while place.position < segment.size_bytes:
            stretch = read_stretch(disk, segment.log_path, place, segment.size_bytes, segment.has_gaps, lambda: None)
            assert stretch.reached.position > place.position
            place = stretch.reached
            if stretch.rotten:
                found.setdefault(segment.log_path, []).extend(stretch.rotten)
    return found


def test_reading_what_is_stored_again_finds_every_flipped_byte_of_a_batch() -> None:
    disk, log = filled(LARGE)
    path = log.segments[0].log_path
    place = log.segments[0].find(20)
    assert place is not None and scrub(disk, log) == {}
    for at_byte in range(place[1]):
        disk.flip(path, place[0] + at_byte, at_byte % 8)
        if not 12 <= at_byte < 16:  # nothing covers a leader epoch
            (rotten, *_) = scrub(disk, log)[path]
            assert rotten.position == place[0], at_byte
        disk.flip(path, place[0] + at_byte, at_byte % 8)
    assert scrub(disk, log) == {}


def test_zeros_and_swapped_files_are_found_by_reading_again() -> None:
    disk, log = filled()
    segment = log.segments[1]
    zero(disk, segment.log_path, 70)
    ((rotten,),) = scrub(disk, log).values()
    assert (rotten.end, rotten.position <= 70) == (segment.size_bytes, True)


def test_the_interpreter_is_offered_to_others_while_it_reads() -> None:
    disk, log = filled(LARGE)
    segment = log.segments[0]
    turns = []
    read_stretch(disk, segment.log_path, Reached(0, 0), segment.size_bytes, False, lambda: turns.append(Event()))
    assert len(turns) >= COUNT // 32


def test_what_compaction_left_is_whole_and_its_gaps_are_no_damage() -> None:
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=600, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, retention_ms=-1)
    log = open_log(disk, config)
    for number in range(60):
        put(log, b"%02d" % number, key=b"%d" % (number % 3))
    assert log.compact(NOW)
    left = values_in(log)
    assert scrub(disk, log) == {} and log.read(0, 1)
    disk = disk.crash(keep_all=True)
    log = open_log(disk, config)
    assert scrub(disk, log) == {} and values_in(log) == left and log.read(0, 1)
