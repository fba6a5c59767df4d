"""Another version of a flow's code, tried on what a cell has done: from a commit in its journal on, the same input goes
through the new functions, in the same order, and what they would have written is held against what stands there. Pure;
nothing is sent.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from oncelog.clock import HOUR_MS
from oncelog.flow.cell_files import file_name
from oncelog.flow.folding import ByPlace, Fold, add
from oncelog.flow.formats import ERROR, Claim, Commit, Held, InputPosition, OutputPosition, PlannedRows, Range
from oncelog.flow.held import outputs_of
from oncelog.flow.journal import Journal
from oncelog.flow.messages import JournalBatch, Records, Row, Unworkable
from oncelog.flow.part_running import PartWork
from oncelog.flow.parts import Part
from oncelog.slots import Place
from oncelog.slots.comparing import plain_headers
from oncelog.slots.replay import Output

MOST_KEPT: Final = 100  # differences of a cell that are shown; all are counted
MOST_KEPT_BYTES: Final = 1 << 20  # of these, and one more
MOST_BYTES: Final = 512 << 20  # of a cell's records at a time: what is read, and what the new code makes of it
RECORD_BYTES: Final = 512  # that a record takes beside its key, value and headers
RUN_RECORDS: Final = 1_000  # whose outputs are weighed at a time

ReadFiles = Callable[[Sequence[str]], Mapping[str, Sequence[Mapping[str, Any]]]]


class TooMuch(Exception):
    """The trial would take more memory than it may."""


class Room:
    """The memory that a trial of one cell may take."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.left = most

    def take(self, cells: Iterable[bytes | None], records: int) -> int:
        size = records * RECORD_BYTES + sum(map(len, filter(None, cells)))
        self.left -= size
        if self.left < 0:
            raise TooMuch
        return size

    def take_outputs(self, outputs: Sequence[Output]) -> int:
        rows = ((each.key, each.value, *chain.from_iterable(plain_headers(each.headers))) for each in outputs)
        return self.take(chain.from_iterable(rows), len(outputs))


class Committed(NamedTuple):
    """A commit, with what its batch changed and holds."""

    commit: Commit
    changes: Mapping[bytes, bytes | None]
    held: Sequence[Held]
    rows: Sequence[PlannedRows] = ()


@dataclass(frozen=True)
class Past:
    """The part of a cell's history that its journal still has."""

    claim: Claim
    steps: list[Committed]  # the first is where it is tried from
    state: dict[bytes, bytes]  # of the first
    end_state: dict[bytes, bytes]  # and of the last

    @property
    def base(self) -> Commit:
        return self.steps[0].commit

    @property
    def last(self) -> Commit:
        return self.steps[-1].commit

    @property
    def slots(self) -> dict[Place, range]:
        """The slots that were filled in that time."""
        before = _filled(self.base)
        return {
            place: range(before.get(place, 0), filled)
            for place, filled in _filled(self.last).items()
            if filled > before.get(place, 0)
        }


def past_of(
    batches: Sequence[JournalBatch],
    most: int,
    *,
    starts: Sequence[int],
    begins_at: Sequence[int] | None,
    is_simple: bool,
) -> Past | None:
    """The past from the oldest good commit on, with at most `most` records in and out since, or from the one before
    the last. None where nothing is committed.

    Behind a commit record that stands, compaction has taken nothing yet that was written later: it would have taken
    that record too. `starts`: where the inputs begin by now. `begins_at`: where the cell began, if that can still be
    read; a simple stage can be tried from there whatever compaction took."""
    whole = Journal()
    is_whole = whole.read(batches)
    if whole.claim is None or whole.commit is None:
        return None
    found: list[tuple[int, Committed]] = []
    stands = _same_writers(whole)
    for at, batch in enumerate(batches):
        before = stands.commit
        stands.read([batch])
        commit = stands.commit
        if commit is before or commit is None:
            continue
        if before is not None and commit.number != before.number + 1:
            found.clear()
        found.append((at, Committed(commit, stands.changes, stands.held, stands.rows)))
    last = found[-1][1].commit
    found = [each for each in found if _is_readable(each[1].commit, starts)] or found[-1:]
    if begins_at is not None and (is_whole or is_simple) and _is_readable(found[0][1].commit, begins_at):
        found.insert(0, (-1, Committed(_beginning(last, begins_at), {}, ())))
    *earlier, _ = found
    first = next((at for at, (_, each) in enumerate(earlier) if _between(each.commit, last) <= most), len(earlier) - 1)
    found = found[max(first, 0) :]
    base = _same_writers(whole)
    base.read(batches[: found[0][0] + 1])
    return Past(whole.claim, [each for _, each in found], base.state, whole.state)


