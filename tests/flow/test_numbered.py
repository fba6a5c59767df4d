"""A run of records as the compiled loops bring them comes to the same as one record after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from weakref import ref

import pytest

from oncelog.clock import Now
from oncelog.flow import (
    Context,
    Dead,
    Flow,
    Input,
    Topic,
    Upgrade,
    entries,
    json_of,
    msgpack_of,
    numbered,
    optional,
    part_running,
    raw,
    stepping,
    text,
)
from oncelog.flow.codecs import Codec
from oncelog.flow.entries import Entries
from oncelog.flow.formats import SOURCE, STATE, TIME
from oncelog.flow.journal import apply
from oncelog.flow.messages import Outputs, Records, Stepped, Unworkable
from oncelog.flow.numbered import NumberedChanges, NumberedStates
from oncelog.flow.part_running import PartWork
from oncelog.flow.planning import Source
from oncelog.flow.program import Stream
from oncelog.flow.routing import Route
from oncelog.records.column_types import BytesColumn
from oncelog.slots import Place

NAMES = Topic("names", text, optional(text))
SAID = Topic("said", text, optional(json_of(str)), partitions=3)


def say(seen: int, name: str | None, at: Context[str]) -> tuple[int | None, list[str | None]]:
    """Some are written more than once, some not at all, some as null, and some states go."""
    if name == "bad":
        raise ValueError("it is bad")
    said = f"{name} {at.key} {at.offset} {at.time_ms} {at.id}"
    return None if name == "gone" else seen + 1, [said, None][: len(name or "")]


def flow_of(otherwise: Dead | None = None) -> Flow:
    flow = Flow("f", version="1")
    flow.read(NAMES, otherwise=otherwise).step("say", int, say).write(SAID)
    return flow


def records_of(*values: bytes | None, first: int = 0) -> Records:
    offsets = range(first, first + len(values))
    return Records(list(offsets), [b"k%d" % (at % 3) for at in offsets], list(values), [100 + at for at in offsets])


def as_columns(records: Records) -> Records:
    """As the compiled loops bring them."""
    return records._replace(keys=BytesColumn.of(records.keys), values=BytesColumn.of(records.values))


@pytest.fixture(autouse=True)
def few_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_running, "WORTH_COLUMNS", 1)


def ran(flow: Flow, state: dict[bytes, bytes], *runs: Records) -> list[tuple[Any, ...]]:
    work = PartWork(flow.program.parts[0], 0)
    work.begin(state, [-1])
    found = []
    for number, records in enumerate(runs):
        stepped = work.run(0, records, 1)
        changes = dict(stepped.changes)
        told = work.told(number, changes)
        found.append((changes, _rows(stepped.outputs), stepped.taken, _held(stepped), _rows(told)))
        apply(changes, state)
    return found


def _rows(outputs: Mapping[Place, Any]) -> dict[Place, list[Any]]:
    return {place: list(each.each()) for place, each in outputs.items()}


def _held(stepped: Stepped) -> list[Any]:
    return [(place, list(each.each())) for place, each in stepped.held]


@pytest.mark.parametrize("otherwise", [None, Dead("dead")])
def test_they_come_to_the_same(otherwise: Dead | None) -> None:
    runs = [
        records_of(b"anna", None, b"x", b"gone", b"anna", b"gone"),
        records_of(b"bob", b"anna", b"gone", first=6),
        records_of(b"bob", *([b"bad"] if otherwise else []), b"x", first=9),
    ]
    flow = flow_of(otherwise)
    columns = ran(flow, {b"say\0k2": b"7"}, *map(as_columns, runs))
    assert columns == ran(flow, {b"say\0k2": b"7"}, *runs)
    assert sum(len(rows) for _, outputs, *_ in columns for rows in outputs.values()) > 12


def test_what_cannot_be_worked_on_is_named_and_nothing_of_its_run_is_left() -> None:
    for brought in (as_columns, Records._make):
        work = PartWork(flow_of().program.parts[0], 0)
        work.begin({}, [-1])
        with pytest.raises(Unworkable, match="offset 2 of names: ValueError: it is bad"):
            work.run(0, brought(records_of(b"anna", b"bob", b"bad")), 1)
        work.undo()
        after = work.run(0, brought(records_of(b"anna")), 1)
        assert dict(after.changes) == {b"say\0k0": b"1"}
        assert sum(len(rows) for rows in _rows(after.outputs).values()) == 2


def test_an_update_that_cannot_be_encoded_is_named_and_none_is_sent_twice() -> None:
    fails = [2, 2, 2]

    def encode(count: int) -> bytes:
        if count in fails:
            fails.pop()
            raise ValueError("two")
        return b"%d" % count

    flow = Flow("f", version="1")
    flow.read(NAMES).count("count").write(Topic("counts", text, Codec("no two", encode, int), partitions=3))
    updates = {b"count\0k1": b"1", b"count\0k0": b"2"}
    work = PartWork(flow.program.parts[0], 0)
    work.begin({}, [-1])
    work.run(0, as_columns(records_of(b"anna")), 1)
    with pytest.raises(Unworkable, match="the update that commit 4 writes for b'k0': ValueError: two"):
        work.told(4, updates)
    told = _rows(work.told(4, updates))  # where it fails as columns, and then no more
    assert sorted((each.key, each.value) for rows in told.values() for each in rows) == [(b"k0", b"2"), (b"k1", b"1")]


def passing(values: Codec[Any], otherwise: Dead | None = None) -> Flow:
    flow = Flow("f", version="1")
    between = Topic("between", raw, values, partitions=3)
    flow.read(Topic("names", text, values), otherwise=otherwise).through(between, key=_end_of)
    return flow


def _end_of(value: Any) -> bytes:
    if value == b"bad":
        raise ValueError("it is bad")
    return str(value)[-2:].encode()


@pytest.mark.parametrize("form", [json_of, msgpack_of])
def test_totals_as_columns_are_in_the_form_of_their_topic(form: Callable[[type[int]], Codec[int]]) -> None:
    flow = Flow("f", version="1")
    flow.read(NAMES).count("count").write(Topic("counts", text, form(int), partitions=3))
    runs = [records_of(b"anna", b"bob", b"anna", b"x"), records_of(b"bob", b"x", first=4)]
    columns = ran(flow, {}, *map(as_columns, runs))
    assert columns == ran(flow, {}, *runs)
    told = [row.value for *_, last in columns for rows in last.values() for row in rows]
    assert {form(int).decode(each or b"") for each in told} == {1, 2}


def test_a_key_that_does_not_decode_is_passed_on_by_nobody() -> None:
    records = records_of(b"7", b"8")._replace(keys=[b"k", b"\xff"])
    for brought in (records, as_columns(records)):
        with pytest.raises(Unworkable, match="offset 1 of names: UnicodeDecodeError"):
            ran(passing(raw), {}, brought)


@pytest.mark.parametrize("values", [raw, optional(raw), json_of(int), optional(json_of(int))], ids=lambda it: it.name)
def test_what_is_passed_through_a_topic_as_columns_is_the_same(
    monkeypatch: pytest.MonkeyPatch, values: Codec[Any]
) -> None:
    came: list[int] = []
    take = Route.take

    def counted(route: Route, keys: Sequence[bytes | None], *about: Any) -> None:
        came.append(len(keys))
        take(route, keys, *about)

    monkeypatch.setattr(Route, "take", counted)
    cells: list[bytes | None] = [b"%d" % at for at in (7, 8, 12, 7, 22)]
    runs = [records_of(*cells, *([None] if values.takes_null else [])), records_of(b"7", b"8", first=6)]
    flow = passing(values)
    columns = ran(flow, {}, *map(as_columns, runs))
    assert came == [len(each.offsets) for each in runs]
    assert columns == ran(flow, {}, *runs)
    (rows,) = (outputs for _, outputs, *_ in columns[:1])
    assert sum(map(len, rows.values())) == len(runs[0].offsets)
    assert all(name in dict(each.headers) for each in rows[next(iter(rows))] for name in (TIME, SOURCE))


def test_what_cannot_be_passed_on_is_named_or_goes_where_the_dead_are() -> None:
    records = as_columns(records_of(b"anna", b"bad", b"bob"))
    with pytest.raises(Unworkable, match="offset 1 of names: ValueError: it is bad"):
        ran(passing(raw), {}, records)
    flow = passing(raw, otherwise=Dead("dead"))
    assert ran(flow, {}, records) == ran(flow, {}, records_of(b"anna", b"bad", b"bob"))
    nulls = records._replace(values=BytesColumn.of([b"anna", None, b"bob"]))
    with pytest.raises(Unworkable, match="offset 1 of names: ValueError: it has no value"):
        ran(passing(raw), {}, nulls)


def test_a_run_as_columns_of_a_plain_step_is_worked_on_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that is here would hold, and nothing of it would be said of columns."""
    came: list[int] = []
    number = NumberedStates.number

    def counted(states: NumberedStates, keys: BytesColumn, decode_key: Callable[[bytes], Any]) -> list[int]:
        came.append(len(keys))
        return number(states, keys, decode_key)

    monkeypatch.setattr(NumberedStates, "number", counted)
    records = records_of(b"anna", b"bob", b"anna")
    ran(flow_of(), {}, records)
    assert not came
    ran(flow_of(), {}, as_columns(records))
    assert came == [3]


