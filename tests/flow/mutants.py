"""Cells, engines and topics that break one rule each, and the histories that notice it. The model would find nothing in
a room that does nothing, so each of these must be caught, by name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch
from weakref import WeakKeyDictionary

from oncelog.clock import Now
from oncelog.flow import actions, formats, table
from oncelog.flow.cell import Cell
from oncelog.flow.formats import STATE, Claim, Commit, Entry, Goodbye, TakeOver
from oncelog.flow.holding import Holding
from oncelog.flow.journal import Journal
from oncelog.flow.messages import JournalBatch, Outputs
from oncelog.flow.states import Event, State
from oncelog.slots import Identity, Place, sender
from oncelog.slots.messages import Delivered, Produce
from oncelog.slots.partition import Partition
from oncelog.slots.tenure import Tenure
from tests.flow.cluster import FORGET_MS, JOURNAL, Rules

PLAIN: Final = Rules()
Change = Callable[[Any], Any]  # what stands there -> what stands there instead


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


# --- the journal


def _forget_what_came_between(_: Any) -> Any:
    """As it stood when it was first read, but for the fence."""

    def judge(cell: Holding, batches: Sequence[JournalBatch] | None = None) -> Event:
        batches = batches if batches is not None else cell.read_ahead or ()
        own = next((batch for batch in batches if actions.is_own(cell, batch)), None)
        if own is None:
            return Event.OTHERS
        (entry,) = (formats.decoded(key or b"", value or b"") for key, value in own.rows)
        cell.journal.fence = cell.fence
        return Event.OWN if getattr(entry, "successor", None) is None else Event.SUCCESSOR

    return judge


def _whatever_was_read(real: Any) -> Any:
    """What was asked for ahead of the acknowledgement is taken for all that stands before the take-over."""

    def judge(cell: Holding, batches: Sequence[JournalBatch] | None = None) -> Event | None:
        batches = batches if batches is not None else cell.read_ahead or ()
        if cell.reads_ahead and not any(actions.is_own(cell, batch) for batch in batches):
            cell.journal.read(batches)
            cell.journal.fence = cell.fence
            return Event.OWN
        event: Event | None = real(cell, batches)
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

    def take_over(cell: Holding, pids: Sequence[int] = ()) -> None:
        if pids:
            cell.journal.chain.append(pids[0])
        real(cell)

    return take_over


def _always_joins(real: Any) -> Any:
    def read(journal: Journal, batches: Sequence[JournalBatch], up_to: int | None = None) -> bool:
        real(journal, batches, up_to)
        return True

    return read


def _any_stands_there(_: Any) -> Any:
    return lambda cell, batch: cell.journal.fence_of(batch) == cell.fence and formats.TAKE_OVER in batch.keys


# --- commits


def _two_batches(real: Any) -> Any:
    def append(cell: Holding, entries: Sequence[Entry], timestamp_ms: int, *changes: dict[bytes, bytes | None]) -> None:
        if any(changes):
            real(cell, [], timestamp_ms, *changes)
        real(cell, entries, timestamp_ms)

    return append


def _positions_first(real: Any) -> Any:
    def append(cell: Holding, entries: Sequence[Entry], timestamp_ms: int, *changes: dict[bytes, bytes | None]) -> None:
        real(cell, entries, timestamp_ms)
        if any(changes):
            real(cell, [], timestamp_ms, *changes)

    return append


def _the_rest_is_passed_over(real: Any) -> Any:
    """Of the batches that one commit was cut into, the one with the positions is taken for it."""

    def delivered(cell: Cell, action: Delivered) -> None:
        payload = action.batch.payload
        assert isinstance(payload, Outputs)
        if action.batch.place != JOURNAL or any((key or b"")[:1] != STATE for key in payload.keys):
            real(cell, action)

    return delivered


CUT_IN_TWO: Final = (Cell, "_delivered", _the_rest_is_passed_over)


def _positions_at_the_send(_: Any) -> Any:
    return property(lambda cell: not cell.comparing)


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
        if partition.place == JOURNAL and cell.under_way is not None:
            _put_in_place(cell, partition, cell.under_way)
        real(partition, *about)

    return looked_up


def _put_in_place(cell: Cell, partition: Partition, commit: Commit) -> None:
    cell.entries.under_way |= cell.entries.changed
    cell.entries.changed = {}
    changes, (key, value) = cell.entries.under_way, formats.encoded(commit)
    batch, tenure = partition.open[0], partition.tenure
    assert tenure is not None
    records = Outputs([*(STATE + each for each in changes), key], [*changes.values(), value])
    batch.data = cell.encode(records, batch.max_timestamp_ms)
    batch.payload, batch.record_count = records, len(records.keys)
    cell.entries.count_under_way = len(changes)
    batch.stamp(batch.identity, batch.first_sequence)
    tenure.next_sequence = batch.end_sequence


def _at_once_goodbye(real: Any) -> Any:
    """In the last commit, though something is held there that is not sent yet."""

    def append(cell: Holding, entries: Sequence[Entry], timestamp_ms: int, *changes: dict[bytes, bytes | None]) -> None:
        if cell.wants_to_leave and isinstance(entries[-1], Commit):
            entries = [*entries, Goodbye(nonce=cell.holder.nonce)]
        real(cell, entries, timestamp_ms, *changes)

    return append


# --- outputs


def _under_the_fence(real: Any) -> Any:
    def resume(cell: Holding, place: Place) -> None:
        with patch("oncelog.flow.holding.Identity", lambda pid, _: Identity(pid, cell.fence[1])):
            real(cell, place)

    return resume


def _all_of_them(_: Any) -> Any:
    """What was asked about counts as known, whatever the answer is, and whoever was here before."""

    class Kept(dict[Place, int]):
        def clear(self) -> None: ...

    def recalled(cell: Cell, last_ms: Mapping[Place, int], now: Now) -> None:
        if cell.recalled_at is not None:
            cell.known_at_ms = Kept.fromkeys(cell.places, cell.recalled_at.monotonic_ms)

    return recalled


def _in_company(real: Any) -> Any:
    def init(tenure: Tenure, *about: Any, **more: Any) -> None:
        real(tenure, *about, **more)
        tenure.proven_timestamp_ms = 1 << 62

    return init


def _no_clock(real: Any) -> Any:
    """Journal batches carry the time of their sending, and nobody looks at how old is what they rely upon."""

    def until(cell: Cell, action: Produce) -> Produce:
        return action if action.batches[0].place == JOURNAL else real(cell, action)

    return until


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

    def take_over(cell: Holding, *about: Any) -> None:
        due = cell.journal.next_offset - _claims.get(cell.journal, 0)
        resume = cell.sender.resume

        def resumed(place: Place, identity: Identity, _: int, *more: Any, **named: Any) -> None:
            resume(place, identity, due, *more, **named)

        with patch.object(cell.sender, "resume", resumed):
            real(cell, *about)

    return take_over


def _at_once(real: Any) -> Any:
    """What is held is sent like all else, and stands in the commit beside it."""

    def run(cell: Cell, *about: Any) -> bool:
        before = len(cell.held)
        is_full: bool = real(cell, *about)
        for place, outputs in cell.held[before:]:
            cell.send(place, outputs)
        return is_full

    return run


def _but_what_is_held(real: Any) -> Any:
    return lambda cell, _, told: real(cell, (), told)


def _untold(real: Any) -> Any:
    """What follows from a commit is left to the one who made it."""

    def restore(cell: Holding, *about: Any) -> Event | None:
        cell.journal.changes = {}
        event: Event | None = real(cell, *about)
        return event

    return restore


def _sent_along(real: Any) -> Any:
    def commit(cell: Holding) -> Event:
        event: Event = real(cell)
        cell.send_from_commit(cell.held_under_way, cell.to_tell)
        cell.held_under_way, cell.to_tell = [], {}
        return event

    return commit


PLANNED: Final = Rules(has_plan=True)
NO_FENCE_RAISED: Final = (Journal, "due_epoch", lambda _: property(lambda journal: 0))

MUTANTS: Final = (
    Mutant(
        "no catch-up at the take-over",
        PLANNED,
        ((table.TABLE[State.CATCHING_UP], Event.READ, lambda row: (_forget_what_came_between(row), row[1])),),
    ),
    Mutant(
        "what was read ahead of the take-over taken for the read-back",
        PLANNED,
        ((table.TABLE[State.CATCHING_UP], Event.READ, lambda row: (_whatever_was_read(row[0]), row[1])),),
    ),
    Mutant("goodbye before what a commit holds is sent", Rules(asks=True), ((Holding, "append", _at_once_goodbye),)),
    Mutant("the same key for all claims", PLANNED, ((formats, "own_key_of", _one_key_for_all_claims),)),
    Mutant(
        "the chain of journal pids in no one record",
        PLANNED,
        ((Journal, "_learn_the_writers", _one_successor_after_the_other),),
    ),
    Mutant(
        "work under the last epoch of a journal pid",
        PLANNED,
        ((table.TABLE[State.CATCHING_UP], Event.SUCCESSOR, lambda _: table.TABLE[State.CATCHING_UP][Event.OWN]),),
    ),
    Mutant(
        "a journal pid after the other without a name of the next one",
        PLANNED,
        ((table.TABLE[State.SUCCEEDING], Event.GRANTED, lambda row: (_names_no_successor(row[0]), row[1])),),
    ),
    Mutant("no look for gaps in what a copy is joined with", PLAIN, ((Journal, "read", _always_joins),), 600),
    Mutant("a commit before the acknowledgements", PLAIN, ((Holding, "is_drained", _positions_at_the_send),)),
    Mutant("a commit in two batches", PLAIN, ((Holding, "append", _two_batches), CUT_IN_TWO)),
    Mutant("positions first", PLAIN, ((Holding, "append", _positions_first), CUT_IN_TWO)),
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
        ((Cell, "_run", _at_once), (Holding, "send_from_commit", _but_what_is_held)),
    ),
    Mutant(
        "chance sent before its commit is acknowledged",
        Rules(asks=True),
        (
            (table.TABLE[State.DRAINING], Event.PLANNED, lambda row: (row[0], State.WORKING)),
            (table.TABLE[State.DRAINING], Event.DRAINED, lambda row: (_sent_along(row[0]), row[1])),
        ),
    ),
    Mutant(
        "a restore tells nothing of its commit",
        Rules(asks=True),
        ((table.TABLE[State.CATCHING_UP], Event.OWN, lambda row: (_untold(row[0]), row[1])),),
    ),
    Mutant("known to brokers that forgot it", PLAIN, ((Cell, "recalled", _all_of_them),)),
    Mutant("the epoch of the outputs raised", PLAIN, ((Holding, "resume_output", _under_the_fence),)),
    Mutant("no look into the log", Rules(looks_into_the_log=False)),
    Mutant("the first batch not alone", PLAIN, ((Tenure, "__init__", _in_company),)),
    Mutant(
        "no clock in journal batches",
        Rules(refuses_old_batches=False),
        ((Cell, "_until", _no_clock), (Holding, "is_proof_old", lambda _: False)),
    ),
    Mutant("what waited for long is sent", PLANNED, ((Cell, "_until", lambda _: lambda cell, action: action),), 1_500),
    Mutant("reconnects by itself", Rules(connects_and_checks=False), (), 200),
    Mutant("old timestamps", Rules(output_age_ms=FORGET_MS)),
    Mutant("no read-back", PLANNED, ((actions, "is_own", _any_stands_there),)),
    Mutant(
        "no fence",
        PLANNED,
        (
            NO_FENCE_RAISED,
            (Journal, "read", _counts_claims),
            (table.TABLE[State.READING], Event.FREE, lambda row: (_behind_the_last(row[0]), row[1])),
        ),
    ),
)
