"""What a cell does where one thing is special: other code, another tenancy, a journal or topics that do not fit."""

from dataclasses import replace
from functools import partial

import msgspec
import pytest

from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow import Input, OutputPlace
from oncelog.flow.formats import CLAIM, VERSION, Claim, Commit, Goodbye, Tenancy, Unreadable, decoded, encoded
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Ended, JournalBatch, LifeEnd, ReadBack, Records, RunEnd, Stepped, Unworkable
from oncelog.flow.states import State
from oncelog.slots import Identity
from oncelog.slots.messages import BatchAnswer, Produce
from oncelog.slots.replay import Slot
from tests.flow.alone import at_the_end, calm, drive, has_committed, is_done, is_working
from tests.flow.cluster import JOURNAL, OUTPUTS, Breach, Counting, journal_batch
from tests.flow.process import Process
from tests.flow.world import World
from tests.model.partition import Wire


def why_it_stops(world: World) -> str:
    process = Process(world)
    with pytest.raises(Breach) as stopped:
        drive(world, process, lambda: False)
    assert process.end is not None and process.end.how is LifeEnd.STOPPED
    return str(stopped.value)


# --- other code


def test_other_code_waits_for_the_goodbye_of_the_one_before() -> None:
    world = calm()
    old = at_the_end(world)
    new = Process(world, code="8")
    assert not drive(world, new, lambda: is_working(new), 300)
    assert new.cell.state in (State.AWAITING, State.READING)
    old.cell.leave(world.now)
    assert drive(world, old, lambda: old.is_over)
    before_ms = world.now_ms
    assert drive(world, new, lambda: is_working(new))
    assert world.now_ms - before_ms < 100


