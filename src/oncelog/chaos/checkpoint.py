"""The batches of a query, read from its checkpoint by somebody else: which one is under way.

Spark writes `offsets/N` before batch N runs and `commits/N` when it is over, each in one step.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Batches:
    begun: int = NONE  # the newest one
    committed: int = NONE

    @property
    def under_way(self) -> int:
        return self.begun if self.begun > self.committed else NONE


def batches(checkpoint: Path) -> Batches:
    """The commits first: what is committed meanwhile is then at most taken to be still under way."""
    committed = _newest(checkpoint / "commits")
    return Batches(begun=_newest(checkpoint / "offsets"), committed=committed)


def query_of(checkpoint: Path) -> str:
    """The query's id, which it keeps for as long as it has this checkpoint; empty before it has begun."""
    found = checkpoint / "metadata"
    return str(json.loads(found.read_text())["id"]) if found.exists() else ""


def is_committed(checkpoint: Path, batch: int) -> bool:
    return (checkpoint / "commits" / str(batch)).exists()


def messages_before(checkpoint: Path, batch: int, topic: str) -> int:
    """The number of messages of this topic, from its beginning, in this batch and in those before."""
    if batch == NONE:
        return 0
    # A line for the format, one for the batch itself, and one for each source.
    source = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
    return sum(json.loads(source)[topic].values())


def _newest(folder: Path) -> int:
    """The number of the newest file. Beside the files lie their checksums, and what is being written."""
    if not folder.is_dir():
        return NONE
    return max((int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()), default=NONE)
