"""A producer in transactions, killed with the server in every single disk operation of its life: what was committed is
there as a whole, with its offsets, and nothing else."""

import errno
from dataclasses import dataclass, field, replace

import pytest

from oncelog.clock import ManualClock
from oncelog.server.errors import ErrorCode
from oncelog.transactions.machine import LAST_EPOCH
from oncelog.transactions.states import State
from tests.depth import deeper, scaled
from tests.log.memory_disk import Died, MemoryDisk
from tests.log.transactions import committed_values
from tests.server.transactions.house import FIRST_PID, House

NAME, GROUP, TOPIC = "copier", "g", "t"
PARTITIONS, ROUNDS = 2, 5
STRIDE = 7  # every so many operations, in the quick tests


@dataclass
class Life:
    """What the world outside knows."""

    told: list[int] = field(default_factory=list)  # rounds that were said to be committed, or aborted
    in_doubt: int = -1  # the round whose end was asked for, and not answered
    next_pid: int = FIRST_PID


def live(disk: MemoryDisk, clock: ManualClock, life: Life, first_round: int, *, raises: bool) -> None:
    """From that round on: writes to each partition, an offset, and the end; every third is aborted."""
    house = House(disk, clock, life.next_pid, "oncelog.flush=os")
    try:
        if house.topics.get(TOPIC) is None:
            house.topics.create(TOPIC, PARTITIONS, {}, clock.now())
        who = house.init(NAME)
        while who.error is ErrorCode.concurrent_transactions:  # what the life before has left open is aborted
            who = house.init(NAME)
        assert who.error is ErrorCode.none
        sequence = 0
        for number in range(first_round, ROUNDS):
            clock.advance(10)
            for index in range(PARTITIONS):
                house.write(NAME, who, TOPIC, index, sequence, b"%d" % number)
            house.commit_offset(NAME, who, GROUP, TOPIC, number + 1)
            life.in_doubt = number
            ended = house.end(NAME, who, is_commit=number % 3 != 2, raises=raises)
            assert ended.error is ErrorCode.none
            life.in_doubt = -1
            life.told.append(number)
            who, sequence = (ended, 0) if raises else (who, sequence + 1)
    finally:
        life.next_pid = house.next_pid + 1000
        house.stop()


def seen(disk: MemoryDisk, clock: ManualClock, life: Life) -> tuple[list[int], int]:
    """What a reader sees in every partition once nothing is open, and the group's offset."""
    house = House(disk, clock, life.next_pid)
    try:
        if house.topics.get(TOPIC) is None:
            return [], -1  # it had not begun
        disk.fail("pwritev", errno.ENOSPC, 1)  # whatever is stored next is stored when it is tried again
        assert ErrorCode.none in (house.init(NAME).error for _ in range(4))
        found = []
        for index in range(PARTITIONS):
            log = house.partition(TOPIC, index).log
            assert log.stable_offset == log.high_watermark
            found.append([int(value or b"") for value in committed_values(log)])
        assert all(each == found[0] for each in found), found
        return found[0], house.offset(GROUP, TOPIC)
    finally:
        house.stop()
        house.topics.close()


def operations_of_a_life(*, raises: bool) -> int:
    disk = MemoryDisk(1)
    live(disk, ManualClock(), Life(), 0, raises=raises)
    return disk.operations


