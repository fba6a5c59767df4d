"""What one who speaks of transactions can make the server hold, and how long the others wait meanwhile."""

import asyncio
from dataclasses import replace

import pytest

from oncelog.clock import ManualClock
from oncelog.producers import Decision
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import ENTRY_BYTES, TopicPartition
from oncelog.server.groups.pending import PendingOffsets
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.names import MOST_ID_CHARACTERS
from oncelog.server.transactions import memory
from oncelog.transactions.machine import LAST_EPOCH
from oncelog.transactions.states import State
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import FIRST_PID, House

NAME, TOPIC = "copier", "t"


def house_with(*given: str, partitions: int = 1) -> House:
    house = House(MemoryDisk(1), ManualClock(), FIRST_PID, *given)
    house.topics.create(TOPIC, partitions, {}, house.clock.now())
    return house


def test_one_host_leaves_room_for_the_ids_of_others() -> None:
    house = house_with("oncelog.max.transactional.ids=6")
    told = [house.init(f"{number}", host="one").error for number in range(4)]
    assert told == [ErrorCode.none] * 3 + [ErrorCode.coordinator_not_available]
    assert house.init("0", host="one").error is ErrorCode.none
    assert [house.init(f"other-{number}", host="two").error for number in range(3)] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.coordinator_not_available,
    ]
    house.stop()


def test_ids_have_a_bound() -> None:
    house = house_with()
    assert house.init("i" * (MOST_ID_CHARACTERS + 1)).error is ErrorCode.invalid_request
    assert house.init("i" * MOST_ID_CHARACTERS).error is ErrorCode.none
    house.stop()


def test_a_transaction_lasts_as_long_as_the_server_allows() -> None:
    house = house_with("transaction.max.timeout.ms=1000")
    told = [house.init(NAME, timeout_ms=each).error for each in (0, -1, 1001, 1000)]
    assert told == [ErrorCode.invalid_transaction_timeout] * 3 + [ErrorCode.none]
    house.stop()


def test_a_transaction_writes_to_so_many_partitions() -> None:
    house = house_with("oncelog.max.transaction.partitions=3", partitions=4)
    who = house.init(NAME)
    assert house.add(NAME, who, TOPIC, range(3)) is ErrorCode.none
    assert house.add(NAME, who, TOPIC, range(4)) is ErrorCode.invalid_request
    house.stop()


def test_the_partitions_of_all_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_PARTITIONS", 30)
    house = house_with(partitions=20)
    one, more, other = (house.init(name, host=name[0]) for name in ("a", "aa", "b"))
    assert house.add("a", one, TOPIC, range(10)) is ErrorCode.none
    assert house.add("aa", more, TOPIC, range(11)) is ErrorCode.coordinator_not_available
    assert house.add("b", other, TOPIC, range(10)) is ErrorCode.none
    assert house.add("a", one, TOPIC, range(10)) is ErrorCode.none  # no more than before
    assert house.end("a", one, is_commit=False, raises=False).error is ErrorCode.none
    assert house.add("aa", more, TOPIC, range(11)) is ErrorCode.none
    house.stop()


def test_what_was_added_can_be_ended_though_its_record_is_at_the_bound() -> None:
    house = house_with("message.max.bytes=300", partitions=60)
    who = house.init(NAME)
    added = [house.add(NAME, who, TOPIC, range(count)) for count in range(1, 60)]
    assert {ErrorCode.none, ErrorCode.unknown_server_error} == set(added)
    assert house.end(NAME, who, is_commit=True, raises=True).error is ErrorCode.none
    house.stop()


def test_others_have_their_turn_between_the_partitions_of_a_transaction() -> None:
    house = house_with(partitions=50)
    who = house.init(NAME)
    house.add(NAME, who, TOPIC, range(50))
    house.end(NAME, who, is_commit=True, raises=False)
    assert house.pauses >= 2 * 50  # before each marker, and before each look whether it is safe
    house.stop()


def test_others_have_their_turn_between_any_two_transactions_that_take_too_long() -> None:
    house = house_with()
    for number in range(50):
        who = house.init(f"{number}", timeout_ms=1)
        house.add(f"{number}", who, TOPIC, [0])
    before = house.steps
    house.timers.advance(20_000)
    assert {each.now.state for each in house.transactions.entries.values()} == {State.COMPLETE_ABORT}
    assert house.steps - before >= 50
    house.stop()


