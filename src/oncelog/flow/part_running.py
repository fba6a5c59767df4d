"""A part of a flow as the work of a cell: a run of records in, bytes out, the user's functions in between.

The operations of a part are put together once into one function for each input. So a record costs its codecs, the
user's functions, and a call for each operation; what is needed once for a run (bytes of changed states, bytes of
batches) is made once for a run.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.flow.codecs import Codec, check_class, class_of, decoded, raw
from oncelog.flow.formats import ERROR, SOURCE, STAGE, TIME
from oncelog.flow.messages import EMPTY, Changes, HourRows, Outputs, Records, Row, Stepped, Unworkable, Work, plain
from oncelog.flow.parts import Branch, FileSink, Node, Part, Sink
from oncelog.flow.routing import Route
from oncelog.flow.scope import Kept, PlainHeaders, Push, Scope, Tells
from oncelog.flow.stepping import Old, PlainStates, StepStates, TimedStates, Trail
from oncelog.flow.topics import Topic
from oncelog.slots import Place
from oncelog.slots.comparing import plain_headers

if TYPE_CHECKING:
    from oncelog.flow.filing import Rows

WORTH_COLUMNS: Final = 50  # records
MOST_ERROR: Final = 1_000  # letters of what an exception says
TIMER: Final = b"timer@"  # in the place of a source
COMMIT: Final = b"commit@"
RAISED: Final = (Exception, SystemExit)  # by functions; `sys.exit` would stop the loop with all its cells


def _line_of(error: BaseException) -> str:
    """The line in the user's own code that failed; empty where none was under way, as with a codec of ours."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "oncelog":
        at = at.tb_next
    return "" if at is None else f" ({at.tb_frame.f_code.co_filename.rpartition('/')[2]}, line {at.tb_lineno})"


class RunInput(NamedTuple):
    branch: Branch
    source: bytes  # what an output says of where it comes from, before the offset
    push: Push


class Columnar(NamedTuple):
    """An operation that takes a run of records at once."""

    run: Callable[[Records], None]
    reads_values: bool


