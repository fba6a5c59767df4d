"""ListTransactions: which transactions are named by a pattern that a client brings."""

from typing import Any

import pytest

from oncelog.server.errors import ErrorCode
from tests.raw import RawConnection


def begun(raw: RawConnection, name: str) -> None:
    answer = raw.call(
        "init_producer_id", 4, transactional_id=name, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    assert answer.error_code is ErrorCode.none


def listed(raw: RawConnection, pattern: str) -> Any:
    return raw.call(
        "list_transactions",
        2,
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=pattern,
    )


def test_a_pattern_that_was_made_to_take_for_ever_takes_no_time(raw: RawConnection) -> None:
    begun(raw, "a" * 40)
    answer = listed(raw, "(a|aa)*b")
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.none, ())
    assert [each.transactional_id for each in listed(raw, "(a|aa)*").transaction_states] == ["a" * 40]


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "a" * 1025, r"\pL{9}"])
def test_a_pattern_that_costs_much_or_is_none_is_refused(raw: RawConnection, pattern: str) -> None:
    assert listed(raw, pattern).error_code is ErrorCode.invalid_regular_expression
