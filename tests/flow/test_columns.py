"""A run of records as columns comes to the same as one record after the other."""

from collections.abc import Mapping
from sys import getrefcount
from typing import Any

import pytest

from oncelog.clock import Now
from oncelog.flow import Context, Dead, Flow, Input, Topic, json_of, optional, raw, text
from oncelog.flow.codecs import Codec
from oncelog.flow.messages import Records, Stepped, Unworkable
from oncelog.flow.planning import Source
from oncelog.flow.running import PartWork
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


def works(monkeypatch: pytest.MonkeyPatch, flow: Flow) -> tuple[PartWork, PartWork]:
    """As columns, and without."""
    found = PartWork(flow.parts[0], 0)
    with monkeypatch.context() as patched:
        patched.setattr(PartWork, "only_route", lambda work, push: None)
        return found, PartWork(flow.parts[0], 0)


def ran(work: PartWork, state: dict[bytes, bytes], *runs: Records) -> list[tuple[Any, ...]]:
    work.begin(state, [-1])
    found = []
    for records in runs:
        stepped = work.run(0, records, 1)
        found.append((dict(stepped.changes), _rows(stepped.outputs), stepped.taken, _held(stepped)))
        state.update({key: value for key, value in stepped.changes.items() if value is not None})
    return found


def _rows(outputs: Mapping[Place, Any]) -> dict[Place, list[Any]]:
    return {place: list(each.each()) for place, each in outputs.items()}


def _held(stepped: Stepped) -> list[Any]:
    return [(place, list(each.each())) for place, each in stepped.held]


@pytest.mark.parametrize("otherwise", [None, Dead("dead")])
def test_they_come_to_the_same(monkeypatch: pytest.MonkeyPatch, otherwise: Dead | None) -> None:
    runs = [
        records_of(b"anna", None, b"x", b"gone", b"anna", b"gone"),
        records_of(b"bob", b"anna", b"gone", first=6),
        records_of(b"bob", *([b"bad"] if otherwise else []), b"x", first=9),
    ]
    columns, plain = (ran(work, {b"say\0k2": b"7"}, *runs) for work in works(monkeypatch, flow_of(otherwise)))
    assert columns == plain
    assert sum(len(rows) for _, outputs, _, _ in columns for rows in outputs.values()) > 12


def test_what_cannot_be_worked_on_is_named_and_nothing_of_its_run_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for work in works(monkeypatch, flow_of()):
        work.begin({}, [-1])
        with pytest.raises(Unworkable, match="offset 2 of names: ValueError: it is bad"):
            work.run(0, records_of(b"anna", b"bob", b"bad"), 1)
        work.undo()
        after = work.run(0, records_of(b"anna"), 1)
        assert dict(after.changes) == {b"say\0k0": b"1"}
        assert sum(len(rows) for rows in _rows(after.outputs).values()) == 2


def test_a_run_of_a_plain_step_is_taken_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    monkeypatch.setattr(PartWork, "takes_columns", lambda work, push, run, *, reads_values: taken.append(run))
    works(monkeypatch, flow_of())
    assert len(taken) == 1  # of the two: the other has no route


def test_an_update_that_cannot_be_encoded_is_named_and_none_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [2]

    def encode(count: int) -> bytes:
        if count in fails:
            fails.pop()
            raise ValueError("two")
        return b"%d" % count

    flow = Flow("f", version="1")
    flow.read(NAMES).count("count").write(Topic("counts", text, Codec("no two", encode, int), partitions=3))
    updates = {b"count\0k1": b"1", b"count\0k0": b"2"}
    work, _ = works(monkeypatch, flow)
    work.begin({}, [-1])
    with pytest.raises(Unworkable, match="the update that commit 4 writes for b'k0': ValueError: two"):
        work.told(4, updates)
    told = _rows(work.told(4, updates))  # where it fails as columns, and then no more
    assert sorted((each.key, each.value) for rows in told.values() for each in rows) == [(b"k0", b"2"), (b"k1", b"1")]


@pytest.mark.parametrize("is_in_columns", [True, False])
def test_a_cell_keeps_nothing_of_the_records_that_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, is_in_columns: bool
) -> None:
    """Where a hundred cells wait for more, each would keep ten thousand."""
    flow = Flow("f", version="1")
    flow.read(Topic("in", raw, raw)).step("pass", int, lambda _, value, at: (1, [value])).write(Topic("out", raw, raw))
    work = works(monkeypatch, flow)[not is_in_columns]
    work.begin({}, [-1])
    source, records = Source(Input("in", "id"), 0), records_of(*(b"value %d" % at for at in range(10)))
    source.add(records, 10, Now(0, 0))
    value = records.values[7]
    assert work.run(0, source.next(4), 4).taken == 4
    source.take(4)
    assert source.next(1).values == [b"value 4"]
    assert work.run(0, source.next(6), 6).taken == 6
    source.take(6)
    del records
    assert getrefcount(value) == 2, "this name, and the call"
