"""An OffsetCommit's entry for one partition."""

from typing import NamedTuple


class Entry(NamedTuple):
    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
