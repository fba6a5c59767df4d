"""One life of a holder of one cell: what was read, what was acknowledged and what the clock says go in, and what to
send, read and ask comes out. Pure.

Its journal batches and its outputs are sent by one `Sender`, as shared slots: that is where pipelining, the first batch
alone, what is in doubt, silence and "connect, check, send" are decided, and what stands in a slot is found. What is
here is the order of things: claim, take-over, restore, step, commit (`table.py`). What is known is in parts, each of
which alone changes what it has (`holding.py`).

After it has ended, its driver closes its connections and waits for no answers. Another life is another Cell.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from oncelog.clock import Now
from oncelog.error_codes import NAMES
from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow.cell_context import CellContext, Encode, encoded_rows
from oncelog.flow.description import Holder, Limits, Stage
from oncelog.flow.formats import Unreadable, shown
from oncelog.flow.holding import Holding
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Action, JournalBatch, Outputs, Records, RunEnd, Unworkable, Work
from oncelog.flow.planning import Source, rows_size
from oncelog.flow.states import Event, State
from oncelog.flow.table import happen
from oncelog.slots import Place
from oncelog.slots.errors import CannotTell, Differs
from oncelog.slots.messages import BatchAnswer, Delivered, Failed, Found, NeedIdentity, Produce
from oncelog.slots.replay import Slot
from oncelog.slots.states import Event as Verdict
from oncelog.slots.verdicts import verdict_of

DIFFERS: Final = (
    "A function gives something else for the same input: by the clock, by chance, or by the order of a set or hash(), "
    "which hang on PYTHONHASHSEED. `simulate(crashes=True)` and `check_hash_seeds` find it"
)
GONE: Final = (
    "`oncelog flow reset` begins anew, and writes what the inputs hold. Have the topic keep what is written for longer "
    "than an outage takes (`retention.ms`; where it is compacted, `min.compaction.lag.ms`)"
)


class Cell:
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
        context = CellContext(stage, work, holder, limits, now, random=random, encode=encode)
        holding = Holding(context, copy)
        self.stage = stage
        self.parts = holding
        self._context, self._sender = context, context.sender
        self._inputs, self._outputs = holding.inputs, holding.outputs
        self._commits, self._leaving = holding.commits, holding.leaving

    # --- what others may ask

    @property
    def holder(self) -> Holder:
        return self._context.holder

    @property
    def state(self) -> State:
        return self.parts.state

    @property
    def why(self) -> str:
        return self.parts.why

    @property
    def journal(self) -> Journal:
        return self.parts.journal.content

    @property
    def copy(self) -> Journal | None:
        return self.parts.copy

    @property
    def sources(self) -> Sequence[Source]:
        """None before it is restored."""
        return self._inputs.sources

    @property
    def left(self) -> int:
        return self._inputs.left

    @property
    def number(self) -> int:
        """The number of its last commit."""
        return self._commits.number

    @property
    def others_until_ms(self) -> int:
        return self.parts.deadlines.others_until_ms

    @property
    def wants_to_leave(self) -> bool:
        return self._leaving.is_wanted

    @property
    def is_idle(self) -> bool:
        """It is at work, everything that is planned is done and committed, and nothing is due by the time: timers may
        wait until what was sent is acknowledged."""
        inputs = self._inputs
        is_done = self.state is State.WORKING and self._commits.under_way is None and not inputs.plan_left
        return is_done and not (inputs.is_timer_due or self.parts.is_time_to_be_told)

    def is_due_at(self, marks: Iterable[int]) -> bool:
        """Whether something is left to do where its inputs get to these marks."""
        return bool(self._inputs.plan_left) or self._inputs.due_by_time_ms <= min(marks)

    def count_entries(self) -> int:
        """Count the entries of the state, as committed."""
        return self._commits.entries.count_committed()

    # --- what arrives

    def begin(self) -> None:
        self.parts.journal.read()

    def journal_read(self, batches: Sequence[JournalBatch], now: Now) -> None:
        self._context.now = now
        try:
            happen(self.parts, Event.READ, batches)
        except Unreadable as error:
            journal = self.stage.journal
            self._fails(f"in its journal {journal.topic}-{journal.partition} {error}", is_final=True)

    def recalled(self, last_ms: Mapping[Place, int], now: Now) -> None:
        self._context.now = now
        if self.state in (State.READING, State.AWAITING):
            self._outputs.recalled(last_ms)

    def pids(self, pids: Sequence[int], now: Now) -> None:
        self._context.now = now
        happen(self.parts, Event.GRANTED, pids)

    def claimed(self, now: Now) -> None:
        self._context.now = now
        happen(self.parts, Event.CLAIMED)

    def fetched(self, input: int, records: Records, next_offset: int, now: Now, *, is_open: bool = False) -> None:
        """Take in what was fetched: nothing, where the input is at its end. `is_open`: a transaction is, and keeps back
        what stands behind it."""
        self._context.now = now
        self.sources[input].add(self._context.work.dated(input, records), next_offset, now, is_open=is_open)

    def at_its_end(self, input: int, now: Now, *, is_open: bool = False) -> None:
        """The input still is, so its time goes on; what is asked for stays so."""
        self._context.now = now
        if not self.sources[input].left:
            self.sources[input].at_its_end(now, is_open=is_open)

    def heard(self, input: int, offset: int, mark_ms: int, now: Now) -> None:
        """All cells that write this input have said it: behind this offset comes nothing older."""
        self._context.now = now
        self.sources[input].hear(offset, mark_ms, self._context.work.marks[input])

    def read_back(self, place: Place, slots: Iterable[Slot], now: Now) -> None:
        """The records that stand where this cell would have sent its own."""
        self._context.now = now
        try:
            self._outputs.read_back(place, slots)
        except (CannotTell, Differs) as error:
            self._fails(f"{error}. {DIFFERS if isinstance(error, Differs) else GONE}", is_final=True)

    def seen(self, input: int, end_offset: int, now: Now) -> None:
        """The input has records up to here, though they were not fetched."""
        self._context.now = now
        self.sources[input].see_unfetched(end_offset, now)

    def rows_written(self, size_bytes: int, now: Now) -> None:
        self._context.now = now
        self._context.waited(size_bytes)

    def files_finished(self, now: Now) -> None:
        self._context.now = now
        self.parts.files.finished()

    def files_failed(self, why: str, now: Now, *, is_final: bool) -> None:
        """Files could not be written. Where that is not final, another life tries again."""
        self._context.now = now
        self._fails(why, is_final=is_final)

    def leave(self, now: Now, at_end: RunEnd = RunEnd.OPEN) -> None:
        """Everything is committed and goodbye is said; then it ends."""
        if not self.wants_to_leave:
            self._context.now = now
            self._leaving.ask(at_end)

    def stop(self, why: str, now: Now) -> None:
        """Leave, and a person has to look at it."""
        self._context.now = now
        self._leaving.stop(why)

    def forsake(self, topic: str, why: str, now: Now) -> bool:
        """End the cell: one of its topics is gone. Goodbye is said once all else is acknowledged; where nothing could
        be sent yet, there is none to be said, and this does nothing. Returns whether it is said."""
        if self.state not in (State.WORKING, State.DRAINING, State.PLANNING, State.LEAVING):
            return False
        self.stop(why, now)
        self._outputs.forsake(topic)
        return True

    def journal_ends(self, end_offset: int, now: Now) -> None:
        """The journal ends here now. Only by this does a holder with nothing to send notice that it was taken over."""
        self._context.now = now
        is_quiet = self.state is State.WORKING and self._commits.under_way is None
        if is_quiet and end_offset > self.journal.next_offset:
            self.parts.why = "somebody else has written to its journal"
            happen(self.parts, Event.REFUSED)

    def _fails(self, why: str, *, is_final: bool) -> None:
        self.parts.fails(why)
        happen(self.parts, Event.IMPOSSIBLE if is_final else Event.REFUSED)

    # --- what arrives for the sender

    def leaders(self, leaders: Mapping[Place, int | None], now: Now) -> None:
        self._sender.leaders(leaders, now.monotonic_ms)

    def answered(self, request_id: int, answers: Sequence[BatchAnswer], now: Now) -> None:
        self._sender.answered(request_id, answers, now.monotonic_ms)

    def lost(self, request_id: int, now: Now, *, was_sent: bool = True) -> None:
        self._sender.lost(request_id, now.monotonic_ms, was_sent=was_sent)

    def unchecked(self, request_id: int, now: Now) -> None:
        self._sender.unchecked(request_id, now.monotonic_ms)

    def looked_up(self, place: Place, found: Found | None, now: Now) -> None:
        self._sender.looked_up(place, found, now.monotonic_ms)

    # --- what to do

    def actions(self, now: Now) -> list[Action]:
        parts = self.parts
        self._context.now = now
        self._sender.set_wall_clock(now.wall_ms, now.monotonic_ms)
        found: list[Action] = []
        while (before := parts.state) is not State.ENDED:
            for action in self._sender.actions(now.monotonic_ms):
                if isinstance(action, Delivered):
                    self._delivered(action)
                elif isinstance(action, Failed):
                    self._failed(action)
                elif isinstance(action, Produce):
                    found.extend(self._limited(action))
                else:
                    assert not isinstance(action, NeedIdentity), "shared slots keep theirs"
                    found.append(action)
            moved = self._go_on()
            if not moved and parts.state is before:
                break
        return [*(found if parts.state is not State.ENDED else ()), *self._context.take_asked()]

    def next_due_ms(self) -> int | None:
        """The time at which there is something to do although nothing arrived, by the monotonic clock."""
        context, deadlines = self._context, self.parts.deadlines
        due = [] if (sending_ms := self._sender.next_due_ms()) is None else [sending_ms]
        state = self.parts.state
        if state is State.YIELDING:
            due.append(context.monotonic(deadlines.others_until_ms))
        elif state is State.WORKING:
            due.append(context.monotonic(deadlines.until_ms))
            has_more = self._commits.has_progress or self.parts.is_time_to_be_told
            if has_more and not self.stage.has_plan and self._commits.under_way is None:
                due.append(self._commits.made_ms + context.limits.commit_every_ms)
            due.extend(self._inputs.due_ms)
        return min(due, default=None)

    def _limited(self, action: Produce) -> Sequence[Produce]:
        limited = self.parts.deadlines.limited(action)
        if limited is not None:
            return [limited]
        self.parts.why = "what is to be sent waited for too long"
        happen(self.parts, Event.REFUSED)
        return ()

    def _delivered(self, action: Delivered) -> None:
        batch = action.batch
        if batch.place == self.stage.journal:
            happen(self.parts, Event.STORED, action.base_offset, batch.max_timestamp_ms)
        else:
            self._outputs.delivered(batch, action.base_offset, was_in_doubt=action.was_in_doubt)

    def _failed(self, action: Failed) -> None:
        place, code = action.batch.place, action.code
        said = f" ({action.message})" if action.message else ""
        why = f"{place.topic}-{place.partition} answers {NAMES.get(code, code)}{said}"
        event = verdict_of(code).event
        is_final = event is Verdict.TOO_LARGE or code == Code._INCONSISTENT
        if event is Verdict.TOO_LARGE:
            outputs = action.batch.payload
            assert isinstance(outputs, Outputs)
            key, value = max(zip(outputs.keys, outputs.values, strict=True), key=lambda each: len(each[1] or b""))
            why += (
                f": the record with the key {shown(key)} has {len(value or b''):,} bytes. Raise max.message.bytes of "
                f"{place.topic}, or have the flow write smaller records"
            )
        if place != self.stage.journal and event is Verdict.REFUSED:
            is_final = True  # in the journal it may be the time that is refused
        self._fails(why, is_final=is_final)

    def _go_on(self) -> bool:
        """Do what follows from the state; whether there was anything to do."""
        state = self.parts.state
        if state is State.WORKING:
            return self._work()
        if state is State.DRAINING and self.parts.is_drained:
            happen(self.parts, Event.DRAINED)
            return True
        if state is State.YIELDING and not self.parts.deadlines.may_others_send:
            happen(self.parts, Event.DUE)
            return True
        return False

    def _work(self) -> bool:
        if self.parts.deadlines.is_over:
            self.parts.why = "its sending deadline is over, and it takes over anew"
            happen(self.parts, Event.REFUSED)
            return True
        has_run = is_full = False
        while not (self._leaving.is_wanted or is_full) and (due := self._next_run()):
            is_full = not self._run(*due)
            has_run = has_run or not is_full
        if self._commits.under_way is None and self._is_commit_due(is_full):
            happen(self.parts, Event.COMMIT_DUE)
            return True
        self._inputs.fetch()
        return has_run

    def _run(self, source: Source, count: int) -> bool:
        """A run of records through the user's code, and of what is due; whether what it changes fits the commit."""
        inputs, commits, work = self._inputs, self._commits, self._context.work
        records, most = source.next(count), inputs.run_records
        try:
            changes, outputs, taken, held, files = work.run(inputs.sources.index(source), records, most)
        except Unworkable as error:
            work.undo()
            self._cannot_go_on(f"{error}")
            return True
        rows_bytes = rows_size(records.part(0, taken)) if source.input.is_table else 0  # freed, of what the plan takes
        added = commits.size_of(changes, held, inputs.rows_bytes - rows_bytes)
        if added is None:
            work.undo()
            return self._is_too_much(source, records, most, count)
        inputs.take(source, taken, rows_bytes)
        commits.add(changes, added, held)
        for place, each in outputs.items():
            self._outputs.send(place, each)
        for rows in files:
            self.parts.files.write(rows, inputs.plan_left[0])
        return True

    def _is_too_much(self, source: Source, records: Records, most: int, count: int) -> bool:
        """The changes of a run do not fit the commit. False: the runs before it are committed first."""
        is_first, is_of_files = not self._commits.changed_bytes, self.stage.collect is not None
        if not is_first and not is_of_files:
            return False
        if most > 1 and is_first:
            self._inputs.halve_runs(min(most, count or most))
            return True
        what = "the plan of a file" if is_of_files else self._inputs.first_of(records, source)
        self._cannot_go_on(
            f"what {what} changes does not fit a commit of {self._context.limits.commit_bytes} bytes. Raise "
            f"max.message.bytes of {self.stage.journal.topic}, or have the functions keep less for a key"
        )
        return True

    def _cannot_go_on(self, why: str) -> None:
        self._leaving.stop(f"{self.stage.title}: {why}")

    def _next_run(self) -> tuple[Source, int] | None:
        """The input whose first records are next, and how many of them; where they are at hand and there is room."""
        inputs = self._inputs
        if self._context.waiting_bytes >= self._context.limits.waiting_bytes:
            return None
        if inputs.is_timer_due:
            return inputs.sources[0], 0
        while (run := inputs.next_run()) is None:
            passed = inputs.pass_range()
            if passed is None:
                return None
            self._commits.progressed()
            if inputs.is_timer_due:
                return passed, 0
        return run

    def _is_commit_due(self, is_full: bool) -> bool:
        commits, inputs, context = self._commits, self._inputs, self._context
        if is_full or self._leaving.is_wanted:
            return True
        if not self.stage.has_plan:
            waited_ms = context.now.monotonic_ms - commits.made_ms
            has_more = commits.has_progress or self.parts.is_time_to_be_told
            return has_more and waited_ms >= context.limits.commit_every_ms
        if inputs.plan_left or inputs.is_timer_due:
            return False
        return commits.has_progress or inputs.plan(commits.changed_bytes, most=1) is not None
