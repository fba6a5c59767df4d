"""Cells, engines and topics that break one rule each, and the histories that notice it. The model would find nothing in
a room that does nothing, so each of these must be caught, by name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch
from weakref import WeakKeyDictionary

from oncelog.clock import Now
from oncelog.flow import formats, table
from oncelog.flow.cell import Cell
from oncelog.flow.cell_outputs import CellOutputs
from oncelog.flow.deadlines import Deadlines
from oncelog.flow.formats import STATE, Claim, Commit, Entry, TakeOver
from oncelog.flow.holding import Holding
from oncelog.flow.journal import Journal
from oncelog.flow.messages import JournalBatch, Outputs
from oncelog.flow.own_journal import OwnJournal
from oncelog.flow.states import Event, State
from oncelog.slots import Identity, Place, sender
from oncelog.slots.batch import Batch
from oncelog.slots.messages import Delivered, Produce
from oncelog.slots.partition import Partition
from oncelog.slots.tenure import Tenure
from tests.flow.cluster import FORGET_MS, JOURNAL, Rules

PLAIN: Final = Rules()
Change = Callable[[Any], Any]  # what stands there -> what stands there instead
Changed = dict[bytes, bytes | None]


@dataclass(frozen=True)
class Mutant:
    what: str
    rules: Rules = PLAIN
    changes: tuple[tuple[Any, Any, Change], ...] = ()
    first_seed: int = 0  # of a rare one, not long before the first history that catches it

    def __str__(self) -> str:
        return self.what

    @contextmanager
    def applied(self) -> Iterator[None]:
        patches = [_changed(*each) for each in self.changes]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in reversed(patches):  # two may be of one table
                each.stop()


def _changed(where: Any, name: Any, change: Change) -> Any:
    if isinstance(where, dict):
        return patch.dict(where, {name: change(where[name])})
    return patch.object(where, name, change(getattr(where, name)))


def _row(state: State, event: Event, change: Change) -> tuple[Any, Any, Change]:
    """Another action, and the same state."""
    return table.TABLE[state], event, lambda row: (change(row[0]), row[1])


# --- the journal


def _forget_what_came_between(_: Any) -> Any:
    """As it stood when it was first read, but for the fence."""

    def judge(holding: Holding, batches: Sequence[JournalBatch] | None = None) -> Event:
        journal = holding.journal
        own = journal.own_of(batches if batches is not None else journal.read_ahead or ())
        if own is None:
            return Event.OTHERS
        (entry,) = (formats.decoded(key or b"", value or b"") for key, value in own.rows)
        journal.content.fence = journal.fence
        return Event.OWN if getattr(entry, "successor", None) is None else Event.SUCCESSOR

    return judge


def _whatever_was_read(real: Any) -> Any:
    """What was asked for ahead of the acknowledgement is taken for all that stands before the take-over."""

    def judge(holding: Holding, batches: Sequence[JournalBatch] | None = None) -> Event | None:
        journal = holding.journal
        batches = batches if batches is not None else journal.read_ahead or ()
        if journal.reads_ahead and journal.own_of(batches) is None:
            journal.content.read(batches)
            journal.content.fence = journal.fence
            return Event.OWN
        event: Event | None = real(holding, batches)
        return event

    return judge


def _one_key_for_all_claims(real: Change) -> Change:
    return lambda entry: b"" if isinstance(entry, Claim) else real(entry)


def _one_successor_after_the_other(_: Change) -> Any:
    """The whole chain is in no record."""

    def learn(journal: Journal, entries: list[list[Entry]]) -> None:
        for entry in (each for found in entries for each in found):
            if isinstance(entry, Claim) and journal.claim is None:
                journal.claim, journal.chain = entry, [entry.journal_pid]
            elif isinstance(entry, TakeOver) and entry.successor is not None and entry.successor not in journal.chain:
                journal.chain.append(entry.successor)

    return learn


def _names_no_successor(real: Any) -> Any:
    """It goes on in the chain that it made up itself."""

    def take_over(holding: Holding, pids: Sequence[int] = ()) -> None:
        if pids:
            holding.journal.content.chain.append(pids[0])
        real(holding)

    return take_over


def _always_joins(real: Any) -> Any:
    def read(journal: Journal, batches: Sequence[JournalBatch], up_to: int | None = None) -> bool:
        real(journal, batches, up_to)
        return True

    return read


def _any_stands_there(_: Any) -> Any:
    return lambda own, batch: own.content.fence_of(batch) == own.fence and formats.TAKE_OVER in batch.keys


# --- commits


def _two_batches(real: Any) -> Any:
    def append(own: OwnJournal, entries: Sequence[Entry], timestamp_ms: int, *changes: Changed) -> None:
        if any(changes):
            real(own, [], timestamp_ms, *changes)
        real(own, entries, timestamp_ms)

    return append


def _positions_first(real: Any) -> Any:
    def append(own: OwnJournal, entries: Sequence[Entry], timestamp_ms: int, *changes: Changed) -> None:
        real(own, entries, timestamp_ms)
        if any(changes):
            real(own, [], timestamp_ms, *changes)

    return append


def _the_rest_is_passed_over(real: Any) -> Any:
    """Of the batches that one commit was cut into, the one with the positions is taken for it."""

    def actions_of(own: sender.Sender, now_ms: int) -> list[Any]:
        return [each for each in real(own, now_ms) if not (isinstance(each, Delivered) and _is_of_state(each.batch))]

    return actions_of


def _is_of_state(batch: Batch) -> bool:
    payload = batch.payload
    assert isinstance(payload, Outputs)
    return batch.place == JOURNAL and all((key or b"")[:1] == STATE for key in payload.keys)


CUT_IN_TWO: Final = (sender.Sender, "actions", _the_rest_is_passed_over)


def _positions_at_the_send(_: Any) -> Any:
    return property(lambda outputs: not outputs.comparing)


_asked: list[Cell] = []  # whose look at the log is answered now


def _whose(real: Any) -> Any:
    def looked_up(cell: Cell, *about: Any, **more: Any) -> None:
        _asked[:] = [cell]
        real(cell, *about, **more)

    return looked_up


def _rebuilt(real: Any) -> Any:
    """A commit in doubt is made anew, with the state as it is now."""

    def looked_up(partition: Partition, *about: Any) -> None:
        (cell,) = _asked
        commit = cell.parts.commits.under_way
        if partition.place == JOURNAL and commit is not None:
            _put_in_place(cell.parts, partition, commit)
        real(partition, *about)

    return looked_up


def _put_in_place(holding: Holding, partition: Partition, commit: Commit) -> None:
    entries = holding.commits.entries
    entries.under_way |= entries.changed
    entries.changed = {}
    changes, (key, value) = entries.under_way, formats.encoded(commit)
    batch, tenure = partition.open[0], partition.tenure
    assert tenure is not None
    records = Outputs([*(STATE + each for each in changes), key], [*changes.values(), value])
    batch.data = holding.context.encode(records, batch.max_timestamp_ms)
    batch.payload, batch.record_count = records, len(records.keys)
    entries.count_under_way = len(changes)
    batch.stamp(batch.identity, batch.first_sequence)
    tenure.next_sequence = batch.end_sequence


def _at_once_goodbye(real: Any) -> Any:
    """In the last commit, though something is held there that is not sent yet."""

    def commit(holding: Holding) -> Event:
        append = holding.journal.append

        def appended(entries: Sequence[Entry], *about: Any) -> None:
            append([*entries, holding.leaving.goodbye], *about)

        with patch.object(holding.journal, "append", appended if holding.leaving.is_wanted else append):
            event: Event = real(holding)
        return event

    return commit


# --- outputs


def _under_the_fence(real: Any) -> Any:
    def restore(holding: Holding, *about: Any) -> Event | None:
        resume = holding.outputs.resume

        def resumed(place: Place, identity: Identity) -> None:
            resume(place, Identity(identity.pid, holding.journal.fence[1]))

        with patch.object(holding.outputs, "resume", resumed):
            event: Event | None = real(holding, *about)
        return event

    return restore


def _all_of_them(_: Any) -> Any:
    """What was asked about counts as known, whatever the answer is, and whoever was here before."""

    class Kept(dict[Place, int]):
        def clear(self) -> None: ...

    def recalled(outputs: CellOutputs, last_ms: Mapping[Place, int]) -> None:
        if outputs.recalled_at is not None:
            outputs.known_at_ms = Kept.fromkeys(outputs.places, outputs.recalled_at.monotonic_ms)

    return recalled


def _in_company(real: Any) -> Any:
    def init(tenure: Tenure, *about: Any, **more: Any) -> None:
        real(tenure, *about, **more)
        tenure.proven_timestamp_ms = 1 << 62

    return init


def _no_clock(real: Any) -> Any:
    """Journal batches carry the time of their sending, and nobody looks at how old is what they rely upon."""

    def limited(deadlines: Deadlines, action: Produce) -> Produce | None:
        found: Produce | None = action if action.batches[0].place == JOURNAL else real(deadlines, action)
        return found

    return limited


_claims: WeakKeyDictionary[Journal, int] = WeakKeyDictionary()  # how many stand among what was read


def _counts_claims(real: Any) -> Any:
    def read(journal: Journal, batches: Sequence[JournalBatch], up_to: int | None = None) -> bool:
        new = [each for each in batches if each.base_offset >= journal.next_offset and each.identity.pid < 0]
        _claims[journal] = _claims.get(journal, 0) + len(new)
        has_joined: bool = real(journal, batches, up_to)
        return has_joined

    return read


def _behind_the_last(real: Any) -> Any:
    """The journal's sequences go on, instead of beginning anew under the next epoch."""

    def take_over(holding: Holding, *about: Any) -> None:
        journal, own = holding.journal.content, holding.context.sender
        due = journal.next_offset - _claims.get(journal, 0)
        resume = own.resume

        def resumed(place: Place, identity: Identity, _: int, *more: Any, **named: Any) -> None:
            resume(place, identity, due, *more, **named)

        with patch.object(own, "resume", resumed):
            real(holding, *about)

    return take_over


