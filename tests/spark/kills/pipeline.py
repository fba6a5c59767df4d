"""One input, one output, one checkpoint: what is killed and started again until all is through, and is then counted."""

import itertools
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.lives.stored import Numbers, end_offsets, numbers
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.kills.audit import Audit, Expected, audit
from tests.spark.kills.inputs import expected_from, make_topics, write_values
from tests.spark.kills.queries import Query
from tests.waiting import until

_numbers = itertools.count()


class Pipeline:
    def __init__(
        self, folder: Path, server: ServerProcess, name: str, *, rows: int, partitions: int = 2, **query: object
    ) -> None:
        number = next(_numbers)
        self.server = server
        self.address = server.bootstrap_servers
        self.read, self.write = f"{name}-{number}-in", f"{name}-{number}-out"
        self._partitions = partitions
        self._counts = [0] * partitions
        self._starts = itertools.count()
        checkpoint = folder / f"checkpoint-{name}-{number}"
        self._query = replace(Query(self.address, self.read, self.write, str(checkpoint)), **query)  # type: ignore[arg-type]
        make_topics(self.address, {self.read: partitions, self.write: 3})
        self.more(rows)

    def query(self, **changes: object) -> Query:
        """Each time the next run: rows that differ between runs differ."""
        return replace(self._query, run=next(self._starts), **changes)  # type: ignore[arg-type]

    def more(self, rows: int, only: Collection[int] | None = None) -> None:
        """So many new integers in each of these partitions of the input, or shared among all of them."""
        into = range(self._partitions) if only is None else only
        each = rows if only is not None else rows // self._partitions
        for partition in into:
            first = self._counts[partition]
            values = np.arange(first, first + each, dtype=np.int64) * self._partitions + partition
            write_values(self.address, self.read, partition, values)
            self._counts[partition] += each

    def expected(self) -> Expected:
        return expected_from(self.address, self.read, self._query.middle)

    def audit(self) -> Audit:
        return audit(self.address, self.write, self.expected())

    def written(self) -> list[int]:
        """The end of each partition of the output."""
        return end_offsets(self.address, self.write)

    def columns(self) -> list[Numbers]:
        """What stands in each partition of the output."""
        return [numbers(self.address, self.write, partition) for partition in range(len(self.written()))]

    def await_forgotten(self) -> None:
        """Until the broker knows no producer of the output any more."""
        partitions = range(len(self.written()))
        with RawConnection(self.address) as connection:

            def known() -> list[object]:
                found = [connection.describe_producers(self.write, partition) for partition in partitions]
                return [producer for partition in found for producer in partition.active_producers]

            until(lambda: not known(), f"{self.server.name} to forget who wrote to {self.write}")
