"""What is done when something happens to a cell: small functions, one for each entry of the table.

Where one finds that something else has happened by what it did, it returns that event. None sets the cell's state.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.flow.description import OutputPlace, Stage
from oncelog.flow.entries import Entries
from oncelog.flow.formats import (
    MOST_WHY,
    TAKE_OVER,
    Claim,
    Commit,
    Goodbye,
    InputPosition,
    OutputPosition,
    Plan,
    PlannedRows,
    Range,
    TakeOver,
    decoded,
    encoded,
    shown,
)
from oncelog.flow.held import held_of
from oncelog.flow.holding import Holding
from oncelog.flow.journal import Journal
from oncelog.flow.messages import AppendClaim, End, Ended, Expect, JournalBatch, NeedPids, Recall, Records, Unworkable
from oncelog.flow.planning import Source, rows_size
from oncelog.flow.states import Event
from oncelog.slots import Identity

LATE: Final = "late"
MOST_WAIT_MS: Final = 500  # for a goodbye, before the clock is looked at again


def nothing(cell: Holding, *about: object) -> None:
    """The state says it all."""


# --- before the take-over


def read(cell: Holding, *about: object) -> None:
    cell.read_journal()


def read_anew(cell: Holding) -> None:
    """All but who the writers are: that only grows."""
    known, cell.journal = cell.journal, Journal()
    cell.journal.claim, cell.journal.chain = known.claim, list(known.chain)
    cell.read_journal()


def judge(cell: Holding, batches: Sequence[JournalBatch]) -> Event:
    """Whose is it?"""
    if not _joins(cell, batches):
        return Event.GAP
    journal, holder = cell.journal, cell.holder
    if journal.claim is None:
        return Event.UNCLAIMED
    claim, stage = journal.claim, cell.stage
    if (claim.flow, claim.stage, claim.cell) != (stage.flow, stage.name, stage.cell):
        cell.why = (
            f"{stage.title}: the journal {stage.journal.topic}-{stage.journal.partition} is that of {claim.flow}, "
            f"stage {claim.stage}, cell {claim.cell}. Give the flow another name"
        )
        return Event.IMPOSSIBLE
    before = journal.take_over
    if before is not None and before.tenancy > holder.tenancy:
        return Event.OUTRANKED
    cell.others_until_ms = others_until_ms(cell)
    if cell.awaits_until_ms is None:
        cell.awaits_until_ms = cell.others_until_ms
    if cell.now.wall_ms < min(cell.awaits_until_ms, cell.others_until_ms):
        return Event.OTHER_CODE
    _expect_inputs(cell)
    if before is not None and not journal.is_left and cell.now.wall_ms < holder.yields_until_ms:
        return Event.AT_WORK
    return Event.SPENT if journal.due_epoch >= cell.limits.last_epoch else Event.FREE


def _expect_inputs(cell: Holding) -> None:
    """From where on, the take-over will show; before it, each commit says it."""
    commit = cell.journal.commit
    if commit is not None and not other_inputs(cell.stage, commit):
        for index, each in enumerate(commit.inputs):
            cell.ask(Expect(index, each.next_offset))


def others_until_ms(cell: Holding) -> int:
    """Until when holders with other code may still send. Their records would fill slots, and ours be told success."""
    before = cell.journal.take_over
    if before is None:
        return 0
    if before.code == cell.holder.code or cell.journal.is_left:
        return before.others_until_ms
    return max(before.others_until_ms, before.until_ms + cell.limits.settle_ms)


def _joins(cell: Holding, batches: Sequence[JournalBatch], up_to: int | None = None) -> bool:
    return cell.journal.read(batches, up_to) or cell.read_from == 0


def ask_pids(cell: Holding) -> None:
    cell.ask(NeedPids(2 if cell.journal.claim is None else 1))


def claim(cell: Holding, pids: Sequence[int]) -> None:
    stage = cell.stage
    entry = Claim(flow=stage.flow, stage=stage.name, cell=stage.cell, journal_pid=pids[0], output_pid=pids[1])
    cell.ask(AppendClaim(*encoded(entry), cell.now.wall_ms))


def wait_for_goodbye(cell: Holding) -> None:
    _follow(cell, min(cell.awaits_until_ms or 0, cell.others_until_ms))


def wait_for_its_end(cell: Holding) -> None:
    if cell.recalled_at is None and cell.journal.claim is not None:
        cell.recalled_at = cell.now
        cell.ask(Recall(cell.journal.claim.output_pid, list(cell.places)))
    _follow(cell, cell.holder.yields_until_ms)


def _follow(cell: Holding, until_ms: int) -> None:
    """Each commit is read as it comes, so that behind the goodbye nothing is left to read."""
    cell.read_journal(min(MOST_WAIT_MS, until_ms - cell.now.wall_ms))


def back_off(cell: Holding) -> None:
    cell.ended(Ended(End.OUTRANKED, f"{cell.stage.title}: a newer tenancy holds it"))


# --- the take-over


def take_over(cell: Holding, pids: Sequence[int] = ()) -> None:
    """The epoch one higher than all that was seen, and sequence 0: from then on the others are fenced."""
    journal, now = cell.journal, cell.now
    cell.fence = len(journal.chain) - 1, journal.due_epoch
    cell.until_ms = now.wall_ms + cell.limits.tenure_ms
    entry = TakeOver(
        nonce=cell.holder.nonce,
        tenancy=cell.holder.tenancy,
        code=cell.holder.code,
        until_ms=cell.until_ms,
        others_until_ms=cell.others_until_ms,
        chain=journal.chain,
        successor=pids[0] if pids else None,
    )
    cell.sender.resume(
        cell.stage.journal,
        Identity(journal.chain[-1], journal.due_epoch),
        0,
        now.monotonic_ms,
        next_offset=journal.next_offset,
        is_shared=True,
        cuts=False,
        known_at_ms=cell.read_at.monotonic_ms,
    )
    cell.append([entry], cell.read_at.wall_ms)
    cell.reads_ahead = True
    cell.read_journal()  # behind it, and without waiting for its acknowledgement


def keep(cell: Holding, batches: Sequence[JournalBatch]) -> None:
    cell.read_ahead = batches


def judge_what_was_read(cell: Holding, base_offset: int, timestamp_ms: int) -> Event | None:
    cell.proven_ms = timestamp_ms
    return None if cell.read_ahead is None else Event.READ


def judge_take_over(cell: Holding, batches: Sequence[JournalBatch] | None = None) -> Event | None:
    """Whose nonce stands there? If it is this one's, everything before it is applied, and nothing behind it."""
    if batches is None:
        batches = cell.read_ahead or ()
    own = next((batch for batch in batches if is_own(cell, batch)), None)
    if own is None and cell.reads_ahead:  # it may have been read before the take-over arrived
        cell.reads_ahead = False
        cell.read_journal()
        return None
    if own is None or any((cell.journal.fence_of(batch) or cell.fence) > cell.fence for batch in batches):
        return Event.OTHERS
    if not (cell.journal.is_left and own.base_offset == cell.journal.next_offset):
        cell.known_at_ms.clear()  # who was here before may have filled more than it committed
    if not _joins(cell, batches, own.last_offset + 1):
        return Event.GAP
    taken = cell.journal.take_over
    if cell.journal.fence != cell.fence or taken is None:
        return Event.OTHERS
    if taken.successor is not None:
        return Event.SUCCESSOR
    return Event.OTHER_CODE if cell.now.wall_ms < cell.others_until_ms else Event.OWN