def _same_writers(journal: Journal) -> Journal:
    """A journal with the same writers: who they are is read before what they wrote."""
    found = Journal()
    found.claim, found.chain = journal.claim, list(journal.chain)
    return found


def _is_readable(commit: Commit, starts: Sequence[int]) -> bool:
    return all(each.next_offset >= start for each, start in zip(commit.inputs, starts, strict=True))


def _beginning(commit: Commit, at: Sequence[int]) -> Commit:
    inputs = [InputPosition(each.topic_id, offset) for each, offset in zip(commit.inputs, at, strict=True)]
    outputs = [OutputPosition(each.topic, each.partition, each.topic_id, 0, -1) for each in commit.outputs]
    return Commit(number=0, nonce=commit.nonce, code=commit.code, inputs=inputs, outputs=outputs)


def _between(first: Commit, last: Commit) -> int:
    read = sum(b.next_offset - a.next_offset for a, b in zip(first.inputs, last.inputs, strict=True))
    return max(read, sum(_filled(last).values()) - sum(_filled(first).values()))


def _filled(commit: Commit) -> dict[Place, int]:
    return {Place(each.topic, each.partition): each.filled for each in commit.outputs}


class Difference(NamedTuple):
    """Both: the same key has another value."""

    place: Place
    commit: int
    stands: Output | None
    comes: Output | None


@dataclass
class Trial:
    """The result of a trial, for one cell."""

    stage: str
    cell: int
    from_commit: int
    commits: int = 0
    records: int = 0
    outputs: int = 0  # that stand in the log
    same: int = 0
    gone: int = 0  # that the new code does not write
    new: int = 0  # that only the new code writes
    moved: int = 0  # that it writes elsewhere among the others of a commit
    states: list[tuple[bytes, bytes | None, bytes | None]] = field(default_factory=list)
    states_differ: int = 0
    differences: list[Difference] = field(default_factory=list)
    failure: str | None = None  # the new code stops there

    @property
    def outputs_differ(self) -> bool:
        return bool(self.gone or self.new or self.moved or self.failure)


def rows_of(past: Past, input: int) -> Records:
    """The rows of a table since then, which all stand in the commits. The rest of a plan stands there
    again."""
    found: dict[int, Row] = {}
    for each in (each for step in past.steps for each in step.rows if each.input == input):
        rows = zip(each.offsets, each.keys, each.values, each.times, strict=True)
        found.update((row[0], row) for row in rows)
    offsets, keys, values, times = list(zip(*(found[offset] for offset in sorted(found)), strict=True)) or 4 * [()]
    return Records(offsets, keys, values, times)


def why_not(part: Part, called: Collection[str]) -> str | None:
    """The reason why a stage cannot be tried; None where it can. `called`: calls that are to be made, or have another
    function."""
    calls = {node.call for node in part.nodes if node.call} - {*called}
    if not calls:
        return None
    name = min(calls)
    return (
        f"to try it would be to make the call {name}. `--call {name}` makes it, and `--call {name}=MODULE:FUNCTION` "
        "calls another function in its place"
    )


def is_simple(part: Part) -> bool:
    """The outputs hang on the order of its only input, and not on where its commits fall."""
    return not (part.has_plan or part.dead or any(node.tells_at_commits for node in part.root.below))


