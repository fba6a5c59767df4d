"""A flow in memory: no broker, no clock, and the same each time. With `crashes` every cell is also stopped at each of
its steps and another holder goes on, as often as there are steps; its outputs must be those of the run without a crash.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

from oncelog.clock import Now
from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow.cell import Cell
from oncelog.flow.description import Holder, Input, Limits, OutputPlace, Stage
from oncelog.flow.formats import HELD, TIME, Held, Tenancy, decoded
from oncelog.flow.held import outputs_of
from oncelog.flow.messages import (
    EMPTY,
    AppendClaim,
    End,
    Ended,
    Fetch,
    JournalBatch,
    NeedPids,
    ReadBack,
    ReadJournal,
    Records,
)
from oncelog.flow.program import Part, Program, Sent, Topic
from oncelog.flow.running import PartWork
from oncelog.producers import FIRST_KAFKA_PID
from oncelog.producers.decision import Decision
from oncelog.producers.producer_map import ProducerLimits, ProducerMap
from oncelog.records.read import records_of
from oncelog.slots import Identity, Place
from oncelog.slots.batch import Batch
from oncelog.slots.comparing import Headers
from oncelog.slots.messages import Answer, Found, LookUp, NeedMetadata, Produce, StoredSpan
from oncelog.slots.register import Record
from oncelog.slots.replay import Slot

K = TypeVar("K")
V = TypeVar("V")

LIMITS: Final = Limits(commit_every_ms=3, retry_backoff_ms=1, wait_ms=5)
MOST_MS: Final = 200_000
BEGIN_MS: Final = 1 << 40  # on both clocks
FETCHED_AT_ONCE: Final = 3  # so that a little input comes in several steps


Inputs = Sequence[Records]


class Stopped(AssertionError):
    """A cell stopped, or came to something else after a crash. The text says what, where, and after which step."""


@dataclass
class Stored:
    offset: int
    identity: Identity
    first_sequence: int
    records: list[Any]  # as `records_of` gives them


@dataclass
class Log:
    batches: list[Stored] = field(default_factory=list)
    end: int = 0
    producers: ProducerMap = field(default_factory=lambda: ProducerMap(None, ProducerLimits()))

    def append(self, batch: Batch, now: Now) -> tuple[int, int]:
        """(error code, base offset), by the rules of producers"""
        what = (batch.pid, batch.generation, batch.first_sequence, batch.record_count)
        decision, detail = self.producers.judge(*what, now)
        if decision is Decision.DUPLICATE:
            return 0, detail
        if decision is not Decision.APPEND:
            fenced = decision is Decision.FENCED
            return Code.INVALID_PRODUCER_EPOCH if fenced else Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.producers.accept(*what, self.end, batch.max_timestamp_ms, now)
        identity = Identity(batch.pid, batch.generation)
        return 0, self.store(identity, batch.first_sequence, list(records_of(bytes(batch.data))))

    def store(self, identity: Identity, first_sequence: int, records: list[Any]) -> int:
        self.batches.append(Stored(self.end, identity, first_sequence, records))
        self.end += len(records)
        return self.batches[-1].offset


class CellRun:
    """One cell, from nothing to the end of its input, with holders that follow one another."""

    def __init__(self, program: Program, part: Part, cell: int, inputs: Inputs) -> None:
        self.part, self.inputs = part, inputs
        self.journal = Place(f"oncelog.flow.{program.name}.{part.name}", cell)
        outputs = [Place(sink.name, index) for sink in part.sinks for index in range(sink.partitions)]
        self.logs = {place: Log() for place in (self.journal, *outputs)}
        self.stage = Stage(
            flow=program.name,
            name=part.name,
            cell=cell,
            journal=self.journal,
            inputs=tuple(
                Input(branch.source.name, "id", wait_ms=branch.wait_ms, is_derived=branch.is_derived)
                for branch in part.branches
            ),
            has_plan=part.has_plan,
            tells_time=program.tells_time(part),
            outputs=tuple(OutputPlace(place, "id") for place in outputs),
        )
        self.code = program.code
        self.now_ms = BEGIN_MS
        self.lives = 0
        self.steps = 0
        self.pids = FIRST_KAFKA_PID

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def run(self, most_steps: int | None = None) -> bool:
        """Until everything is committed and goodbye is said, or up to a step; whether it came to the end."""
        ended = self._live(most_steps)
        while ended is not None and ended.how is End.AGAIN:
            ended = self._live(most_steps)
        if ended is not None and ended.how is not End.LEFT:
            raise Stopped(ended.why)
        return ended is not None

    def _live(self, most_steps: int | None) -> Ended | None:
        self.lives += 1
        holder = Holder(nonce=f"n{self.lives}", tenancy=Tenancy(0, self.lives), code=self.code)
        cell = Cell(self.stage, PartWork(self.part, self.stage.cell), holder, LIMITS, self.now, random=lambda: 0.5)
        to_do: deque[Any] = deque()
        answers: deque[Callable[[], object]] = deque()
        connected: set[Place] = set()
        cell.begin()
        while most_steps is None or self.steps < most_steps:
            if answers:
                answers.popleft()()
            elif to_do:
                action = to_do.popleft()
                if isinstance(action, Ended):
                    return action
                answers.append(self._do(cell, action, connected))
            else:
                self.now_ms += 1
                if self.now_ms - BEGIN_MS > MOST_MS:
                    raise Stopped(f"{self.stage.title}: it comes to no end ({cell.state.name}, {cell.why})")
                if self._is_done(cell):
                    cell.leave(self.now)
                to_do.extend(cell.actions(self.now))
                continue
            self.steps += 1
        return None

    def _is_done(self, cell: Cell) -> bool:
        done = cell.journal.commit
        reached = [each.next_offset for each in done.inputs] if done else [0] * len(self.inputs)
        return reached == [len(records.offsets) for records in self.inputs]

    def _do(self, cell: Cell, action: Any, connected: set[Place]) -> Callable[[], object]:
        """At once; its answer comes with the next step."""
        match action:
            case Produce():
                (batch,) = action.batches
                if batch.place not in connected:
                    connected.add(batch.place)
                    return lambda: cell.unchecked(action.request_id, self.now)
                answer = Answer(*batch.place, *self.logs[batch.place].append(batch, self.now))
                return lambda: cell.answered(action.request_id, [answer], self.now)
            case LookUp():
                connected.add(action.place)
                found = self._found(action)
                return lambda: cell.looked_up(action.place, found, self.now)
            case NeedMetadata():
                return lambda: cell.leaders({place: node for node, place in enumerate(self.logs)}, self.now)
            case ReadJournal():
                batches = self._journal(action.from_offset)
                return lambda: cell.journal_read(batches, self.now)
            case NeedPids():
                pids = range(self.pids, self.pids + action.how_many)
                self.pids += action.how_many
                return lambda: cell.pids(pids, self.now)
            case AppendClaim():
                self.logs[self.journal].store(Identity(-1, -1), -1, [Record(0, action.key, action.value)])
                return lambda: cell.claimed(self.now)
            case Fetch():
                there = self.inputs[action.input].part(action.from_offset, action.from_offset + FETCHED_AT_ONCE)
                next_offset = action.from_offset + len(there.offsets)
                return lambda: cell.fetched(action.input, there, next_offset, self.now)
            case ReadBack():
                slots = self._slots(action)
                return lambda: cell.read_back(action.place, slots, self.now)
        raise AssertionError(action)

    def _found(self, asked: LookUp) -> Found:
        own = [each for each in self.logs[asked.place].batches if each.identity == asked.identity]
        spans = [StoredSpan(b.first_sequence, b.first_sequence + len(b.records) - 1, b.offset) for b in own]
        return Found(spans[-1].last_sequence if spans else -1, asked.identity.generation, spans)

    def _journal(self, from_offset: int) -> list[JournalBatch]:
        return [
            JournalBatch(
                each.offset,
                each.offset + len(each.records) - 1,
                each.identity,
                [Record(each.offset + at, record.key, record.value) for at, record in enumerate(each.records)],
            )
            for each in self.logs[self.journal].batches
            if each.offset >= from_offset
        ]

    def _slots(self, asked: ReadBack) -> list[Slot]:
        return [
            Slot(asked.identity, each.first_sequence + at, each.offset + at, r.key, r.value, r.headers, r.timestamp_ms)
            for each in self.logs[asked.place].batches
            if each.identity == asked.identity
            for at, r in enumerate(each.records)
            if 0 <= each.first_sequence + at - asked.first_sequence < asked.records
        ]

    def outputs(self) -> dict[Place, list[tuple[Any, ...]]]:
        return {
            place: [(each.key, each.value, tuple(each.headers)) for batch in log.batches for each in batch.records]
            for place, log in self.logs.items()
            if place != self.journal
        }

    def outputs_that_repeat(self) -> dict[Place, list[tuple[Any, ...]]]:
        """All but those that its commits held, which stand there too."""
        found = self.outputs()
        commits = (record for batch in self.logs[self.journal].batches for record in batch.records)
        held = [decoded(record.key, record.value) for record in commits if record.key[:1] == HELD]
        for place, outputs in (outputs_of(each) for each in held if isinstance(each, Held)):
            for key, value, headers, *_ in outputs.each():
                found[place].remove((key, value, headers))
        return found


class Stands(NamedTuple):
    """A record as bytes."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Simulated:
    """What stands in each topic at the end."""

    def __init__(self, topics: Mapping[Place, Records], crashes: int) -> None:
        self._topics = topics
        self.crashes = crashes  # how many there were

    def __getitem__(self, topic: Topic[K, V]) -> list[tuple[K, V]]:
        """Partition by partition."""
        return [
            (topic.key.decode(key or b""), cast(V, None) if value is None else topic.value.decode(value))
            for place, records in sorted(self._topics.items())
            if place.topic == topic.name
            for key, value in zip(records.keys, records.values, strict=True)
        ]

    def records(self, topic: Topic[Any, Any]) -> list[Stands]:
        """As bytes, with their headers."""
        found = [records for place, records in sorted(self._topics.items()) if place.topic == topic.name]
        return [Stands(*each) for one in found for each in zip(one.keys, one.values, one.headers or (), strict=True)]