@pytest.mark.parametrize("brought", [as_columns, lambda records: records], ids=["columns", "lists"])
def test_a_cell_keeps_nothing_of_the_records_that_it_has_taken(brought: Callable[[Records], Records]) -> None:
    """Where a hundred cells wait for more, each would keep ten thousand."""

    class Kept(list[bytes | None]):
        """What a weak reference takes."""

    flow = Flow("f", version="1")
    flow.read(Topic("in", raw, raw)).step("pass", int, lambda _, value, at: (1, [value])).write(Topic("out", raw, raw))
    work = PartWork(flow.program.parts[0], 0)
    work.begin({}, [-1])
    values = [b"value %d" % at for at in range(10)]
    records = brought(records_of(*values)._replace(values=Kept(values)))
    kept = ref(records.values.data if isinstance(records.values, BytesColumn) else records.values)
    source = Source(Input("in", "id"), 0)
    source.add(records, 10, Now(0, 0))
    del records
    assert work.run(0, source.next(4), 4).taken == 4
    source.take(4)
    assert list(source.next(1).values) == [b"value 4"]
    assert kept() is not None
    assert work.run(0, source.next(6), 6).taken == 6
    source.take(6)
    assert kept() is None


# --- by chance


@dataclass(frozen=True)
class Order:
    amount: int = 0


