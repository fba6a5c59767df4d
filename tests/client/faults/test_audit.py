"""The audit sees what it is there to see."""

from typing import NamedTuple

import numpy as np
import pytest

from oncelog.client.producer.bulk import Range
from tests.client.faults.audit import Audit, audit
from tests.client.faults.case import BULK, Case
from tests.client.faults.sending import Told
from tests.lives.stored import Stored

FIRST_OFFSET = 10


class Wrong(NamedTuple):
    numbers: list[list[int]]  # what stands in the partitions
    duplicates: int = 0
    lost: int = 0
    reordered: int = 0
    misplaced: int = 0


WRONG = {
    "nothing": Wrong([[0, 2, 4], [1, 3, 5]]),
    "a record twice": Wrong([[0, 2, 2, 4], [1, 3, 5]], duplicates=1),
    "a record twice, later": Wrong([[0, 2, 4, 0], [1, 3, 5]], duplicates=1),
    "a record missing": Wrong([[0, 4], [1, 3, 5]], lost=1),
    "the last records missing": Wrong([[0, 2], [1, 3]], lost=2),
    "two records exchanged": Wrong([[0, 4, 2], [1, 3, 5]], reordered=1),
    "a record in another partition": Wrong([[0, 4], [1, 2, 3, 5]], misplaced=1),
}


def logs_of(numbers: list[list[int]]) -> list[Stored]:
    return [Stored(np.arange(len(each), dtype=np.int64) + FIRST_OFFSET, np.array(each, np.int64)) for each in numbers]


def audited(logs: list[Stored], told: Told) -> Audit:
    return audit(Case(way="by hand", partitions=2, records=6), logs, told)


def told_of(logs: list[Stored]) -> Told:
    told = Told.about(6)
    for partition, log in enumerate(logs):
        for offset, number in zip(log.offsets.tolist(), log.numbers.tolist(), strict=True):
            told.partition[number], told.offset[number], told.reports[number] = partition, offset, 1
    return told


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_it_counts_what_is_wrong_in_the_log(wrong: Wrong) -> None:
    found = audited(logs_of(wrong.numbers), told_of(logs_of(WRONG["nothing"].numbers)))
    assert found[1:5] == wrong[1:]
    assert found.is_exact is (wrong == WRONG["nothing"])


@pytest.mark.parametrize("wrong", ["another offset", "no report", "two reports"])
def test_it_counts_reports_that_are_wrong(wrong: str) -> None:
    logs = logs_of(WRONG["nothing"].numbers)
    told = told_of(logs)
    assert audited(logs, told).wrong_reports == 0
    if wrong == "another offset":
        told.offset[2] += 1
    else:
        told.reports[2] = 0 if wrong == "no report" else 2
    found = audited(logs, told)
    assert found.wrong_reports == 1 and not found.is_exact


def test_it_counts_rows_of_tables_that_do_not_stand_where_they_should() -> None:
    logs = logs_of(WRONG["nothing"].numbers)
    told = Told.about(6)
    told.ranges, told.bulk_rows = [Range(0, FIRST_OFFSET, 3, 1, 0, 0), Range(1, FIRST_OFFSET + 1, 3, 1, 0, 0)], 6
    assert audit(Case(way=BULK, partitions=2, records=6), logs, told).wrong_reports == 1
