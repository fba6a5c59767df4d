"""What single answers mean for a partition: resets, followers, ends, bounds, errors that are told once."""

from typing import Any

import pytest

from oncelog.client.fetching.events import Chunk, EndReached, Failed
from oncelog.client.fetching.fetcher import HELD_BACK_WAIT_MS, Fetcher
from oncelog.client.fetching.values import (
    EARLIEST,
    LATEST,
    STORED,
    Action,
    EpochEndFound,
    Fetch,
    Fetched,
    FetchLimits,
    FindEpochEnds,
    FindOffsets,
    Leader,
    NeedCommitted,
    NeedMetadata,
    OffsetFound,
)
from oncelog.error_codes import ErrorCodes
from oncelog.slots import AnyPlace
from tests.client.fetching.test_batches import data_batch

A: AnyPlace = ("a", 0)
B: AnyPlace = ("b", 0)


def machine_at(offset: int, epoch: int = -1, *, partitions: tuple[AnyPlace, ...] = (A,), **limits: Any) -> Fetcher:
    machine = Fetcher(FetchLimits(**limits))
    for each in partitions:
        machine.assign(each, offset, epoch)
    machine.actions(0)
    machine.leaders({each: Leader(1, 5) for each in partitions}, {}, 0)
    return machine


def only(actions: list[Action]) -> Any:
    (action,) = actions
    return action


def answer(partition: AnyPlace = A, error: int = 0, records: bytes = b"", **more: Any) -> Fetched:
    said = {"high_watermark": 100, "last_stable_offset": 100, "preferred_replica": -1, "leader": None} | more
    high_watermark, last_stable_offset, preferred_replica, leader = said.values()
    return Fetched(partition, error, high_watermark, last_stable_offset, 0, [], preferred_replica, records, leader)


def test_a_committed_offset_is_asked_for_and_read_from_with_its_epoch_checked() -> None:
    machine = Fetcher(FetchLimits())
    machine.assign(A, STORED)
    asked = only(machine.actions(0))
    assert isinstance(asked, NeedCommitted)
    machine.committed(asked.request_id, {A: (17, 3)}, 0)
    assert isinstance(only(machine.actions(0)), NeedMetadata)
    machine.leaders({A: Leader(1, 5)}, {}, 0)
    checked = only(machine.actions(0))
    assert (type(checked), checked.asked) == (FindEpochEnds, [(A, 5, 3)])
    machine.epoch_ends_found(checked.request_id, [EpochEndFound(A, 0, 3, 20)], 0)
    assert only(machine.actions(0)).asked[0][:3] == (A, 17, 5)


def test_metadata_of_before_is_no_answer_that_the_next_question_pauses_after() -> None:
    machine = Fetcher(FetchLimits())
    machine.assign(A, 17)
    machine.leaders({}, {}, 0)
    assert isinstance(only(machine.actions(0)), NeedMetadata)
    machine.leaders({}, {}, 0)
    assert machine.actions(99) == []
    assert isinstance(only(machine.actions(100)), NeedMetadata)


