"""Cells, engines and topics that break one rule each, and the histories that notice it. The model would find nothing in
a room that does nothing, so each of these must be caught, by name."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from oncelog.flow import actions, formats, table
from oncelog.flow.formats import Claim, Entry, TakeOver
from oncelog.flow.holding import Holding
from oncelog.flow.journal import Journal
from oncelog.flow.messages import JournalBatch
from oncelog.flow.states import Event, State
from oncelog.slots import Identity, Place
from tests.flow.cluster import FORGET_MS, Rules

PLAIN: Final = Rules()
Change = Callable[[Any], Any]  # what stands there -> what stands there instead


@dataclass(frozen=True)
class Mutant:
    what: str
    rules: Rules = PLAIN
    changes: tuple[tuple[Any, Any, Change], ...] = ()

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
            for each in patches:
                each.stop()


def _changed(where: Any, name: Any, change: Change) -> Any:
    if isinstance(where, dict):
        return patch.dict(where, {name: change(where[name])})
    return patch.object(where, name, change(getattr(where, name)))


# --- the journal


def _forget_what_came_between(_: Any) -> Any:
    """As it stood when it was first read, but for the fence."""

    def judge(cell: Holding, batches: Sequence[JournalBatch]) -> Event:
        own = next((batch for batch in batches if actions.is_own(cell, batch)), None)
        if own is None:
            return Event.OTHERS
        (entry,) = (formats.decoded(each.key or b"", each.value or b"") for each in own.records)
        cell.journal.fence = cell.fence
        return Event.OWN if getattr(entry, "successor", None) is None else Event.SUCCESSOR

    return judge


def _one_key_for_all_claims(real: Change) -> Change:
    return lambda entry: formats.CLAIM if isinstance(entry, Claim) else real(entry)


def _one_successor_after_the_other(_: Change) -> Any:
    """The whole chain is in no record."""

    def learn(journal: Journal, entries: list[list[Entry]]) -> None:
        for entry in (each for found in entries for each in found):
            if isinstance(entry, Claim) and journal.claim is None:
                journal.claim, journal.chain = entry, [entry.journal_pid]
            elif isinstance(entry, TakeOver) and entry.successor is not None and entry.successor not in journal.chain:
                journal.chain.append(entry.successor)

    return learn


# --- commits


def _positions_at_the_send(_: Any) -> Any:
    return property(lambda cell: not cell.comparing and cell.under_way is None)


# --- outputs


def _under_the_fence(real: Any) -> Any:
    def resume(cell: Holding, place: Place) -> None:
        with patch("oncelog.flow.holding.Identity", lambda pid, _: Identity(pid, cell.fence[1])):
            real(cell, place)

    return resume


NO_FENCE_RAISED: Final = (Journal, "due_epoch", lambda _: property(lambda journal: max(0, journal.fence[1])))

MUTANTS: Final = (
    Mutant(
        "no catch-up at the take-over",
        changes=((table.TABLE[State.CATCHING_UP], Event.READ, lambda row: (_forget_what_came_between(row), row[1])),),
    ),
    Mutant("the same key for all claims", changes=((formats, "key_of", _one_key_for_all_claims),)),
    Mutant(
        "the chain of journal pids in no one record",
        changes=((Journal, "_learn_the_writers", _one_successor_after_the_other),),
    ),
    Mutant("a commit before the acknowledgements", changes=((Holding, "is_drained", _positions_at_the_send),)),
    Mutant("the epoch of the outputs raised", changes=((Holding, "resume_output", _under_the_fence),)),
    Mutant("no look into the log", Rules(looks_into_the_log=False)),
    Mutant("old timestamps", Rules(output_age_ms=FORGET_MS)),
    Mutant("no fence", changes=(NO_FENCE_RAISED,)),
)
