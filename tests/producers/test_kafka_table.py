"""Kafka's rules: every question meets exactly one row of the table.

What a real Kafka answers is asked in tests/peers; here are the cases that no running broker is needed for.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from oncelog.producers import FIRST_KAFKA_PID as PID
from oncelog.producers import Decision
from oncelog.producers.kafka_rules import TABLE, KnownProducer, Question, Remembered, decide
from oncelog.producers.sequences import SEQUENCES, sequence_after
from tests.producers.partition import Answer, Partition

TOP = SEQUENCES - 1


def known_producers() -> Iterator[KnownProducer]:
    """Batches of three records each, from one to eight of them, ending at various places of the circle."""
    for epoch, last, batches in product((0, 5, 32767), (TOP, 0, 1, 2, 100, 2**30), (1, 2, 5, 8)):
        remembered = tuple(
            Remembered(sequence_after(last, -3 * back - 2), sequence_after(last, -3 * back), 3 * (batches - back))
            for back in reversed(range(min(batches, 5)))
        )
        yield KnownProducer(epoch, last, 3 * batches, remembered)


def questions() -> Iterator[Question]:
    for known in known_producers():
        for epoch, step, count in product(
            (known.epoch - 1, known.epoch, known.epoch + 1), (*range(-26, 4), 2**30, 2**30 + 1), (1, 2, 3, 6)
        ):
            yield Question(known, epoch, sequence_after(known.last_sequence, 1 + step), count)
    for epoch, first in product((0, 9), (0, 7, TOP)):
        yield Question(None, epoch, first, 2)


def test_every_question_meets_exactly_one_row() -> None:
    met: Counter[str] = Counter()
    for question in questions():
        rows = [rule.case for rule in TABLE if rule.applies(question)]
        assert len(rows) == 1, (question, rows)
        met[rows[0]] += 1
    assert met.keys() == {rule.case for rule in TABLE}


@pytest.mark.parametrize("case", [rule.case for rule in TABLE])
def test_the_cases_are_named_in_the_words_of_the_page_about_producers(case: str, producers_page: str) -> None:
    assert case in producers_page


def test_duplicate_is_said_only_of_records_that_were_all_accepted() -> None:
    """The allowed improvement never claims a record outside of those accepted in this epoch."""
    for question in questions():
        if decide(question)[0] is not Decision.DUPLICATE_FORGOTTEN:
            continue
        assert question.known is not None
        known = question.known
        accepted = {sequence_after(known.last_sequence, -back) for back in range(known.accepted_records)}
        batch = {sequence_after(question.first_sequence, n) for n in range(question.record_count)}
        held = {
            sequence_after(one.first_sequence, n)
            for one in known.remembered
            for n in range((one.last_sequence - one.first_sequence) % SEQUENCES + 1)
        }
        assert batch <= accepted - held, question


def partition_with_eight_batches(first: int = 0) -> Partition:
    partition = Partition()
    for n in range(8):
        at = sequence_after(first, 3 * n)
        assert partition.send(PID, 0, at, "a", "b", "c") == Answer(Decision.APPEND, 3 * n)
    return partition


@pytest.mark.parametrize("first", [0, TOP - 1, TOP - 10, 7])
def test_the_last_five_batches_are_answered_with_their_offsets_and_older_ones_are_known_to_be_there(first: int) -> None:
    partition = partition_with_eight_batches(first)
    for n in range(8):
        answer = partition.send(PID, 0, sequence_after(first, 3 * n), "a", "b", "c")
        assert answer == (Answer(Decision.DUPLICATE, 3 * n) if n >= 3 else Answer(Decision.DUPLICATE_FORGOTTEN, -1))
    assert len(partition.values) == 24


def test_what_lies_before_the_first_sequence_that_was_seen_is_refused() -> None:
    partition = partition_with_eight_batches(first=7)
    assert partition.send(PID, 0, 6, "x", "y").decision is Decision.OUT_OF_ORDER
    assert partition.send(PID, 0, 0, "x").decision is Decision.OUT_OF_ORDER
    assert partition.send(PID, 0, 7, "x", "y").decision is Decision.DUPLICATE_FORGOTTEN


def test_a_new_epoch_forgets_what_the_old_one_sent() -> None:
    partition = partition_with_eight_batches()
    assert partition.send(PID, 1, 0, "d").decision is Decision.APPEND
    assert partition.send(PID, 1, 3, "e").decision is Decision.OUT_OF_ORDER
    assert partition.send(PID, 0, 21, "a", "b", "c").decision is Decision.FENCED


def test_a_new_epoch_that_happens_to_follow_on_forgets_too() -> None:
    """The old epoch ended at the top of the circle, so 0 is both its next sequence and the new epoch's first."""
    partition = Partition()
    partition.send(PID, 0, TOP - 1, "a", "b")
    assert partition.send(PID, 1, 0, "c") == Answer(Decision.APPEND, 2)
    assert partition.send(PID, 1, TOP - 1, "a", "b").decision is Decision.OUT_OF_ORDER


def test_an_entry_after_compaction_claims_nothing_across_the_gap() -> None:
    partition = Partition()
    now = partition.clock.now()
    for first in (0, 3, 60, 63, 66, 69, 72, 75):  # 6 to 59 were compacted away
        partition.map.accept(PID, 0, first, 3, first, now.wall_ms, now)
    assert partition.send(PID, 0, 30, "x").decision is Decision.OUT_OF_ORDER
    assert partition.send(PID, 0, 60, "x").decision is Decision.DUPLICATE_FORGOTTEN


def test_a_producer_is_forgotten_by_arrival_and_never_by_the_timestamps_of_its_records() -> None:
    """Kafka forgets an active producer whose records carry old timestamps, and appends its batch again."""
    partition = Partition()
    now = partition.clock.now()
    a_year_ago = now.wall_ms - 365 * 86_400_000
    partition.map.accept(PID, 0, 0, 1, 0, a_year_ago, now)
    partition.map.expire(partition.clock.advance(86_399_999))
    assert partition.send(PID, 0, 0, "a").decision is Decision.DUPLICATE
    partition.map.expire(partition.clock.advance(1))
    assert partition.map.highwater(PID) is None