@pytest.mark.parametrize(("reset", "find"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_without_a_committed_offset_the_reset_policy_says_where_to_begin(reset: str, find: int) -> None:
    machine = Fetcher(FetchLimits(reset=reset))
    machine.assign(A, STORED)
    machine.committed(only(machine.actions(0)).request_id, {}, 0)
    machine.actions(0)
    machine.leaders({A: Leader(1, 5)}, {}, 0)
    asked = only(machine.actions(0))
    assert (type(asked), asked.asked) == (FindOffsets, [(A, 5, find)])
    machine.offsets_found(asked.request_id, [OffsetFound(A, 0, 42, 5)], 0)
    assert only(machine.actions(0)).asked[0].offset == 42


def test_an_offset_out_of_range_halts_where_there_is_no_policy_until_a_seek() -> None:
    machine = machine_at(7, reset="error")
    fetch = only(machine.actions(0))
    machine.fetched(fetch.request_id, [answer(error=ErrorCodes.OFFSET_OUT_OF_RANGE)], 0)
    (told,) = machine.events()
    assert isinstance(told, Failed)
    assert (told.code, told.offset) == (ErrorCodes._AUTO_OFFSET_RESET, 7)
    assert machine.actions(10_000) == []
    machine.seek(A, 3)
    assert only(machine.actions(10_000)).asked[0].offset == 3


def test_truncation_halts_where_there_is_no_policy_and_names_the_offset() -> None:
    machine = machine_at(17, 3, reset="error")
    checked = only(machine.actions(0))
    machine.epoch_ends_found(checked.request_id, [EpochEndFound(A, 0, 3, 11)], 0)
    (told,) = machine.events()
    assert isinstance(told, Failed)
    assert (told.code, told.offset) == (ErrorCodes._LOG_TRUNCATION, 11)
    assert "offset 17" in told.message and "offset 11" in told.message
    assert machine.actions(10_000) == []


def test_a_broker_that_cannot_say_where_epochs_end_is_read_without_the_check() -> None:
    machine = machine_at(17, 3)
    checked = only(machine.actions(0))
    assert isinstance(checked, FindEpochEnds)
    machine.lost(checked.request_id, ErrorCodes._UNSUPPORTED_FEATURE, 0)
    assert isinstance(only(machine.actions(0)), Fetch)


def test_a_leader_that_an_answer_names_is_asked_at_once() -> None:
    machine = machine_at(7, partitions=(A, B))
    fetch = only(machine.actions(0))
    moved = answer(A, ErrorCodes.NOT_LEADER_FOR_PARTITION, leader=Leader(2, 6))
    machine.fetched(fetch.request_id, [moved, answer(B, ErrorCodes.NOT_LEADER_FOR_PARTITION)], 0)
    fetch = only(machine.actions(0))
    assert (fetch.node_id, fetch.asked[0][:3]) == (2, (A, 7, 6))
    assert isinstance(only(machine.actions(200)), NeedMetadata), "of the other partition nobody said who leads it"


def test_an_older_leader_that_an_answer_names_is_not_believed() -> None:
    machine = machine_at(7)
    fetch = only(machine.actions(0))
    moved = answer(error=ErrorCodes.NOT_LEADER_FOR_PARTITION, leader=Leader(2, 4))
    machine.fetched(fetch.request_id, [moved], 0)
    assert isinstance(only(machine.actions(200)), NeedMetadata)


def test_a_follower_that_the_leader_names_is_read_from_until_it_fails_or_its_time_is_over() -> None:
    machine = machine_at(7, replica_lifetime_ms=1000)
    fetch = only(machine.actions(0))
    machine.fetched(fetch.request_id, [answer(preferred_replica=2)], 0)
    fetch = only(machine.actions(0))
    assert fetch.node_id == 2
    # A follower that lags behind does not decide what is out of range.
    machine.fetched(fetch.request_id, [answer(error=ErrorCodes.OFFSET_OUT_OF_RANGE)], 0)
    assert machine.events() == []
    fetch = only(machine.actions(0))
    assert fetch.node_id == 1
    machine.fetched(fetch.request_id, [answer(preferred_replica=2)], 0)
    fetch = only(machine.actions(0))
    machine.lost(fetch.request_id, ErrorCodes._TRANSPORT, 0)
    fetch = only(machine.actions(200))
    assert fetch.node_id == 1
    machine.fetched(fetch.request_id, [answer(preferred_replica=2)], 200)
    fetch = only(machine.actions(200))
    machine.fetched(fetch.request_id, [answer()], 1300)
    assert only(machine.actions(1300)).node_id == 1


def test_metadata_that_lags_behind_does_not_take_a_newer_leader_back() -> None:
    machine = machine_at(7)
    machine.leaders({A: Leader(2, 6)}, {}, 0)
    machine.leaders({A: Leader(1, 5)}, {}, 0)
    assert only(machine.actions(0)).node_id == 2


def test_another_topic_of_the_same_name_begins_its_epochs_anew() -> None:
    machine = Fetcher(FetchLimits())
    machine.assign(A, 7)
    machine.actions(0)
    machine.leaders({A: Leader(1, 50, "old")}, {}, 0)
    machine.leaders({A: Leader(2, 0, "new")}, {}, 0)
    fetch = only(machine.actions(0))
    assert (fetch.node_id, fetch.asked[0].leader_epoch) == (2, 0)


def test_an_answer_that_came_too_late_is_not_seen() -> None:
    machine = machine_at(7)
    fetch = only(machine.actions(0))
    machine.seek(A, 50)
    machine.fetched(fetch.request_id, [answer(records=data_batch(7))], 0)
    assert machine.events() == []
    assert only(machine.actions(0)).asked[0].offset == 50


def test_what_was_fetched_before_a_seek_is_stale() -> None:
    machine = machine_at(7)
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=data_batch(7))], 0)
    (chunk,) = machine.events()
    assert isinstance(chunk, Chunk) and chunk.is_current
    machine.seek(A, 50)
    assert not chunk.is_current
    machine.taken(chunk)
    assert machine.queued_bytes == 0


