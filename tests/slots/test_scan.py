"""Which slots a producer has filled, told from batches alone."""

import pytest

from oncelog.records.build import build_batch
from oncelog.records.header import read_header
from oncelog.records.trim import retain
from oncelog.slots import Identity
from oncelog.slots.errors import CannotTell
from oncelog.slots.scan import SlotScan, belongs_to

LAST = (1 << 31) - 1
PID = 4711


def batch(base_offset: int, sequence: int, count: int, *, pid: int = PID, epoch: int = 0) -> bytes:
    records = [(None, b"%d" % ((sequence + at) & LAST), (), 0) for at in range(count)]
    return bytes(
        build_batch(records, base_offset=base_offset, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    )


def scan(next_sequence: int, *, any_generation: bool = False) -> SlotScan:
    return SlotScan("out", 0, Identity(PID, 0), next_sequence, any_generation)


def test_sequences_are_followed_over_their_wrap() -> None:
    log = batch(0, LAST - 2, 2) + batch(2, LAST, 3) + batch(5, 2, 1)
    counted = scan(LAST - 2)
    assert counted.count(log, 6) == 6
    assert (counted.records, counted.next_sequence) == (6, 3)
    found, place = scan(LAST - 2).slots(log, 6)
    assert [each.sequence for each in found] == [LAST - 2, LAST - 1, LAST, 0, 1, 2]
    assert [each.offset for each in found] == list(range(6))
    assert place == 6


def test_nothing_at_or_above_the_high_watermark_counts() -> None:
    log = batch(0, 0, 2) + batch(2, 2, 2)
    counted = scan(0)
    assert counted.count(log, 2) == 2
    assert counted.records == 2
    assert len(scan(0).slots(log, 2)[0]) == 2


def test_a_batch_that_stands_twice_fills_its_slots_once() -> None:
    """A Kafka that has forgotten the producer appends the same batch again."""
    log = batch(0, 0, 3) + batch(3, 0, 3) + batch(6, 3, 1)
    counted = scan(0)
    counted.count(log, 7)
    assert counted.records == 4
    assert [each.offset for each in scan(0).slots(log, 7)[0]] == [0, 1, 2, 6]


def test_a_batch_that_reaches_over_the_saved_place_counts_from_there() -> None:
    counted = scan(2)
    counted.count(batch(0, 0, 5), 5)
    assert counted.records == 3
    assert [each.sequence for each in scan(2).slots(batch(0, 0, 5), 5)[0]] == [2, 3, 4]


def test_others_batches_and_control_batches_are_passed_over() -> None:
    fence = bytes(
        build_batch([(b"\0\0\0\0", b"", (), 0)], base_offset=3, producer_id=PID, producer_epoch=1, is_control=True)
    )
    log = batch(0, 0, 3, pid=99) + fence + batch(4, 0, 2)
    counted = scan(0, any_generation=True)
    assert counted.count(log, 6) == 6
    assert counted.records == 2


def test_a_gap_stops() -> None:
    with pytest.raises(CannotTell, match="slot 0 of producer 4711 is due, and the next that the log holds is 3"):
        scan(0).count(batch(0, 3, 2), 5)


def test_a_record_that_compaction_took_is_still_counted_and_cannot_be_compared() -> None:
    kept = bytes(retain(bytearray(batch(0, 0, 4)), [True, True, False, True]))
    counted = scan(0)
    counted.count(kept, 4)
    assert counted.records == 4
    with pytest.raises(CannotTell, match="slot 2 of producer 4711 is due"):
        scan(0).slots(kept, 4)


def test_a_leased_pid_goes_on_through_generations_and_a_kafka_pid_does_not() -> None:
    log = batch(0, 0, 2) + batch(2, 2, 2, epoch=5)
    counted = scan(0, any_generation=True)
    counted.count(log, 4)
    assert counted.records == 4
    with pytest.raises(CannotTell, match="goes on with epoch 5, and was saved with 0"):
        scan(0).count(log, 4)


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    log = batch(0, 0, 2) + batch(2, 2, 2)
    counted = scan(0)
    assert counted.count(log[:-1], 4) == 2
    assert counted.records == 2
    assert scan(0).count(batch(0, 0, 2)[:-1], 4) == -1


@pytest.mark.parametrize(
    ("data", "of_it", "of_any_generation"),
    [
        (batch(0, 0, 1), True, True),
        (batch(0, 0, 1, epoch=1), False, True),
        (batch(0, 0, 1, pid=99), False, False),
        (batch(0, -1, 1), False, False),
    ],
    ids=["its own", "another generation", "another pid", "of nobody who counts"],
)
def test_a_batch_belongs_to_an_identity_by_its_header(data: bytes, of_it: bool, of_any_generation: bool) -> None:
    header, identity = read_header(data), Identity(PID, 0)
    assert belongs_to(header, identity, any_generation=False) is of_it
    assert belongs_to(header, identity, any_generation=True) is of_any_generation


def test_the_marker_of_a_transaction_belongs_to_nobody() -> None:
    marker = bytes(build_batch([(b"\0\0\0\0", b"", (), 0)], base_offset=0, producer_id=PID, is_control=True))
    assert not belongs_to(read_header(marker)._replace(base_sequence=0), Identity(PID, 0), any_generation=True)


def test_a_log_that_begins_later_matters_where_the_due_slot_is_not_found() -> None:
    nothing, moved = scan(0), scan(0)
    for each in (nothing, moved):
        each.begins_at(9, 5, 12)
        each.begins_at(10, 9, 12)  # retention goes on while it is read
    moved.count(batch(10, 0, 2), 12)
    moved.ended()
    with pytest.raises(CannotTell, match="read from offset 5 up to 12, and the log begins at 9 now"):
        nothing.ended()


def test_a_log_that_begins_later_than_what_is_found_already_or_was_cut_short_cannot_tell() -> None:
    found = scan(0)
    found.count(batch(0, 0, 2), 9)
    for each, log_start in ((found, 5), (scan(0), 1)):
        with pytest.raises(CannotTell, match=f"the log begins at {log_start} now"):
            each.begins_at(log_start, 2, 9)


def test_behind_a_cut_the_first_batch_begins_anywhere_and_none_is_missing_after_it() -> None:
    cut = scan(LAST - 1)
    cut.cut()
    found = cut.batches(batch(0, LAST - 3, 1) + batch(10, 2, 2) + batch(12, 4, 1), 13)
    assert found == [(0, 0, -2), (10, 11, 4), (12, 12, 6)]
    assert (cut.records, cut.next_sequence) == (7, 5)
    with pytest.raises(CannotTell, match="slot 5 of producer 4711 is due, and the next that the log holds is 6"):
        cut.batches(batch(13, 6, 1), 14)


def test_where_compaction_takes_whole_batches_no_hole_stops() -> None:
    compacted = SlotScan("out", 0, Identity(PID, 0), 0, any_generation=False, has_holes=True)
    found = compacted.batches(batch(0, 1, 1) + batch(5, 5, 2) + batch(7, 5, 2) + batch(20, 20, 1), 21)
    assert found == [(0, 0, 1), (5, 6, 5), (7, 8, 5), (20, 20, 20)]
    assert compacted.records == 21
