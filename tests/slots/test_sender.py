"""The sender's promises one by one."""

import pytest

from oncelog.error_codes import TEXTS
from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots import NOBODY, Identity, Place
from oncelog.slots.messages import BatchAnswer
from oncelog.slots.tenure import LAST_EPOCH
from tests.slots.stage import (
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
    assert stage.slots() == [(*LEASED[:2], 0), (*LEASED[:2], 2)]


def test_a_kafka_pids_first_batch_travels_alone() -> None:
    stage = Stage()
    stage.add("a")
    stage.add("b")
    (first,) = stage.sent()
    stage.answer(first)
    assert stage.slots() == [(*STOCK[:2], 1)]


def test_sequences_wrap() -> None:
    stage = Stage()
    stage.sender.resume(PLACE, STOCK, 2**31 - 2, stage.now_ms)
    stage.add("a", "b", "c")
    (request,) = stage.sent()
    assert request.batches[0].last_sequence == 0
    stage.answer(request)
    stage.add("d")
    assert stage.slots() == [(*STOCK[:2], 1)]


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
    assert stage.slots() == [(*LEASED[:2], 1), (*LEASED[:2], 2)]


def test_several_partitions_share_a_request_and_one_partition_never_fills_it_twice() -> None:
    stage = Stage(is_leased=True)
    other = Place("t", 1)
    stage.sender.leaders({other: 1}, stage.now_ms)
    stage.sender.granted([other], Identity(8, 0, 100_000), stage.now_ms)
    for place in (PLACE, PLACE, other):
        stage.add("x", place=place)
    assert [[batch.partition for batch in request.batches] for request in stage.sent()] == [[0, 1], [0]]


def test_a_request_stays_below_its_limit() -> None:
    stage = Stage(is_leased=True, max_request_bytes=400)
    places = [Place("t", index) for index in range(1, 4)]
    stage.sender.leaders(dict.fromkeys(places, 1), stage.now_ms)
    stage.sender.granted(places, Identity(8, 0, 100_000), stage.now_ms)
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


def test_what_is_given_up_in_time_says_what_was_in_the_way_last() -> None:
    stage = Stage(is_leased=True, delivery_timeout_ms=1_000, max_in_flight=1)
    stage.add("sent")
    stage.add("waits behind it")
    stage.answer(stage.sent()[0], Code.NOT_ENOUGH_REPLICAS)
    stage.pass_ms(1_000)
    assert [failed.message for failed in stage.take(Failed)] == [TEXTS[Code.NOT_ENOUGH_REPLICAS]] * 2
    stage.add("lost")
    stage.sender.lost(stage.sent()[0].request_id, stage.now_ms, message="h:1: connect failed", was_sent=False)
    stage.pass_ms(1_000)
    assert [failed.message for failed in stage.take(Failed)] == ["h:1: connect failed"]
    stage.add("sent in the end")
    stage.answer(stage.sent()[0])
    stage.add("not answered")
    stage.sent()
    stage.pass_ms(1_000)
    assert [failed.message for failed in stage.take(Failed)] == [None]


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
    assert stage.slots() == [(*LEASED[:2], 0)]  # the other one moves up: nobody else can have that slot


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


# Idempotence off


def test_without_idempotence_nothing_is_stamped_and_acks_0_is_delivered_when_it_is_written() -> None:
    stage = Stage(is_idempotent=False, acks=0, max_in_flight=1_000_000)
    batch = stage.add("a")
    (request,) = stage.sent()
    assert batch.identity == NOBODY
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
    assert stage.slots() == [(*STOCK[:2], 1)]  # and the answer showed that its slot is filled


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
    stage.sender.answered(request.request_id, [BatchAnswer(*PLACE, 0, 0)], stage.now_ms, throttle_ms=30)
    stage.add("b")
    assert stage.sent() == []
    stage.pass_ms(30)
    assert len(stage.sent()) == 1


def test_an_answer_that_leaves_a_batch_out_proves_nothing_about_it() -> None:
    stage = Stage(delivery_timeout_ms=1_000)
    stage.add("a")
    (request,) = stage.sent()
    stage.sender.answered(request.request_id, [BatchAnswer("t", 5, 0), BatchAnswer("t", 6, 0)], stage.now_ms)
    stage.pass_ms(1_000)
    assert [action.maybe_stored for action in stage.take(Failed)] == [True]


def test_an_identity_that_is_refused_for_good_fails_what_waits_for_it() -> None:
    stage = Stage()
    other = Place("u", 0)
    stage.sender.leaders({other: 1}, stage.now_ms)
    stage.sender.resume(other, Identity(PID, LAST_EPOCH), 5, stage.now_ms)
    batch = stage.add("a", place=other)
    stage.answer(stage.sent()[0], Code.UNKNOWN_PRODUCER_ID)
    stage.pass_ms(1_000)
    stage.take(NeedIdentity)
    stage.sender.not_granted([other], Code.CLUSTER_AUTHORIZATION_FAILED, "no", stage.now_ms)
    assert stage.take(Failed) == [(batch, Code.CLUSTER_AUTHORIZATION_FAILED, "no", False)]


def test_without_a_delivery_timeout_nothing_times_out() -> None:
    stage = Stage(delivery_timeout_ms=0)
    batch = stage.add("a")
    for _ in range(5):
        (request,) = stage.sent()
        stage.lose(request)
        stage.pass_ms(10_000_000)
    assert stage.take(Failed) == []
    stage.answer(stage.sent()[0])
    assert [each.batch for each in stage.take(Delivered)] == [batch]


def test_the_broker_that_asked_for_a_pause_gets_it_also_when_another_leads_by_now() -> None:
    stage = Stage(is_leased=True)
    stage.add("a")
    (request,) = stage.sent()
    stage.sender.leaders({PLACE: 2}, stage.now_ms)
    stage.sender.answered(request.request_id, [BatchAnswer(*PLACE, 0, 0)], stage.now_ms, throttle_ms=30)
    stage.add("b")
    assert [each.node_id for each in stage.sent()] == [2]
    stage.sender.leaders({PLACE: 1}, stage.now_ms)
    stage.add("c")
    assert stage.sent() == []


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    stage = Stage()
    stage.sender.throttled(1, stage.now_ms + 50)
    stage.sender.throttled(1, stage.now_ms + 10)
    stage.add("a")
    stage.pass_ms(20)
    assert stage.sent() == []


def test_an_answer_about_another_partition_acknowledges_nothing() -> None:
    stage = Stage(delivery_timeout_ms=1_000)
    stage.add("a")
    (request,) = stage.sent()
    stage.sender.answered(request.request_id, [BatchAnswer("t", 5, 0)], stage.now_ms)
    assert stage.take(Delivered) == []
    stage.pass_ms(1_000)
    assert [action.maybe_stored for action in stage.take(Failed)] == [True]


def test_a_renewal_that_is_refused_is_not_asked_for_again_at_once() -> None:
    stage = Stage(is_leased=True, expires_at_ms=25_000, retry_backoff_max_ms=100)
    stage.add("a")
    stage.answer(stage.sent()[0])
    stage.pass_ms(23_000)
    assert len(stage.take(NeedIdentity)) == 1
    stage.sender.not_granted([PLACE], Code.CLUSTER_AUTHORIZATION_FAILED, "no", stage.now_ms)
    assert stage.take(NeedIdentity) == []
    stage.pass_ms(99)
    assert stage.take(NeedIdentity) == []
    stage.pass_ms(1)
    assert len(stage.take(NeedIdentity)) == 1