def test_what_was_fetched_with_damage_is_stale_at_once_and_so_is_what_comes_before_it_is_fetched_again() -> None:
    machine = machine_at(7, reports_end=True)
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=data_batch(7))], 0)
    under_way = only(machine.actions(0))
    (damaged,) = machine.events()
    assert isinstance(damaged, Chunk) and damaged.is_current
    damaged.cut()
    assert not damaged.is_current
    machine.fetched(under_way.request_id, [answer(records=data_batch(8), high_watermark=9, last_stable_offset=9)], 0)
    behind = machine.events()
    assert [type(each) for each in behind] == [Chunk, EndReached] and not any(each.is_current for each in behind)
    machine.fetch_again(damaged, 7, -1, 0)
    machine.fetch_again(damaged, 8, -1, 0)  # of what is stale already, nothing follows
    now_ms = machine.limits.error_backoff_ms
    machine.actions(now_ms)
    machine.leaders({A: Leader(1, 5)}, {}, now_ms)
    again = only(machine.actions(now_ms))
    assert again.asked[0].offset == 7
    machine.fetched(again.request_id, [answer(records=data_batch(7))], now_ms)
    assert [each.is_current for each in machine.events()] == [True]


def test_errors_that_stay_are_told_once_and_asked_again_after_a_pause() -> None:
    machine = machine_at(7, error_backoff_ms=500)
    now_ms = 0
    for _ in range(3):
        fetch = only(machine.actions(now_ms))
        machine.fetched(fetch.request_id, [answer(error=ErrorCodes.TOPIC_AUTHORIZATION_FAILED)], now_ms)
        assert machine.actions(now_ms + 499) == []
        assert machine.next_due_ms(now_ms) == now_ms + 500
        now_ms += 500
    (told,) = machine.events()
    assert isinstance(told, Failed) and told.code == ErrorCodes.TOPIC_AUTHORIZATION_FAILED
    machine.fetched(only(machine.actions(now_ms)).request_id, [answer(records=data_batch(7))], now_ms)
    fetch = only(machine.actions(now_ms))
    machine.fetched(fetch.request_id, [answer(error=ErrorCodes.TOPIC_AUTHORIZATION_FAILED)], now_ms)
    assert [type(event) for event in machine.events()] == [Chunk, Failed]


def test_the_end_is_told_once_for_each_time_that_it_is_reached() -> None:
    machine = machine_at(7, reports_end=True, read_committed=False)
    for records, ends in ((b"", 1), (b"", 0), (data_batch(7), 1), (b"", 0)):
        fetch = only(machine.actions(0))
        next_offset = 8 if records else fetch.asked[0].offset
        machine.fetched(fetch.request_id, [answer(records=records, high_watermark=next_offset)], 0)
        assert len([event for event in machine.events() if isinstance(event, EndReached)]) == ends


def test_the_end_of_what_is_committed_comes_before_an_open_transaction() -> None:
    machine = machine_at(7, reports_end=True)
    machine.fetched(only(machine.actions(0)).request_id, [answer(high_watermark=90, last_stable_offset=7)], 0)
    assert [type(event) for event in machine.events()] == [EndReached]


