"""Whether a disk that refused something takes something in again."""

import pytest

from oncelog.log.errors import LogStorageError
from oncelog.log.room import AGAIN_MS, TRIED_BYTES, TRUE_FOR_MS, Room
from tests.log.memory_disk import ENOUGH_BYTES, MemoryDisk
from tests.log.support import open_log, put


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.mkdir("data/orders-0")
    return made


def test_it_is_tried_by_writing_and_nothing_stays(disk: MemoryDisk) -> None:
    assert Room(disk).is_there("data/orders-0", 0)
    disk.capacity_bytes = TRIED_BYTES - 1
    assert not Room(disk).is_there("data/orders-0", 0)
    assert disk.listdir("data/orders-0") == []
    assert not Room(disk).is_there("data/none", 0)


def test_many_logs_that_wait_for_room_ask_the_disk_now_and_then(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    room, before = Room(disk), disk.operations
    disk.capacity_bytes = 0
    for _ in range(2_000):
        assert not room.is_there("data/orders-0", 0)
    once = disk.operations - before
    assert once < 10
    disk.capacity_bytes = ENOUGH_BYTES
    assert not room.is_there("data/orders-0", AGAIN_MS - 1)
    for _ in range(2_000):
        assert room.is_there("data/orders-0", AGAIN_MS)
    assert disk.operations - before < 3 * once
    disk.capacity_bytes = 0
    assert not room.is_there("data/orders-0", AGAIN_MS + TRUE_FOR_MS)
    assert [message.split(": the disk takes ")[1][:7] for message in caplog.messages] == [
        "nothing",
        "somethi",
        "nothing",
    ]


def test_a_log_refuses_until_an_append_or_a_try_succeeds() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    disk.capacity_bytes = 0
    for heal in (lambda: put(log, b"b"), lambda: log.try_disk(AGAIN_MS)):
        with pytest.raises(LogStorageError):
            put(log, b"a")
        assert log.refuses
        disk.capacity_bytes = ENOUGH_BYTES
        heal()
        assert not log.refuses
        disk.capacity_bytes = 0