ORDERS = Topic("orders", text, json_of(Order))
HALVES = Topic("halves", text, json_of(float), partitions=3)
NUMBERS = Topic("numbers", text, json_of(int), partitions=3)
LATEST = Topic("latest", text, json_of(Order), partitions=2)
Made = Callable[[Stream[str, Order]], Stream[str, Any]]


def spend(state: list[int], order: Order, at: Context[str]) -> tuple[list[int] | None, list[Order]]:
    """It changes its state in place, and forgets it; it writes nothing, one or two, and asks about the record."""
    state.append(order.amount)
    if order.amount == 13:
        raise ValueError("unlucky")
    outputs = [Order(sum(state) + at.offset), Order(len(at.key) + at.time_ms)][: order.amount % 3]
    return (None if order.amount % 7 == 0 else state), outputs


def tally(seen: int, order: Order, at: Context[str]) -> tuple[int, list[int]]:
    return seen + order.amount, [seen + (1 << 62 if order.amount == 13 else 0)]


MADE: dict[str, tuple[Made, Topic[str, Any]]] = {
    "step": (lambda read: read.step("s", list[int], spend), LATEST),
    "step of numbers": (lambda read: read.step("s", int, tally), NUMBERS),
    "step that had another name": (
        lambda read: read.step("s", int, tally, upgrade=Upgrade("old", int, lambda stood: stood + 100)),
        NUMBERS,
    ),
    "count": (lambda read: read.count("s"), NUMBERS),
    "count as another type": (lambda read: read.count("s"), HALVES),
    "sum": (lambda read: read.sum("s", lambda each: each.amount / 3), HALVES),
    "latest": (lambda read: read.latest("s"), LATEST),
}