def test_a_paused_partition_is_not_asked_for() -> None:
    machine = machine_at(7, partitions=(A, B))
    machine.pause(A)
    assert [each.partition for each in only(machine.actions(0)).asked] == [B]


def test_while_one_partition_waits_for_room_the_others_are_not_waited_for_long() -> None:
    machine = machine_at(0, partitions=(A, B), queued_records=3)
    fetch = only(machine.actions(0))
    assert fetch.wait_ms == 500
    machine.fetched(fetch.request_id, [answer(A, records=data_batch(0, 3)), answer(B)], 0)
    (chunk,) = machine.events()
    assert isinstance(chunk, Chunk)
    fetch = only(machine.actions(0))
    assert ([each.partition for each in fetch.asked], fetch.wait_ms) == ([B], HELD_BACK_WAIT_MS)
    assert machine.is_held_back
    # An application that takes nothing does not keep the broker busy.
    for times in (2, 4, 8, 16, 32):
        machine.fetched(fetch.request_id, [answer(B)], 0)
        fetch = only(machine.actions(0))
        assert fetch.wait_ms == times * HELD_BACK_WAIT_MS
    machine.fetched(fetch.request_id, [answer(B)], 0)
    machine.taken(chunk)
    assert {each.partition for each in only(machine.actions(0)).asked} == {A, B}


def test_the_queue_of_all_partitions_is_bounded_and_shared_by_brokers() -> None:
    machine = Fetcher(FetchLimits(queued_bytes=1000, partition_max_bytes=600, max_bytes=10_000))
    for each in (A, B):
        machine.assign(each, 0)
    machine.actions(0)
    machine.leaders({A: Leader(1, 5), B: Leader(2, 5)}, {}, 0)
    first, second = machine.actions(0)
    assert isinstance(first, Fetch) and isinstance(second, Fetch)
    assert first.max_bytes + second.max_bytes <= 1000
    machine.fetched(first.request_id, [answer(A, records=data_batch(0, 50))], 0)
    machine.fetched(second.request_id, [answer(B, records=data_batch(0, 50))], 0)
    assert machine.queued_bytes > 900
    assert machine.actions(0) == []
    assert machine.is_held_back


def test_partitions_that_gave_something_are_asked_for_last() -> None:
    machine = machine_at(0, partitions=(A, B))
    fetch = only(machine.actions(0))
    assert [each.partition for each in fetch.asked] == [A, B]
    machine.fetched(fetch.request_id, [answer(A, records=data_batch(0)), answer(B)], 0)
    assert [each.partition for each in only(machine.actions(0)).asked] == [B, A]


def test_a_batch_that_was_cut_off_is_asked_for_with_more_room_and_told_when_no_room_suffices() -> None:
    machine = machine_at(0, partition_max_bytes=100, max_bytes=300)
    for expected in (100, 200, 300):
        fetch = only(machine.actions(0))
        assert fetch.asked[0].max_bytes == expected
        machine.fetched(fetch.request_id, [answer(records=data_batch(0, 100)[:expected])], 0)
    (told,) = machine.events()
    assert isinstance(told, Failed) and told.code == ErrorCodes.MSG_SIZE_TOO_LARGE


def test_a_length_that_claims_more_than_the_broker_had_room_to_send_is_damage_and_told_with_the_offset() -> None:
    machine = machine_at(7, partition_max_bytes=1000, max_bytes=1000)
    batch = bytearray(data_batch(7, 3))
    batch[8:12] = (1 << 30).to_bytes(4, "big")
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=bytes(batch))], 0)
    (told,) = machine.events()
    assert isinstance(told, Failed) and told.code == ErrorCodes._BAD_MSG
    assert told.offset == 7 and "the batch at offset 7 claims more bytes than" in told.message


