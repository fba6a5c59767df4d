"""The sender's promises one by one."""

import pytest

from oncelog.client.error_codes import ErrorCodes as Code
from oncelog.client.sending import Answer, Boundary, Identity, StoredSpan
from oncelog.client.sending.tenure import LAST_EPOCH
from tests.client.sending.stage import (
    LEASED,
    PLACE,
    STOCK,
    Delivered,
    Failed,
    LookUp,
    NeedIdentity,
    NeedMetadata,
    Stage,
)

PID = STOCK.pid


def test_batches_get_their_slots_in_order_when_they_are_first_sent() -> None:
    stage = Stage(is_leased=True)
    stage.add("a", "b")
    stage.add("c")
    assert stage.slots() == [(*LEASED, 0), (*LEASED, 2)]


def test_a_kafka_pids_first_batch_travels_alone() -> None:
    stage = Stage()
    stage.add("a")
    stage.add("b")
    (first,) = stage.sent()
    stage.answer(first)
    assert stage.slots() == [(*STOCK, 1)]


def test_sequences_wrap() -> None:
    stage = Stage()
    stage.sender.resume(PLACE, STOCK, 2**31 - 2, stage.now_ms)
    stage.add("a", "b", "c")
    (request,) = stage.sent()
    assert request.batches[0].last_sequence == 0
    stage.answer(request)
    stage.add("d")
    assert stage.slots() == [(*STOCK, 1)]


def test_no_more_than_max_in_flight_are_under_way() -> None:
    stage = Stage(is_leased=True, max_in_flight=2)
    for value in "abc":
        stage.add(value)
    first, _ = stage.sent()
    assert stage.sender.backlog(PLACE) == 1
    stage.answer(first)
    assert len(stage.sent()) == 1