def made_flow(made: str, otherwise: Dead | None = None) -> Flow:
    flow = Flow("f", version="1")
    make, topic = MADE[made]
    make(flow.read(ORDERS, otherwise=otherwise)).write(topic)
    return flow


def order_of(chance: Random, *, may_be_bad: bool) -> tuple[bytes | None, bytes | None]:
    key, value = b"k%d" % chance.randrange(40), b'{"amount":%d}' % chance.choice([*range(12), *range(14, 30)])
    if may_be_bad and chance.random() < 0.02:
        return chance.choice([(None, value), (key, None), (b"\xff", value), (key, b"no"), (key, b'{"amount":13}')])
    return key, value


class Commits:
    """Of entries as a cell makes them, and what a journal gets of them."""

    def __init__(self, committed: dict[bytes, bytes]) -> None:
        self.entries = Entries(committed)
        self._is_under_way = False

    def go_on(self, chance: Random, journal: dict[bytes, bytes]) -> None:
        if self._is_under_way and chance.random() < 0.5:
            self.store()
        elif not self._is_under_way and chance.random() < 0.5:
            self.commit(journal)

    def store(self) -> None:
        if self._is_under_way:
            self.entries.stored()
        self._is_under_way = False

    def commit(self, journal: dict[bytes, bytes]) -> None:
        self.store()
        changes, columns = self.entries.leave(), self.entries.columns_under_way
        rows = Outputs([STATE + key for key in changes], [*changes.values()])
        if columns is not None:
            rows = columns.records(rows, Outputs([b"last"], [b"commit"]))
            *_, last = rows.each()
            assert (last.key, last.value) == (b"last", b"commit")
            rows = rows.part(0, len(rows.keys) - 1)
        assert len(rows.keys) == self.entries.count_under_way
        for key, value in zip(rows.keys, rows.values, strict=True):
            assert key is not None and key[:1] == STATE
            apply({key[1:]: value}, journal)
        self._is_under_way = True


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_and_is_undone_they_come_to_the_same(
    monkeypatch: pytest.MonkeyPatch, made: str, seed: int
) -> None:
    """Runs as columns, between runs of a few records as lists; some are undone and come again in parts, some of the
    records are dead, and what is known of keys is forgotten now and then."""
    chance = Random(seed)
    dead = Dead("dead") if seed % 2 else None
    monkeypatch.setattr(part_running, "WORTH_COLUMNS", 5)
    monkeypatch.setattr(numbered, "WORTH_COLUMNS", chance.choice([1, 20]))
    monkeypatch.setattr(stepping, "MOST_KNOWN", chance.choice([20, 1_000]))
    monkeypatch.setattr(entries, "LEAST_BEHIND", chance.choice([0, 30, 1_000]))
    monkeypatch.setattr(entries, "MOST_BEHIND", chance.choice([0, 2]))
    flow = made_flow(made, dead)
    stood = {b"old\0k%d" % at: b"%d" % at for at in range(20)}
    plain, columns = PartWork(flow.program.parts[0], 0), PartWork(flow.program.parts[0], 0)
    state, journal, commits = dict(stood), dict(stood), Commits(dict(stood))
    plain.begin(state, [-1])
    columns.begin(commits.entries, [-1])
    at = 0
    for number in range(40):
        commits.go_on(chance, journal)
        rows = [order_of(chance, may_be_bad=dead is not None) for _ in range(chance.choice([1, 3, 8, 60]))]
        offsets = list(range(at, at + len(rows)))
        keys, values = zip(*rows, strict=True)
        records = Records(offsets, keys, values, [1_000 + chance.randrange(50) for _ in rows])
        is_list, is_undone = chance.random() < 0.2, chance.random() < 0.2
        brought = records if is_list else as_columns(records)
        if is_undone:
            plain.run(0, records, 1)
            columns.run(0, brought, 1)
            plain.undo()
            columns.undo()
            continue
        at += len(rows)
        due, found = plain.run(0, records, 1), columns.run(0, brought, 1)
        assert dict(found.changes) == dict(due.changes)
        assert _rows(found.outputs) == _rows(due.outputs)
        assert _held(found) == _held(due)
        assert _rows(columns.told(number, found.changes)) == _rows(plain.told(number, due.changes))
        apply(dict(due.changes), state)
        commits.entries.add(found.changes)
        if chance.random() < 0.2:
            assert dict(commits.entries) == state
    commits.commit(journal)
    commits.store()
    assert commits.entries.count_committed() == len(state) and commits.entries.committed == journal == state
    assert at and len(state) > 2


