"""The actions of a cell: small functions, one for each entry of the table.

Where one finds that something else has happened by what it did, it returns that event. None sets the cell's state.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.flow.description import Stage
from oncelog.flow.formats import Claim, Commit, Plan, encoded, shown
from oncelog.flow.holding import Holding
from oncelog.flow.messages import AppendClaim, Ended, JournalBatch, LifeEnd, NeedPids, Outputs, Unworkable
from oncelog.flow.states import Event
from oncelog.slots import Place

LATE: Final = "late"
MOST_WAIT_MS: Final = 500  # for a goodbye, before the clock is looked at again


def nothing(holding: Holding, *about: object) -> None:
    """The state says it all."""


# --- before the take-over


def read(holding: Holding, *about: object) -> None:
    holding.journal.read()


def read_anew(holding: Holding) -> None:
    holding.journal.read_anew()


def judge(holding: Holding, batches: Sequence[JournalBatch]) -> Event:
    """The claim and the take-over that stand in the journal, as an event."""
    if not holding.journal.joins(batches):
        return Event.GAP
    journal, context, deadlines = holding.journal.content, holding.context, holding.deadlines
    if journal.claim is None:
        return Event.UNCLAIMED
    claim, stage, holder, now_ms = journal.claim, context.stage, context.holder, context.now.wall_ms
    if (claim.flow, claim.stage, claim.cell) != (stage.flow, stage.name, stage.cell):
        holding.fails(
            f"the journal {stage.journal.topic}-{stage.journal.partition} is that of {claim.flow}, stage "
            f"{claim.stage}, cell {claim.cell}. Give the flow another name"
        )
        return Event.IMPOSSIBLE
    before = journal.take_over
    if before is not None and before.tenancy > holder.tenancy:
        return Event.OUTRANKED
    deadlines.learn(journal)
    if now_ms < deadlines.goodbye_ms:
        return Event.OTHER_CODE
    if journal.commit is not None and not other_inputs(stage, journal.commit):
        holding.inputs.expect(journal.commit)  # the take-over will show from where on; before it, each commit says it
    if before is not None and not journal.is_left and now_ms < holder.yields_until_ms:
        return Event.AT_WORK
    return Event.SPENT if journal.due_epoch >= context.limits.last_epoch else Event.FREE


def ask_pids(holding: Holding) -> None:
    holding.context.ask(NeedPids(2 if holding.journal.content.claim is None else 1))


def claim(holding: Holding, pids: Sequence[int]) -> None:
    stage = holding.context.stage
    entry = Claim(flow=stage.flow, stage=stage.name, cell=stage.cell, journal_pid=pids[0], output_pid=pids[1])
    holding.context.ask(AppendClaim(*encoded(entry), holding.context.now.wall_ms))


def wait_for_goodbye(holding: Holding) -> None:
    _follow(holding, holding.deadlines.goodbye_ms)


def wait_for_its_end(holding: Holding) -> None:
    claim = holding.journal.content.claim
    if claim is not None:
        holding.outputs.recall(claim.output_pid)
    _follow(holding, holding.context.holder.yields_until_ms)


def _follow(holding: Holding, until_ms: int) -> None:
    """Each commit is read as it comes, so that behind the goodbye nothing is left to read."""
    holding.journal.read(min(MOST_WAIT_MS, until_ms - holding.context.now.wall_ms))


def back_off(holding: Holding) -> None:
    holding.context.ask(Ended(LifeEnd.OUTRANKED, f"{holding.context.stage.title}: a newer tenancy holds it"))


# --- the take-over


def take_over(holding: Holding, pids: Sequence[int] = ()) -> None:
    holding.deadlines.begin()
    holding.journal.take_over(holding.deadlines, pids)


def keep(holding: Holding, batches: Sequence[JournalBatch]) -> None:
    holding.journal.keep(batches)


def judge_what_was_read(holding: Holding, base_offset: int, timestamp_ms: int) -> Event | None:
    holding.deadlines.prove(timestamp_ms)
    return None if holding.journal.read_ahead is None else Event.READ


def judge_take_over(holding: Holding, batches: Sequence[JournalBatch] | None = None) -> Event | None:
    """The take-over with the nonce of this holder, if it stands there: everything before it is read, and nothing behind
    it."""
    own_journal = holding.journal
    if batches is None:
        batches = own_journal.read_ahead or ()
    own = own_journal.own_of(batches)
    if own is None and own_journal.reads_ahead:
        own_journal.read_again()
        return None
    if own is None or own_journal.is_passed(batches):
        return Event.OTHERS
    journal = own_journal.content
    if not (journal.is_left and own.base_offset == journal.next_offset):
        holding.outputs.distrust()
    if not own_journal.joins(batches, own.last_offset + 1):
        return Event.GAP
    taken = journal.take_over
    if journal.fence != own_journal.fence or taken is None:
        return Event.OTHERS
    if taken.successor is not None:
        return Event.SUCCESSOR
    return Event.OTHER_CODE if holding.deadlines.may_others_send else Event.OWN


# --- restore


def restore(holding: Holding) -> Event | None:
    """State and positions are those of the last commit exactly."""
    journal, work, stage = holding.journal.content, holding.context.work, holding.context.stage
    commit, commits = journal.commit, holding.commits
    commits.restore(journal)
    if commit is not None:
        holding.why = other_inputs(stage, commit) or other_outputs(stage, commit)
        if holding.why:
            return Event.IMPOSSIBLE
    holding.inputs.restore(commit, journal.rows)
    work.begin(commits.entries, [each.mark_ms for each in commit.inputs] if commit else [-1] * len(stage.inputs))
    work.late = int(commit.metrics.get(LATE, 0)) if commit else 0
    assert journal.claim is not None
    holding.outputs.restore(journal.claim.output_pid, commit.outputs if commit else ())
    try:
        told = work.told(commits.number, journal.changes) if commit else {}
    except Unworkable as error:
        holding.fails(f"{error}")
        return Event.IMPOSSIBLE
    holding.send_from_commit(journal.held, told)
    return None


def other_inputs(stage: Stage, commit: Commit) -> str:
    """The reason why they are not those that were committed; empty where they are."""
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


def finish_files(holding: Holding) -> None:
    """Finish the files once all that their plan has is written."""
    if holding.files.names and not holding.inputs.plan_left:
        commit = holding.journal.content.commit
        assert commit is not None and commit.plan is not None
        holding.files.finish(commit.plan.ranges[0], holding.deadlines.until_ms)


def commit(holding: Holding) -> Event:
    """State and positions, as one batch. What was sent is acknowledged."""
    context, inputs, commits, leaving = holding.context, holding.inputs, holding.commits, holding.leaving
    if holding.deadlines.is_proof_old:
        holding.why = "nothing was heard of the journal for too long"
        return Event.REFUSED
    are_files_begun = inputs.plan_left and context.stage.collect is not None
    if holding.outputs.forsaken or are_files_begun:
        return Event.LEFT  # outputs are not acknowledged, or files not whole. The plan stands, and is begun again
    plan = _next_plan(holding)
    if holding.is_time_to_be_told:
        inputs.mark_by_time()
        commits.progressed()
    if leaving.is_wanted and inputs.has_moved(holding.journal.content.commit):
        commits.progressed()  # those who wait for its end see that it is there
    if leaving.is_wanted and not commits.has_progress:
        return Event.LEFT  # what is left of a plan stands in the last commit
    if not commits.has_progress and plan is None:
        return Event.COMMITTED
    rows = inputs.take_rows(plan)
    if rows and not commits.has_room(inputs.rows_bytes):
        input, records = rows[0]
        holding.fails(
            f"the row at offset {records.offsets[0]} of {context.stage.inputs[input].topic}, with the key "
            f"{shown(records.keys[0])}, does not fit a commit of {context.limits.commit_bytes} bytes. Raise "
            f"max.message.bytes of {context.stage.journal.topic}"
        )
        return Event.IMPOSSIBLE
    changes = commits.begin()
    try:
        told = context.work.told(commits.number, changes)
    except Unworkable as error:
        holding.fails(f"{error}")
        return Event.IMPOSSIBLE
    entry = Commit(
        number=commits.number,
        nonce=context.holder.nonce,
        code=context.holder.code,
        inputs=inputs.positions(),
        outputs=[holding.outputs.position(each) for each in context.stage.outputs],
        watermark_ms=_told_watermark_ms(holding, told),
        metrics={LATE: context.work.late} if context.work.late else {},
        plan=plan,
    )
    inputs.planned(plan)
    context.work.committed()
    beside = commits.leave(entry, rows, told)
    follows = bool(commits.held_under_way or told)
    last = [leaving.goodbye] if leaving.is_wanted and not follows else []
    holding.journal.append([*beside, entry, *last], context.now.wall_ms, changes, commits.entries.columns_under_way)
    if last:
        return Event.LAST
    return Event.PLANNED if plan or follows else Event.COMMITTED


def _next_plan(holding: Holding) -> Plan | None:
    """The rest of the last plan comes first."""
    if holding.inputs.plan_left:
        return holding.inputs.rest_of_plan()
    if not holding.context.stage.has_plan or holding.leaving.is_wanted:
        return None
    return holding.inputs.plan(holding.commits.changed_bytes)


def _told_watermark_ms(holding: Holding, told: Mapping[Place, Outputs]) -> int:
    """The watermark that is told to those who read its outputs: what this commit lets go out stands behind it, and may
    be older, and so may what timers write that are due and did not fire yet."""
    last, behind, work = holding.journal.content.commit, (*holding.commits.held, *told.items()), holding.context.work
    times = [min(outputs.times) for _, outputs in behind if outputs.times]
    due_ms = [] if (timer_ms := work.next_timer_ms) is None else [timer_ms]
    return max(min([work.watermark_ms, *times, *due_ms]), last.watermark_ms if last else -1)


def note_commit(holding: Holding, base_offset: int, timestamp_ms: int) -> None:
    commits, journal = holding.commits, holding.journal.content
    assert commits.under_way is not None
    holding.deadlines.prove(timestamp_ms)
    holding.journal.stored(base_offset, commits.records_under_way, commits.under_way)
    told = commits.stored(journal)
    holding.send_from_commit(journal.held, told)


# --- ends


def say_goodbye(holding: Holding) -> None:
    """Say goodbye on its own: nothing is left to commit."""
    holding.journal.append([holding.leaving.goodbye], holding.context.now.wall_ms)


def leave(holding: Holding, base_offset: int, timestamp_ms: int) -> None:
    if holding.commits.under_way is not None:
        note_commit(holding, base_offset, timestamp_ms)
    holding.journal.end()
    holding.context.ask(holding.leaving.ended)


def drop(holding: Holding, *about: object) -> None:
    """Another life begins with what stands in the journal."""
    holding.context.ask(Ended(LifeEnd.AGAIN, holding.why))


def stop(holding: Holding, *about: object) -> None:
    holding.context.ask(Ended(LifeEnd.STOPPED, holding.why))
