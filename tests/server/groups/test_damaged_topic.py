"""Groups whose part of `__consumer_offsets` cannot be read: they are told to try again, never that they had nothing."""

import pytest

from oncelog.records.build import build_batch
from oncelog.records.header import stamp
from oncelog.server.coordinator_topic import partition_of_name as partition_of_group
from oncelog.server.errors import ErrorCode
from tests.log.memory_disk import MemoryDisk
from tests.server.groups.support import House, join_request

GROUP, OTHER = "g", "h"  # in different partitions
FOLDER = "/data/__consumer_offsets-"


def stopped() -> tuple[MemoryDisk, str]:
    disk = MemoryDisk()
    house = House("offsets.topic.num.partitions=2", disk=disk)
    house.make_topic("t")
    for offset in range(60):
        house.commit(GROUP, "t", offset)
        house.commit(OTHER, "t", offset)
    house.groups.stop()
    house.topics.close()
    return disk, f"{FOLDER}{partition_of_group(GROUP, 2)}/{0:020d}"


def damage(disk: MemoryDisk, stem: str, how: str) -> None:
    batch_bytes = disk.size(stem + ".log") // 60
    if how == "short":
        disk.open(stem + ".log", write=True).truncate(batch_bytes * 60 - 5)
    elif how == "gone":
        disk.unlink(stem + ".log")
    else:
        position = {"offset up": 1, "offset down": 7, "length": 9, "body": batch_bytes - 3}[how]
        disk.flip(stem + ".log", batch_bytes * 30 + position, bit=1)


@pytest.mark.parametrize("how", ["short", "gone", "offset up", "offset down", "length", "body"])
async def test_a_group_whose_offsets_are_damaged_is_told_to_try_again(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, stem = stopped()
    assert partition_of_group(GROUP, 2) != partition_of_group(OTHER, 2)
    damage(disk, stem, how)
    house = House("offsets.topic.num.partitions=2", disk=disk)
    now = house.clock.now()
    assert house.groups.settled(GROUP) is ErrorCode.not_coordinator
    assert house.groups.check_commit(GROUP, "", None, -1, now) is ErrorCode.not_coordinator
    assert house.commit(GROUP, "t", 99) is ErrorCode.not_coordinator
    answer = house.groups.join(GROUP, join_request(), now)
    assert getattr(answer, "error", None) is ErrorCode.not_coordinator
    assert house.groups.heartbeat(GROUP, "m", None, 1, now) is ErrorCode.not_coordinator
    assert house.groups.check_delete_offsets(GROUP) is ErrorCode.not_coordinator
    assert house.delete_group(GROUP) is ErrorCode.not_coordinator
    assert house.offset(GROUP, "t") is None and GROUP not in house.groups.groups
    assert stem.rpartition("/")[0] in caplog.text
    # The others have all of theirs, also when old ones are looked through.
    assert house.groups.settled(OTHER) is ErrorCode.none
    assert house.offset(OTHER, "t") == 59
    house.timers.advance(8 * 24 * 3_600_000)
    assert house.offset(OTHER, "t") is None


def test_records_without_a_key_are_none_of_its_own_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Another topic's log stands in the place of this one, perhaps."""
    disk, stem = stopped()
    data = build_batch([(None, b"of another topic", (), None)] * 3, timestamp_ms=0)
    stamp(data, 0, 60, 1)
    file = disk.open(stem + ".log", write=True)
    file.pwritev([data], file.size())
    house = House("offsets.topic.num.partitions=2", disk=disk)
    assert house.groups.settled(GROUP) is ErrorCode.none
    assert house.offset(GROUP, "t") == 59
    assert "3 records of __consumer_offsets cannot be read" in caplog.text


def test_a_wrong_byte_in_the_index_costs_no_group_its_offsets() -> None:
    disk, stem = stopped()
    size_bytes = disk.size(stem + ".index")
    assert size_bytes >= 24
    whole = disk.open(stem + ".index").pread(size_bytes, 0)
    for position in range(16):
        disk.open(stem + ".index", write=True).pwritev([whole], 0)
        disk.flip(stem + ".index", position, bit=6)
        house = House("offsets.topic.num.partitions=2", disk=disk)
        assert house.groups.settled(GROUP) is ErrorCode.none
        assert house.offset(GROUP, "t") == 59
        house.groups.stop()
        house.topics.close()