def _at_once(real: Any) -> Any:
    """What is held is sent like all else, and stands in the commit beside it."""

    def actions_of(cell: Cell, now: Now) -> list[Any]:
        add = cell.parts.commits.add

        def added(changes: Any, added_bytes: int, held: Sequence[tuple[Place, Outputs]]) -> None:
            add(changes, added_bytes, held)
            for place, outputs in held:
                cell.parts.outputs.send(place, outputs)

        with patch.object(cell.parts.commits, "add", added):
            found: list[Any] = real(cell, now)
        return found

    return actions_of


def _but_what_is_held(real: Any) -> Any:
    return lambda holding, _, told: real(holding, (), told)


def _untold(real: Any) -> Any:
    """What follows from a commit is left to the one who made it."""

    def restore(holding: Holding, *about: Any) -> Event | None:
        holding.journal.content.changes = {}
        event: Event | None = real(holding, *about)
        return event

    return restore


def _sent_along(real: Any) -> Any:
    def commit(holding: Holding) -> Event:
        event: Event = real(holding)
        commits = holding.commits
        holding.send_from_commit(commits.held_under_way, commits.to_tell)
        commits.held_under_way, commits.to_tell = [], {}
        return event

    return commit


PLANNED: Final = Rules(has_plan=True)
NO_FENCE_RAISED: Final = (Journal, "due_epoch", lambda _: property(lambda journal: 0))

