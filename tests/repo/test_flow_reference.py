"""The page of what flows are written with names everything that users may say."""

import inspect
import re

import pytest

from oncelog import flow
from oncelog.flow.program import Stream
from tests.repo.tree import ROOT

PAGE = (ROOT / "docs" / "flow-reference.md").read_text()
CORE = {"Cell", "Holder", "Input", "Limits", "OutputPlace", "Stage"}  # of the machine, for the runner
LOOKS = {"parts", "code", "tells_time", "begin", "become", "call_instead", "claim_name", "claim_state"}


def functions(kind: type) -> list[tuple[str, list[str]]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return [(name, list(inspect.signature(each).parameters)) for name, each in found if name[0] != "_"]


@pytest.mark.parametrize("kind", [Stream, flow.Flow, flow.Context], ids=lambda kind: kind.__name__)
def test_each_function_and_what_it_takes_by_name_is_there(kind: type) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    for name, parameters in functions(kind):
        if name in LOOKS:
            continue
        row = next((row for row in rows if re.search(rf"`(flow\.|at\.)?{name}\(", row)), None)
        assert row is not None, f"`{name}` has no row"
        for each in parameters:
            told = each in ("self", "options") or re.search(rf"\b{each}\b", row) or "(...)" in row
            assert told, f"the row of `{name}` does not say {each!r}"


def test_each_public_name_is_there() -> None:
    for name in {*flow.__all__} - CORE:
        assert re.search(rf"\b{name}\b", PAGE), f"{name} is missing"


def test_what_a_context_knows_is_there() -> None:
    for name in (*flow.Context.__annotations__, "offset", "headers", "id"):
        assert name == "timers" or f"at.{name}" in PAGE, f"at.{name} is missing"
