"""One run: a server, and the contestants that have been needed so far."""

import itertools
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.spark_contestant import EMPTY, Contestant
from bench.spark_world import Shape, World


class Run:
    def __init__(self, folder: Path, world: World, *, scale: float, memory: str = "2g") -> None:
        self.folder = folder
        self.world = world
        self._scale = scale
        self._memory = memory
        self._stack = ExitStack()
        self._contestants: dict[str, Contestant] = {}
        self._numbers = itertools.count()
        self._turns = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def contestant(self, kind: str) -> Contestant:
        """Started when it is first asked for, and kept."""
        if kind not in self._contestants:
            made = Contestant(kind, self.folder / kind, memory=self._memory)
            self._contestants[kind] = self._stack.enter_context(made)
        return self._contestants[kind]

    def new_folder(self, kind: str) -> str:
        return str(self.folder / f"{kind}-{next(self._numbers)}")

    def turn(self) -> int:
        """Counts up."""
        return next(self._turns)

    def scaled(self, shape: Shape) -> Shape:
        return replace(shape, records=max(shape.partitions, int(shape.records * self._scale)))

    def check_written(self, kind: str, topic: str, rows: int) -> None:
        """A copy that lost rows, or wrote some twice, is no figure."""
        if kind == EMPTY:
            return
        found = sum(self.world.end_offsets(topic).values())
        if found != rows:
            raise RuntimeError(f"{kind} wrote {found} records of {rows}")