def tried(
    part: Part,
    cell: int,
    past: Past,
    inputs: Sequence[Records],
    stands: Mapping[Place, Sequence[Output]],
    room: Room | None = None,
    read_files: ReadFiles = lambda names: {},
) -> Trial:
    """`inputs`: what lies between the first commit and the last; `stands`: what the slots hold that were filled
    then. `room`: what these have left. `read_files`: the rows of those of these names that are there."""
    trial = Trial(part.name, cell, past.base.number)
    trying = _Trying(part, cell, past, inputs, stands, trial, room or Room(), read_files)
    try:
        trying.run()
    except Unworkable as error:
        trial.failure = str(error)
    except TooMuch:
        trial.failure = (
            f"the record at offset {trying.offset} of {part.inputs[trying.input].source.name}, where its outputs since "
            f"commit {trying.number} take more than is left of {MOST_BYTES >> 20} MB. Try less of them (--records)"
        )
    return trial


class _Trying:
    def __init__(
        self,
        part: Part,
        cell: int,
        past: Past,
        inputs: Sequence[Records],
        stands: Mapping[Place, Sequence[Output]],
        trial: Trial,
        room: Room,
        read_files: ReadFiles,
    ) -> None:
        self._part, self._read_files = part, read_files
        self._past, self._stands, self._trial = past, stands, trial
        every = zip(part.inputs, inputs, strict=True)
        self._inputs = [rows_of(past, at) if each.is_table else there for at, (each, there) in enumerate(every)]
        self.input = self.offset = 0
        self.number = past.base.number
        self._room = room
        self._weighed: Counter[Place] = Counter()  # outputs, of those since the last commit
        self._weight = self._kept_bytes = 0
        self._slots = past.slots
        self._taken = [0] * len(inputs)
        marks = [each.mark_ms for each in past.base.inputs]
        self._fold = Fold(PartWork(part, cell), dict(past.state), marks)
        self._inputs = [self._fold.work.dated(at, there) for at, there in enumerate(self._inputs)]
        self._pending = _ranges(past.base)
        self._is_planned = part.has_plan

    def run(self) -> None:
        base, *steps = self._past.steps
        before = base.commit
        sent: ByPlace = {}
        add(sent, map(outputs_of, base.held))
        add(sent, self._fold.work.told(before.number, base.changes).items())
        for step in steps:
            self._step(step.commit)
            for place, outputs in self._fold.outputs.items():
                sent.setdefault(place, []).extend(outputs)
            self._compare(before, step.commit, sent)
            sent = self._fold.commit(step.commit.number)
            before = step.commit
            self.number = before.number
            self._room.left += self._weight
            self._weight = 0
            self._weighed.clear()
            self._trial.commits += 1
        self._compare_states()

    # --- the input, as it was taken

    def _step(self, commit: Commit) -> None:
        if not (self._is_planned and self._pending):  # or this was taken by code without a plan
            self._take(0, commit.inputs[0].next_offset)
        if not self._is_planned:
            return
        due = _ranges(commit)
        left = len(due) if due and self._pending[-len(due) :] == due else 0
        done = self._pending[: len(self._pending) - left]
        for each in done:
            first = self._taken[each.input]
            self._take(each.input, each.end)
            self._fold.mark(each.input, each.mark_ms)
            if self._part.files is not None:
                self._compare_files(self._part.files.url, each, first, commit.number)
        if left:  # a holder left in the middle of it
            self._take(due[0].input, min(due[0].end, commit.inputs[due[0].input].next_offset))
        self._pending = due

    def _take(self, index: int, end: int) -> None:
        records, first = self._inputs[index], self._taken[index]
        last = self._taken[index] = bisect_left(records.offsets, end, first)
        self._trial.records += last - first
        for at in range(first, last, RUN_RECORDS):
            self.input, self.offset = index, records.offsets[at]
            self._fold.take(index, records.part(at, min(at + RUN_RECORDS, last)))
            for place, outputs in self._fold.outputs.items():
                self._weight += self._room.take_outputs(outputs[self._weighed[place] :])
                self._weighed[place] = len(outputs)

    # --- what came of it

    def _compare_files(self, url: str, plan: Range, first: int, number: int) -> None:
        """The plan says what they are called."""
        from oncelog.flow.filing import folder_of

        times = self._inputs[plan.input].times[first : self._taken[plan.input]]
        hours = {folder_of(hour * HOUR_MS) for hour in {time_ms // HOUR_MS for time_ms in times}}
        comes: dict[str, list[Any]] = {}
        for each in self._fold.files:
            name = file_name(self._part.name, self._trial.cell, plan, each.folder, is_late=each.is_late)
            comes.setdefault(name, []).extend(each.rows.to_pylist())
        self._fold.files.clear()
        names = {
            file_name(self._part.name, self._trial.cell, plan, folder, is_late=is_late)
            for folder in hours
            for is_late in (False, True)
        }
        stands, place = self._read_files(sorted(names | comes.keys())), Place(url, self._trial.cell)
        there, here = (
            [Output(name.encode(), msgspec.json.encode(row), (), None) for name in sorted(found) for row in found[name]]
            for found in (stands, comes)
        )
        weight = self._room.take_outputs([*there, *here])
        self._trial.outputs += len(there)
        self._compare_place(place, number, deque(there), deque(here))
        self._room.left += weight

    def _compare(self, before: Commit, commit: Commit, sent: ByPlace) -> None:
        filled, trial = _filled(before), self._trial
        for place, end in _filled(commit).items():
            first = filled.get(place, 0)
            base = self._slots[place].start if place in self._slots else first
            there = deque(map(_plain, self._stands.get(place, ())[first - base : end - base]))
            comes = deque(map(_plain, sent.get(place, ())))
            trial.outputs += len(there)
            self._compare_place(place, commit.number, there, comes)

    def _compare_place(self, place: Place, number: int, there: deque[Output], comes: deque[Output]) -> None:
        trial = self._trial
        while there and comes and there[0] == comes[0]:
            there.popleft()
            comes.popleft()
            trial.same += 1
        while there and comes and there[-1] == comes[-1]:
            there.pop()
            comes.pop()
            trial.same += 1
        gone, new = _without(there, comes), _without(comes, there)
        alike = len(there) - len(gone)
        if gone or new:
            trial.same += alike
        else:
            trial.moved += alike
        trial.gone += len(gone)
        trial.new += len(new)
        room = MOST_KEPT - len(trial.differences)
        pairs = [*_paired(gone, new)] if gone or new else [*zip(there, comes, strict=True)]
        for pair in pairs[:room]:
            if self._kept_bytes < MOST_KEPT_BYTES:
                self._kept_bytes += sum(len(each.value or b"") + len(each.key or b"") for each in pair if each)
                trial.differences.append(Difference(place, number, *pair))

    def _compare_states(self) -> None:
        comes, there, trial = self._fold.state, self._past.end_state, self._trial
        differ = [key for key in comes.keys() | there.keys() if comes.get(key) != there.get(key)]
        trial.states_differ = len(differ)
        trial.states += [(key, there.get(key), comes.get(key)) for key in sorted(differ)[:MOST_KEPT]]


def _ranges(commit: Commit) -> list[Range]:
    return [] if commit.plan is None else list(commit.plan.ranges)


def _plain(output: Output) -> Output:
    """The output without what an exception says in its own words."""
    headers = tuple(each for each in plain_headers(output.headers) if each[0] != ERROR)
    return Output(output.key, output.value, headers, None)


def _without(some: Collection[Output], others: Collection[Output]) -> list[Output]:
    known, found = Counter(others), []
    for each in some:
        if known[each] > 0:
            known[each] -= 1
        else:
            found.append(each)
    return found


def _paired(gone: Sequence[Output], new: Sequence[Output]) -> list[tuple[Output | None, Output | None]]:
    """Pair the outputs of one key, in their order."""
    by_key: dict[bytes | None, deque[Output]] = {}
    for each in new:
        by_key.setdefault(each.key, deque()).append(each)
    pairs: list[tuple[Output | None, Output | None]] = []
    for each in gone:
        rivals = by_key.get(each.key)
        pairs.append((each, rivals.popleft() if rivals else None))
    return [*pairs, *((None, each) for left in by_key.values() for each in left)]