def is_own(cell: Holding, batch: JournalBatch) -> bool:
    if cell.journal.fence_of(batch) != cell.fence:
        return False
    entries = [decoded(key, value) for key, value in batch.rows if key == TAKE_OVER and value]
    return any(isinstance(entry, TakeOver) and entry.nonce == cell.holder.nonce for entry in entries)


# --- restore


def restore(cell: Holding) -> Event | None:
    """State and positions are those of the last commit exactly."""
    commit = cell.journal.commit
    cell.entries = Entries(cell.journal.state)
    positions = {}
    if commit is not None:
        cell.number = commit.number
        positions = {(each.topic, each.partition): each for each in commit.outputs}
        cell.why = other_inputs(cell.stage, commit) or other_outputs(cell.stage, commit)
        if cell.why:
            return Event.IMPOSSIBLE
        if commit.plan is not None:
            cell.plan_left.extend(commit.plan.ranges)
    starts = [each.next_offset for each in commit.inputs] if commit else [each.log_start for each in cell.stage.inputs]
    cell.sources = [Source(input, start) for input, start in zip(cell.stage.inputs, starts, strict=True)]
    if cell.plan_left and cell.stage.collect is not None:
        cell.sources[0].plan_to(cell.plan_left[0].end, cell.now)
    for rows in cell.journal.rows:
        records = Records(rows.offsets, rows.keys, rows.values, rows.times)
        end = max(each.end for each in cell.plan_left if each.input == rows.input)
        cell.sources[rows.input].add(records, end, cell.now)
        cell.rows_bytes += rows_size(records)
    cell.work.begin(cell.entries, [each.mark_ms for each in commit.inputs] if commit else [-1] * len(starts))
    cell.work.late = int(commit.metrics.get(LATE, 0)) if commit else 0
    for place in cell.places:
        position = positions.get(place)
        cell.filled[place] = position.filled if position else 0
        cell.offsets[place] = position.next_offset if position else -1
        cell.resume_output(place)
    cell.committed_ms = cell.now.monotonic_ms
    try:
        told = cell.work.told(cell.number, cell.journal.changes) if commit else {}
    except Unworkable as error:
        cell.why = f"{cell.stage.title}: {error}"
        return Event.IMPOSSIBLE
    cell.send_from_commit(cell.journal.held, told)
    return None


