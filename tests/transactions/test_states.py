"""The table of a transactional id, and what stands around it."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from oncelog.transactions import machine, records
from oncelog.transactions.machine import LAST_EPOCH, NO_EPOCH, NO_PID, RAISES, Expected, Transaction
from oncelog.transactions.records import BadState
from oncelog.transactions.states import DONE, TABLE, Event, Refusal, State, To

PID, FRESH = 2**32, 2**32 + 7
AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
STORED = [state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]


def begun(epoch: int = 0) -> Transaction:
    found = machine.initialised(machine.new(PID, 1000, 1), 1000, None, 1, NO_PID)
    assert isinstance(found, Transaction)
    return replace(found, epoch=epoch)


def ongoing(epoch: int = 0) -> Transaction:
    found = machine.added(begun(epoch), PID, epoch, frozenset({("t", 0)}), 5)
    assert isinstance(found, Transaction)
    return found


def decided(now: Transaction, *, is_commit: bool, raises: bool) -> Transaction:
    found = machine.ended(now, now.pid, now.epoch, is_commit=is_commit, raises=raises, fresh_pid=FRESH, wall_ms=9)
    assert isinstance(found, Transaction)
    return found


@pytest.mark.parametrize("event", Event)
def test_every_event_has_an_answer_in_every_state_that_is_stored(event: Event) -> None:
    assert set(TABLE[event]) == set(STORED)


def test_what_is_decided_stays_decided() -> None:
    for state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        next_states = {outcome.state for row in TABLE.values() if isinstance(outcome := row[state], To)}
        assert next_states == {State.COMPLETE_COMMIT if state is State.PREPARE_COMMIT else State.COMPLETE_ABORT}


def test_only_what_is_at_rest_expires() -> None:
    assert {state for state, outcome in TABLE[Event.EXPIRE].items() if isinstance(outcome, To)} == set(AT_REST)


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_an_end_asked_for_again_changes_nothing(is_commit: bool, raises: bool) -> None:
    first = ongoing()
    prepared = decided(first, is_commit=is_commit, raises=raises)
    assert prepared.epoch == first.epoch + raises

    def again(now: Transaction) -> object:
        return machine.ended(
            now, first.pid, first.epoch, is_commit=is_commit, raises=raises, fresh_pid=FRESH, wall_ms=9
        )

    assert again(prepared) is Refusal.CONCURRENT_TRANSACTIONS
    assert again(machine.completed(prepared, 10)) is DONE


def test_the_last_epoch_is_left_for_a_fence_and_then_comes_another_pid() -> None:
    full = ongoing(LAST_EPOCH - 1)
    assert machine.fenced(full).epoch == LAST_EPOCH
    prepared = decided(full, is_commit=True, raises=True)
    assert (prepared.pid, prepared.epoch, prepared.next_pid) == (PID, LAST_EPOCH, FRESH)
    done = machine.completed(prepared, 10)
    assert (done.pid, done.epoch, done.previous_pid, done.last_epoch) == (FRESH, 0, PID, LAST_EPOCH - 1)
    again = machine.ended(done, PID, LAST_EPOCH - 1, is_commit=True, raises=True, fresh_pid=1, wall_ms=9)
    assert again is DONE, "its producer did not hear of the new pid"
    resumed = machine.initialised(done, 1000, Expected(PID, LAST_EPOCH - 1), 11, 1)
    assert isinstance(resumed, Transaction), "nor does it when it is initialised anew instead"
    assert (resumed.pid, resumed.epoch) == (FRESH, 0)
    rotated = machine.initialised(begun(LAST_EPOCH - 1), 1000, None, 2, FRESH)
    assert isinstance(rotated, Transaction)
    assert (rotated.pid, rotated.epoch) == (FRESH, 0)


def test_who_is_fenced_is_aborted_by_the_next_epoch() -> None:
    fence = machine.fenced(ongoing(3))
    aborted = machine.aborted(fence, 9, raises=True)
    assert (aborted.state, aborted.epoch, aborted.partitions) == (State.PREPARE_ABORT, 4, frozenset({("t", 0)}))


def test_a_producer_that_is_initialised_twice_by_one_request_keeps_its_epoch() -> None:
    first = begun(4)
    second = machine.initialised(first, 1000, Expected(PID, 4), 2, NO_PID)
    assert isinstance(second, Transaction)
    third = machine.initialised(second, 1000, Expected(PID, 4), 3, NO_PID)
    assert isinstance(third, Transaction)
    assert (second.epoch, third.epoch) == (5, 5)
    assert machine.initialised(third, 1000, Expected(PID, 3), 4, NO_PID) is Refusal.FENCED


@pytest.mark.parametrize("expected", [None, Expected(PID, 0), Expected(PID + 1, 5), Expected(1, LAST_EPOCH)])
def test_an_id_that_is_not_known_any_more_begins_anew_whatever_its_producer_says_it_was(
    expected: Expected | None,
) -> None:
    """As in Kafka: so no id is made room for and then refused."""
    found = machine.initialised(machine.new(PID, 1000, 1), 1000, expected, 1, NO_PID)
    assert isinstance(found, Transaction)
    assert (found.pid, found.epoch) == (PID, 0)


TRANSACTIONS = st.builds(
    Transaction,
    pid=st.integers(0, 2**62),
    epoch=st.integers(0, LAST_EPOCH),
    previous_pid=st.integers(-1, 2**62),
    next_pid=st.integers(-1, 2**62),
    last_epoch=st.just(NO_EPOCH),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(STORED[1:]),
    partitions=st.frozensets(st.tuples(st.text(max_size=200), st.integers(0, 2**31 - 1)), max_size=5),
    started_wall_ms=st.integers(-1, 2**62),
    updated_wall_ms=st.integers(0, 2**62),
    version=st.sampled_from((0, RAISES)),
)


@given(TRANSACTIONS)
def test_what_is_stored_is_read_back(transaction: Transaction) -> None:
    assert records.decode(records.encode(transaction)) == transaction


@given(st.binary(max_size=80))
def test_what_is_no_state_is_told_so(data: bytes) -> None:
    try:
        records.decode(data)
    except BadState:
        pass


def test_a_key_is_read_back_and_one_of_another_kind_passed_over() -> None:
    assert records.decode_key(records.encode_key("id")) == "id"
    assert records.decode_key(b"\0\1xx") is None
