"""Offsets of open transactions while groups, topics and offsets go: what is taken away does not come back with the end
of a transaction, and nothing else goes with it, whether the server was started again meanwhile or not."""

import pytest

from oncelog.clock import MINUTE_MS, ManualClock
from oncelog.log.work_steps import at_once
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import ENTRY_BYTES, TopicPartition
from oncelog.server.groups.pending import PendingOffsets
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.transactions.coordinator import Initialised
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import FIRST_PID, House

NAME, GROUP, TOPIC, OTHER = "copier", "g", "t", "other"
LOOK_MS = 1_000
AT = TopicPartition(TOPIC, 0)


def house_on(disk: MemoryDisk, clock: ManualClock) -> House:
    given = f"offsets.retention.check.interval.ms={LOOK_MS}", "offsets.retention.minutes=1"
    return House(disk, clock, FIRST_PID, "offsets.topic.num.partitions=1", *given)


@pytest.fixture
def house() -> House:
    found = house_on(MemoryDisk(1), ManualClock())
    for topic in (TOPIC, OTHER):
        found.topics.create(topic, 1, {}, found.clock.now())
    return found


def again(house: House) -> House:
    """After a start."""
    house.stop()
    house.topics.close()
    assert isinstance(house.disk, MemoryDisk)
    return house_on(house.disk, house.clock)


def commit(house: House, offset: int) -> None:
    """In no transaction."""
    committed = {AT: CommittedOffset(offset, -1, "", house.clock.now().wall_ms)}
    assert house.groups.commit(GROUP, committed, house.clock.now()) is ErrorCode.none


def after_the_end(house: House, who: Initialised, starts: str) -> House:
    """The house after the transaction is committed; `starts` says when the server starts again."""
    house = again(house) if starts == "before" else house
    assert house.end(NAME, who, is_commit=True, raises=True).error is ErrorCode.none
    return again(house) if starts == "after" else house


every_start = pytest.mark.parametrize("starts", ["never", "before", "after"])


@every_start
def test_a_group_is_there_as_long_as_a_transaction_has_offsets_for_it(house: House, starts: str) -> None:
    """It has no members, and nothing that is committed yet."""
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, TOPIC, 5)
    house.timers.advance(4 * LOOK_MS)
    house = after_the_end(house, who, starts)
    assert house.offset(GROUP, TOPIC) == 5
    assert GROUP in house.groups.groups
    house.stop()


@every_start
def test_an_offset_that_a_transaction_is_to_replace_does_not_expire(house: House, starts: str) -> None:
    commit(house, 5)
    house.clock.advance(MINUTE_MS)
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, TOPIC, 7)
    house.timers.advance(4 * LOOK_MS)
    assert house.offset(GROUP, TOPIC) == 5
    house = after_the_end(house, who, starts)
    assert house.offset(GROUP, TOPIC) == 7
    house.stop()


def test_one_that_no_transaction_is_to_replace_expires_all_the_same(house: House) -> None:
    commit(house, 5)
    house.clock.advance(MINUTE_MS)
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, OTHER, 7)
    house.timers.advance(4 * LOOK_MS)
    assert house.offset(GROUP, TOPIC) == -1
    house.stop()


@every_start
@pytest.mark.parametrize("is_committed_before", [False, True])
def test_a_transaction_brings_no_offsets_of_a_topic_that_was_deleted(
    house: House, starts: str, is_committed_before: bool
) -> None:
    """Another one of its name would be read from there on."""
    if is_committed_before:
        commit(house, 3)
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, TOPIC, 5)
    house.commit_offset(NAME, who, GROUP, OTHER, 9)
    now, topic = house.clock.now(), house.topics.get(TOPIC)
    assert topic is not None
    at_once(house.topics.deleting(topic, now, house.groups.forgetting(TOPIC, now)))
    house.topics.create(TOPIC, 1, {}, now)
    assert not house.groups.in_transactions.is_pending(GROUP, TOPIC, 0)
    house = after_the_end(house, who, starts)
    assert (house.offset(GROUP, TOPIC), house.offset(GROUP, OTHER)) == (-1, 9)
    house.stop()


def test_what_a_crash_left_of_a_deleted_topic_goes_at_the_next_start(house: House) -> None:
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, TOPIC, 5)
    topic = house.topics.get(TOPIC)
    assert topic is not None
    at_once(house.topics.deleting(topic, house.clock.now()))  # without what is to be forgotten
    house = again(house)
    house.topics.create(TOPIC, 1, {}, house.clock.now())
    assert house.end(NAME, who, is_commit=True, raises=True).error is ErrorCode.none
    assert house.offset(GROUP, TOPIC) == -1
    house.stop()


@every_start
def test_a_transaction_brings_no_deleted_group_back(house: House, starts: str) -> None:
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, TOPIC, 5)
    assert at_once(house.groups.deleting_group(GROUP, house.clock.now())) is ErrorCode.none
    house = after_the_end(house, who, starts)
    assert house.offset(GROUP, TOPIC) == -1
    assert GROUP not in house.groups.groups
    house.stop()


@every_start
@pytest.mark.parametrize("is_committed_again", [False, True])
def test_a_transaction_brings_no_deleted_offset_back(house: House, starts: str, is_committed_again: bool) -> None:
    """But one that it commits after that counts."""
    commit(house, 3)
    who = house.init(NAME)
    house.commit_offset(NAME, who, GROUP, TOPIC, 5)
    assert house.groups.delete_offsets(GROUP, [AT], house.clock.now()) is ErrorCode.none
    if is_committed_again:
        house.commit_offset(NAME, who, GROUP, TOPIC, 8)
    assert house.groups.in_transactions.is_pending(GROUP, TOPIC, 0) is is_committed_again
    house = after_the_end(house, who, starts)
    assert house.offset(GROUP, TOPIC) == (8 if is_committed_again else -1)
    house.stop()


def test_what_was_taken_away_takes_memory_until_the_transactions_end() -> None:
    pending = PendingOffsets()
    pending.put(1, GROUP, {AT: CommittedOffset(5, -1, "", 0, end_offset=1)})
    pending.take_away(GROUP, [AT, TopicPartition(TOPIC, 1)], 2)
    pending.take_away(GROUP, [AT], 3)
    pending.take_away("another", [AT], 3)
    assert pending.held_bytes == 3 * ENTRY_BYTES
    assert list(pending.take(1, lambda group_id: True)) == [(GROUP, {})]
    assert (pending.held_bytes, pending.topics()) == (0, [])


def test_a_group_is_taken_away_some_places_at_a_time() -> None:
    pending = PendingOffsets()
    places = [TopicPartition(TOPIC, index) for index in range(5)]
    for pid in (1, 2):
        pending.put(pid, GROUP, {at: CommittedOffset(5, -1, "", 0, end_offset=1) for at in places})
    assert [len(each) for each in pending.taking_away(GROUP, 2)] == [2, 2, 1] * 2
    assert (pending.has_any(GROUP), pending.held_bytes) == (False, 0)
