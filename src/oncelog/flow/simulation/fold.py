"""The result that a cell must have: its input, in its order or in that of the plans in its journal, through the user's
functions once, without a stop. Its outputs are that, in each partition, and so is its state.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Final

from oncelog.flow.folding import Fold
from oncelog.flow.formats import Range
from oncelog.flow.held import outputs_of
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Records, Row
from oncelog.flow.part_running import PartWork
from oncelog.flow.parts import Part
from oncelog.flow.simulation.duties import Duty
from oncelog.flow.simulation.engine import Stopped
from oncelog.flow.simulation.story import shown
from oncelog.flow.simulation.topics import Files, Log, Topics
from oncelog.slots import Place
from oncelog.slots.replay import Output

Rows = list[tuple[str, dict[str, Any]]]  # by the folder of their hour
Folded = tuple[dict[bytes, bytes], dict[Place, list[Output]], Rows]
Tables = dict[int, Records]  # the rows of those inputs that are tables
EVERYTHING: Final = 1 << 62


def check(duty: Duty, topics: Topics, files: Files) -> None:
    journal, order, held, tables = _read(duty, topics)
    title = duty.stage.title
    state, outputs, rows = fold(duty, topics, order, tables)
    _check_files(duty, files, rows)
    for output in duty.stage.outputs:
        place = output.place
        stands = [] if journal.claim is None else topics[place].written_by(journal.claim.output_pid)
        where = f"{title}: in {place.topic}-{place.partition}"
        _compare(where, _without(stands, held.get(place, []), where), outputs.get(place, []))
    if journal.state != state and _repeats(duty.part):
        found, due = journal.state.get, state.get
        key = next(key for key in sorted({*journal.state, *state}) if found(key) != due(key))
        raise Stopped(f"{title}: the state {key!r} is {_bytes(found(key))} where {_bytes(due(key))} was expected")


def _repeats(part: Part) -> bool:
    """Whether its state hangs on no service and no chance."""
    return all(node.repeats for node in part.nodes)


def _check_files(duty: Duty, files: Files, expected: Rows) -> None:
    """Each row is in one file, and in its hour."""
    sink, stage = duty.part.files, duty.stage
    own = [(name, rows) for (url, name), rows in files.items() if sink and url == sink.url]
    own = [(name, rows) for name, rows in own if name.partition("/")[2].startswith(f"{stage.name}-{stage.cell}-")]
    found = sorted(repr((name.partition("/")[0], row)) for name, rows in own for row in rows)
    due = sorted(map(repr, expected))
    if found != due:
        names = ", ".join(sorted(name for name, _ in own))
        missing, more = Counter(due) - Counter(found), Counter(found) - Counter(due)
        raise Stopped(f"{stage.title}: the files {names} lack {[*missing]} and have {[*more]} too often")


def _without(stands: list[Output], held: list[Output], where: str) -> list[Output]:
    """The held outputs stand there in their order, among others; these others are returned."""
    due, rest = deque(held), []
    for each in stands:
        if due and each == due[0]:
            due.popleft()
        else:
            rest.append(each)
    if due:
        raise Stopped(f"{where} {shown(due)} is missing, which a commit held")
    return rest


def _check_rows(title: str, place: Place, rows: Records, log: Log) -> None:
    """All that compaction leaves were taken."""
    taken, due = dict(zip(rows.keys, rows.values, strict=True)), log.rows
    missed = [key for key in due if taken.get(key) != due[key]]
    if missed:
        where = f"{title}: of {place.topic}-{place.partition}"
        raise Stopped(f"{where} the row {missed[0]!r} was taken as {_bytes(taken.get(missed[0]))}")


def _compare(where: str, stands: list[Output], expected: list[Output]) -> None:
    if stands == expected:
        return
    slot = next(
        (at for at, (one, other) in enumerate(zip(stands, expected, strict=False)) if one != other),
        min(len(stands), len(expected)),
    )
    found = shown(stands[slot : slot + 1]) or "nothing"
    due = shown(expected[slot : slot + 1]) or "nothing"
    if found == due:
        found, due = str(stands[slot].headers), str(expected[slot].headers)
    raise Stopped(f"{where}, slot {slot} holds {found} where {due} was expected")


def _bytes(value: bytes | None) -> str:
    return "missing" if value is None else repr(value)


def _read(duty: Duty, topics: Topics) -> tuple[Journal, list[Range], dict[Place, list[Output]], Tables]:
    """The content of its journal, the order in which its plans took the input, the outputs sent from its commits, and
    which rows of tables stand there. What is left of a plan stands in the next commit again."""
    journal, order, pending, seen = Journal(), list[Range](), list[Range](), None
    held: dict[Place, list[Output]] = {}
    rows: dict[int, dict[int, Row]] = {index: {} for index, input in enumerate(duty.stage.inputs) if input.is_table}
    work = PartWork(duty.part, duty.stage.cell)
    for batch in topics[duty.stage.journal].journal(0):
        journal.read([batch])
        if journal.commit is seen or journal.commit is None:
            continue
        seen = journal.commit
        told = work.told(seen.number, journal.changes)
        for place, outputs in (*map(outputs_of, journal.held), *told.items()):
            held.setdefault(place, []).extend(outputs.each())
        for each in journal.rows:
            found = zip(each.offsets, each.keys, each.values, each.times, strict=True)
            rows[each.input].update((row[0], row) for row in found)
        due = seen.plan.ranges if seen.plan else []
        left = len(due) if due and pending[-len(due) :] == due else 0
        order += pending[: len(pending) - left]
        pending = list(due)
    tables = {index: _records(found[offset] for offset in sorted(found)) for index, found in rows.items()}
    return journal, order + pending if duty.stage.has_plan else [Range(0, 0, EVERYTHING)], held, tables


def _records(rows: Iterable[Row]) -> Records:
    offsets, keys, values, times = list(zip(*rows, strict=True)) or ((), (), (), ())
    return Records(offsets, keys, values, times)


def fold(duty: Duty, topics: Topics, order: Iterable[Range], tables: Tables) -> Folded:
    folded = Fold(PartWork(duty.part, duty.stage.cell), {}, [-1] * len(duty.inputs))
    taken = [0] * len(duty.inputs)
    for each in order:
        place = duty.inputs[each.input]
        rows = tables.get(each.input)
        if rows is None and each.first > taken[each.input]:
            raise Stopped(
                f"{duty.stage.title}: the plans pass over offset {taken[each.input]} of {place.topic}-{place.partition}"
            )
        due = _due(topics[place], rows, taken[each.input], each.end)
        taken[each.input] += len(due.offsets)
        folded.take(each.input, folded.work.dated(each.input, due))
        folded.mark(each.input, each.mark_ms)
    for index, (place, position) in enumerate(zip(duty.inputs, taken, strict=True)):
        if index in tables:
            _check_rows(duty.stage.title, place, tables[index], topics[place])
        elif position != topics[place].end:
            raise Stopped(f"{duty.stage.title}: {place.topic}-{place.partition} was read up to offset {position} only")
    return folded.state, folded.outputs, [(each.folder, row) for each in folded.files for row in each.rows.to_pylist()]


def _due(log: Log, rows: Records | None, taken: int, end: int) -> Records:
    """The records that a range takes of an input, from `taken` on."""
    return log.records(taken, end) if rows is None else rows.part(taken, bisect_left(rows.offsets, end))
