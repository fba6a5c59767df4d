"""One life of a holder of one cell: what was read, what was acknowledged and what the clock says go in, and what to
send, read and ask comes out. Pure.

Its journal batches and its outputs are sent by one `Sender`, as shared slots: that is where pipelining, the first batch
alone, what is in doubt, silence and "connect, check, send" are decided, and what stands in a slot is found. What is
here is the order of things: claim, take-over, restore, step, commit (`table.py`).

After it has ended, its driver closes its connections and waits for no answers. Another life is another Cell.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

from oncelog.clock import Now
from oncelog.error_codes import NAMES
from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow.formats import Unreadable, shown
from oncelog.flow.holding import Holding
from oncelog.flow.messages import Action, Fetch, JournalBatch, Outputs, ReadBack, Records, Unworkable
from oncelog.flow.planning import Source, rows_size
from oncelog.flow.states import Event, State
from oncelog.flow.table import happen
from oncelog.producers.sequences import sequence_after
from oncelog.slots import Place
from oncelog.slots.errors import CannotTell, Differs
from oncelog.slots.limits import remembered_ms
from oncelog.slots.messages import BatchAnswer, Delivered, Failed, Found, NeedIdentity, Produce
from oncelog.slots.replay import PartitionReplay, Slot
from oncelog.slots.states import Event as Verdict
from oncelog.slots.verdicts import verdict_of

MOST_READ_BACK: Final = 10_000  # records at a time, where they are of several batches
DIFFERS: Final = (
    "A function gives something else for the same input: by the clock, by chance, or by the order of a set or hash(), "
    "which hang on PYTHONHASHSEED. `simulate(crashes=True)` and `check_hash_seeds` find it"
)
GONE: Final = (
    "`oncelog flow reset` begins anew, and writes what the inputs hold. Have the topic keep what is written for longer "
    "than an outage takes (`retention.ms`; where it is compacted, `min.compaction.lag.ms`)"
)


class Cell(Holding):
    # --- what arrives

    def begin(self) -> None:
        self.read_journal()

    def journal_read(self, batches: Sequence[JournalBatch], now: Now) -> None:
        self.now = now
        try:
            happen(self, Event.READ, batches)
        except Unreadable as error:
            journal = self.stage.journal
            self.why = f"{self.stage.title}: in its journal {journal.topic}-{journal.partition} {error}"
            happen(self, Event.IMPOSSIBLE)

    def recalled(self, last_ms: Mapping[Place, int], now: Now) -> None:
        """Of those places where anything is remembered, the time of its last record. Brokers go by that when they
        forget."""
        self.now, asked = now, self.recalled_at
        if asked is None or self.state not in (State.READING, State.AWAITING):
            return
        since_ms = asked.wall_ms - remembered_ms(self.limits.forget_after_ms, self.limits.settle_ms)
        self.known_at_ms = {place: asked.monotonic_ms for place, ms in last_ms.items() if ms > since_ms}

    def pids(self, pids: Sequence[int], now: Now) -> None:
        self.now = now
        happen(self, Event.GRANTED, pids)

    def claimed(self, now: Now) -> None:
        self.now = now
        happen(self, Event.CLAIMED)

    def fetched(self, input: int, records: Records, next_offset: int, now: Now) -> None:
        """With nothing where the input is at its end."""
        self.now = now
        self.sources[input].add(records, next_offset, now)

    def at_its_end(self, input: int, now: Now) -> None:
        """The input still is, so its time goes on; what is asked for stays so."""
        self.now = now
        if not self.sources[input].left:
            self.sources[input].at_its_end(now)

    def heard(self, input: int, offset: int, mark_ms: int, now: Now) -> None:
        """Of all cells that write it: behind this offset comes nothing older."""
        self.now = now
        self.sources[input].hear(offset, mark_ms, self.work.marks[input])

    def read_back(self, place: Place, slots: Iterable[Slot], now: Now) -> None:
        """What stands where this one would have sent."""
        self.now = now
        batches, self.being_read = self.being_read, []
        self.waiting_bytes -= sum(len(batch.data) for batch in batches)
        replay = PartitionReplay(*place, sum(batch.record_count for batch in batches))
        for batch in batches:
            assert batch.place == place and isinstance(batch.payload, Outputs)
            for output in batch.payload.each():
                replay.offer(output)
        replay.stands(slots)
        try:
            replay.ended()
            stand = [each.slot for each in replay.dropped()]
        except (CannotTell, Differs) as error:
            self.why = f"{self.stage.title}: {error}. {DIFFERS if isinstance(error, Differs) else GONE}"
            happen(self, Event.IMPOSSIBLE)
            return
        # A broker may say that they stand and not where, and a commit says up to where its outputs do.
        self.offsets[place] = max(self.offsets[place], stand[-1].offset + 1)
        self._compare_next()

    def seen(self, input: int, end_offset: int, now: Now) -> None:
        """The input has records up to here, though they were not fetched."""
        self.now = now
        source = self.sources[input]
        if source.input.is_table and source.load_to is None and end_offset >= 0:
            source.load_to = end_offset
        source.see(end_offset, now)

    def rows_written(self, size_bytes: int, now: Now) -> None:
        self.now = now
        self.waiting_bytes -= size_bytes

    def files_finished(self, now: Now) -> None:
        self.now = now
        self.files.clear()
        self.is_finishing = False

    def files_failed(self, why: str, now: Now, *, is_final: bool) -> None:
        """Where it is not final, another life tries again."""
        self.now = now
        self.why = f"{self.stage.title}: {why}"
        happen(self, Event.IMPOSSIBLE if is_final else Event.REFUSED)

    def leave(self, now: Now, *, is_at_the_end: bool = False) -> None:
        """Everything is committed and goodbye is said; then it ends. At the end, nothing of its run is left to do."""
        if not self.wants_to_leave:
            self.now, self.wants_to_leave, self.is_at_the_end = now, True, is_at_the_end

    def forsake(self, topic: str, why: str, now: Now) -> bool:
        """Of its topics this one is gone. Goodbye is said once all else that was sent is acknowledged; where nothing
        could be sent yet, there is none to be said, and this does nothing. Whether it is said."""
        if self.state not in (State.WORKING, State.DRAINING, State.PLANNING, State.LEAVING):
            return False
        gone = [output.place for output in self.stage.outputs if output.place.topic == topic]
        self.now, self.wants_to_leave, self.stopped_by = now, True, why
        self.forsaken.update(gone)
        self.sender.leaders(dict.fromkeys(gone), now.monotonic_ms)
        return True

    def journal_ends(self, end_offset: int, now: Now) -> None:
        """How far its journal goes now. A holder with nothing to send notices only by this that it was taken over."""
        self.now = now
        if self.state is State.WORKING and self.under_way is None and end_offset > self.journal.next_offset:
            self.why = "somebody else has written to its journal"
            happen(self, Event.REFUSED)

    # --- what arrives for the sender

    def leaders(self, leaders: Mapping[Place, int | None], now: Now) -> None:
        self.sender.leaders(leaders, now.monotonic_ms)

    def answered(self, request_id: int, answers: Sequence[BatchAnswer], now: Now) -> None:
        self.sender.answered(request_id, answers, now.monotonic_ms)

    def lost(self, request_id: int, now: Now, *, was_sent: bool = True) -> None:
        self.sender.lost(request_id, now.monotonic_ms, was_sent=was_sent)

    def unchecked(self, request_id: int, now: Now) -> None:
        self.sender.unchecked(request_id, now.monotonic_ms)

    def looked_up(self, place: Place, found: Found | None, now: Now) -> None:
        self.sender.looked_up(place, found, now.monotonic_ms)

    # --- what to do

    def actions(self, now: Now) -> list[Action]:
        self.now = now
        self.sender.set_wall_clock(now.wall_ms, now.monotonic_ms)
        found: list[Action] = []
        while self.state is not State.ENDED:
            before = self.state
            for action in self.sender.actions(now.monotonic_ms):
                if isinstance(action, Delivered):
                    self._delivered(action)
                elif isinstance(action, Failed):
                    self._failed(action)
                elif isinstance(action, Produce):
                    found.append(self._until(action))
                else:
                    assert not isinstance(action, NeedIdentity), "shared slots keep theirs"
                    found.append(action)
            moved = self._go_on()
            if not moved and self.state is before:
                break
        asked, self.asked = self.asked, []
        return [*(found if self.state is not State.ENDED else ()), *asked]

    def next_due_ms(self) -> int | None:
        """When there is something to do, by the monotonic clock, although nothing arrived."""
        now, limits = self.now, self.limits
        due = [] if (sending_ms := self.sender.next_due_ms()) is None else [sending_ms]
        if self.state is State.YIELDING:
            due.append(now.monotonic_ms + self.others_until_ms - now.wall_ms)
        elif self.state is State.WORKING:
            due.append(now.monotonic_ms + self.until_ms - now.wall_ms)
            has_more = self.has_progress or self.is_time_to_be_told
            if has_more and not self.stage.has_plan and self.under_way is None:
                due.append(self.committed_ms + limits.commit_every_ms)
            empty = [each.empty_since_ms for each in self.sources if each.empty_since_ms is not None]
            if self.stage.has_plan and len(empty) < len(self.sources):
                due.extend(ms + limits.wait_ms for ms in empty if ms + limits.wait_ms > now.monotonic_ms)
            if self.stage.collect is not None:
                waiting = [each.waits_since_ms for each in self.sources if each.waits_since_ms is not None]
                due.extend(ms + self.stage.collect.every_ms for ms in waiting)
            at_ms = self.due_by_time_ms + max(each.wait_ms for each in self.stage.inputs) - now.wall_ms
            if 0 < at_ms < inf:
                due.append(now.monotonic_ms + int(at_ms))
        return min(due, default=None)

    def _until(self, action: Produce) -> Produce:
        """Nothing leaves behind the sending deadline, nor with a time so old that a broker would soon forget it: others
        might then fill the same slots again."""
        oldest_ms = min(batch.max_timestamp_ms for batch in action.batches)
        left_ms = min(self.until_ms, oldest_ms + self.limits.fresh_ms) - self.now.wall_ms
        if left_ms <= 0:
            self.why = "what is to be sent waited for too long"
            happen(self, Event.REFUSED)
        return action._replace(until_ms=min(action.until_ms, self.now.monotonic_ms + left_ms))

    def _delivered(self, action: Delivered) -> None:
        batch = action.batch
        if batch.place == self.stage.journal:
            happen(self, Event.STORED, action.base_offset, batch.max_timestamp_ms)
            return
        if not action.was_in_doubt:
            self.waiting_bytes -= len(batch.data)
            return
        self.comparing.append((batch, action.base_offset))
        if not self.being_read:
            self._compare_next()

    def _compare_next(self) -> None:
        """All that follow each other are one question: what another holder sent may be a thousand small batches."""
        if not self.comparing:
            return
        first, offset = self.comparing[0]
        self.being_read, left, records = [first], [], first.record_count
        for batch, found_at in self.comparing[1:]:
            follows = batch.place == first.place and batch.identity == first.identity
            follows = follows and batch.first_sequence == sequence_after(first.first_sequence, records)
            if follows and records + batch.record_count <= MOST_READ_BACK:
                self.being_read.append(batch)
                records += batch.record_count
            else:
                left.append((batch, found_at))
        self.comparing = left
        from_offset = offset if offset >= 0 else self.offsets[first.place]
        self.ask(ReadBack(first.place, first.identity, first.first_sequence, records, from_offset))

    def _failed(self, action: Failed) -> None:
        place, code = action.batch.place, action.code
        said = f" ({action.message})" if action.message else ""
        self.why = f"{self.stage.title}: {place.topic}-{place.partition} answers {NAMES.get(code, code)}{said}"
        event = verdict_of(code).event
        is_final = event is Verdict.TOO_LARGE or code == Code._INCONSISTENT
        if event is Verdict.TOO_LARGE:
            outputs = action.batch.payload
            assert isinstance(outputs, Outputs)
            key, value = max(zip(outputs.keys, outputs.values, strict=True), key=lambda each: len(each[1] or b""))
            self.why += (
                f": the record with the key {shown(key)} has {len(value or b''):,} bytes. Raise max.message.bytes of "
                f"{place.topic}, or have the flow write smaller records"
            )
        if place != self.stage.journal and event is Verdict.REFUSED:
            is_final = True  # in the journal it may be the time that is refused
        happen(self, Event.IMPOSSIBLE if is_final else Event.REFUSED)

    def _go_on(self) -> bool:
        """What follows from how things stand; whether there was anything."""
        if self.state is State.WORKING:
            return self._work()
        if self.state is State.DRAINING and self.is_drained:
            happen(self, Event.DRAINED)
            return True
        if self.state is State.YIELDING and self.now.wall_ms >= self.others_until_ms:
            happen(self, Event.DUE)
            return True
        return False

    def _work(self) -> bool:
        if self.now.wall_ms >= self.until_ms:
            self.why = "its sending deadline is over, and it takes over anew"
            happen(self, Event.REFUSED)
            return True
        has_run = is_full = False
        while not (self.wants_to_leave or is_full or self.state is State.ENDED) and (due := self._next_run()):
            is_full = not self._run(*due)
            has_run = has_run or not is_full
        if self.state is State.ENDED:
            return True
        if self.under_way is None and self._is_commit_due(is_full):
            self.finish_files()
            happen(self, Event.COMMIT_DUE)
            return True
        self._fetch()
        return has_run

    def _run(self, source: Source, count: int) -> bool:
        """A run of records through the user's code, and of what is due; whether what it changes fits the commit."""
        records, most = source.next(count), self.run_records
        try:
            changes, outputs, taken, held, files = self.work.run(self.sources.index(source), records, most)
        except Unworkable as error:
            self.work.undo()
            self._cannot_go_on(f"{error}")
            return True
        rows_bytes = rows_size(records.part(0, taken)) if source.input.is_table else 0
        added = self.fits(changes, held, rows_bytes)
        if added is None:
            self.work.undo()
            if self.changed_bytes and self.stage.collect is None:
                return False
            if most > 1 and not self.changed_bytes:
                self.run_records = min(most, count or most) // 2 or 1
            else:
                what = f"what {self._first_of(records, source)} changes"
                if self.stage.collect is not None:
                    what = "what the plan of a file changes"
                self._cannot_go_on(
                    f"{what} does not fit a commit of {self.limits.commit_bytes} bytes. Raise max.message.bytes of "
                    f"{self.stage.journal.topic}, or have the functions keep less for a key"
                )
            return True
        if taken:
            source.take(taken)
        self.rows_bytes -= rows_bytes
        self.entries.add(changes)
        self.changed_bytes += added
        self.has_progress = True
        for place, each in outputs.items():
            self.send(place, each)
        self.held += held
        for rows in files:
            self.write_rows(rows)
        return True

    def _first_of(self, records: Records, source: Source) -> str:
        if not records.offsets:
            return "what is due by the time"
        topic, key = source.input.topic, records.keys[0]
        return f"the record at offset {records.offsets[0]} of {topic}-{self.stage.cell}, with the key {shown(key)},"

    def _cannot_go_on(self, why: str) -> None:
        """What was done before is committed and goodbye is said, so nobody with mended code waits for its deadline."""
        self.stopped_by = f"{self.stage.title}: {why}"
        self.wants_to_leave = True

    def _next_run(self) -> tuple[Source, int] | None:
        """The input whose first records are next, and how many of them; where they are at hand and there is room."""
        if self.waiting_bytes >= self.limits.waiting_bytes:
            return None
        most = self.run_records
        if self._is_due():
            return self.sources[0], 0
        if not self.stage.has_plan:
            (source,) = self.sources
            return (source, min(source.left, most)) if source.left else None
        while self.plan_left:
            due = self.plan_left[0]
            source, end = self.sources[due.input], due.end
            if there := source.before(end):
                return source, min(there, most)
            if source.fetched_to < end:
                return None
            source.next_offset = max(source.next_offset, end)
            self.plan_left.popleft()
            self.work.mark(due.input, due.mark_ms)
            self.has_progress = True
            if self._is_due():
                return source, 0
        return None

    def _is_due(self) -> bool:
        timer_ms = self.work.next_timer_ms
        return timer_ms is not None and timer_ms <= self.work.watermark_ms

    def _is_commit_due(self, is_full: bool) -> bool:
        if is_full or self.wants_to_leave:
            return True
        if not self.stage.has_plan:
            waited_ms = self.now.monotonic_ms - self.committed_ms
            return (self.has_progress or self.is_time_to_be_told) and waited_ms >= self.limits.commit_every_ms
        if self.plan_left or self._is_due():
            return False
        return self.has_progress or self.plan(most=1) is not None

    def _fetch(self) -> None:
        for index, source in enumerate(self.sources):
            if not source.is_asked and not source.left:
                source.is_asked = True
                self.ask(Fetch(index, source.fetched_to))
