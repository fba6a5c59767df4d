"""Questions to the coordinators of transactions: whose answer still counts."""

import pytest

from oncelog.producers import transactions
from oncelog.producers.transactions import Transactions


def test_who_asks_again_does_not_give_way_to_those_who_asked_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question stays after its answer, as long as its transaction does."""
    monkeypatch.setattr(transactions, "MOST_VERIFIED", 3)
    known = Transactions()
    for pid in (1, 2, 3):
        known.ask(pid)
    question = known.ask(1)
    known.ask(4)
    assert known.is_asked(1, question)
    assert not known.is_asked(2, 2), "one had to go"


def test_no_answer_counts_once_a_snapshot_stands_in_the_place_of_what_was_known() -> None:
    """It may hold the end of the very transaction that the coordinator spoke of."""
    known = Transactions()
    question = known.ask(1)
    known.put_back(Transactions().kept())
    assert not known.is_asked(1, question)
    assert known.is_asked(1, known.ask(1))
