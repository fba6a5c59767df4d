"""The audit against a dumb one that looks at each message, and against the pages of the client article."""

import tracemalloc
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.chaos.audit import MOST_MESSAGES, Audit, Result, Run

SENT = 12


def audited(partitions: Sequence[Sequence[int]], confirmed: Sequence[int] = (), sent: int = SENT) -> Result:
    audit = Audit(sent)
    audit.confirm(np.array(confirmed, np.int64))
    for partition, numbers in enumerate(partitions):
        audit.take(partition, np.array(numbers, np.int64))
    return audit.result()


def test_each_message_once_and_ascending_is_exact() -> None:
    found = audited([[0, 2, 4, 6], [1, 3, 5]], range(7), sent=7)
    assert found.is_exact
    assert (found.confirmed, found.all.received, found.all.unique) == (7, 7, 7)
    assert found.runs == ()


def test_a_block_that_is_sent_again_is_a_jump_back_and_a_run() -> None:
    """As the article prints it: `m=65899 Last-acked=65929 JUMP BACK 30`."""
    numbers = [*range(65_930), *range(65_899, 65_930), 65_930]
    found = audited([numbers], range(65_931), sent=65_931)
    assert found.runs == (Run(partition=0, row=65_930, number=65_899, last=65_929, length=31, duplicates=31),)
    assert found.runs[0].jump == 30
    assert (found.all.received, found.all.unique, found.all.duplicates) == (65_962, 65_931, 31)
    assert not found.is_exact


def test_what_was_confirmed_and_is_not_there_is_missing() -> None:
    found = audited([[0, 1, 3]], [0, 1, 2, 3], sent=4)
    assert (found.missing, found.missing_examples, found.is_exact) == (1, (2,), False)


def test_what_is_there_and_was_never_confirmed_is_no_fault() -> None:
    found = audited([[0, 1, 2]], [0, 1], sent=3)
    assert (found.unconfirmed_there, found.missing, found.is_exact) == (1, 0, True)


def test_what_comes_too_late_is_out_of_order_and_no_duplicate() -> None:
    found = audited([[0, 2, 1, 3]], range(4), sent=4)
    assert (found.all.out_of_order, found.all.duplicates, found.is_exact) == (1, 0, False)
    assert found.runs == (Run(partition=0, row=2, number=1, last=2, length=1, duplicates=0),)


@pytest.mark.parametrize("number", [-1, SENT])
def test_what_nobody_sent_is_foreign(number: int) -> None:
    found = audited([[0, number, 1]], [0, 1])
    assert (found.all.foreign, found.all.received, found.all.unique, found.is_exact) == (1, 3, 2, False)


def test_a_message_in_two_partitions_is_there_twice() -> None:
    assert audited([[0, 1], [1, 2]], range(3)).all.duplicates == 1


def test_an_audit_has_a_largest_size() -> None:
    with pytest.raises(ValueError, match=r"0 to 1,100,000,000 messages"):
        Audit(MOST_MESSAGES + 1)


def slowly(partitions: Sequence[Sequence[int]]) -> tuple[Counter[str], list[Run]]:
    """Message by message."""
    counts: Counter[str] = Counter()
    runs: list[list[int]] = []
    seen: set[int] = set()
    for partition, numbers in enumerate(partitions):
        last = -1
        run: list[int] | None = None
        for row, number in enumerate(numbers):
            counts["received"] += 1
            if not 0 <= number < SENT:
                counts["foreign"] += 1
                continue
            is_twice = number in seen
            seen.add(number)
            counts["duplicates" if is_twice else "unique"] += 1
            if number > last:
                last, run = number, None
                continue
            counts["out_of_order"] += not is_twice
            if run is None:
                counts["runs"] += 1
                run = [partition, row, number, last, 0, 0]
                runs.append(run)
            run[4] += 1
            run[5] += is_twice
    return counts, [Run(*each) for each in runs]


numbers = st.lists(st.lists(st.integers(-1, SENT), max_size=30), max_size=3)


@given(numbers, st.integers(1, 7), st.sets(st.integers(0, SENT - 1)))
def test_columns_in_portions_come_to_what_looking_at_each_message_does(
    partitions: list[list[int]], portion: int, confirmed: set[int]
) -> None:
    audit = Audit(SENT)
    audit.confirm(np.array(sorted(confirmed), np.int64))
    for partition, column in enumerate(partitions):
        for at in range(0, len(column), portion):
            audit.take(partition, np.array(column[at : at + portion], np.int64))
    found = audit.result()
    counts, runs = slowly(partitions)
    for name in ("received", "unique", "duplicates", "out_of_order", "foreign", "runs"):
        assert getattr(found.all, name) == counts[name], name
    assert list(found.runs) == runs
    everything = {number for column in partitions for number in column}
    assert found.missing == len(confirmed - everything)
    assert found.unconfirmed_there == len((everything & set(range(SENT))) - confirmed)


def test_a_message_that_is_confirmed_twice_counts_once() -> None:
    audit = Audit(SENT)
    assert audit.confirm(np.array([3, 1, 3], np.int64)) == 2
    assert audit.confirm(np.array([1, 2], np.int64)) == 1
    assert audit.confirm(np.array([], np.int64)) == 0
    assert audit.confirmed == 3


def test_ten_million_messages_are_counted_in_two_bytes_each() -> None:
    """What a portion needs for a moment comes on top; `python -m bench.audit` has the time that it takes."""
    messages, portion = 10_000_000, 100_000
    tracemalloc.start()
    try:
        audit = Audit(messages)
        for first in range(0, messages, portion):
            numbers = np.arange(first, first + portion)
            audit.confirm(numbers)
            audit.take(0, numbers)
            audit.take(0, numbers[-100:])  # a block that was sent again
        found = audit.result()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.all.unique, found.all.duplicates, found.all.runs) == (messages, 10_000, 100)
    assert peak_bytes < 2 * messages + 100 * portion