class Counts:
    """Numbers under names, changed as columns or as entries."""

    def __init__(self, name: bytes) -> None:
        self._states = NumberedStates(name + b"\0", lambda key, owner=None: 0)

    def changed(self, to: int, *keys: bytes) -> NumberedChanges:
        numbers = self._states.number(BytesColumn.of(keys), bytes)
        for number in numbers:
            self._states.objects[number] = to
        found = self._states.column_changes(json_of(int))
        assert found is not None
        return found


def test_of_columns_and_entries_what_came_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a commit falls, and where others count from then on, as behind too many keys."""
    monkeypatch.setattr(numbered, "WORTH_COLUMNS", 1)
    first, second = Counts(b"n"), Counts(b"n")
    runs: list[Mapping[bytes, bytes | None]] = [
        first.changed(1, b"a", b"b", b"c"),
        {b"n\0a": b"2", b"n\0b": None},
        first.changed(3, b"c", b"d"),
        second.changed(4, b"a", b"b"),
        first.changed(5, b"b"),
        {b"n\0d": b"6", b"n\0a": None},
        second.changed(7, b"a"),
    ]
    for count in range(1, len(runs) + 1):
        for commits in range(1 << count):
            for stored in (0, commits, commits << 1):
                check_what_counts(runs[:count], commits, stored)


def check_what_counts(runs: Sequence[Mapping[bytes, bytes | None]], commits: int, stored: int) -> None:
    """Behind which of them a commit is made, and is acknowledged."""
    state: dict[bytes, bytes] = {}
    journal: dict[bytes, bytes] = {}
    found = Commits({})
    for at, changes in enumerate(runs):
        apply(changes, state)
        found.entries.add(changes)
        if commits >> at & 1:
            found.commit(journal)
        if stored >> at & 1:
            found.store()
    found.commit(journal)
    found.store()
    assert (found.entries.count_committed(), found.entries.committed, journal) == (len(state), state, state)


@pytest.mark.parametrize("made", MADE)
def test_a_state_of_another_type_is_named_and_stays(made: str) -> None:
    """As one that code before this kept under the name."""
    flow = made_flow(made)
    records = Records([0, 1], [b"k1", b"k2"], [b'{"amount":1}', b'{"amount":2}'], [5, 6])
    for brought in (records, as_columns(records)):
        work = PartWork(flow.program.parts[0], 0)
        work.begin({b"s\0k2": b'"seven"'}, [-1])
        with pytest.raises(Unworkable, match=r"offset 1 of orders: what the step 's' has kept for its key .*Expected"):
            work.run(0, brought, 1)
