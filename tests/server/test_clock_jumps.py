"""A wall clock that is set while the server runs: what lasts so long is counted on the other clock.

What compares timestamps of records with the present believes the wall clock, as in Kafka: retention, and the expiry of
committed offsets.
"""

from copy import deepcopy
from dataclasses import replace

import pytest

from oncelog.clock import DAY_MS, Now
from oncelog.log.config import TimestampType
from oncelog.producers import Decision
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.state import State
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, SMALL, START_MS, open_log, put, values_in
from tests.producers.partition import Answer, Granted, Partition
from tests.server.groups.support import SESSION_MS, House, joined
from tests.server.groups.test_coordinator import LOOK_MS, synced

YEAR_MS = 365 * DAY_MS
KAFKA_PID = 2**32 + 1
JUMPS = pytest.mark.parametrize("jump_ms", [-YEAR_MS, YEAR_MS], ids=["back", "ahead"])


@JUMPS
def test_no_producer_is_forgotten_or_kept_longer(jump_ms: int) -> None:
    partition = Partition(Granted({7: 0}))
    clock = partition.clock
    for pid in (7, KAFKA_PID):
        assert partition.send(pid, 1, 0, "a").decision is Decision.APPEND
    clock.set_wall(clock.now().wall_ms + jump_ms)
    clock.advance(DAY_MS - 1)
    assert partition.map.expire(clock.now()) == 0
    assert partition.send(7, 1, 0, "a") == Answer(Decision.DUPLICATE, 0)
    assert partition.send(KAFKA_PID, 1, 0, "a") == Answer(Decision.DUPLICATE, 1)
    assert partition.send(7, 1, 1, "b").decision is Decision.APPEND
    clock.advance(2 * DAY_MS)
    assert partition.map.expire(clock.now()) == 2


@JUMPS
async def test_no_member_is_sent_away_and_none_stays(jump_ms: int) -> None:
    house = House()
    await synced(house, await joined(house))
    house.clock.set_wall(house.clock.now().wall_ms + jump_ms)
    house.timers.advance(SESSION_MS - 1)
    assert house.groups.heartbeat("g", "m1", None, 1, house.clock.now()) is ErrorCode.none
    house.timers.advance(SESSION_MS - 1)
    states = [house.groups.groups["g"].state]
    house.timers.advance(1)
    assert [*states, house.groups.groups["g"].state] == [State.STABLE, State.EMPTY]


@pytest.mark.parametrize("stamps", TimestampType)
def test_a_log_goes_on_when_the_clock_is_set_back_and_nothing_is_removed(stamps: TimestampType) -> None:
    config = replace(SMALL, retention_ms=DAY_MS, message_timestamp_type=stamps)
    disk = MemoryDisk()
    log = open_log(disk, config)
    now = Now(START_MS, 0)
    for number in range(40):
        if number == 20:
            now = Now(START_MS - YEAR_MS, 1)
        put(log, b"%d" % number, pid=LEASED, sequence=number, now=now, timestamp_ms=now.wall_ms)
        log.maintain(now)
    for opened in (log, open_log(deepcopy(disk).crash(keep_all=True), config, now)):
        assert values_in(opened) == [b"%d" % number for number in range(40)]
        found = opened.offset_for_time(START_MS)
        assert found is not None and found.offset == 0
    late = Now(START_MS + 2 * DAY_MS, 2)  # set right again: all of it is old now
    log.maintain(late)
    assert log.log_start_offset == 40


def test_offsets_stay_when_the_clock_is_set_back_and_then_age_from_when_it_is_right() -> None:
    house = House()
    house.make_topic("t")
    house.commit("g", "t", 5)
    right_ms = house.clock.now().wall_ms
    house.clock.set_wall(right_ms - YEAR_MS)
    house.timers.advance(LOOK_MS)
    assert house.offset("g", "t") == 5
    house.clock.set_wall(right_ms + 6 * DAY_MS)
    house.timers.advance(LOOK_MS)
    assert house.offset("g", "t") == 5
    house.clock.set_wall(right_ms + 8 * DAY_MS)
    house.timers.advance(LOOK_MS)
    assert house.offset("g", "t") is None
