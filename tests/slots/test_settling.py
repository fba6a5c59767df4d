"""Doubts, identities and leases: when records get new slots, and when they must not."""

from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots import Identity, Place
from oncelog.slots.actions import PARTLY_THERE
from oncelog.slots.messages import Boundary, Found, StoredSpan
from oncelog.slots.tenure import LAST_EPOCH
from tests.slots.stage import (
    LEASED,
    PLACE,
    STOCK,
    Delivered,
    Failed,
    LookUp,
    NeedIdentity,
    Stage,
)

PID = STOCK.pid


def test_after_a_timeout_in_doubt_the_log_is_asked_before_anything_moves_up() -> None:
    stage = Stage(delivery_timeout_ms=1_000, settle_ms=5_000)
    stage.prove()
    stage.add("a")
    stage.lose(stage.sent()[0])
    stage.pass_ms(500)
    stage.add("b")
    again, second = stage.sent()
    stage.answer(again, Code.NOT_ENOUGH_REPLICAS)
    stage.answer(second, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.pass_ms(500)
    assert [action.maybe_stored for action in stage.take(Failed)] == [True]
    assert stage.sent() == []
    (asked,) = stage.take(LookUp)
    assert asked[1:] == (STOCK, 1, False, 1)


def test_without_a_fence_not_there_counts_only_when_nothing_can_be_under_way() -> None:
    stage = Stage(delivery_timeout_ms=1_000, settle_ms=5_000)
    stage.prove()
    stage.add("a")
    stage.lose(stage.sent()[0])
    stage.pass_ms(1_000)
    stage.tell(0)
    stage.pass_ms(3_999)
    stage.add("b")
    assert stage.sent() == [] and stage.take(LookUp) == []
    stage.pass_ms(1)
    stage.tell(0)
    assert stage.slots() == [(PID, 1, 0)]  # a new epoch, and its first batch alone


def test_what_is_found_in_the_log_is_delivered_with_its_offset() -> None:
    stage = Stage(is_leased=True, expires_at_ms=3_000)
    batch = stage.add("a", "b")
    stage.lose(stage.sent()[0])
    stage.pass_ms(2_000)
    stage.tell(1, 4, StoredSpan(0, 1, 40))
    assert stage.take(Delivered) == [(batch, 40, -1, True)]


def test_what_lies_in_the_log_in_part_is_cut_there() -> None:
    stage = Stage()
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    stage.add("a", "b", "c")
    stage.answer(stage.sent()[0], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.pass_ms(1_000)
    stage.tell(11, None, StoredSpan(8, 11, 98))
    (delivered,) = stage.take(Delivered)
    assert (delivered.batch.payload, delivered.base_offset) == (["a", "b"], 100)
    (request,) = stage.sent()
    assert request.batches[0].payload == ["c"] and request.batches[0].first_sequence == 12


def test_what_another_process_has_filled_is_passed_without_a_pause() -> None:
    stage = Stage()
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    for letters in ("ab", "cd", "ef"):
        stage.add(*letters)
    for first in (10, 12, 14):
        (request,) = stage.sent()
        stage.answer(request, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        stage.tell(40, None, StoredSpan(0, 40, 0))
        assert [each.batch.first_sequence for each in stage.take(Delivered)] == [first]
    assert stage.sent() == []


def test_a_shared_producer_that_was_silent_for_long_asks_the_log_before_it_goes_on() -> None:
    """The broker may have forgotten whoever filled the slots meanwhile, and would take them again."""
    stage = Stage(forget_after_ms=100_000, settle_ms=5_000)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    stage.add("a")
    stage.answer(stage.sent()[0], base_offset=7)
    stage.take(Delivered)
    stage.pass_ms(94_999)
    stage.add("b")
    stage.answer(stage.sent()[0], base_offset=8)  # it was not silent for so long
    stage.take(Delivered)
    stage.pass_ms(95_000)
    found = stage.add("c", "d")
    stage.add("e", "f")
    assert stage.sent() == []
    stage.tell(14, None, StoredSpan(12, 14, 40))
    delivered = stage.take(Delivered)
    assert [(each.batch.payload, each.base_offset) for each in delivered] == [(["c", "d"], 40), (["e"], 42)]
    assert delivered[0].batch is found
    assert all(each.was_in_doubt for each in delivered), "they are to be compared"
    assert stage.slots() == [(PID, 0, 15)]
    assert stage.take(LookUp) == []


def test_a_shared_producer_asks_again_while_others_are_further_than_it_has_records() -> None:
    stage = Stage(forget_after_ms=100_000)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    stage.pass_ms(200_000)
    for first, letter in ((10, "a"), (11, "b")):
        stage.add(letter)
        assert stage.sent() == []
        stage.tell(11, None, StoredSpan(10, 11, 40))
        (delivered,) = stage.take(Delivered)
        assert (delivered.batch.first_sequence, delivered.base_offset) == (first, 30 + first)
    stage.add("c")
    assert stage.slots() == [(PID, 0, 12)]


def test_what_can_never_be_known_is_reported_and_the_rest_goes_on_under_a_new_identity() -> None:
    stage = Stage(is_leased=True, expires_at_ms=3_000)
    stage.add("a")
    stage.lose(stage.sent()[0])
    stage.pass_ms(2_000)
    stage.add("b")
    (asked,) = stage.take(LookUp)
    assert asked.must_fence
    stage.sender.looked_up(PLACE, None, stage.now_ms)
    assert [action.maybe_stored for action in stage.take(Failed)] == [True]
    assert len(stage.take(NeedIdentity)) == 1
    stage.sender.granted([PLACE], Identity(9, 0, 90_000), stage.now_ms)
    assert stage.slots() == [(9, 0, 0)]


def test_a_sequence_refused_with_nothing_in_doubt_takes_the_next_epoch() -> None:
    stage = Stage()
    stage.prove()
    stage.add("a")
    stage.answer(stage.sent()[0], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.pass_ms(1_000)
    assert stage.take(LookUp) == []
    assert stage.slots() == [(PID, 1, 0)]


def test_the_last_epoch_is_followed_by_a_new_pid() -> None:
    stage = Stage()
    stage.sender.resume(PLACE, Identity(PID, LAST_EPOCH), 5, stage.now_ms)
    stage.add("a")
    stage.answer(stage.sent()[0], Code.UNKNOWN_PRODUCER_ID)
    stage.pass_ms(1_000)
    assert len(stage.take(NeedIdentity)) == 1
    stage.sender.granted([PLACE], Identity(PID + 1, 0), stage.now_ms)
    assert stage.slots() == [(PID + 1, 0, 0)]


def test_a_sequence_refused_under_a_lease_asks_for_a_new_one() -> None:
    stage = Stage(is_leased=True)
    stage.add("a")
    stage.answer(stage.sent()[0], Code.UNKNOWN_PRODUCER_ID)
    stage.pass_ms(1_000)
    assert stage.sent() == []
    assert [list(action.places) for action in stage.take(NeedIdentity)] == [[PLACE]]


def test_a_fenced_producer_stops() -> None:
    stage = Stage(is_leased=True)
    stage.add("a")
    stage.add("b")
    one, two = stage.sent()
    stage.answer(one, Code.INVALID_PRODUCER_EPOCH)
    stage.answer(two, Code.INVALID_PRODUCER_EPOCH)
    stage.add("c")
    stage.pass_ms(10_000)
    failed = stage.take(Failed)
    assert [(each.batch.payload, each.code, each.maybe_stored) for each in failed] == [
        (["a"], Code.INVALID_PRODUCER_EPOCH, False),
        (["b"], Code.INVALID_PRODUCER_EPOCH, True),
        (["c"], Code.INVALID_PRODUCER_EPOCH, False),
    ]
    assert stage.sent() == [] and stage.take(NeedIdentity) == []


def test_a_lease_is_renewed_when_23_of_24_parts_are_gone_and_the_old_one_finishes_first() -> None:
    stage = Stage(is_leased=True, expires_at_ms=25_000)
    stage.add("a")
    stage.answer(stage.sent()[0])
    assert stage.sender.next_due_ms() == 24_000
    stage.pass_ms(22_999)
    assert stage.take(NeedIdentity) == []
    stage.pass_ms(1)
    assert len(stage.take(NeedIdentity)) == 1
    stage.add("b")
    (old,) = stage.sent()
    stage.sender.granted([PLACE], Identity(8, 1, 49_000), stage.now_ms)
    stage.add("c")
    assert stage.sent() == []
    stage.answer(old)
    assert stage.slots() == [(8, 1, 0)]


def test_all_partitions_ask_for_their_new_lease_in_one_request() -> None:
    stage = Stage(is_leased=True, expires_at_ms=25_000)
    places = [PLACE, Place("t", 1)]
    stage.sender.leaders(dict.fromkeys(places, 1), stage.now_ms)
    stage.sender.granted(places[1:], LEASED._replace(expires_at_ms=25_000), stage.now_ms)
    for place in places:
        stage.add("x", place=place)
    stage.sent()
    stage.pass_ms(23_000)
    assert [list(action.places) for action in stage.take(NeedIdentity)] == [places]


def test_nothing_is_sent_on_a_lease_that_ended() -> None:
    stage = Stage(is_leased=True, expires_at_ms=3_000)
    stage.add("a")
    stage.answer(stage.sent()[0], Code.NOT_ENOUGH_REPLICAS)
    stage.pass_ms(2_000)
    assert stage.sent() == [] and stage.take(LookUp) == []
    stage.sender.granted([PLACE], Identity(8, 1, 9_000), stage.now_ms)
    assert stage.slots() == [(8, 1, 0)]


def test_after_a_fence_within_the_lease_the_same_pid_goes_on_in_the_raised_generation() -> None:
    stage = Stage(is_leased=True, delivery_timeout_ms=1_000)
    stage.add("a")
    one = stage.sent()[0]
    stage.pass_ms(500)
    stage.add("b")
    two = stage.sent()[0]
    stage.lose(one)
    stage.lose(two)
    stage.pass_ms(500)
    assert [failed.batch.payload for failed in stage.take(Failed)] == [["a"]]
    stage.tell(-1, 4)
    assert stage.slots() == [(LEASED.pid, 4, 0)]


def test_a_pinned_partition_changes_its_lease_only_at_a_boundary() -> None:
    stage = Stage(is_leased=True, expires_at_ms=25_000)
    stage.sender.pin(PLACE)
    stage.add("a")
    stage.answer(stage.sent()[0], base_offset=5)
    stage.take(NeedIdentity)
    stage.pass_ms(23_000)
    stage.take(NeedIdentity)
    stage.sender.granted([PLACE], Identity(8, 1, 49_000), stage.now_ms)
    stage.add("b")
    (request,) = stage.sent()
    assert request.batches[0].identity == LEASED
    assert stage.sender.boundary(PLACE) is None
    stage.answer(request, base_offset=6)
    assert stage.sender.boundary(PLACE) == Boundary(Identity(8, 1, 49_000), 0, 7)
    stage.add("c")
    assert stage.slots() == [(8, 1, 0)]


def test_a_shared_producer_stops_when_one_of_its_slots_stays_empty() -> None:
    stage = Stage(delivery_timeout_ms=1_000)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    stage.add("a")
    stage.add("b")
    stage.answer(stage.sent()[0], Code.INVALID_RECORD)
    assert [each.batch.payload for each in stage.take(Failed)] == [["a"], ["b"]]
    stage.add("c")
    assert [each.batch.payload for each in stage.take(Failed)] == [["c"]]
    assert stage.sender.boundary(PLACE) is None


def test_the_boundary_names_what_is_stored_and_is_not_there_while_anything_is_open() -> None:
    stage = Stage()
    stage.add("a", "b")
    assert stage.sender.boundary(PLACE) is None
    stage.answer(stage.sent()[0], base_offset=40)
    assert stage.sender.boundary(PLACE) == Boundary(STOCK, 2, 42)


def test_an_acknowledgement_that_comes_too_late_proves_nothing_and_the_log_is_read_from_before_it() -> None:
    """Whoever filled these slots meanwhile may be forgotten, so the broker took them again."""
    stage = Stage(forget_after_ms=100_000)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True, next_offset=30)
    stage.add("a", "b")
    stage.add("c")
    (request,) = stage.sent()
    stage.pass_ms(200_000)
    stage.answer(request, base_offset=60)
    (asked,) = stage.take(LookUp)
    assert asked.from_offset == 30
    stage.sender.looked_up(PLACE, Found(11, 0, [StoredSpan(10, 12, 30), StoredSpan(10, 11, 60)]), stage.now_ms)
    failed = stage.take(Failed)
    assert [each.maybe_stored for each in failed] == [True, False]
    assert "slots 10 to 11" in str(failed[0].message) and "offset 60" in str(failed[0].message)
    assert stage.sent() == []


def test_a_late_acknowledgement_of_what_nobody_else_has_written_is_good() -> None:
    stage = Stage(forget_after_ms=100_000)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True, next_offset=30)
    stage.add("a", "b")
    stage.add("c")
    (request,) = stage.sent()
    stage.pass_ms(200_000)
    stage.answer(request, base_offset=60)
    stage.tell(11, None, StoredSpan(10, 11, 60))
    assert [each.base_offset for each in stage.take(Delivered)] == [60]
    assert stage.slots() == [(PID, 0, 12)]


def test_a_shared_request_says_until_when_it_may_leave_and_is_checked_again_behind_a_new_connection() -> None:
    stage = Stage(forget_after_ms=100_000, settle_ms=5_000)
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True)
    stage.add("a")
    (request,) = stage.sent()
    assert (request.until_ms, request.is_checked) == (stage.now_ms + 5_000, True), "nothing is proven yet"
    stage.sender.unchecked(request.request_id, stage.now_ms)
    assert stage.sent() == []
    stage.tell(-1)
    (request,) = stage.sent()
    stage.answer(request, base_offset=7)
    stage.add("b")
    (request,) = stage.sent()
    assert request.until_ms == stage.now_ms + 95_000
    stage.lose(request)
    stage.pass_ms(1_000)
    assert stage.sent() == [] and len(stage.take(LookUp)) == 1, "nothing is sent again before the log was asked"


def test_a_request_under_a_lease_leaves_before_its_end() -> None:
    stage = Stage(is_leased=True, expires_at_ms=25_000)
    stage.add("a")
    (request,) = stage.sent()
    assert (request.until_ms, request.is_checked) == (25_000, False)


def test_a_batch_that_may_not_be_cut_is_refused_as_a_whole_and_stops_where_a_part_of_it_stands() -> None:
    stage = Stage()
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True, cuts=False)
    stage.add("a", "b")
    stage.answer(stage.sent()[0], Code.MSG_SIZE_TOO_LARGE)
    assert [each.batch.payload for each in stage.take(Failed)] == [["a", "b"]]
    stage = Stage()
    stage.sender.resume(PLACE, STOCK, 10, stage.now_ms, is_shared=True, cuts=False)
    stage.add("a", "b")
    stage.answer(stage.sent()[0], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    stage.tell(10, None, StoredSpan(10, 10, 40))
    (failed,) = stage.take(Failed)
    assert failed.message == PARTLY_THERE
    assert stage.sent() == []