def other_inputs(stage: Stage, commit: Commit) -> str:
    """Why they are not those that were committed; empty where they are."""
    title, partition = stage.title, stage.cell
    if len(commit.inputs) != len(stage.inputs):
        return (
            f"{title}: it was committed with {len(commit.inputs)} inputs and has {len(stage.inputs)} now. Give "
            "the changed flow another name"
        )
    for now, then in zip(stage.inputs, commit.inputs, strict=True):
        if now.topic_id != then.topic_id:
            return (
                f"{title}: its input {now.topic} was deleted and made again since the last commit ({then.topic_id} is "
                f"{now.topic_id} now). `oncelog flow reset` begins anew with what it holds"
            )
        if then.next_offset < now.log_start:
            return (
                f"{title}: its input {now.topic}-{partition} begins at offset {now.log_start}, and offset "
                f"{then.next_offset} is next: retention took what was not read yet. `oncelog flow reset` goes on "
                "without it"
            )
    return ""


def other_outputs(stage: Stage, commit: Commit) -> str:
    for then in commit.outputs:
        place = then.topic, then.partition
        topic_id = next((each.topic_id for each in stage.outputs if each.place == place), None)
        if topic_id is None:
            return (
                f"{stage.title}: it has filled {then.filled} slots of {then.topic}-{then.partition} "
                f"({then.topic_id}), which is not among its outputs now. Give the changed flow another name"
            )
        if topic_id != then.topic_id:
            return (
                f"{stage.title}: its output {then.topic}, of which it has filled {then.filled} slots in partition "
                f"{then.partition}, was deleted and made again ({then.topic_id} is {topic_id} now). `oncelog flow "
                "reset` begins anew, and writes what the inputs hold"
            )
    return ""


# --- commits


def commit(cell: Holding) -> Event:
    """State and positions, as one batch. What was sent is acknowledged."""
    if cell.is_proof_old:
        cell.why = "nothing was heard of the journal for too long"
        return Event.REFUSED
    are_files_begun = cell.plan_left and cell.stage.collect is not None
    if cell.forsaken or are_files_begun:
        return Event.LEFT  # outputs are not acknowledged, or files not whole. The plan stands, and is begun again
    plan = next_plan(cell)
    if cell.is_time_to_be_told:
        for index, source in enumerate(cell.sources):
            cell.work.mark(index, source.mark_by_time_ms)
        cell.has_progress = True
    if cell.wants_to_leave and cell.has_moved:
        cell.has_progress = True  # those who wait for its end see that it is there
    if cell.wants_to_leave and not cell.has_progress:
        return Event.LEFT  # what is left of a plan stands in the last commit
    if not cell.has_progress and plan is None:
        return Event.COMMITTED
    rows = cell.rows_of(plan.ranges if plan else ())
    cell.rows_bytes = sum(rows_size(records) for _, records in rows)
    if rows and cell.changed_bytes + cell.rows_bytes > cell.limits.commit_bytes:
        input, records = rows[0]
        cell.why = (
            f"{cell.stage.title}: the row at offset {records.offsets[0]} of {cell.stage.inputs[input].topic}, with the "
            f"key {shown(records.keys[0])}, does not fit a commit of {cell.limits.commit_bytes} bytes. Raise "
            f"max.message.bytes of {cell.stage.journal.topic}"
        )
        return Event.IMPOSSIBLE
    cell.number += 1
    changes = cell.entries.leave()
    try:
        cell.to_tell = cell.work.told(cell.number, changes)
    except Unworkable as error:
        cell.why = f"{cell.stage.title}: {error}"
        return Event.IMPOSSIBLE
    entry = Commit(
        number=cell.number,
        nonce=cell.holder.nonce,
        code=cell.holder.code,
        inputs=[
            InputPosition(each.topic_id, source.position, -1, mark_ms)
            for each, source, mark_ms in zip(cell.stage.inputs, cell.sources, cell.work.marks, strict=True)
        ],
        outputs=[_output_position(cell, each) for each in cell.stage.outputs],
        watermark_ms=_told_watermark_ms(cell),
        metrics={LATE: cell.work.late} if cell.work.late else {},
        plan=plan,
    )
    cell.plan_left.clear()
    cell.plan_left.extend(plan.ranges if plan else ())
    cell.under_way = entry
    cell.work.committed()
    if plan is not None and cell.stage.collect is not None:
        cell.sources[0].plan_to(plan.ranges[0].end, cell.now)
    cell.run_records = cell.limits.run_records
    cell.changed_bytes, cell.has_progress, cell.committed_ms = 0, False, cell.now.monotonic_ms
    cell.held_under_way = [held_of(cell.number, index, *each) for index, each in enumerate(cell.held)]
    cell.held.clear()
    cell.rows_under_way = [_planned(cell.number, *each) for each in rows]
    follows = bool(cell.held_under_way or cell.to_tell)
    last = [_goodbye(cell)] if cell.wants_to_leave and not follows else []
    whole = [*cell.held_under_way, *cell.rows_under_way, entry, *last]
    cell.append(whole, cell.now.wall_ms, changes, cell.entries.columns_under_way)
    if last:
        return Event.LAST
    return Event.PLANNED if plan or follows else Event.COMMITTED


