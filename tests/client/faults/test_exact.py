"""Whatever is cut, swallowed, delayed or refused on the way: every record once, in order, and where the report says.

These are short versions of the runs in docs/faults.md.
"""

import pytest
from _pytest.mark.structures import ParameterSet

from tests.client.faults.case import KAFKA, ONCELOG, Case
from tests.client.faults.matrix import must_fail, short
from tests.client.faults.run import DUPLICATES, EXACT, run


def in_words(case: Case) -> str:
    return f"{case.server}-{case.way}-{case.codec}-{case.in_flight}-{case.partitions}"


def later(cases: list[Case]) -> list[ParameterSet]:
    return [pytest.param(case, marks=pytest.mark.thorough) for case in cases]


@pytest.mark.parametrize("case", [*short(ONCELOG), short(KAFKA)[0], *later(short(KAFKA)[1:])], ids=in_words)
def test_every_record_stands_once_and_in_order_in_spite_of_faults(case: Case, request: pytest.FixtureRequest) -> None:
    outcome = run(case, request.getfixturevalue(f"{case.server}_servers"))
    assert outcome.verdict == EXACT, outcome


@pytest.mark.parametrize("case", [*must_fail(ONCELOG), *later(must_fail(KAFKA))], ids=in_words)
def test_without_idempotence_the_same_faults_leave_duplicates(case: Case, request: pytest.FixtureRequest) -> None:
    outcome = run(case, request.getfixturevalue(f"{case.server}_servers"))
    assert outcome.verdict == DUPLICATES, outcome
