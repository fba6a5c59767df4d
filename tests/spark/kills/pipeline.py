"""One input, one output, one checkpoint: what is killed and started again until all is through, and is then counted."""

import itertools
from dataclasses import replace
from pathlib import Path

from tests.peers.server_process import ServerProcess
from tests.spark.kills.audit import Audit, Expected, audit, end_offsets
from tests.spark.kills.inputs import expected_from, make_topics, write_integers
from tests.spark.kills.queries import Query

_numbers = itertools.count()


class Pipeline:
    def __init__(
        self, folder: Path, server: ServerProcess, name: str, *, rows: int, partitions: int = 2, **query: object
    ) -> None:
        number = next(_numbers)
        self.server = server
        self.address = server.bootstrap_servers
        self.read, self.write = f"{name}-{number}-in", f"{name}-{number}-out"
        self.rows = 0
        self._partitions = partitions
        self._starts = itertools.count()
        checkpoint = folder / f"checkpoint-{name}-{number}"
        self._query = replace(Query(self.address, self.read, self.write, str(checkpoint)), **query)  # type: ignore[arg-type]
        make_topics(self.address, {self.read: partitions, self.write: 3})
        self.more(rows)

    def query(self, **changes: object) -> Query:
        """Each time the next run: rows that differ between runs differ."""
        return replace(self._query, run=next(self._starts), **changes)  # type: ignore[arg-type]

    def more(self, rows: int) -> None:
        write_integers(self.address, self.read, self._partitions, self.rows, self.rows + rows)
        self.rows += rows

    def expected(self) -> Expected:
        return expected_from(self.address, self.read, self._query.middle)

    def audit(self) -> Audit:
        return audit(self.address, self.write, self.expected())

    def written(self) -> list[int]:
        """The end of each partition of the output."""
        return end_offsets(self.address, self.write)