def _told_watermark_ms(cell: Holding) -> int:
    """To those who read its outputs: what this commit lets go out stands behind it, and may be older."""
    last, behind = cell.journal.commit, (*cell.held, *cell.to_tell.items())
    times = (min(outputs.times) for _, outputs in behind if outputs.times)
    return max(min([cell.work.watermark_ms, *times]), last.watermark_ms if last else -1)


def _planned(number: int, input: int, records: Records) -> PlannedRows:
    return PlannedRows(
        number=number,
        input=input,
        offsets=list(records.offsets),
        keys=list(records.keys),
        values=list(records.values),
        times=list(records.times),
    )


def next_plan(cell: Holding) -> Plan | None:
    """What is left of the one before comes first."""
    if cell.plan_left:
        return Plan([_rest(cell, each) for each in cell.plan_left], [], cell.now.wall_ms)
    if not cell.stage.has_plan or cell.wants_to_leave:
        return None
    return cell.plan()


def _rest(cell: Holding, due: Range) -> Range:
    """Who leaves may have taken the first of its records."""
    first = min(max(due.first, cell.sources[due.input].position), due.end)
    return Range(due.input, first, due.end, due.mark_ms)


def _output_position(cell: Holding, output: OutputPlace) -> OutputPosition:
    place = output.place
    boundary = cell.sender.boundary(place)
    if boundary is not None:
        cell.offsets[place] = max(cell.offsets[place], boundary.next_offset)
    return OutputPosition(*place, output.topic_id, cell.filled[place], cell.offsets[place])


def note_commit(cell: Holding, base_offset: int, timestamp_ms: int) -> None:
    commit, journal = cell.under_way, cell.journal
    assert commit is not None
    cell.proven_ms = max(cell.proven_ms, timestamp_ms)
    records = cell.entries.count_under_way + len(cell.held_under_way) + len(cell.rows_under_way) + 1
    cell.is_copy_sound = cell.is_copy_sound and base_offset == journal.next_offset
    journal.next_offset, journal.commit = base_offset + records, commit
    journal.changes = cell.entries.under_way
    cell.entries.stored()
    cell.under_way = None
    journal.held, cell.held_under_way = cell.held_under_way, []
    journal.rows, cell.rows_under_way = cell.rows_under_way, []
    cell.send_from_commit(journal.held, cell.to_tell)
    cell.to_tell = {}


# --- ends


def _goodbye(cell: Holding) -> Goodbye:
    ended = cell.holder.run if cell.is_at_the_end else None
    return Goodbye(nonce=cell.holder.nonce, ended=ended, why=cell.stopped_by[:MOST_WHY])


def say_goodbye(cell: Holding) -> None:
    """By itself: nothing is left to commit."""
    cell.append([_goodbye(cell)], cell.now.wall_ms)


def leave(cell: Holding, base_offset: int, timestamp_ms: int) -> None:
    if cell.under_way is not None:
        note_commit(cell, base_offset, timestamp_ms)
    cell.is_copy_sound = False  # goodbye stands behind it
    cell.ended(Ended(End.STOPPED, cell.stopped_by) if cell.stopped_by else Ended(End.LEFT, ""))


def drop(cell: Holding, *about: object) -> None:
    """Another life begins with what stands in the journal."""
    cell.ended(Ended(End.AGAIN, cell.why))


def stop(cell: Holding, *about: object) -> None:
    cell.ended(Ended(End.STOPPED, cell.why))