def test_one_failure_fails_all_later_in_flight_and_all_go_again_in_order_in_their_slots() -> None:
    stage = Stage(is_leased=True)
    for value in "abc":
        stage.add(value)
    one, two, three = stage.sent()
    stage.answer(one)
    stage.answer(two, Code.NOT_ENOUGH_REPLICAS)
    stage.pass_ms(1_000)
    assert stage.sent() == []  # the third is still under way
    stage.answer(three, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert stage.slots() == [(*LEASED, 1), (*LEASED, 2)]


def test_several_partitions_share_a_request_and_one_partition_never_fills_it_twice() -> None:
    stage = Stage(is_leased=True)
    other = ("t", 1)
    stage.sender.leaders({other: 1}, stage.now_ms)
    stage.sender.granted([other], Identity(8, 0), 100_000, stage.now_ms)
    for place in (PLACE, PLACE, other):
        stage.add("x", place=place)
    assert [[batch.partition for batch in request.batches] for request in stage.sent()] == [[0, 1], [0]]


def test_a_request_stays_below_its_limit() -> None:
    stage = Stage(is_leased=True, max_request_bytes=400)
    places = [("t", index) for index in range(1, 4)]
    stage.sender.leaders(dict.fromkeys(places, 1), stage.now_ms)
    stage.sender.granted(places, Identity(8, 0), 100_000, stage.now_ms)
    for place in places:
        stage.add("x" * 100, place=place)
    assert [len(request.batches) for request in stage.sent()] == [1, 1, 1]


@pytest.mark.parametrize("failures, waits_ms", [(1, 100), (2, 200), (3, 400), (4, 500), (5, 500)])
def test_the_backoff_doubles_up_to_its_bound(failures: int, waits_ms: int) -> None:
    stage = Stage(retry_backoff_ms=100, retry_backoff_max_ms=500)
    stage.add("a")
    for _ in range(failures):
        stage.pass_ms(500)
        stage.answer(stage.sent()[0], Code.NOT_ENOUGH_REPLICAS)
    assert stage.sender.next_due_ms() == stage.now_ms + waits_ms
    stage.pass_ms(waits_ms - 1)
    assert stage.sent() == []
    stage.pass_ms(1)
    assert len(stage.sent()) == 1


def test_a_new_leader_ends_the_backoff_that_was_meant_for_the_old_one() -> None:
    stage = Stage()
    stage.add("a")
    stage.answer(stage.sent()[0], Code.NOT_LEADER_FOR_PARTITION)
    assert [action.topics for action in stage.take(NeedMetadata)] == [["t"]]
    stage.sender.leaders({PLACE: 2}, stage.now_ms)
    assert [request.node_id for request in stage.sent()] == [2]


@pytest.mark.parametrize(
    "code, maybe_stored",
    [
        (Code.TOPIC_AUTHORIZATION_FAILED, False),
        (Code.INVALID_RECORD, False),
        (Code.MSG_SIZE_TOO_LARGE, False),
        (Code.UNSUPPORTED_COMPRESSION_TYPE, False),
        (Code.UNKNOWN, True),
        (7777, True),
    ],
)
def test_what_is_refused_for_good_is_reported_at_once(code: int, maybe_stored: bool) -> None:
    stage = Stage()
    batch = stage.add("a")
    stage.answer(stage.sent()[0], code)
    assert [tuple(action) for action in stage.take(Failed)] == [(batch, code, None, maybe_stored)]


@pytest.mark.parametrize(
    "code, leaves_doubt",
    [
        (Code.NOT_ENOUGH_REPLICAS, False),
        (Code.LEADER_NOT_AVAILABLE, False),
        (Code.INVALID_MSG, False),
        (Code.UNKNOWN_TOPIC_ID, False),
        (Code.REQUEST_TIMED_OUT, True),
        (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (Code.KAFKA_STORAGE_ERROR, True),
        (Code.NOT_LEADER_FOR_PARTITION, True),
        (Code.UNKNOWN_TOPIC_OR_PART, True),
    ],
)
def test_what_is_retried_until_its_time_is_over_may_be_stored_if_the_error_leaves_doubt(
    code: int, leaves_doubt: bool
) -> None:
    stage = Stage(delivery_timeout_ms=1_000)
    stage.add("a")
    stage.answer(stage.sent()[0], code)
    assert stage.take(Failed) == []
    stage.pass_ms(1_000)
    (failed,) = stage.take(Failed)
    assert (failed.code, failed.maybe_stored) == (Code._MSG_TIMED_OUT, leaves_doubt)


def test_retries_are_counted_and_a_failure_of_an_earlier_batch_is_none() -> None:
    stage = Stage(is_leased=True, retries=1)
    stage.add("a")
    stage.add("b")
    for _ in range(2):
        one, two = stage.sent()
        stage.answer(one, Code.NOT_ENOUGH_REPLICAS)
        stage.answer(two, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        stage.pass_ms(2_000)
    (failed,) = stage.take(Failed)
    assert failed.batch.payload == ["a"] and not failed.maybe_stored
    assert stage.slots() == [(*LEASED, 0)]  # the other one moves up: nobody else can have that slot


def test_a_request_that_never_left_leaves_no_doubt() -> None:
    stage = Stage(delivery_timeout_ms=1_000)
    stage.add("a")
    stage.lose(stage.sent()[0], was_sent=False)
    stage.pass_ms(1_000)
    assert [action.maybe_stored for action in stage.take(Failed)] == [False]
    assert stage.take(LookUp) == []


def test_duplicate_sequence_number_means_stored_and_is_worth_comparing() -> None:
    stage = Stage()
    stage.add("a")
    stage.answer(stage.sent()[0], Code.DUPLICATE_SEQUENCE_NUMBER, -1)
    (delivered,) = stage.take(Delivered)
    assert delivered.was_in_doubt and delivered.base_offset == -1


def test_a_batch_that_is_too_large_is_cut_in_two_that_keep_its_slots() -> None:
    stage = Stage(is_leased=True)
    stage.add("a", "b", "c")
    stage.add("d")
    one, two = stage.sent()
    stage.answer(one, Code.MSG_SIZE_TOO_LARGE)
    stage.answer(two, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    requests = stage.sent()
    assert [batch.payload for each in requests for batch in each.batches] == [["a"], ["b", "c"], ["d"]]
    assert [batch.first_sequence for each in requests for batch in each.batches] == [0, 1, 3]


# Doubts


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
    stage.sender.granted([PLACE], Identity(9, 0), 90_000, stage.now_ms)
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
    stage.sender.granted([PLACE], Identity(PID + 1, 0), None, stage.now_ms)
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


# Leases


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
    stage.sender.granted([PLACE], Identity(8, 1), 49_000, stage.now_ms)
    stage.add("c")
    assert stage.sent() == []
    stage.answer(old)
    assert stage.slots() == [(8, 1, 0)]


def test_all_partitions_ask_for_their_new_lease_in_one_request() -> None:
    stage = Stage(is_leased=True, expires_at_ms=25_000)
    places = [PLACE, ("t", 1)]
    stage.sender.leaders(dict.fromkeys(places, 1), stage.now_ms)
    stage.sender.granted(places[1:], LEASED, 25_000, stage.now_ms)
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
    stage.sender.granted([PLACE], Identity(8, 1), 9_000, stage.now_ms)
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
    stage.sender.granted([PLACE], Identity(8, 1), 49_000, stage.now_ms)
    stage.add("b")
    (request,) = stage.sent()
    assert request.batches[0].identity == LEASED
    assert stage.sender.boundary(PLACE) is None
    stage.answer(request, base_offset=6)
    assert stage.sender.boundary(PLACE) == Boundary(Identity(8, 1), 0, 7, 49_000)
    stage.add("c")
    assert stage.slots() == [(8, 1, 0)]


# Idempotence off


def test_without_idempotence_nothing_is_stamped_and_acks_0_is_delivered_when_it_is_written() -> None:
    stage = Stage(is_idempotent=False, acks=0, max_in_flight=1_000_000)
    batch = stage.add("a")
    (request,) = stage.sent()
    assert batch.identity == (-1, -1)
    stage.sender.answered(request.request_id, None, stage.now_ms)
    assert stage.take(Delivered) == [(batch, -1, -1, False)]


def test_without_idempotence_what_failed_goes_again_before_what_was_not_sent() -> None:
    stage = Stage(is_idempotent=False, max_in_flight=2)
    for value in "abc":
        stage.add(value)
    one, two = stage.sent()
    stage.answer(one, Code.NOT_ENOUGH_REPLICAS)
    stage.answer(two)
    stage.pass_ms(1_000)
    assert [batch.payload for each in stage.sent() for batch in each.batches] == [["a"], ["c"]]


# Giving up, throttling, odd answers


def test_giving_up_reports_the_queue_and_what_is_in_flight_apart() -> None:
    stage = Stage()
    stage.add("a")
    stage.add("b")
    (request,) = stage.sent()
    stage.sender.give_up(stage.now_ms, Code._PURGE_QUEUE, in_flight=False)
    assert [(each.batch.payload, each.maybe_stored) for each in stage.take(Failed)] == [(["b"], False)]
    stage.sender.give_up(stage.now_ms, Code._PURGE_INFLIGHT)
    assert [(each.batch.payload, each.maybe_stored) for each in stage.take(Failed)] == [(["a"], True)]
    stage.answer(request)
    assert stage.take(Delivered) == []  # it was reported already
    stage.add("c")
    assert stage.slots() == [(*STOCK, 1)]  # and the answer showed that its slot is filled


def test_a_throttled_broker_gets_nothing_until_then() -> None:
    stage = Stage()
    stage.sender.throttled(1, stage.now_ms + 50)
    stage.add("a")
    assert stage.sent() == []
    assert stage.sender.next_due_ms() == stage.now_ms + 50
    stage.pass_ms(50)
    assert len(stage.sent()) == 1


def test_a_broker_that_asks_for_a_pause_gets_it() -> None:
    stage = Stage(is_leased=True)
    stage.add("a")
    (request,) = stage.sent()
    stage.sender.answered(request.request_id, [Answer(*PLACE, 0, 0)], stage.now_ms, throttle_ms=30)
    stage.add("b")
    assert stage.sent() == []
    stage.pass_ms(30)
    assert len(stage.sent()) == 1


def test_an_answer_that_leaves_a_batch_out_proves_nothing_about_it() -> None:
    stage = Stage(delivery_timeout_ms=1_000)
    stage.add("a")
    (request,) = stage.sent()
    stage.sender.answered(request.request_id, [Answer("t", 5, 0), Answer("t", 6, 0)], stage.now_ms)
    stage.pass_ms(1_000)
    assert [action.maybe_stored for action in stage.take(Failed)] == [True]


def test_an_identity_that_is_refused_for_good_fails_what_waits_for_it() -> None:
    stage = Stage()
    other = ("u", 0)
    stage.sender.leaders({other: 1}, stage.now_ms)
    stage.sender.resume(other, Identity(PID, LAST_EPOCH), 5, stage.now_ms)
    batch = stage.add("a", place=other)
    stage.answer(stage.sent()[0], Code.UNKNOWN_PRODUCER_ID)
    stage.pass_ms(1_000)
    stage.take(NeedIdentity)
    stage.sender.not_granted([other], Code.CLUSTER_AUTHORIZATION_FAILED, "no", stage.now_ms)
    assert stage.take(Failed) == [(batch, Code.CLUSTER_AUTHORIZATION_FAILED, "no", False)]


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
    assert stage.sender.boundary(PLACE) == Boundary(STOCK, 2, 42, None)
