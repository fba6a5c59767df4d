"""What a run warns of once."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.runner.layout import Layout
from oncelog.runner.told_once import ToldOnce
from tests.logged import messages
from tests.runner.flows import Billing


def test_a_wait_for_other_code_is_told_once_with_the_cells_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    told = ToldOnce(Layout(Billing("b", "nowhere:1").flow().program))
    for waits_s in ([0, 0, 0], [600, 0, 0], [599, 598, 0], [598, 597, 2], [597, 596, 0], [0, 0, 0], [500, 500, 500]):
        holders: Any = [SimpleNamespace(waits_ms=each * 1_000) for each in waits_s]
        told.waits(holders)
        told.waits(holders)
    (words,) = messages(caplog, "oncelog.flow")
    assert words.startswith("flow b: 1 of 3 cells wait up to 600 s: a process with another version of the code")