class Letters:
    """The letters of one run to a dead-letter topic."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rows: list[tuple[bytes | None, ...]] = []

    def outputs(self) -> Outputs:
        keys, values, *headers = zip(*self.rows, strict=True)
        return Outputs(keys, values, more=dict(zip((TIME, SOURCE, STAGE, ERROR), headers, strict=True)))


class PartWork(Work):
    """One for each life of a cell."""

    def __init__(self, part: Part, cell: int) -> None:
        self.cell = cell
        self.key = b""
        self.time_ms = 0
        self.watermark_ms = -1
        self.offset = 0
        self.within = ""
        self._item: Any = None  # the key as an object
        self._source = b""
        self._firing = 0  # whose timer it is
        self._records = EMPTY
        self._branch = part.branches[0]
        self._asked: Counter[tuple[str, str]] = Counter()  # by origin and name, of what is worked on
        self._asked_at = b""
        self._title = f"{part.flow}/{part.name}"
        self._dead = {
            branch: Letters(Place(branch.otherwise.name, cell % branch.otherwise.partitions))
            for branch in part.inputs
            if branch.otherwise
        }
        self.trail: Trail | None = [] if self._dead else None
        self._tells: list[tuple[Tells, Push]] = []
        self._columnar: dict[Push, Columnar] = {}
        self._routed: dict[Push, Route] = {}
        self._brought_columns = False
        self._has_one_sink = sum(len(node.sinks) for node in part.root.below) == 1
        self._states: dict[str, StepStates] = {}
        self._timed: list[TimedStates] = []
        self._taken = 0  # of the records, where there are timers
        self._routes: dict[tuple[str, bool], Route] = {}
        self._rows = None if part.files is None else rows_of(part.files, part.branches[0], cell, self, self.trail)
        self._takes_columns = takes_columns(part)
        shared = self._behind(part.root) if self._rows is None else self._rows.push
        self._inputs = [self._input(branch, cell, shared) for branch in part.inputs]

    def begin(self, state: Mapping[bytes, bytes], marks: Sequence[int]) -> None:
        super().begin(state, marks)
        for states in self._states.values():
            states.begin(state)

    @property
    def next_timer_ms(self) -> int | None:
        due = [found[0] for states in self._timed if (found := states.next())]
        return min(due, default=None)

    def dated(self, input: int, records: Records) -> Records:
        branch = self._inputs[input].branch
        if not _says_time(branch) or not len(records.offsets):
            return records
        times = _times_of(branch.source, records)
        return records._replace(times=memoryview(array("q", times)) if isinstance(records.times, memoryview) else times)

    def run(self, input: int, records: Records, most: int) -> Stepped:
        for states in self._states.values():
            states.begin_run()
        for route in self._routes.values():
            route.begin()
        for letters in self._dead.values():
            letters.rows.clear()
        self._asked.clear()
        self._marks_before, self._late_before = list(self.marks), self.late
        branch = self._branch = self._inputs[input].branch
        try:
            if self._timed:
                self._run(input, records, self._by_time(input, records, most))
                taken = self._taken
            else:
                self._run(input, records)
                taken = len(records.offsets)
                if taken and _tells_time(branch):
                    self.mark(input, records.newest_ms - branch.wait_ms)
            changes = self._changes()
        except RAISED as error:
            raise self._unworkable(error) from error
        routes = self._routes.values()
        outputs = {place: each for route in routes if not route.is_held for place, each in route.outputs()}
        held = [each for route in routes if route.is_held for each in route.outputs()]
        held += [(letters.place, letters.outputs()) for letters in self._dead.values() if letters.rows]
        files = () if self._rows is None else self._take_rows(self._rows, records)
        for route in routes:
            route.begin()
        self._records = EMPTY  # a hundred cells that wait for more keep none
        return Stepped(changes, outputs, taken, held, files)

    def _changes(self) -> Changes:
        every = self._states.values()
        columns = next(iter(every)).column_changes() if len(every) == 1 else None
        if columns is not None:
            return columns
        found: dict[bytes, bytes | None] = {}
        for states in every:
            found |= states.changes()
        return found

    def _take_rows(self, rows: "Rows", records: Records) -> list[HourRows]:
        found = rows.take(self.planned_at_ms, records if self._takes_columns else None)
        self.late += sum(len(each.rows) for each in found if each.is_late)
        return found

    def _run(self, input: int, records: Records, rows: Iterator[Row] | None = None) -> None:
        if self._takes_columns:
            return
        branch, self._source, push = self._inputs[input]
        source, says_time = branch.source, _says_time(branch)
        decode_key = source.key.decode
        decode_value = source.decode_timed if says_time else source.value.decode
        takes_null_key = branch.source.key.takes_null
        takes_null = branch.is_table or branch.source.value.takes_null
        trail = self.trail
        self._records = records
        columnar = self._columnar.get(push)
        if columnar is not None and len(self._inputs) == 1 and not self._timed and not says_time:
            if self._has_loops(records) and self._run_columns(columnar, records, takes_null):
                return
            decode_value = decode_value if columnar.reads_values else _as_it_is
        rows = records.rows() if rows is None else rows
        while True:  # once, and once more behind each record that is dead
            try:
                for self.offset, key, value, self.time_ms in rows:
                    if trail:
                        trail.clear()
                    if (key is None and not takes_null_key) or (value is None and not takes_null):
                        raise ValueError(
                            f"it has no {'key' if key is None else 'value'}, and its codec is not optional()"
                        )
                    self.key, self._item = key, None if key is None else decode_key(key)  # type: ignore[assignment]
                    push(self._item, None if value is None else decode_value(value))
                return
            except RAISED as error:
                self._bury(error, 0)

    def _has_loops(self, records: Records) -> bool:
        """Input that comes as columns shows that they are loaded. A few records are worked on faster without."""
        self._brought_columns = self._brought_columns or not isinstance(records.keys, list | tuple)
        return self._brought_columns and len(records.offsets) >= WORTH_COLUMNS

    def _run_columns(self, columnar: Columnar, records: Records, takes_null: bool) -> bool:
        """Run it over columns. False where one of the records cannot be worked on: then each is taken by itself, and it
        is found."""
        from oncelog.records.column_types import BytesColumn

        if None in records.keys or (None in records.values and not takes_null):
            return False
        try:
            columnar.run(records._replace(keys=BytesColumn.of(records.keys)))
        except RAISED:
            for states in self._states.values():
                states.undo()
            for route in self._routes.values():
                route.begin()
            return False
        if self.trail:
            self.trail.clear()
        return True

    def told(self, number: int, changes: Mapping[bytes, bytes | None]) -> Mapping[Place, Outputs]:
        if not self._tells:
            return {}
        for route in self._routes.values():
            route.begin()
        self._source, self.offset = COMMIT, number
        try:
            for totals, then in self._tells:
                self.time_ms = int(changes.get(totals.time_key) or -1)
                keys, stored = totals.told(changes)
                if self._tell_columns(keys, stored, totals.codec, self._routed.get(then)):
                    continue
                for self.key, total in zip(keys, map(totals.codec.decode, stored), strict=True):
                    self._item = totals.decode_key(self.key)
                    then(self._item, total)
        except RAISED as error:
            raise self._unworkable(error) from error
        return {place: each for route in self._routes.values() for place, each in route.outputs()}

    def _tell_columns(self, keys: list[bytes], stored: list[bytes], codec: Codec[Any], only: Route | None) -> bool:
        """Tell totals as columns. False where one of the values cannot be encoded: then each is taken by itself, and it
        is found."""
        if only is None or not self._brought_columns or len(keys) < WORTH_COLUMNS:
            return False
        try:
            only.take_stored(keys, stored, codec, self.time_ms)
        except RAISED:
            return False
        return True

    # --- what cannot be worked on

    def attempt(self, work: Callable[[], object]) -> None:
        behind = len(self.trail or ())
        try:
            work()
        except RAISED as error:
            self._bury(error, behind)

    def _bury(self, error: BaseException, behind: int) -> None:
        """Take back all that was done since then, and send the record to the dead letters."""
        letters, trail = self._dead.get(self._branch), self.trail
        if letters is None or trail is None or self._source == TIMER or isinstance(error, Unworkable):
            raise error
        while len(trail) > behind:
            take_back, *about = trail.pop()
            take_back(*about)
        at = bisect_left(self._records.offsets, self.offset)
        said = f"{type(error).__name__}: {error}"[:MOST_ERROR].encode(errors="replace")
        source = b"%b%d" % (self._source, self.offset)
        headers = b"%d" % self.time_ms, source, self._title.encode(), said
        letters.rows.append((self._records.keys[at], self._records.values[at], *headers))
        trail.append((letters.rows.pop,))

    def _unworkable(self, error: BaseException) -> Unworkable:
        where = f"the record at offset {self.offset} of {self._branch.source.name}"
        remedy = "Mend the function or the codec, or give such records a topic of their own (`otherwise=Dead(...)`)"
        if self._source == TIMER:
            where, remedy = f"the timer of {self.key!r} at {self.time_ms}", "Mend the function"
        if self._source == COMMIT:
            where, remedy = f"the update that commit {self.offset} writes for {self.key!r}", "Mend the function"
        if isinstance(error, Unworkable):
            return Unworkable(f"{where}: {error}")
        words = " ".join(str(error).split("\n"))
        return Unworkable(f"{where}: {type(error).__name__}: {words}{_line_of(error)}. {remedy}")

    def _by_time(self, input: int, records: Records, most: int) -> Iterator[Row]:
        """The records, with the due timers fired between them in the order of time and key, when the next record is
        asked for."""
        branch, source, _ = self._inputs[input]
        self._taken = 0
        fired = self._fire(most)
        for row in records.rows():
            if fired >= most:
                return
            self._source = source
            yield row
            self._taken += 1
            mark_ms = row[3] - branch.wait_ms
            if mark_ms > self.marks[input] and _tells_time(branch):
                self.mark(input, mark_ms)
            for states in self._timed:
                if states.due.first_ms <= self.watermark_ms:
                    fired += self._fire(most - fired)

    def _fire(self, most: int) -> int:
        for fired in range(most):
            due = [(found, index) for index, states in enumerate(self._timed) if (found := states.next())]
            if not due or min(due)[0][0] > self.watermark_ms:
                return fired
            self._firing = min(due)[1]
            states = self._timed[self._firing]
            time_ms, key = states.take()
            states.fire(key, time_ms)
        return most

    def undo(self) -> None:
        self.marks, self.late = self._marks_before, self._late_before
        self.watermark_ms = min(self.marks)
        for states in self._states.values():
            states.undo()

    def begin_timer(self, key: bytes, item: object, time_ms: int) -> None:
        self.key, self._item, self.time_ms = key, item, time_ms
        self._source, self.offset = TIMER, time_ms

    # --- what operations ask for

    @property
    def headers(self) -> PlainHeaders:
        if not self._branch.has_headers:
            raise ValueError("its headers were not asked for: `read(..., headers=True)`")
        if self._records.headers is None:
            raise ValueError("its headers were not read: what runs this flow brings none")
        return plain_headers(self._records.headers[bisect_left(self._records.offsets, self.offset)])

    @property
    def origin(self) -> str:
        """A timer is one of a key and a time."""
        timer = f"/{self._firing}/{self.key.hex()}" if self._source == TIMER else ""
        return f"{self._title}/{self._source.decode()}{self.offset}{timer}{self.within}"

    def count_late(self) -> None:
        self._add_late(1)
        if self.trail is not None:
            self.trail.append((self._add_late, -1))

    def _add_late(self, number: int) -> None:
        self.late += number

    def number(self, name: str) -> int:
        at = b"%b%d" % (self._source, self.offset)
        if at != self._asked_at:
            self._asked_at = at
            self._asked.clear()
        asked = self.origin, name
        self._asked[asked] += 1
        return self._asked[asked] - 1

    # --- how the operations are put together

    def states(self, name: str, codec: Codec[Any], old: Old | None = None) -> StepStates:
        return self._states.setdefault(name, PlainStates(name, codec, self.trail, old))

    def add_states(self, states: Kept) -> Kept:
        found = self._states.setdefault(states.name, states)  # a branch that was merged twice has it twice
        assert isinstance(found, type(states))
        return found

    def timed(self, name: str, codec: Codec[Any], old: Old | None = None) -> TimedStates:
        found = self._states.get(name)
        if not isinstance(found, TimedStates):
            found = self._states[name] = TimedStates(name, codec, self.trail, old)
            self._timed.append(found)
        return found

    def tells_at_commits(self, totals: Tells, then: Push) -> None:
        self._tells.append((totals, then))

    def takes_columns(self, push: Push, run: Callable[[Records], None], *, reads_values: bool) -> None:
        self._columnar[push] = Columnar(run, reads_values)

    @property
    def decodes(self) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        source = self._branch.source
        return source.key.decode, source.value.decode

    def only_route(self, push: Push) -> Route | None:
        return self._routed.get(push)

    def _input(self, branch: Branch, cell: int, push: Push) -> "RunInput":
        for node in reversed(branch.operations):
            assert node.make is not None
            push = node.make(push, self)
        return RunInput(branch, f"{branch.source.name}/{cell}/".encode(), push)

    def _behind(self, node: Node) -> Push:
        ways = [self._behind(child) for child in node.children if child.writes]
        ways += [self._emit(sink, is_held=not node.repeats) for sink in node.sinks]
        then = ways[0] if len(ways) == 1 else _each_of(ways)
        return then if node.make is None else node.make(then, self)

    def _emit(self, sink: Sink, *, is_held: bool) -> Push:
        topic, key_of, tells_source = sink.topic, sink.key, sink.tells_source
        route = self._routes.setdefault((topic.name, is_held), Route(sink, self.cell, is_held=is_held))
        encode_key, encode_value, takes_null = topic.key.encode, topic.value.encode, topic.value.takes_null
        trail, kind = self.trail, class_of(topic.value)

        def push(key: Any, value: Any) -> None:
            if type(value) is not kind and kind is not None and not (value is None and takes_null):
                check_class(kind, value)
            if key_of is not None:
                raw = encode_key(key_of(value))
            else:
                raw = self.key if key is self._item else encode_key(key)
            partition = route.known[raw]
            route.values[partition].append(None if value is None and takes_null else encode_value(value))
            route.keys[partition].append(raw)
            route.times[partition].append(self.time_ms)
            if tells_source:
                route.sources[partition].append(b"%b%d" % (self._source, self.offset))
            if trail is not None:
                trail.append((route.take_back, partition))

        if self._has_one_sink and key_of is not None:
            self.takes_columns(push, partial(self._pass_on, route, key_of), reads_values=True)
        elif self._has_one_sink and not tells_source:
            self._routed[push] = route
        return push

    def _pass_on(self, route: Route, key_of: Callable[[Any], Any], records: Records) -> None:
        """Pass records on under other keys, as `push` does with each of them."""
        topic, (decode_key, decode_value) = route.topic, self.decodes
        if decode_key is not bytes:
            list(decoded(records.keys, decode_key))  # one that does not decode is an error here, too
        values = list(decoded(records.values, decode_value))
        keys = list(map(topic.key.encode, map(key_of, values)))
        if None in keys:
            raise ValueError("a record without a key stays in the partition that it comes from")
        is_same = decode_value is raw.decode and topic.value is raw and None not in values
        sources = (self._source, records.offsets) if route.tells_source else None
        route.take(keys, records.values if is_same else values, records.times, sources)


def takes_columns(part: Part) -> bool:
    """Files of records as they come."""
    source, operations, *_ = part.branches[0]
    is_raw = source.key.name == source.value.name == raw.name
    return part.files is not None and part.files.kind is bytes and is_raw and not operations and source.time is None


def rows_of(sink: FileSink, branch: Branch, cell: int, scope: Scope, trail: Trail | None) -> "Rows":
    from oncelog.flow.filing import Rows, Shape

    return Rows(Shape(sink.kind, branch.source.key.name), cell, scope, trail)


def _tells_time(branch: Branch) -> bool:
    """Whether the records of this input move the time on."""
    return not branch.is_derived and not branch.is_table


def _says_time(branch: Branch) -> bool:
    """Values do, and not their records. Behind `through` it is known."""
    return branch.source.time is not None and not branch.is_derived


def _times_of(topic: Topic[Any, Any], records: Records) -> list[int]:
    """One that cannot be told is 0, so that it moves no watermark: when its turn comes it cannot be worked on, for the
    same reason."""
    times = []
    for value, time_ms in zip(records.values, plain(records.times), strict=True):
        try:
            times.append(time_ms if value is None else topic.time_of(topic.value.decode(value)))
        except RAISED:
            times.append(0)
    return times


def _as_it_is(value: bytes) -> bytes:
    return value


def _each_of(ways: list[Push]) -> Push:
    def push(key: Any, value: Any) -> None:
        for way in ways:
            way(key, value)

    return push