@deeper
@pytest.mark.parametrize("raises", [False, True], ids=["first-version", "second-version"])
def test_killed_in_any_disk_operation_it_is_all_or_nothing(raises: bool) -> None:
    stride = max(1, STRIDE // scaled(1))
    for operation in range(0, operations_of_a_life(raises=raises), stride):
        disk, clock, life = MemoryDisk(operation), ManualClock(), Life()
        disk.die_at(operation)
        try:
            live(disk, clock, life, 0, raises=raises)
        except Died:
            pass
        disk = disk.crash(keep_all=True)
        try:
            values, offset = seen(disk, clock, life)
        except AssertionError as error:
            raise AssertionError(f"operation {operation}: {error}") from error
        committed = [number for number in life.told if number % 3 != 2]
        is_decided = life.in_doubt >= 0 and life.in_doubt % 3 != 2 and values[-1:] == [life.in_doubt]
        expected = committed + [life.in_doubt] * is_decided
        assert values == expected, (operation, life)
        assert offset == (expected[-1] + 1 if expected else -1), (operation, life)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    clock = ManualClock()
    house = House(MemoryDisk(1), clock)
    house.topics.create(TOPIC, 1, {}, clock.now())
    who = house.init(NAME, timeout_ms=5_000)
    house.write(NAME, who, TOPIC, 0, 0, b"a")
    house.timers.advance(4_000)
    log = house.partition(TOPIC, 0).log
    assert log.stable_offset == 0
    house.timers.advance(10_000)
    assert log.stable_offset == log.high_watermark
    assert committed_values(log) == []
    assert house.end(NAME, who, is_commit=True, raises=False).error is ErrorCode.producer_fenced
    house.stop()


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH - 1], ids=["first-epoch", "last-epoch"])
@pytest.mark.parametrize("by", ["time", "its-successor"])
@pytest.mark.parametrize("refusals", [1, 2])
def test_an_end_that_could_not_be_stored_at_once_comes_later(refusals: int, by: str, epoch: int) -> None:
    """Of a producer that is fenced, by the clock or by another one with its id."""
    disk, clock = MemoryDisk(1), ManualClock()
    house = House(disk, clock)
    house.topics.create(TOPIC, 1, {}, clock.now())
    who = house.init(NAME, timeout_ms=5_000)
    entry = house.transactions.entries[NAME]
    entry.now, who = replace(entry.now, epoch=epoch), who._replace(epoch=epoch)
    house.write(NAME, who, TOPIC, 0, 0, b"a")
    log = house.partition(TOPIC, 0).log
    disk.fail("pwritev", errno.ENOSPC, refusals)
    for _ in range(refusals):
        if by == "time":
            house.timers.advance(10_000)
        else:
            assert house.init(NAME).error is ErrorCode.not_coordinator
        assert (entry.now.state, entry.now.epoch, log.stable_offset) == (State.ONGOING, epoch, 0)
    if by == "time":
        house.timers.advance(10_000)
    else:
        assert house.init(NAME).error is ErrorCode.concurrent_transactions
    assert (entry.now.state, entry.now.epoch) == (State.COMPLETE_ABORT, epoch + 1)
    assert log.stable_offset == log.high_watermark == 2
    assert committed_values(log) == []
    house.stop()


def test_by_the_epoch_that_is_left_for_a_fence_nobody_goes_on() -> None:
    """It could not be fenced any more. Who asks again for the end that the clock has made meanwhile hears of it."""
    house = House(MemoryDisk(1), ManualClock())
    house.topics.create(TOPIC, 1, {}, house.clock.now())
    who = house.init(NAME, timeout_ms=5_000)
    entry = house.transactions.entries[NAME]
    entry.now, who = replace(entry.now, epoch=LAST_EPOCH - 1), who._replace(epoch=LAST_EPOCH - 1)
    assert house.add(NAME, who, TOPIC, [0]) is ErrorCode.none
    house.timers.advance(10_000)
    told = house.end(NAME, who, is_commit=False, raises=True)
    assert told == (ErrorCode.none, who.pid, LAST_EPOCH)
    assert house.add(NAME, told, TOPIC, [0]) is ErrorCode.producer_fenced
    for raises in (False, True):
        assert house.end(NAME, told, is_commit=False, raises=raises).error is ErrorCode.producer_fenced
    after = house.init(NAME)
    assert (after.error, after.pid == who.pid, after.epoch) == (ErrorCode.none, False, 0)
    house.stop()


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    clock = ManualClock()
    house = House(MemoryDisk(1), clock, FIRST_PID, "transactional.id.expiration.ms=100000000")
    house.topics.create(TOPIC, 1, {}, clock.now())
    assert (house.init(NAME).epoch, house.init("other").epoch) == (0, 0)
    house.timers.advance(100_000_000 - 3_600_000)
    assert house.init("other").epoch == 1
    house.timers.advance(2 * 3_600_000)
    assert set(house.transactions.entries) == {"other"}
    assert house.init(NAME).epoch == 0
    house.stop()


def test_ids_that_do_not_fit_into_one_batch_are_forgotten_too() -> None:
    clock = ManualClock()
    given = "transactional.id.expiration.ms=1000", "message.max.bytes=2000"
    house = House(MemoryDisk(1), clock, FIRST_PID, *given, "transaction.state.log.num.partitions=1")
    for number in range(5):
        assert house.init(f"{number}" * 900).error is ErrorCode.none
    house.timers.advance(2 * 3_600_000)
    assert not house.transactions.entries
    house.stop()
    after = House(house.disk, clock)
    assert not after.transactions.entries
    after.stop()
