"""What processes of a flow agree on: of facts that exclude each other the first counts, for everybody."""

import pytest

from oncelog.flow.formats import Unreadable
from oncelog.flow.register import Cells, Control, Finished, FlowEntry, FlowRegister, Identity, Order, Run, encoded
from oncelog.slots.register import Outcome, Record

PARTS = [("orders", "orders", "totals")]


def register_of(*entries: FlowEntry) -> FlowRegister:
    register = FlowRegister()
    register.read(Record(offset, *encoded(entry)) for offset, entry in enumerate(entries))
    return register


def test_of_two_flows_under_one_name_the_first_has_it() -> None:
    register = register_of(
        Identity(nonce="a", parts=PARTS), Identity(nonce="b", parts=[("orders", "orders", "elsewhere")])
    )
    assert register.identity is not None and register.identity.parts == PARTS
    assert register.outcome(("flow",), "a") is Outcome.OWN
    assert register.outcome(("flow",), "b") is Outcome.OTHERS


def test_a_stage_keeps_its_number_of_cells() -> None:
    register = register_of(Cells(nonce="a", stage="s", cells=12), Cells(nonce="b", stage="s", cells=24))
    assert register.cells("s") == 12
    assert register.cells("other") is None


def test_a_retry_is_the_same_run_with_the_same_ends() -> None:
    register = register_of(
        Run(nonce="a", run="monday", code="7", ends={"orders": [10, 20]}),
        Run(nonce="b", run="monday", code="7", ends={"orders": [11, 20]}),
    )
    run = register.run("monday")
    assert run is not None and run.ends == {"orders": [10, 20]}
    assert not register.is_finished("monday")
    register.read([Record(2, *encoded(Finished(nonce="c", run="monday")))])
    assert register.is_finished("monday")


def test_of_controls_that_were_asked_for_at_once_one_counts() -> None:
    register = register_of(
        Control(nonce="a", number=1, order=Order.PAUSE),
        Control(nonce="b", number=1, order=Order.STOP),
        Control(nonce="c", number=2, order=Order.RUN),
        Control(nonce="d", number=5, order=Order.STOP),  # it saw what is not there
    )
    assert (register.number, register.order) == (2, Order.RUN)
    assert register.outcome(("control", 1), "b") is Outcome.OTHERS


def test_each_attempt_has_a_key_of_its_own() -> None:
    entry = Finished(nonce="n", run="r")
    keys = {encoded(entry)[0], encoded(entry, 2)[0], encoded(Finished(nonce="m", run="r"))[0]}
    assert len(keys) == 3


def test_what_is_damaged_is_refused_and_what_is_foreign_passed_over() -> None:
    with pytest.raises(Unreadable, match="no record of a flow's register"):
        FlowRegister().read([Record(0, b"rx", b"{}")])
    register = FlowRegister()
    register.read([Record(0, b"hello", b"world")])
    assert register.next_offset == 1
