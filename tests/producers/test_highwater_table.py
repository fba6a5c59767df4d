"""The highwater table: every question meets exactly one row, and the row that plain arithmetic says it should."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from oncelog.producers import Decision
from oncelog.producers.highwater import TABLE, Known, Question, decide, decide_fence
from oncelog.producers.sequences import GENERATIONS, NO_SEQUENCE, SEQUENCES

HALF_GENERATIONS, HALF_SEQUENCES = GENERATIONS // 2, SEQUENCES // 2
STORED_GENERATIONS = [0, 1, HALF_GENERATIONS - 1, HALF_GENERATIONS, GENERATIONS - 1]
GENERATION_STEPS = [0, 1, 2, HALF_GENERATIONS - 1, HALF_GENERATIONS, HALF_GENERATIONS + 1, GENERATIONS - 1]
LAST_SEQUENCES = [NO_SEQUENCE, 0, 1, 7, HALF_SEQUENCES - 1, HALF_SEQUENCES, SEQUENCES - 2, SEQUENCES - 1]
STEPS_FROM_NEXT = [
    *(-HALF_SEQUENCES, -HALF_SEQUENCES + 1, -9, -3, -2, -1, 0),
    *(1, 2, 9, HALF_SEQUENCES - 1),
]
RECORD_COUNTS = [1, 2, 3, 8, 1000]


def known_questions() -> Iterator[tuple[Question, int, int]]:
    """(question, how far g is from G, how far s is from H+1)."""
    for stored, ahead, last, step, count in product(
        STORED_GENERATIONS, GENERATION_STEPS, LAST_SEQUENCES, STEPS_FROM_NEXT, RECORD_COUNTS
    ):
        question = Question(
            Known(stored, last), False, (stored + ahead) % GENERATIONS, (last + 1 + step) % SEQUENCES, count
        )
        yield question, ahead, step


def unknown_questions() -> Iterator[Question]:
    for may_be_new, generation, first, count in product(
        (True, False), (-1, *STORED_GENERATIONS), (-1, 0, 1, SEQUENCES - 1), RECORD_COUNTS
    ):
        yield Question(None, may_be_new, generation, first, count)


def expected(question: Question, ahead: int, step: int) -> tuple[Decision, int]:
    """The design's table in signed distances, without a modulus in sight."""
    assert question.known is not None
    if ahead >= HALF_GENERATIONS:
        return Decision.FENCED, 0
    if step == 0:
        return Decision.APPEND, 0
    nothing_accepted = question.known.last_sequence == NO_SEQUENCE
    if step > 0 or step == -HALF_SEQUENCES or nothing_accepted:
        return Decision.OUT_OF_ORDER, 0
    if question.record_count + step <= 0:
        return Decision.DUPLICATE, 0
    return Decision.TRIM, -step


def test_every_question_meets_exactly_one_row() -> None:
    questions = [*(question for question, _, _ in known_questions()), *unknown_questions()]
    met: Counter[str] = Counter()
    for question in questions:
        rows = [rule.case for rule in TABLE if rule.applies(question)]
        assert len(rows) == 1, (question, rows)
        met[rows[0]] += 1
    assert met.keys() == {rule.case for rule in TABLE}


def test_the_answers_are_those_of_the_design_in_signed_distances() -> None:
    for question, ahead, step in known_questions():
        assert decide(question) == expected(question, ahead, step), (question, ahead, step)


def test_an_unknown_pid_begins_at_zero_and_was_granted_lately_or_is_refused() -> None:
    for question in unknown_questions():
        begins = question.may_be_new and question.first_sequence == 0 and question.generation >= 0
        assert decide(question) == ((Decision.APPEND if begins else Decision.UNKNOWN_PRODUCER), 0), question


def test_a_negative_sequence_is_never_taken_for_one_that_is_known() -> None:
    for last in LAST_SEQUENCES:
        assert decide(Question(Known(3, last), False, 3, -1, 1))[0] is Decision.OUT_OF_ORDER


@pytest.mark.parametrize("case", [rule.case for rule in TABLE])
def test_the_cases_are_named_in_the_words_of_the_page_about_producers(case: str, producers_page: str) -> None:
    assert case in producers_page


def test_only_a_newer_generation_fences() -> None:
    for stored, ahead in product(STORED_GENERATIONS, GENERATION_STEPS):
        newer = 0 < ahead < HALF_GENERATIONS
        answer = decide_fence(Known(stored, 5), False, (stored + ahead) % GENERATIONS)
        assert answer is (Decision.APPEND if newer else Decision.FENCED), (stored, ahead)


def test_a_pid_that_never_wrote_here_is_fenced_only_when_it_was_granted_lately() -> None:
    assert decide_fence(None, True, 4) is Decision.APPEND
    assert decide_fence(None, False, 4) is Decision.UNKNOWN_PRODUCER
    assert decide_fence(None, True, -1) is Decision.UNKNOWN_PRODUCER
