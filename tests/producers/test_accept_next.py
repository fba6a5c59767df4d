"""The short way for the usual batch does what `judge` and `accept` do, or nothing at all."""

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clock import Now
from oncelog.producers import APPEND, FIRST_KAFKA_PID, Decision, ProducerMap

pids = st.sampled_from([1, 2, FIRST_KAFKA_PID, FIRST_KAFKA_PID + 1])
batches = st.lists(
    st.tuples(pids, st.integers(0, 2), st.sampled_from([0, 1, 2, 3, 4, 6, 2**31 - 2, 2**31 - 1]), st.integers(1, 3)),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(batches)
def test_the_short_way_leads_to_the_same_map(asked: list[tuple[int, int, int, int]]) -> None:
    slow, quick = ProducerMap(), ProducerMap()
    for number, (pid, generation, sequence, count) in enumerate(asked):
        now = Now(1_000_000 + number, number)
        batch = pid, generation, sequence, count
        judgement = slow.judge(*batch, now)
        if judgement[0] is Decision.APPEND:
            slow.accept(*batch, number * 10, number, now)
        before = quick.encode(now)
        if quick.accept_next(*batch, number * 10, number, now):
            assert judgement is APPEND
        else:
            assert quick.encode(now) == before
            if quick.judge(*batch, now)[0] is Decision.APPEND:
                quick.accept(*batch, number * 10, number, now)
        assert quick.encode(now) == slow.encode(now)


def test_the_usual_batch_of_a_kafka_pid_goes_the_short_way() -> None:
    producers, now = ProducerMap(), Now(1, 1)
    producers.accept(FIRST_KAFKA_PID, 0, 0, 5, 0, 1, now)
    assert producers.accept_next(FIRST_KAFKA_PID, 0, 5, 5, 5, 1, now)
    assert producers.highwater(FIRST_KAFKA_PID) == (0, 9)
    assert not producers.accept_next(FIRST_KAFKA_PID, 0, 5, 5, 5, 1, now), "a duplicate is judged"
