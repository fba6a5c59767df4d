"""A cell that others hold, by its journal alone."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.flow.formats import Entry, Goodbye, TakeOver, Tenancy, encoded
from oncelog.runner.elsewhere import CellElsewhere

TAKEN = TakeOver(nonce="b", tenancy=Tenancy(2, 0), code="1", until_ms=0, chain=[1])
STOPPED = Goodbye(nonce="a", why="no order")
CUT, WHOLE = Goodbye(nonce="a", cut="noon"), Goodbye(nonce="a", ended="noon")


class Read:
    """A journal that comes record by record."""

    def __init__(self) -> None:
        self.position = 0
        self.is_at_end = False
        self.entries: list[Entry] = []
        self.arrived: Callable[[], None]

    def take(self, most: int) -> Any:
        if not self.entries:
            return None
        key, value = encoded(self.entries.pop(0))
        self.position += 1
        return SimpleNamespace(offsets=[self.position - 1], keys=[key], values=[value])

    def give(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.arrived()


def elsewhere(journal_end: int, *, began: int | None = None) -> tuple[CellElsewhere, Read]:
    reading = Read()

    def read(journal: object, since: int, arrived: Callable[[], None], failed: object, stop_at: object) -> Read:
        reading.arrived = arrived
        return reading

    cluster: Any = SimpleNamespace(read=read)
    stage: Any = SimpleNamespace(journal=("journal", 0), inputs=[], title="b, stage orders, cell 0")
    return CellElsewhere(cluster, stage, "noon", journal_end, began=began, is_stopped=False), reading


@pytest.mark.parametrize("goodbye", [STOPPED, CUT])
def test_a_goodbye_counts_once_nobody_has_gone_on_behind_it(goodbye: Goodbye) -> None:
    cell, reading = elsewhere(2, began=0)
    reading.give(goodbye)
    assert not cell.is_over  # another record was there when it was asked
    reading.give(TAKEN)
    assert not cell.is_over
    reading.give(goodbye)
    assert cell.is_over and not cell.is_at_its_end
    reading.give(WHOLE)
    assert cell.is_over and cell.is_at_its_end


@pytest.mark.parametrize(("goodbye", "is_over"), [(STOPPED, False), (CUT, False), (WHOLE, True)])
def test_a_goodbye_of_an_earlier_start_counts_where_it_says_that_all_is_done(goodbye: Goodbye, is_over: bool) -> None:
    cell, reading = elsewhere(1)
    reading.give(goodbye)
    assert cell.is_over is is_over
