"""The part of a flow's cells that one process holds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from oncelog.flow.formats import Tenancy

JournalEnds = Mapping[str, Mapping[int, int]]  # by stage and cell


@dataclass(frozen=True)
class Share:
    """The cells of a flow that this process holds, while others hold the others."""

    cells: Mapping[str, Collection[int]]  # by stage
    tenancy: Tenancy
    yields_until_ms: int = 0  # those who held them before may commit and say goodbye until then
    follows_all: bool = False  # for the progress of all cells
    stopped: Collection[tuple[str, int]] = ()  # cells that are held nowhere, until a person has looked at them
    start: str = ""  # that it is part of: where the register says that this was stopped, it stops
    began: JournalEnds = field(default_factory=dict)  # when that start was made, where it was before now