def simulate(program: Program, sent: Iterable[Sent], *, crashes: bool) -> Simulated:
    topics: dict[Place, Records] = {}
    count = 0
    for topic, key, value, at_ms, headers in sent:
        _add(topics, Place(topic.name, 0 if key is None else topic.partition_of(key)), key, value, at_ms, headers)
    for part in program.parts:
        for cell in range(part.branches[0].source.partitions):
            inputs = [topics.get(Place(branch.source.name, cell), EMPTY) for branch in part.branches]
            calm = CellRun(program, part, cell, inputs)
            calm.run()
            if crashes:
                count += _crash_everywhere(program, part, cell, calm)
            for place, outputs in calm.outputs().items():
                for key, value, headers in outputs:
                    _add(topics, place, key, value, int(dict(headers)[TIME]), headers)
    return Simulated(topics, count)


def _add(topics: dict[Place, Records], place: Place, *about: Any) -> None:
    log = topics.setdefault(place, Records([], [], [], [], []))
    for column, cell in zip(log, (len(log.offsets), *about), strict=True):
        column.append(cell)  # type: ignore[union-attr]


def _crash_everywhere(program: Program, part: Part, cell: int, calm: CellRun) -> int:
    expected = calm.outputs_that_repeat()
    for step in range(calm.steps):
        run = CellRun(program, part, cell, calm.inputs)
        try:
            run.run(step)
            run.run()
        except Stopped as stopped:
            raise Stopped(f"after a crash at step {step} of {calm.steps}: {stopped}") from stopped
        if (written := run.outputs_that_repeat()) != expected:
            raise Stopped(
                f"{run.stage.title}: after a crash at step {step} of {calm.steps} it wrote {written} where "
                f"{expected} was written without one"
            )
    return calm.steps