@pytest.mark.parametrize(
    ("claimed", "seen_at"),
    [
        pytest.param(5, 10, id="it reaches back"),
        pytest.param(12, 20, id="the next one seems to"),
    ],
)
def test_a_batch_that_claims_an_offset_where_it_cannot_be_is_told_and_what_lies_before_it_is_read(
    claimed: int, seen_at: int
) -> None:
    batches = [data_batch(0, 10), claimed.to_bytes(8, "big") + data_batch(10, 10)[8:], data_batch(20, 10)]
    machine = machine_at(0, error_backoff_ms=500)
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=b"".join(batches))], 0)
    chunk, told = machine.events()
    assert isinstance(chunk, Chunk) and chunk.records == b"".join(batches[: seen_at // 10])
    assert isinstance(told, Failed) and told.code == ErrorCodes._BAD_MSG and told.offset == chunk.next_offset
    assert machine.next_due_ms(0) == 500
    again = only(machine.actions(500))
    assert again.asked[0].offset == chunk.next_offset
    machine.fetched(again.request_id, [answer(records=b"".join(batches[seen_at // 10 :]))], 500)
    assert [each.code for each in machine.events() if isinstance(each, Failed)] == [ErrorCodes._BAD_MSG]
    assert only(machine.actions(1000)).asked[0].offset == chunk.next_offset, "none of it was taken"


def test_a_batch_from_beyond_the_high_watermark_is_told_when_the_next_answer_does_not_know_of_it_either() -> None:
    strayed = (1 << 40).to_bytes(8, "big") + data_batch(10, 10)[8:]
    machine = machine_at(0, error_backoff_ms=500)
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=data_batch(0, 10) + strayed)], 0)
    (chunk,) = machine.events()
    assert isinstance(chunk, Chunk) and chunk.records == data_batch(0, 10)
    again = only(machine.actions(0))
    assert again.asked[0].offset == 10
    machine.fetched(again.request_id, [answer(records=strayed)], 0)
    (told,) = machine.events()
    assert isinstance(told, Failed) and told.code == ErrorCodes._BAD_MSG and told.offset == 10
    assert machine.next_due_ms(0) == 500
    machine.fetched(only(machine.actions(500)).request_id, [answer(records=strayed)], 500)
    assert [type(event) for event in machine.events()] == [Failed]
    assert only(machine.actions(1000)).asked[0].offset == 10, "none of it was taken"


@pytest.mark.parametrize("before", [b"", data_batch(0, 10)])
def test_an_answer_may_bring_what_was_written_after_its_high_watermark_was_noted(before: bytes) -> None:
    """Kafka notes it before it reads (`initialHighWatermark` of its Partition.readRecords)."""
    offset = 10 if before else 0
    late = data_batch(offset, 10)
    machine = machine_at(0)
    fetch = only(machine.actions(0))
    machine.fetched(fetch.request_id, [answer(records=before + late, high_watermark=offset)], 0)
    assert [type(event) for event in machine.events()] == [Chunk] * bool(before)
    again = only(machine.actions(0))
    assert again.asked[0].offset == offset
    machine.fetched(again.request_id, [answer(records=late, high_watermark=offset + 10)], 0)
    (chunk,) = machine.events()
    assert isinstance(chunk, Chunk) and chunk.records == late


def test_a_position_that_was_not_reached_by_reading_may_lie_within_a_batch() -> None:
    machine = machine_at(0)
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=data_batch(0, 10))], 0)
    machine.events()
    machine.seek(A, 10)
    machine.fetched(only(machine.actions(0)).request_id, [answer(records=data_batch(5, 10))], 0)
    (chunk,) = machine.events()
    assert isinstance(chunk, Chunk) and (chunk.start_offset, chunk.next_offset) == (10, 15)


@pytest.mark.parametrize("code", [999, ErrorCodes._BAD_MSG, ErrorCodes.UNSUPPORTED_VERSION])
def test_a_refusal_of_the_whole_question_that_does_not_pass_is_told_once_and_asked_again_later(code: int) -> None:
    machine = machine_at(7, error_backoff_ms=500)
    machine.lost(only(machine.actions(0)).request_id, code, 0)
    (told,) = machine.events()
    assert isinstance(told, Failed) and told.code == code
    machine.leaders({A: Leader(1, 5)}, {}, 0)
    assert machine.next_due_ms(0) == 500


def test_a_connection_that_broke_is_nothing_to_tell() -> None:
    machine = machine_at(7)
    machine.lost(only(machine.actions(0)).request_id, ErrorCodes._TRANSPORT, 0)
    assert machine.events() == []
