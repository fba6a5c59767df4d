"""What processes of a flow agree on: of facts that exclude each other the first counts, for everybody."""

from collections.abc import Callable
from random import Random

import pytest

from oncelog.flow.formats import Unreadable
from oncelog.flow.register import (
    Cells,
    Control,
    Finished,
    FlowEntry,
    FlowParts,
    FlowRegister,
    Order,
    Reset,
    Run,
    Stopped,
    encoded,
    subject_of,
)
from oncelog.slots.register import Outcome, Record
from tests.depth import deeper, scaled

PARTS = [("orders", "orders", "totals")]


def register_of(*entries: FlowEntry) -> FlowRegister:
    register = FlowRegister()
    register.read(Record(offset, *encoded(entry)) for offset, entry in enumerate(entries))
    return register


def test_of_two_flows_under_one_name_the_first_has_it() -> None:
    register = register_of(
        FlowParts(nonce="a", parts=PARTS), FlowParts(nonce="b", parts=[("orders", "orders", "elsewhere")])
    )
    assert register.flow_parts is not None and register.flow_parts.parts == PARTS
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


# --- what is forgotten

KEPT = 5


def begun(log: "SharedLog", known: FlowRegister, *entries: FlowEntry) -> None:
    """As whoever begins something does it."""
    known.read(log.after(known.next_offset))
    outdated = known.outdated
    for attempt, entry in enumerate(entries, 1):
        log.append(*encoded(entry, attempt))
    for key in outdated:
        log.append(key, None)
    known.read(log.after(known.next_offset))


@pytest.fixture
def long_lived(monkeypatch: pytest.MonkeyPatch) -> tuple["SharedLog", FlowRegister]:
    """Begun and ended a hundred times, with an attempt that did not count each time."""
    monkeypatch.setattr("oncelog.flow.register.MOST_KEPT", KEPT)
    log, known = SharedLog(), FlowRegister()
    begun(log, known, FlowParts(nonce="i", parts=PARTS), Cells(nonce="c", stage="orders", cells=2))
    begun(log, known, Reset(nonce="of one stage", journals={"orders": "a"}, starts={}))
    for number in range(1, 101):
        run, order = f"r{number}", Order.PAUSE if number % 2 else Order.RUN
        begun(log, known, *(Run(nonce=f"{run}{who}", run=run, code="7", ends={"orders": [who]}) for who in range(2)))
        begun(log, known, Finished(nonce=run, run=run), Stopped(nonce=run, start=run))
        begun(log, known, Control(nonce=run, number=number, order=order))
        begun(log, known, Reset(nonce=run, journals={"totals": run}, starts={}))
        if number % 7 == 0:
            log.compact()
    return log, known


def test_of_what_comes_and_goes_the_newest_stand(long_lived: tuple["SharedLog", FlowRegister]) -> None:
    log, known = long_lived
    log.compact()
    late = FlowRegister()
    late.read(log.after(0))
    for each in (known, late):
        names = [run.run for run in each.runs]
        assert names[-KEPT:] == [f"r{number}" for number in range(101 - KEPT, 101)]
        assert all(run.ends == {"orders": [0]} for run in each.runs)
        assert each.is_finished("r100") and not each.is_finished("r50")
        assert each.is_stopped("r100") and not each.is_stopped("r50")
        assert (each.number, each.order) == (100, Order.RUN)
        assert each.resets["orders"].nonce == "of one stage" and each.resets["totals"].nonce == "r100"
        assert each.flow_parts is not None and each.cells("orders") == 2
        assert len(each.lasting) < 8 * KEPT and len(each.keys) < 8 * KEPT
    assert known.lasting == late.lasting
    assert sum(record.value is not None for record in log.records) < 8 * KEPT


def test_a_run_whose_name_was_forgotten_is_a_new_one(long_lived: tuple["SharedLog", FlowRegister]) -> None:
    log, known = long_lived
    assert known.run("r1") is None
    begun(log, known, Run(nonce="new", run="r1", code="7", ends={"orders": [9]}))
    late = FlowRegister()
    late.read(log.after(0))
    assert known.run("r1") == late.run("r1") and known.runs[-1].ends == {"orders": [9]}


# --- several processes begin one flow at once


class Beginner:
    """A process: it reads, and appends what is not decided. An answer may be lost, and then it appends again."""

    def __init__(self, name: str, log: "SharedLog", key_of: Callable[[FlowEntry, int], tuple[bytes, bytes]]) -> None:
        self.name, self.log, self.key_of = name, log, key_of
        self.known = FlowRegister()
        self.attempts = 0
        self.due: list[FlowEntry] = [
            FlowParts(nonce=name, parts=[("orders", "orders", name)]),
            Cells(nonce=name, stage="orders", cells=ord(name) - 95),
            Run(nonce=name, run="monday", code="7", ends={"orders": [ord(name)]}),
        ]

    def turn(self, random: Random) -> None:
        self.known.read(self.log.after(self.known.next_offset))
        if self.due and self.known.outcome(subject_of(self.due[0]), self.name) is not Outcome.OPEN:
            self.due.pop(0)
        if self.due:
            for _ in range(random.choice((0, 1, 1, 1, 2))):  # lost on its way, stored, sent again
                self.attempts += 1
                self.log.append(*self.key_of(self.due[0], self.attempts))

    def agreed(self) -> tuple[object, ...]:
        return self.known.flow_parts, self.known.cells("orders"), self.known.run("monday")


class SharedLog:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.end = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        self.records.append(Record(self.end, key, value))
        self.end += 1

    def after(self, offset: int) -> list[Record]:
        return [record for record in self.records if record.offset >= offset]

    def compact(self) -> None:
        newest = {record.key: record.offset for record in self.records}
        self.records = [record for record in self.records if newest[record.key] == record.offset]


def begun_at_once(seed: int, key_of: Callable[[FlowEntry, int], tuple[bytes, bytes]] = encoded) -> set[str]:
    """What those came to, each by what it read, and one that comes later."""
    random, log = Random(seed), SharedLog()
    processes = [Beginner(name, log, key_of) for name in "abc"]
    while any(each.due for each in processes):
        random.choice(processes).turn(random)
        if random.random() < 0.3:
            log.compact()
    late = Beginner("d", log, key_of)
    late.due.clear()
    for each in (*processes, late):
        each.turn(random)
    return {repr(each.agreed()) for each in (*processes, late)}


@deeper
def test_processes_that_begin_one_flow_at_once_agree_on_everything() -> None:
    assert all(len(begun_at_once(seed)) == 1 for seed in range(scaled(200)))


def test_with_one_key_for_all_who_ask_compaction_lets_them_disagree() -> None:
    def one_key(entry: FlowEntry, attempt: int) -> tuple[bytes, bytes]:
        key, value = encoded(entry)
        return key[:1], value

    assert any(len(begun_at_once(seed, one_key)) > 1 for seed in range(200))
