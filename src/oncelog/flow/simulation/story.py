"""The story of a run, a line for each event, for people."""

from collections.abc import Iterable
from typing import Final

from oncelog.error_codes import TEXTS
from oncelog.flow.formats import STATE, Claim, Commit, Goodbye, Held, TakeOver, decoded
from oncelog.flow.simulation.topics import Wire
from oncelog.slots.replay import Output

MOST_SHOWN: Final = 5  # records of a batch, bytes of a value
WIDEST: Final = 60


def told(wire: Wire, code: int, offset: int) -> str:
    """A batch that arrived in a partition."""
    place, (pid, _, _) = f"{wire.place.topic}-{wire.place.partition}", wire.identity
    if _is_journal(wire):
        what = "; ".join(_entries(wire))
    else:
        first = wire.first_sequence
        slots = f"slot {first}" if wire.records == 1 else f"slots {first} to {first + wire.records - 1}"
        what = f"{slots} of {place}: {shown(wire.outputs.each())}"
    if code:
        return f"{what}: refused, {TEXTS.get(code, code)}"
    return f"{what} (offset {offset})" if pid >= 0 and not _is_journal(wire) else what


def _is_journal(wire: Wire) -> bool:
    return not wire.outputs.headers


def _entries(wire: Wire) -> Iterable[str]:
    changed = sum((key or b"")[:1] == STATE for key in wire.outputs.keys)
    for key, value in zip(wire.outputs.keys, wire.outputs.values, strict=True):
        if not key or key[:1] == STATE or value is None:
            continue
        match decoded(key, value):
            case Claim() as claim:
                yield f"claims the cell for producers {claim.journal_pid} (journal) and {claim.output_pid} (outputs)"
            case TakeOver():
                yield f"takes over under epoch {wire.identity.generation}"
            case Commit() as commit:
                read = ", ".join(str(each.next_offset) for each in commit.inputs)
                yield f"commit {commit.number}: input read up to {read}, {changed} state entries changed"
                if commit.plan is not None:
                    ranges = ", ".join(
                        f"{each.first} to {each.end - 1} of input {each.input}" for each in commit.plan.ranges
                    )
                    yield f"next come {ranges or 'no records'}"
            case Held() as held:
                yield f"{len(held.keys)} outputs for {held.topic}-{held.partition} are held"
            case Goodbye():
                yield "goodbye"


def shown(rows: Iterable[Output]) -> str:
    every = [f"{_cell(row.key)} {_cell(row.value)}" for row in rows]
    left = len(every) - MOST_SHOWN
    return ", ".join(every[:MOST_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _cell(value: bytes | None) -> str:
    if value is None:
        return "nothing"
    text = value.decode(errors="backslashreplace")
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