@pytest.mark.parametrize("has_plan", [False, True])
def test_a_record_that_stops_a_cell_leaves_what_was_before_it_committed_and_goodbye_said(
    has_plan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So who mended the function waits for nobody."""
    world = calm(has_plan=has_plan)
    works = Counting.run

    def fails_at(work: Counting, input: int, records: Records, most: int) -> Stepped:
        if records.offsets and records.offsets[-1] >= 3:
            raise Unworkable("the record at offset 3: ValueError: no")
        return works(work, input, records, most)

    with monkeypatch.context() as broken:
        broken.setattr(Counting, "run", fails_at)
        assert why_it_stops(world).endswith("the record at offset 3: ValueError: no")
    said = world.journal(0)[-1]
    assert isinstance(decoded(said.keys[0] or b"", said.values[0] or b""), Goodbye)
    mended, before_ms = Process(world, code="8"), world.now_ms
    assert drive(world, mended, lambda: is_working(mended))
    assert world.now_ms - before_ms < 100
    assert drive(world, mended, lambda: is_done(world, mended))


def test_one_that_leaves_in_the_midst_of_a_plan_leaves_what_is_left_of_it_in_the_journal() -> None:
    world = calm(has_plan=True)
    holder = Process(world)
    assert drive(world, holder, lambda: holder.cell.state is State.PLANNING)
    commits = holder.cell.number
    holder.cell.leave(world.now)
    assert drive(world, holder, lambda: holder.is_over, 300)
    commit = holder.cell.journal.commit
    assert holder.cell.number <= commits + 1 and commit is not None and commit.plan is not None
    at_the_end(world)


@pytest.mark.parametrize(
    ("at_end", "named"), [(RunEnd.WHOLE, ("noon", None)), (RunEnd.CUT, (None, "noon")), (RunEnd.OPEN, (None, None))]
)
def test_goodbye_names_the_run_whose_end_it_is(at_end: RunEnd, named: tuple[str | None, str | None]) -> None:
    world = calm()
    holder = at_the_end(world)
    holder.cell.parts.context.holder = replace(holder.cell.holder, run="noon")
    holder.cell.leave(world.now, at_end)
    holder.cell.leave(world.now)  # asked to stop meanwhile
    assert drive(world, holder, lambda: holder.is_over)
    said = world.journal(0)[-1]
    entry = decoded(said.keys[0] or b"", said.values[0] or b"")
    assert isinstance(entry, Goodbye) and (entry.ended, entry.cut) == named


def test_without_a_goodbye_other_code_sends_nothing_before_the_deadline_of_the_one_before() -> None:
    world = calm()
    old = at_the_end(world)
    until_ms = old.cell.parts.deadlines.until_ms
    new = Process(world, code="8")
    drive(world, new, lambda: new.cell.state is State.AWAITING)
    # The old one goes on under another take-over, so that the new one fences it, and waits behind that.
    old.is_over = True
    world.now_ms += world.limits.tenure_ms - 200
    renewed = Process(world)
    assert drive(world, renewed, lambda: is_working(renewed))
    assert drive(world, new, lambda: new.cell.state is State.YIELDING)
    assert world.now.wall_ms >= until_ms
    last_ms = renewed.cell.parts.deadlines.until_ms + world.limits.settle_ms
    assert not drive(world, new, lambda: is_working(new), 100)
    world.now_ms += last_ms - world.now.wall_ms
    assert drive(world, new, lambda: is_working(new))


def test_who_follows_one_that_waits_for_other_code_waits_for_it_too() -> None:
    """The first of them has fenced the old code, and its take-over stands before the second's."""
    world = calm()
    old = at_the_end(world)
    last_ms = old.cell.parts.deadlines.until_ms + world.limits.settle_ms
    second = Process(world, code="8")
    second.cell.parts.deadlines.awaits_until_ms = 0  # it does not wait for a goodbye
    assert drive(world, second, lambda: second.cell.state is State.YIELDING)
    third = Process(world, code="8")
    assert drive(world, third, lambda: third.cell.state is State.AWAITING or is_working(third))
    third.cell.parts.deadlines.awaits_until_ms = 0
    assert not drive(world, third, lambda: is_working(third), 200)
    world.now_ms += last_ms - world.now.wall_ms
    assert drive(world, third, lambda: is_working(third))


def test_a_newer_tenancy_is_left_alone() -> None:
    world = calm()
    holder = Process(world, tenancy=Tenancy(5, 0))
    assert drive(world, holder, lambda: is_working(holder))
    older = Process(world, tenancy=Tenancy(4, 9))
    assert drive(world, older, lambda: older.end is not None)
    assert older.end is not None and older.end.how is LifeEnd.OUTRANKED


def test_who_has_nothing_to_send_notices_that_another_has_taken_over() -> None:
    world = calm()
    idle = at_the_end(world)
    idle.cell.journal_ends(end_of_journal(world), world.now)
    assert is_working(idle)  # all that stands there is its own
    newer = Process(world, tenancy=Tenancy(1, 0))
    assert drive(world, newer, lambda: is_working(newer))
    idle.cell.journal_ends(end_of_journal(world), world.now)
    assert drive(world, idle, lambda: idle.end is not None)
    assert idle.end == Ended(LifeEnd.AGAIN, "somebody else has written to its journal")


def test_its_own_commit_under_way_is_no_take_over() -> None:
    world = calm()
    holder = Process(world)
    assert drive(world, holder, lambda: is_working(holder) and holder.cell.parts.commits.under_way is not None)
    holder.cell.journal_ends(end_of_journal(world) + 1, world.now)
    assert is_working(holder)


def end_of_journal(world: World) -> int:
    return max(batch.last_offset for batch in world.journal(0)) + 1


def test_behind_its_deadline_a_holder_sends_nothing_and_takes_over_anew() -> None:
    world = calm()
    holder = at_the_end(world)
    fence = holder.cell.parts.journal.fence
    world.now_ms += world.limits.tenure_ms
    assert drive(world, holder, lambda: holder.end is not None)
    assert holder.end is not None and "sending deadline is over" in holder.end.why
    assert drive(world, holder, lambda: is_working(holder))
    assert holder.cell.parts.journal.fence == (0, fence[1] + 1)


def test_nothing_is_sent_before_its_plan_is_acknowledged() -> None:
    world = calm(has_plan=True)
    holder = Process(world)
    assert drive(world, holder, lambda: holder.cell.state is State.PLANNING)
    sent = [each for each in holder.to_do if isinstance(each, Produce)]
    assert {batch.place for each in sent for batch in each.batches} <= {JOURNAL}
    assert not any(world.logs[place].batches for place in OUTPUTS)


def test_what_stands_already_is_compared_in_few_reads_however_many_batches_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = calm(23, has_plan=True)
    world.limits = replace(world.limits, run_records=1)
    first = Process(world)

    def behind_the_commit() -> int:
        done = first.cell.journal.commit
        ends = {} if done is None else {(each.topic, each.partition): each.next_offset for each in done.outputs}
        return sum(each.base_offset >= ends.get(OUTPUTS[0], 0) for each in world.logs[OUTPUTS[0]].batches)

    assert drive(world, first, lambda: behind_the_commit() >= 4)
    first.is_over = True
    asked: list[ReadBack] = []

    def look(each: ReadBack) -> list[Slot]:
        asked.append(each)
        return World.slots(world, each)

    monkeypatch.setattr(world, "slots", look)
    second = Process(world)
    assert drive(world, second, lambda: is_done(world, second))
    reads = [each.records for each in asked if each.place == OUTPUTS[0]]
    assert sum(reads) >= 4
    assert len(reads) <= 2, "the first, and all that were found while it was read"


def test_a_function_that_does_not_repeat_is_named_as_what_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs on the order of a set, say, which is another one in the next process."""
    world = calm()
    first = Process(world)
    assert drive(world, first, lambda: any(world.logs[place].batches for place in OUTPUTS))
    first.is_over = True

    def others(each: ReadBack) -> list[Slot]:
        return [slot._replace(value=b"another") for slot in World.slots(world, each)]

    monkeypatch.setattr(world, "slots", others)
    words = why_it_stops(world)
    assert "where b'another' stands" in words and "nothing more is written" in words
    assert words.endswith("hang on PYTHONHASHSEED. `simulate(crashes=True)` and `check_hash_seeds` find it")


def test_outputs_that_compaction_took_before_they_were_compared_stop_the_cell_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = calm()
    first = Process(world)
    assert drive(world, first, lambda: any(world.logs[place].batches for place in OUTPUTS))
    first.is_over = True
    monkeypatch.setattr(world, "slots", lambda each: World.slots(world, each)[1:])
    words = why_it_stops(world)
    assert "records that are there by their numbers could not be read back" in words
    assert "`oncelog flow reset` begins anew" in words and "`min.compaction.lag.ms`" in words


# --- what does not fit


def test_a_journal_of_another_cell_is_refused_by_name() -> None:
    world = calm()
    at_the_end(world)
    world.stage = replace(world.stage, cell=1)
    said = why_it_stops(world)
    assert "f, stage s, cell 1: the journal oncelog.flow.f.s-0 is that of f, stage s, cell 0" in said


def test_what_is_no_record_of_a_journal_is_refused() -> None:
    world = calm()
    at_the_end(world)
    world.logs[JOURNAL].store(Wire(JOURNAL, -1, -1, -1, ((b"hello", b"world"),), world.now.wall_ms), world.now)
    end = world.logs[JOURNAL].end_offset - 1
    said = (
        f"in its journal oncelog.flow.f.s-0 the record with the key b'hello' at offset {end} is no record of a journal"
    )
    assert said in why_it_stops(world)


@pytest.mark.parametrize("key", [b"k", b"t"])
def test_what_nests_deeper_than_can_be_read_is_no_record_of_a_journal(key: bytes) -> None:
    with pytest.raises(Unreadable, match="is no record of a journal"):
        decoded(key, b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}")


def test_what_is_no_record_of_a_journal_is_named_with_the_offsets_of_its_batch() -> None:
    world = calm()
    at_the_end(world)
    records = ((b"s1", b"1"), (b"hello", b"world"))
    world.logs[JOURNAL].store(Wire(JOURNAL, -1, -1, -1, records, world.now.wall_ms), world.now)
    end = world.logs[JOURNAL].end_offset - 1
    assert f"the key b'hello' at offset {end - 1} to {end} is no record of a journal" in why_it_stops(world)


def test_what_is_no_record_of_a_journal_is_refused_behind_the_take_over_too() -> None:
    world = calm()
    process = Process(world)
    assert drive(world, process, lambda: process.cell.state is State.TAKING_OVER)
    world.logs[JOURNAL].store(Wire(JOURNAL, -1, -1, -1, ((b"hello", b"world"),), world.now.wall_ms), world.now)
    with pytest.raises(Breach, match="is no record of a journal"):
        drive(world, process, lambda: False)


def test_what_was_compacted_away_since_the_first_read_lets_all_be_read_anew() -> None:
    world = calm()
    world.rules = replace(world.rules, refuses_old_batches=False)
    world.limits = replace(world.limits, forget_after_ms=1 << 40)
    total, world.shown = world.shown, [1]
    old = Process(world)
    assert drive(world, old, partial(has_committed, old, 1))
    new = Process(world)
    assert drive(world, new, lambda: new.cell.state is State.TAKING_OVER)
    for shown in range(2, 6):
        world.shown = [shown]
        assert drive(world, old, partial(has_committed, old, shown))
    for _ in range(20):
        world.compact()
    world.shown = total
    assert drive(world, new, lambda: new.cell.state is State.CATCHING_UP)
    assert new.cell.parts.journal.read_from > 0
    assert drive(world, new, lambda: is_working(new))
    assert new.cell.parts.journal.read_from == 0
    new.look()  # what it restored is the fold of what the old one committed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": (Input("in0", "other"),)}, "its input in0 was deleted and made again"),
        ({"inputs": (Input("in0", "id", log_start=1_000),)}, "retention took what was not read yet"),
        ({"inputs": (Input("in0", "id"), Input("in1", "id"))}, "committed with 1 inputs and has 2 now"),
        ({"outputs": (OutputPlace(OUTPUTS[0], "id"),)}, "which is not among its outputs now"),
        (
            {"outputs": tuple(OutputPlace(place, "other") for place in OUTPUTS)},
            "was deleted and made again (id is other now)",
        ),
    ],
)
def test_topics_that_do_not_fit_the_last_commit_are_refused_by_name(change: dict[str, object], words: str) -> None:
    world = calm()
    at_the_end(world)
    world.stage = replace(world.stage, **change)  # type: ignore[arg-type]
    assert words in why_it_stops(world)


def test_a_record_whose_changes_do_not_fit_a_commit_is_refused() -> None:
    world = calm()
    world.limits = replace(world.limits, commit_bytes=60)
    said = why_it_stops(world)
    assert "cell 0: what the record at offset 0 of in0-0, with the key " in said
    assert "changes does not fit a commit of 60 bytes. Raise max.message.bytes of oncelog.flow.f.s, or" in said


def test_a_commit_is_made_before_it_would_grow_too_large() -> None:
    """Each change is some 75 bytes here."""
    world = calm()
    world.limits = replace(world.limits, commit_bytes=160, commit_every_ms=1 << 40)
    holder = Process(world)
    drive(world, holder, lambda: False, 600)
    commits = [batch.keys for batch in world.journal(0) if b"k" in batch.keys]
    assert len(commits) > 1
    assert all(len(keys) <= 1 + 2 for keys in commits)
    holder.cell.leave(world.now)
    assert drive(world, holder, lambda: holder.is_over)


def test_what_a_broker_refuses_for_good_stops_a_cell() -> None:
    """In each state in which something may be under way, for the journal or for outputs."""
    for state in (State.TAKING_OVER, State.WORKING, State.DRAINING, State.PLANNING, State.LEAVING):
        for code in (Code.MSG_SIZE_TOO_LARGE, Code.INVALID_PRODUCER_EPOCH):
            world = calm(has_plan=state is State.PLANNING)
            process = Process(world)
            if state is State.LEAVING:
                process = at_the_end(world)
                process.cell.leave(world.now)
            assert drive(world, process, partial(is_asking, process, state))
            ended = [process.cell]
            try:
                refuse_all(world, process, code)
            except Breach:
                pass
            assert process.end is not None and ended[0].state is State.ENDED
            assert process.end.how is (LifeEnd.STOPPED if code == Code.MSG_SIZE_TOO_LARGE else LifeEnd.AGAIN)


def is_asking(process: Process, state: State) -> bool:
    return process.cell.state is state and any(conn.queue for conn in process.conns.values())


def refuse_all(world: World, process: Process, code: int) -> None:
    for conn in process.conns.values():
        while conn.queue:
            request_id, wire = conn.queue.popleft()
            process.inbox.append((process.cell.answered, (request_id, [BatchAnswer(*wire.place, code)])))
    drive(world, process, lambda: process.end is not None, 60)


# --- what counts in a journal


def batch(offset: int, pid: int, epoch: int, *records: tuple[bytes, bytes | None]) -> JournalBatch:
    return journal_batch(offset, offset + len(records) - 1, Identity(pid, epoch), records)


CLAIMED = encoded(Claim(flow="f", stage="s", cell=0, journal_pid=7, output_pid=8))


def test_a_batch_of_an_older_holder_behind_a_newer_one_is_passed_over() -> None:
    """Appended by a broker that forgot who fenced whom."""
    journal = Journal()
    journal.read([batch(0, -1, -1, CLAIMED), batch(1, 7, 2, (b"sa", b"new")), batch(2, 7, 1, (b"sa", b"old"))])
    assert journal.state == {b"a": b"new"}


def test_what_others_write_into_a_journal_under_ids_of_their_own_is_passed_over() -> None:
    journal = Journal()
    journal.read([batch(0, -1, -1, CLAIMED), batch(1, 9, 5, (b"sa", b"foreign"))])
    assert journal.state == {}


def test_a_gap_is_noticed_between_batches_and_inside_of_one() -> None:
    whole = [batch(0, -1, -1, CLAIMED), batch(1, 7, 0, (b"sa", b"1"), (b"sb", b"1")), batch(3, 7, 0, (b"sc", b"1"))]
    assert Journal().read(whole)
    assert not Journal().read([whole[0], whole[2]])
    cut = JournalBatch(1, 2, Identity(7, 0), whole[1].keys[1:], whole[1].values[1:])
    assert not Journal().read([whole[0], cut, whole[2]])


# --- the formats


def test_a_newer_version_is_refused_with_words() -> None:
    key, value = encoded(Goodbye(nonce="n"))
    newer = value.replace(b'"v":%d' % VERSION, b'"v":%d' % (VERSION + 1))
    with pytest.raises(Unreadable, match="a newer oncelog wrote it"):
        decoded(key, newer)


@pytest.mark.parametrize(
    "broken",
    [
        {"number": -1},
        {"nonce": ""},
        {"nonce": "n" * 65},
        {"inputs": [["id", -1, 0]]},
        {"outputs": [["t", 0, "id", 1 << 65, 0]]},
        {"plan": [[[0, 0, 1]] * 10_001, [], 0]},
    ],
)
def test_every_field_has_a_bound(broken: dict[str, object]) -> None:
    key, value = encoded(Commit(number=1, nonce="n", code="7", inputs=[], outputs=[]))
    assert isinstance(decoded(key, value), Commit)
    with pytest.raises(Unreadable):
        decoded(key, msgspec.json.encode(msgspec.json.decode(value) | broken))


def test_a_claim_has_a_key_of_its_own() -> None:
    other = encoded(Claim(flow="f", stage="s", cell=0, journal_pid=9, output_pid=10))
    assert CLAIMED[0][:1] == other[0][:1] == CLAIM
    assert CLAIMED[0] != other[0]