MUTANTS: Final = (
    Mutant(
        "no catch-up at the take-over",
        PLANNED,
        (_row(State.CATCHING_UP, Event.READ, _forget_what_came_between),),
    ),
    Mutant(
        "what was read ahead of the take-over taken for the read-back",
        PLANNED,
        (_row(State.CATCHING_UP, Event.READ, _whatever_was_read),),
    ),
    Mutant(
        "goodbye before what a commit holds is sent",
        Rules(asks=True),
        (_row(State.DRAINING, Event.DRAINED, _at_once_goodbye),),
    ),
    Mutant("the same key for all claims", PLANNED, ((formats, "own_key_of", _one_key_for_all_claims),)),
    Mutant(
        "the chain of journal pids in no one record",
        PLANNED,
        ((Journal, "learn_the_writers", _one_successor_after_the_other),),
    ),
    Mutant(
        "work under the last epoch of a journal pid",
        PLANNED,
        ((table.TABLE[State.CATCHING_UP], Event.SUCCESSOR, lambda _: table.TABLE[State.CATCHING_UP][Event.OWN]),),
    ),
    Mutant(
        "a journal pid after the other without a name of the next one",
        PLANNED,
        (_row(State.SUCCEEDING, Event.GRANTED, _names_no_successor),),
    ),
    Mutant(
        "no look for gaps in what a copy is joined with",
        PLAIN,
        ((Journal, "read", _always_joins), (Journal, "begins_with_the_last", lambda _: lambda journal, batches: True)),
        600,
    ),
    Mutant("a commit before the acknowledgements", PLAIN, ((CellOutputs, "is_drained", _positions_at_the_send),)),
    Mutant("a commit in two batches", PLAIN, ((OwnJournal, "append", _two_batches), CUT_IN_TWO)),
    Mutant("positions first", PLAIN, ((OwnJournal, "append", _positions_first), CUT_IN_TWO)),
    Mutant("a commit in doubt made anew", PLAIN, ((Cell, "looked_up", _whose), (sender, "looked_up", _rebuilt))),
    Mutant(
        "outputs before their plan",
        PLANNED,
        ((table.TABLE[State.DRAINING], Event.PLANNED, lambda row: (row[0], State.WORKING)),),
        200,
    ),
    Mutant(
        "chance sent before its commit",
        Rules(asks=True),
        ((Cell, "actions", _at_once), (Holding, "send_from_commit", _but_what_is_held)),
    ),
    Mutant(
        "chance sent before its commit is acknowledged",
        Rules(asks=True),
        (
            (table.TABLE[State.DRAINING], Event.PLANNED, lambda row: (row[0], State.WORKING)),
            _row(State.DRAINING, Event.DRAINED, _sent_along),
        ),
    ),
    Mutant(
        "a restore tells nothing of its commit",
        Rules(asks=True),
        (_row(State.CATCHING_UP, Event.OWN, _untold),),
    ),
    Mutant("known to brokers that forgot it", PLAIN, ((CellOutputs, "recalled", _all_of_them),)),
    Mutant(
        "the epoch of the outputs raised",
        PLAIN,
        (_row(State.CATCHING_UP, Event.OWN, _under_the_fence),),
    ),
    Mutant("no look into the log", Rules(looks_into_the_log=False)),
    Mutant("the first batch not alone", PLAIN, ((Tenure, "__init__", _in_company),)),
    Mutant(
        "no clock in journal batches",
        Rules(refuses_old_batches=False),
        ((Deadlines, "limited", _no_clock), (Deadlines, "is_proof_old", lambda _: False)),
    ),
    Mutant(
        "what waited for long is sent",
        PLANNED,
        ((Deadlines, "limited", lambda _: lambda deadlines, action: action),),
        1_500,
    ),
    Mutant("reconnects by itself", Rules(connects_and_checks=False), (), 200),
    Mutant("old timestamps", Rules(output_age_ms=FORGET_MS)),
    Mutant("no read-back", PLANNED, ((OwnJournal, "is_own", _any_stands_there),)),
    Mutant(
        "no fence",
        PLANNED,
        (
            NO_FENCE_RAISED,
            (Journal, "read", _counts_claims),
            _row(State.READING, Event.FREE, _behind_the_last),
        ),
    ),
)
