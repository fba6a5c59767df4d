"""Rot in what is stored: nothing that was flushed and acknowledged is cut off, and a check says what a start will do.

Histories and damage are drawn from seeds. A failure names its seed; `ONCELOG_SEED` begins elsewhere.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest

from oncelog.log.config import Flush, LogConfig
from oncelog.log.cutting import cut_back
from oncelog.log.errors import LogStorageError
from oncelog.log.knowledge import known_of, opened_of
from oncelog.log.names import log_path, snapshot_path
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.log.search import whole_behind
from oncelog.log.verdict import Ending, Known, Written, damage_of
from oncelog.records.errors import InvalidRecord
from tests.log.memory_disk import MemoryDisk
from tests.log.support import (
    FOLDER,
    LEASED,
    NOW,
    SMALL,
    check_refused,
    contents,
    note_end,
    open_log,
    put,
    put_in_the_place_of,
    records_in,
    seed,
    values_in,
)

LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
EVERY = replace(SMALL, flush=Flush.EVERY)
LARGE_EVERY = replace(LARGE, flush=Flush.EVERY)
SEEDS = 250


@dataclass
class Story:
    """A log that was written and killed, and what the world was promised of it."""

    disk: MemoryDisk
    config: LogConfig
    stayed_up: bool
    promised: int  # everything below it must never be cut off silently
    values: list[bytes]


def story(chance: random.Random) -> Story:
    flush = chance.choice((Flush.OS, Flush.EVERY, Flush.EVERY))
    config = replace(chance.choice((SMALL, LARGE)), flush=flush)
    disk = MemoryDisk(chance.getrandbits(32))
    log, promised, noted, values = open_log(disk, config), 0, 0, list[bytes]()
    for number in range(chance.randint(1, 60)):
        value = b"%d" % number * chance.choice((1, 1, 1, 40))
        values.append(value)
        put(log, value, pid=LEASED, sequence=number)
        if flush is Flush.EVERY and chance.random() < 0.5:
            log.flush()
            promised = log.next_offset
        if chance.random() < 0.04:
            if chance.random() < 0.5:
                log.segments.roll()
            log.checkpoint(NOW)
            promised = log.next_offset
        if chance.random() < 0.1:
            note_end(log)
            noted = log.next_offset
        if chance.random() < 0.02:
            log = open_log(disk, config, stayed_up=True)
            assert log.offline is None
    stayed_up = chance.random() < 0.6
    promised = max(promised, noted) if stayed_up else promised
    return Story(disk.crash(keep_all=stayed_up), config, stayed_up, promised, values)


def harm(disk: MemoryDisk, chance: random.Random) -> str:
    logs = [f"{FOLDER}/{name}" for name in disk.listdir(FOLDER) if name.endswith(".log")]
    if not logs:
        return "found no log"
    path = chance.choice([*logs, logs[-1]])
    size_bytes = disk.size(path)
    how = chance.choice(("flip", "flip", "flip", "truncate", "remove", "zero", "nothing"))
    if how == "flip" and size_bytes:
        position = chance.randrange(size_bytes)
        disk.flip(path, position, chance.randrange(8))
        return f"flipped {path} at {position}"
    if how == "truncate":
        kept = chance.randint(0, size_bytes)
        disk.open(path, write=True).truncate(kept)
        return f"truncated {path} to {kept} of {size_bytes}"
    if how == "remove":
        disk.unlink(path)
        if chance.random() < 0.5 and disk.exists(path.replace(".log", ".index")):
            disk.unlink(path.replace(".log", ".index"))
        return f"removed {path}"
    if how == "zero" and size_bytes:
        start = chance.randrange(size_bytes)
        count = chance.randint(1, size_bytes - start)
        disk.open(path, write=True).pwritev([bytes(count)], start)
        return f"zeroed {path} from {start}, {count} bytes"
    return "left it alone"


def has_whole_behind(files: dict[str, bytes], offset: int) -> bool:
    disk = MemoryDisk()
    for name, data in files.items():
        disk.mkdir(FOLDER)
        disk.open(f"{FOLDER}/{name}", create=True).pwritev([data], 0)
    logs = sorted(f"{FOLDER}/{name}" for name in files if name.endswith(".log"))
    return bool(whole_behind(disk, logs, 0, offset))


def readable(log: PartitionLog) -> list[bytes | None]:
    """What a consumer reads that checks CRCs, up to where it is told of damage."""
    found: list[bytes | None] = []
    try:
        for record in records_in(log, 1):
            found.append(record.value)
    except (LogStorageError, InvalidRecord):
        pass
    return found


def test_nothing_flushed_is_cut_off_and_a_check_says_what_a_start_will_do() -> None:
    outcomes = dict.fromkeys(("whole", "cut", "offline", "below", "gap"), 0)
    for number in range(seed(), seed() + SEEDS):
        chance = random.Random(number)
        told = story(chance)
        what = f"ONCELOG_SEED={number}: {told.config.flush}, stayed up {told.stayed_up}, {harm(told.disk, chance)}"
        before = contents(told.disk)
        names = told.disk.listdir(FOLDER)
        known = known_of(told.disk, FOLDER, names, opened_of(told.disk, FOLDER, names), told.stayed_up)
        checked = check_partition(deepcopy(told.disk), FOLDER, stayed_up=told.stayed_up)
        log = open_log(told.disk, told.config, stayed_up=told.stayed_up)
        if log.offline is not None:
            assert checked.damage, f"{what}: a start says {log.offline}"
            assert contents(told.disk) == before, f"{what}: an offline log was changed"
            outcomes["offline"] += 1
            continue
        if not told.stayed_up and not log.next_offset >= told.promised:
            # The one gap: the very end rotted, and the power failure took the newest note of what was flushed.
            assert log.next_offset >= known.durable_offset and not has_whole_behind(before, log.next_offset), what
            outcomes["gap"] += 1
        else:
            assert log.next_offset >= told.promised, f"{what}: ends at {log.next_offset} of {told.promised}"
        assert readable(log) == told.values[: len(readable(log))], what
        if not checked.damage:
            assert checked.end_offset == log.next_offset, f"{what}: {checked.notes}"
            assert not log.recovered.cut_bytes or any("cuts off" in note for note in checked.notes), what
            assert values_in(log) == told.values[: log.next_offset], what
            outcomes["cut" if log.recovered.cut_bytes else "whole"] += 1
        else:  # below the recovery point, where a start does not look
            outcomes["below"] += 1
    assert outcomes["gap"] < 5 < min(count for outcome, count in outcomes.items() if outcome != "gap"), outcomes


@pytest.mark.parametrize("flush", [Flush.OS, Flush.EVERY])
@pytest.mark.parametrize("stayed_up", [True, False])
def test_of_a_log_that_was_only_killed_nothing_is_ever_cut_off(flush: Flush, stayed_up: bool) -> None:
    for number in range(seed(), seed() + 20):
        disk = MemoryDisk(number)
        log = open_log(disk, replace(SMALL, flush=flush))
        for value in range(30):
            put(log, b"%d" % value, pid=LEASED, sequence=value)
            if value % 7 == number % 7:
                log.flush()
        again = open_log(disk.crash(keep_all=True), replace(SMALL, flush=flush), stayed_up=stayed_up)
        assert (again.offline, again.next_offset, again.recovered.cut_bytes) == (None, 30, 0)


def flushed(count: int = 40) -> tuple[MemoryDisk, PartitionLog]:
    disk = MemoryDisk()
    log = open_log(disk, EVERY)
    for number in range(count):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
        log.flush()
    assert len(log.segments) > 3
    return disk, log


@pytest.mark.parametrize("stayed_up", [True, False])
def test_a_flipped_byte_in_a_closed_segment_behind_the_recovery_point_takes_the_partition_offline(
    stayed_up: bool,
) -> None:
    disk, log = flushed()
    found = disk.crash(keep_all=True)
    found.flip(log.segments[1].log_path, 65)
    before = contents(found)
    again = open_log(found, EVERY, stayed_up=stayed_up)
    offset = log.segments[1].base_offset
    assert again.offline is not None and f"--cut orders-0:{offset}`" in again.offline
    assert "`oncelog check --data data`" in again.offline and "is wrong" in again.offline
    assert contents(found) == before


@pytest.mark.parametrize("stayed_up", [True, False])
def test_a_last_segment_that_is_gone_is_missed(stayed_up: bool) -> None:
    disk, log = flushed()
    found = disk.crash(keep_all=True)
    found.unlink(log.segments.active.log_path)
    found.unlink(log.segments.active.index.path)
    again = open_log(found, EVERY, stayed_up=stayed_up)
    assert again.offline is not None and "Records up to offset 40 were on the disk" in again.offline


@pytest.mark.parametrize("count", [1, 40], ids=["the only one", "the last"])
def test_a_last_segment_of_which_the_index_is_left_is_missed_though_nothing_was_flushed(count: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    for number in range(count):
        put(log, b"%d" % number)
    found = disk.crash(keep_all=True)
    base, path = log.segments.active.base_offset, log.segments.active.log_path
    found.unlink(path)
    before = contents(found)
    name = path.rpartition("/")[2]
    assert check_partition(found, FOLDER, stayed_up=True).damage == [f"{name} is missing, and its index is there"]
    again = open_log(found, SMALL, stayed_up=True)
    assert again.offline is not None and name in again.offline and contents(found) == before
    if base:
        assert f"--cut orders-0:{base}`" in again.offline
        cut_back(found, FOLDER, base)
    else:
        assert "empty the folder" in again.offline
        for each in found.listdir(FOLDER):
            found.unlink(f"{FOLDER}/{each}")
    again = open_log(found, SMALL, stayed_up=True)
    assert (again.offline, again.next_offset) == (None, base)


def test_a_last_segment_that_is_gone_is_missed_also_after_a_power_failure() -> None:
    for number in range(20):
        disk = MemoryDisk(number)
        log = open_log(disk, EVERY)
        for value in range(40):
            put(log, b"%d" % value, pid=LEASED, sequence=value)
            log.flush()
        found = disk.crash()
        found.unlink(log.segments.active.log_path)
        assert open_log(found, EVERY).offline is not None, f"seed {number}"


@pytest.mark.parametrize("active", ["empty", "written to since"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_segments_that_are_missing_below_a_flush_of_an_empty_one_are_missed(lost: int, active: str) -> None:
    """Such a flush leaves a recovery point with the name and the place of the snapshot that retention leaves."""
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    while len(log.segments) < 4:
        put(log, b"x" * 20)
    log.segments.roll()
    log.checkpoint(NOW)
    if active != "empty":
        put(log, b"more")
        log.checkpoint(NOW)
    bases = log.segments.bases
    assert disk.exists(snapshot_path(FOLDER, bases[-1]))
    found = disk.crash(keep_all=True)
    assert open_log(deepcopy(found), SMALL).offline is None
    for base in bases[:lost]:
        found.unlink(log_path(FOLDER, base))
    assert f"the segments before offset {bases[lost]} are missing" in check_partition(found, FOLDER).damage
    before = contents(found)
    log = open_log(found, SMALL)
    assert log.offline is not None and f"lacks the segments before {bases[lost]}" in log.offline
    assert contents(found) == before


@pytest.mark.parametrize("how", ["lost", "cut short"])
def test_what_is_missing_before_an_empty_segment_is_no_torn_write_on_a_machine_that_ran_on(how: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    while len(log.segments) < 3:
        put(log, b"x" * 20)
    log.segments.roll()
    found = disk.crash(keep_all=True)
    last = log.segments[2]
    if how == "lost":
        found.unlink(last.log_path)
    else:
        found.open(last.log_path, write=True).truncate(last.size_bytes - 1)
    before = contents(found)
    assert check_partition(found, FOLDER, stayed_up=True).damage
    again = open_log(found, SMALL, stayed_up=True)
    assert again.offline is not None and f"--cut orders-0:{last.base_offset}" in again.offline
    assert contents(found) == before
    assert open_log(found, SMALL).offline is None  # a power failure leaves the same


def test_what_a_machine_that_stopped_left_of_unflushed_writes_is_cut_off_wherever_whole_batches_follow() -> None:
    def ended(stayed_up: bool) -> PartitionLog:
        disk = MemoryDisk()
        log = open_log(disk, LARGE)
        for number in range(20):
            put(log, b"%d" % number)
        place = log.segments[0].find(10)
        assert place is not None
        found = disk.crash(keep_all=True)
        found.flip(log.segments[0].log_path, place[0] + 65)
        return open_log(found, LARGE, stayed_up=stayed_up)

    assert (ended(False).offline, ended(False).next_offset) == (None, 10)
    offline = ended(True).offline
    assert offline is not None and "Whole batches follow it" in offline


def test_a_whole_batch_in_a_later_segment_counts_too() -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    while len(log.segments) < 2:
        put(log, b"value")
    closed, active = log.segments
    place = closed.find(closed.end_offset - 1)
    assert place is not None and place[0] > active.size_bytes
    found = disk.crash(keep_all=True)
    found.flip(closed.log_path, place[0] + 65)
    offline = open_log(found, SMALL, stayed_up=True).offline
    assert offline is not None and f"({active.log_path.rpartition('/')[2]} at byte 0)" in offline


@pytest.mark.parametrize("at", [12, 13, 15], ids=["high byte", "next", "low byte"])
def test_a_leader_epoch_that_grew_does_not_make_a_torn_write_of_what_follows(at: int) -> None:
    disk, log = flushed()
    found = disk.crash(keep_all=True)
    found.flip(log.segments[1].log_path, at, bit=4)
    assert open_log(found, EVERY, stayed_up=True).offline is not None


def test_a_note_of_what_is_flushed_that_is_damaged_is_passed_over() -> None:
    disk, _ = flushed()
    found = disk.crash(keep_all=True)
    for position in range(found.size(f"{FOLDER}/flushed")):
        harmed = deepcopy(found)
        harmed.flip(f"{FOLDER}/flushed", position)
        checked = check_partition(harmed, FOLDER)
        assert (checked.damage, len(checked.notes)) == ([], 1), checked
        assert open_log(harmed, EVERY).next_offset == 40


@pytest.mark.parametrize("stayed_up", [True, False])
@pytest.mark.parametrize("count", [40, 60], ids=["as long", "longer"])
def test_another_partitions_log_in_the_place_of_what_was_flushed_is_seen(count: int, stayed_up: bool) -> None:
    """Before any recovery point, and before it was noted for the first time how far the log is."""
    disk, other = MemoryDisk(), MemoryDisk()
    log, another = open_log(disk, LARGE_EVERY), open_log(other, LARGE_EVERY)
    for number in range(40):
        put(log, b"%d" % number)
    log.flush()
    for number in range(count):
        put(another, b"of another %d" % number)
    path = log.segments.active.log_path
    data = other.open(another.segments.active.log_path).pread(1 << 20, 0)
    found = disk.crash(keep_all=stayed_up)
    put_in_the_place_of(path, found, data)
    check_refused(found, LARGE_EVERY, "is not what was written: offset 39", stayed_up=stayed_up)


def test_a_log_that_is_cut_back_forgets_what_was_flushed() -> None:
    for number in range(20):
        disk = MemoryDisk(number)
        log = open_log(disk, EVERY)
        for value in range(40):
            put(log, b"%d" % value)
        log.flush()
        log.truncate_to(25)
        put(log, b"25")
        assert open_log(disk.crash(), EVERY).offline is None, f"seed {number}"


# What a person decides


def harmed(change: Callable[[MemoryDisk, PartitionLog], None]) -> MemoryDisk:
    disk, log = flushed()
    found = disk.crash(keep_all=True)
    change(found, log)
    return found


HARM: dict[str, Callable[[MemoryDisk, PartitionLog], None]] = {
    "flip": lambda disk, log: disk.flip(log.segments[1].log_path, 65),
    "zero": lambda disk, log: _zero(disk, log.segments[1].log_path),
    "remove": lambda disk, log: disk.unlink(log.segments[1].log_path),
    "remove the last": lambda disk, log: disk.unlink(log.segments.active.log_path),
}


def _zero(disk: MemoryDisk, path: str) -> None:
    disk.open(path, write=True).pwritev([bytes(disk.size(path))], 0)


@pytest.mark.parametrize("how", HARM)
def test_the_command_that_the_message_names_brings_the_partition_back_up_to_there(how: str) -> None:
    found = harmed(HARM[how])
    offline = open_log(found, EVERY, stayed_up=True).offline
    assert offline is not None
    offset = int(offline.rpartition("--cut orders-0:")[2].rstrip("`"))
    assert cut_back(found, FOLDER, offset) >= 0
    again = open_log(found, EVERY, stayed_up=True)
    assert (again.offline, again.next_offset) == (None, offset)
    assert values_in(again) == [b"%d" % number for number in range(offset)]
    assert check_partition(found, FOLDER).damage == []
    assert put(again, b"again", pid=LEASED, sequence=offset).base_offset == offset


def test_a_cut_below_a_recovery_point_takes_that_along() -> None:
    disk, log = flushed()
    log.checkpoint(NOW)
    found = disk.crash(keep_all=True)
    found.unlink(log.segments.active.log_path)
    assert open_log(found, EVERY).offline is not None
    offset = log.segments.active.base_offset
    cut_back(found, FOLDER, offset)
    again = open_log(found, EVERY)
    assert (again.offline, again.next_offset) == (None, offset)


def test_a_cut_below_what_says_that_segments_were_removed_keeps_that() -> None:
    disk, log = flushed()
    deleting = log.deleting_before(log.segments[3].base_offset)
    while not log.segments.first_offset:  # and a kill before the others go
        wait = next(deleting)
        if wait is not None:
            wait()
    first, second = log.segments.bases[:2]
    found = disk.crash(keep_all=True)
    cut_back(found, FOLDER, second)
    assert check_partition(found, FOLDER).damage == []
    again = open_log(found, EVERY)
    assert (again.offline, again.log_start_offset, again.next_offset) == (None, first, second)


def test_a_cut_goes_only_where_a_batch_ends() -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    put(log, b"0", b"1", b"2")
    log.delete_before(1)
    log.close()
    for offset, reason in ((2, "a batch goes from 0 to 2"), (9, "up to offset 3"), (0, "no record before")):
        with pytest.raises(LogStorageError, match=reason):
            cut_back(disk, FOLDER, offset)
    assert cut_back(disk, FOLDER, 3) == 0
    assert open_log(disk, SMALL).next_offset == 3


def test_the_verdict_is_a_table() -> None:
    def verdict(offset: int, behind: bool, flushed_offset: int, stayed_up: bool) -> bool:
        ending = Ending("data/a-0/0.log", 0, offset, "it is wrong", "0.log at byte 9" if behind else "")
        return bool(damage_of(ending, Known(10, Written(flushed_offset), stayed_up)))

    assert verdict(9, False, -1, False) and verdict(19, False, 20, False)
    assert not any(verdict(20, False, flushed, up) for flushed in (-1, 20) for up in (False, True))
    assert verdict(20, True, -1, True) and verdict(20, True, 15, False)
    assert not verdict(20, True, -1, False) and not verdict(20, True, 10, False)
    begun = [
        damage_of(Ending("data/a-0/0.log", 0, 20, "it is wrong"), Known(10, Written(), up, 21)) for up in (True, False)
    ]
    assert begun[0] and not begun[1]
