"""What a cell knows while somebody holds it, and the small steps that several of the table's actions make."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from oncelog.clock import Now
from oncelog.flow.description import COMMIT_OVERHEAD_BYTES, Holder, Limits, Stage
from oncelog.flow.entries import Entries
from oncelog.flow.formats import STATE, Commit, Entry, Held, Plan, PlannedRows, Range, encoded
from oncelog.flow.held import held_size, outputs_of
from oncelog.flow.journal import NO_FENCE, Journal
from oncelog.flow.messages import (
    Action,
    Changes,
    ColumnChanges,
    Ended,
    FinishFiles,
    HourRows,
    JournalBatch,
    Outputs,
    ReadJournal,
    Records,
    Work,
    WriteRows,
    size_of,
)
from oncelog.flow.planning import Source, collected, plan_of
from oncelog.flow.states import State
from oncelog.producers.sequences import sequence_after
from oncelog.records.build import build_batch
from oncelog.slots import Identity, Place
from oncelog.slots.batch import Batch
from oncelog.slots.comparing import plain_headers
from oncelog.slots.sender import Sender

HOUR_MS: Final = 3_600_000  # of which files are
NOTHING: Final[Mapping[bytes, bytes | None]] = {}
LONG_AGO_MS: Final = -(1 << 62)

Encode = Callable[[Outputs, int], bytearray]  # one batch, whose records carry this time
RECORD_OVERHEAD_BYTES: Final = 80  # of an output, beside key and value: varints and the two headers


def encoded_rows(outputs: Outputs, timestamp_ms: int) -> bytearray:
    return build_batch([(each.key, each.value, plain_headers(each.headers), timestamp_ms) for each in outputs.each()])


def file_name(stage: str, cell: int, plan: Range, folder: str, *, is_late: bool) -> str:
    return f"{folder}/{stage}-{cell}-{plan.first}-{plan.end}{'-late' if is_late else ''}.parquet"


class Holding:
    def __init__(
        self,
        stage: Stage,
        work: Work,
        holder: Holder,
        limits: Limits,
        now: Now,
        *,
        random: Callable[[], float],
        copy: Journal | None = None,
        encode: Encode = encoded_rows,
    ) -> None:
        """`copy`: what another life of a holder knew at its end."""
        self.stage, self.work, self.holder, self.limits = stage, work, holder, limits
        self.now = self.read_at = now
        self.encode = encode
        self.sender = Sender(limits.sender, random, self.split)
        self.sender.set_wall_clock(now.wall_ms, now.monotonic_ms)
        self.state = State.READING
        self.asked: list[Action] = []
        self.why = ""

        self.journal = Journal() if copy is None else copy.copy()
        self.read_from = 0
        self.is_copy_sound = True
        self.fence = NO_FENCE
        self.awaits_until_ms: int | None = None  # a goodbye
        self.others_until_ms = 0  # holders with other code may send
        self.until_ms = 0  # this one does; wall clock
        self.proven_ms = 0  # wall clock: nobody had taken over then
        self.recalled_at: Now | None = None  # brokers were asked what they remember of the outputs' producer
        self.known_at_ms: dict[Place, int] = {}  # monotonic: they remembered it there
        self.reads_ahead = False  # what is read back was asked for before the take-over was acknowledged
        self.read_ahead: Sequence[JournalBatch] | None = None  # and was there before that

        self.entries = Entries({})
        self.sources: list[Source] = []
        self.plan_left: deque[Range] = deque()
        self.places = {output.place: output.topic_id for output in stage.outputs}
        self.files: set[str] = set()  # that have rows and are not finished
        self.is_finishing = False
        self.filled: dict[Place, int] = {}
        self.offsets: dict[Place, int] = {}  # nothing of later slots lies below
        self.forsaken: set[Place] = set()  # outputs that are gone
        self.comparing: list[tuple[Batch, int]] = []  # found in the log, from where on
        self.being_read: list[Batch] = []  # of these, and read back now: batches of one place that follow each other
        self.run_records = limits.run_records
        self.waiting_bytes = 0  # of outputs that are not acknowledged, or not compared with what stands there
        self.changed_bytes = 0
        self.rows_bytes = 0  # of what the plan takes of tables, and is not taken yet
        self.has_progress = False
        self.committed_ms = now.monotonic_ms
        self.number = 0
        self.under_way: Commit | None = None
        self.held: list[tuple[Place, Outputs]] = []  # for the next commit
        self.held_under_way: list[Held] = []  # in one that is not acknowledged yet
        self.rows_under_way: list[PlannedRows] = []
        self.to_tell: Mapping[Place, Outputs] = {}  # what follows from that one
        self.wants_to_leave = self.is_at_the_end = False
        self.stopped_by = ""  # why a person has to look at it when it has left

    # --- the journal

    def ask(self, action: Action) -> None:
        self.asked.append(action)

    def read_journal(self, waits_ms: int = 0) -> None:
        self.read_at, self.read_from = self.now, self.journal.next_offset
        self.ask(ReadJournal(self.read_from, waits_ms))

    def append(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        changes: Mapping[bytes, bytes | None] = NOTHING,
        columns: ColumnChanges | None = None,
    ) -> None:
        """One batch, with what changed of the state first. It carries the time at which what it relies upon was looked
        at, so that a broker refuses it where its sender slept since then."""
        others = [encoded(each) for each in entries]
        keys, values = [STATE + key for key in changes], [*changes.values()]
        other_keys, other_values = [key for key, _ in others], [value for _, value in others]
        if columns is None:
            records = Outputs([*keys, *other_keys], [*values, *other_values])
        else:
            records = columns.records(Outputs(keys, values), Outputs(other_keys, other_values))
        data, now_ms = self.encode(records, timestamp_ms), self.now.monotonic_ms
        self.sender.add(Batch(*self.stage.journal, data, len(records.keys), now_ms, records), now_ms)

    # --- outputs

    def send(self, place: Place, outputs: Outputs) -> None:
        """With the present time: a broker forgets a producer by its records' timestamps."""
        count = len(outputs.keys)
        cells = size_of(outputs.keys) + size_of(outputs.values)
        if count > 1 and cells + count * RECORD_OVERHEAD_BYTES > self.limits.batch_bytes:
            self.send(place, outputs.part(0, count // 2))
            self.send(place, outputs.part(count // 2))
            return
        batch = self.batch_of(place, outputs, self.now.monotonic_ms)
        self.sender.add(batch, self.now.monotonic_ms)
        self.filled[place] += count
        self.waiting_bytes += len(batch.data)

    def batch_of(self, place: Place, outputs: Outputs, created_ms: int) -> Batch:
        data = self.encode(outputs, self.now.wall_ms)
        return Batch(*place, data, len(outputs.keys), created_ms, outputs)

    def split(self, batch: Batch, records: int) -> tuple[Batch, Batch]:
        outputs = batch.payload
        assert isinstance(outputs, Outputs)
        first, second = (
            self.batch_of(batch.place, part, batch.created_ms)
            for part in (outputs.part(0, records), outputs.part(records))
        )
        self.waiting_bytes += len(first.data) + len(second.data) - len(batch.data)
        return first, second

    def resume_output(self, place: Place) -> None:
        """The producer id of the outputs keeps its epoch for ever. How many more slots are filled is asked first, but
        where who was here before has left none and the broker knows of all that it filled."""
        assert self.journal.claim is not None
        self.sender.resume(
            place,
            Identity(self.journal.claim.output_pid, 0),
            sequence_after(self.filled[place], 0),
            self.now.monotonic_ms,
            next_offset=self.offsets[place],
            is_shared=True,
            known_at_ms=self.known_at_ms.get(place, LONG_AGO_MS),
        )

    @property
    def is_drained(self) -> bool:
        """Everything that was sent stands in the log as it was made."""
        is_idle = all(self.sender.boundary(place) is not None for place in self.filled.keys() - self.forsaken)
        return is_idle and not self.comparing and not self.being_read and not self.is_finishing

    # --- files

    def write_rows(self, found: HourRows) -> None:
        """The plan's only range of records says what the file is called."""
        stage = self.stage
        name = file_name(stage.name, stage.cell, self.plan_left[0], found.folder, is_late=found.is_late)
        self.files.add(name)
        self.waiting_bytes += found.rows.nbytes
        self.ask(WriteRows(name, found.rows))

    def finish_files(self) -> None:
        if self.files and not self.plan_left:
            self.is_finishing = True
            (source,), commit = self.stage.inputs, self.journal.commit
            assert commit is not None and commit.plan is not None
            plan = commit.plan.ranges[0]
            about = {
                "oncelog.flow": self.stage.flow,
                "oncelog.stage": self.stage.name,
                "oncelog.topic": source.topic,
                "oncelog.topic.id": source.topic_id,
                "oncelog.partition": f"{self.stage.cell}",
                "oncelog.offsets": f"{plan.first}-{plan.end}",
            }
            self.ask(FinishFiles(about, self.now.monotonic_ms + self.until_ms - self.now.wall_ms))

    @property
    def left(self) -> int:
        """Records that are at hand, and not taken yet."""
        return sum(source.left for source in self.sources)

    # --- commits

    def fits(self, changes: Changes, held: Sequence[tuple[Place, Outputs]] = (), rows_bytes: int = 0) -> int | None:
        """How many bytes they add to the commit; None where that is too much, beside what is left of the plan's
        rows when that many bytes of them are taken."""
        if isinstance(changes, ColumnChanges):
            cells = changes.size_bytes
        else:
            cells = sum(map(len, changes)) + size_of(changes.values())
        added = cells + len(changes) * COMMIT_OVERHEAD_BYTES + sum(held_size(outputs) for _, outputs in held)
        left = self.rows_bytes - rows_bytes
        return added if self.changed_bytes + added + left <= self.limits.commit_bytes else None

    def plan(self, most: int | None = None) -> Plan | None:
        marks, due_ms = self.work.marks, self.due_by_time_ms
        if self.stage.collect is not None:
            return collected(self.sources[0], self.now, self.stage.collect, marks, due_ms)
        return plan_of(self.sources, self.now, self.limits, marks, due_ms, most, self.changed_bytes)

    def rows_of(self, ranges: Sequence[Range]) -> list[tuple[int, Records]]:
        """What these take of tables, that is at hand."""
        ends = {each.input: each.end for each in ranges if self.stage.inputs[each.input].is_table}
        found = ((input, self.sources[input]) for input in ends)
        rows = [(input, source.next(source.before(ends[input]))) for input, source in found]
        return [(input, records) for input, records in rows if records.offsets]

    @property
    def due_by_time_ms(self) -> float:
        """At which watermark there is something to do, though no record came."""
        due = [] if (timer_ms := self.work.next_timer_ms) is None else [timer_ms]
        if self.stage.collect is not None:
            due.append(self.work.watermark_ms // HOUR_MS * HOUR_MS + HOUR_MS)
        if self.stage.tells_time:
            due.append(self.work.watermark_ms + self.limits.tell_time_every_ms)
        return min(due, default=inf)

    @property
    def is_time_to_be_told(self) -> bool:
        """Of a stage that has no plan to say so."""
        if self.stage.has_plan or not self.stage.tells_time or self.wants_to_leave:
            return False
        marks = zip(self.work.marks, self.sources, strict=True)
        return min(max(mark_ms, source.mark_by_time_ms) for mark_ms, source in marks) >= self.due_by_time_ms

    @property
    def has_moved(self) -> bool:
        """Behind what is committed of the inputs."""
        last = self.journal.commit
        starts = [each.next_offset for each in last.inputs] if last else [each.log_start for each in self.stage.inputs]
        return any(source.position > start for source, start in zip(self.sources, starts, strict=True))

    @property
    def is_proof_old(self) -> bool:
        """The broker may have forgotten who holds the journal, by the time a batch that is made now arrives."""
        return self.now.wall_ms - self.proven_ms >= self.limits.fresh_ms

    def send_from_commit(self, held: Sequence[Held], told: Mapping[Place, Outputs]) -> None:
        """What stands in a commit that is there, and what follows from it. The next one says that it was sent."""
        for place, outputs in (*map(outputs_of, held), *told.items()):
            self.send(place, outputs)
            self.has_progress = True

    def ended(self, ended: Ended) -> None:
        self.ask(ended)

    @property
    def copy(self) -> Journal | None:
        """What another life may begin with: the state of the last commit that was acknowledged."""
        self.entries.settle()
        return self.journal if self.is_copy_sound else None
