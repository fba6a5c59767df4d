"""Outputs that do not repeat (a service answered, an exception has its own words): they wait in the commit, and are
sent from there. So those who repeat the work send what was there first.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.flow.description import COMMIT_OVERHEAD_BYTES
from oncelog.flow.formats import Held
from oncelog.flow.messages import Outputs, size_of
from oncelog.slots import Place

RECORD_BYTES: Final = 400  # beside the columns: names, numbers, brackets
CELL_BYTES: Final = 7  # quotes, a comma, and what base64 fills up with


def held_of(number: int, index: int, place: Place, outputs: Outputs) -> Held:
    headers = {name.decode(): list(column) for name, column in outputs.headers.items()}
    return Held(
        number=number,
        index=index,
        topic=place.topic,
        partition=place.partition,
        keys=list(outputs.keys),
        values=list(outputs.values),
        headers=headers,
    )


def outputs_of(held: Held) -> tuple[Place, Outputs]:
    more = {name.encode(): column for name, column in held.headers.items()}
    return Place(held.topic, held.partition), Outputs(held.keys, held.values, more=more)


def held_size(outputs: Outputs) -> int:
    """The bytes of a commit that they take, at most."""
    columns: list[Sequence[bytes | None]] = [outputs.keys, outputs.values, *outputs.headers.values()]
    cells = sum(map(size_of, columns))
    return COMMIT_OVERHEAD_BYTES + RECORD_BYTES + cells * 4 // 3 + CELL_BYTES * len(columns) * len(outputs.keys)