def test_the_metadata_of_offsets_in_transactions_counts() -> None:
    pending = PendingOffsets()
    at = [TopicPartition(TOPIC, index) for index in range(3)]
    long, short = (CommittedOffset(5, -1, "m" * length, 0) for length in (4_000, 10))
    committed = {at[0]: long, at[1]: short}
    assert pending.growth_bytes(1, "g", committed) == 2 * ENTRY_BYTES + 4_010
    pending.put(1, "g", committed)
    assert pending.held_bytes == 2 * ENTRY_BYTES + 4_010
    assert pending.growth_bytes(1, "g", {at[0]: short}) == -3_990
    pending.put(1, "g", {at[0]: short, at[2]: short})
    assert pending.held_bytes == 3 * ENTRY_BYTES + 30
    assert [group for group, _ in pending.take(1, lambda group_id: True)] == ["g"]
    assert pending.held_bytes == 0


def test_offsets_of_a_group_that_is_forgotten_meanwhile_are_passed_over() -> None:
    pending = PendingOffsets()
    committed = {TopicPartition(TOPIC, 0): CommittedOffset(5, -1, "", 0)}
    for group_id in ("one", "two", "three"):
        pending.put(1, group_id, committed)
    taken = pending.take(1, lambda group_id: True)
    next(taken)
    pending.forget("two")
    assert [group_id for group_id, _ in taken] == ["three"]


def test_no_marker_is_about_a_leased_pid() -> None:
    house = house_with()
    log = house.partition(TOPIC, 0).log
    for pid in (7, 0, -1):
        marked = log.end_transaction(pid, 3, 0, house.clock.now(), is_commit=False, raises_epoch=False)
        assert marked.decision is Decision.UNKNOWN_PRODUCER
    assert log.next_offset == 0
    house.stop()


async def test_what_is_stored_counts_though_who_asked_for_it_hangs_up() -> None:
    house = house_with("oncelog.flush=every")
    beginning = asyncio.create_task(house.transactions.init_producer(NAME, 60_000, None))
    await asyncio.sleep(0)
    house.flush()
    who = await beginning
    for work in (
        house.transactions.add_partitions(NAME, who.pid, who.epoch, [(TOPIC, 0)]),
        house.transactions.end(NAME, who.pid, who.epoch, is_commit=True, raises=False),
    ):
        task = asyncio.create_task(work)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert task.cancelled()
        house.flush()
    while house.transactions.entries[NAME].now.state is not State.COMPLETE_COMMIT:
        await asyncio.sleep(0)
        house.flush()
    house.stop()


async def test_an_id_that_has_gone_while_something_was_waited_for_is_not_stored_again() -> None:
    house = house_with("transactional.id.expiration.ms=1000")
    house.init(NAME)
    entry = house.transactions.entries[NAME]
    entry.now = replace(entry.now, epoch=LAST_EPOCH - 1)
    house.pid_is_late = asyncio.Event()
    waiting = asyncio.create_task(house.transactions.init_producer(NAME, 60_000, None))
    await asyncio.sleep(0)
    house.timers.advance(3_600_000)
    assert not house.transactions.entries
    house.pid_is_late.set()
    assert (await waiting).error is ErrorCode.not_coordinator
    house.stop()
    after = House(house.disk, house.clock)
    assert not after.transactions.entries
    after.stop()


async def test_partitions_that_are_on_their_way_to_the_disk_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_PARTITIONS", 30)
    house = house_with("oncelog.flush=every", partitions=20)
    places = [(TOPIC, index) for index in range(11)]
    beginning = [asyncio.create_task(house.transactions.init_producer(name, 60_000, None, "host")) for name in "ab"]
    await flushed(house)
    one, two = [await each for each in beginning]
    adding = [
        asyncio.create_task(house.transactions.add_partitions(name, who.pid, who.epoch, places[:count]))
        for name, who, count in (("a", one, 10), ("b", two, 11))
    ]
    await flushed(house)
    assert [await each for each in adding] == [ErrorCode.none, ErrorCode.coordinator_not_available]
    ending = asyncio.create_task(house.transactions.end("a", one.pid, one.epoch, is_commit=False, raises=False))
    while house.transactions.entries["a"].now.state is not State.COMPLETE_ABORT:
        await flushed(house)
    assert (await ending).error is ErrorCode.none
    again = asyncio.create_task(house.transactions.add_partitions("b", two.pid, two.epoch, places))
    await flushed(house)
    assert await again is ErrorCode.none
    house.stop()


async def flushed(house: House) -> None:
    """Once those that were begun have come as far as the disk."""
    await asyncio.sleep(0)
    house.flush()


async def test_those_who_wait_for_pids_together_get_no_more_ids_than_one_after_the_other() -> None:
    house = house_with("oncelog.max.transactional.ids=6")
    house.pid_is_late = asyncio.Event()
    asked = [
        asyncio.create_task(house.transactions.init_producer(f"{number}", 60_000, None, "one")) for number in range(6)
    ]
    await asyncio.sleep(0)
    house.pid_is_late.set()
    told = [(await each).error for each in asked]
    assert told == [ErrorCode.none] * 3 + [ErrorCode.coordinator_not_available] * 3
    house.stop()
