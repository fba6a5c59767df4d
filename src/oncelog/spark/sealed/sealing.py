"""`writeStream.foreachBatch(oncelog.spark.sealed(path=..., topic=...))`: what a user sees of the sealed sink."""

import os
import uuid
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import NullType

from oncelog.spark.option import BadOption
from oncelog.spark.options import sink_options
from oncelog.spark.sealed.batch import Sealing
from oncelog.spark.sealed.file_sending import SparkLanes
from oncelog.spark.sealed.manifest import Owner, SealedError
from oncelog.spark.sealed.surroundings import planned_by, query_of, run_of, storage_of
from oncelog.spark.sink.columns import check_columns
from oncelog.spark.sink.option_checking import lane_properties

_given: Final[dict[str, tuple[str, int]]] = {}  # the run and its last batch, by what only one frame of it may use


class Sealed:
    """Called with each batch's frame and number. Until then it holds options alone: Connect sends it to a server."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self.path = path
        self._options = dict(options)
        self._topic = sink_options(options).topic
        self._sealing: Sealing | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sealing": None}

    def __call__(self, frame: Any, batch: int) -> None:
        frame = _narrowed(frame, check_columns(frame.schema, self._topic))
        query, run = query_of(frame), run_of(frame)
        if self._sealing is None or self._sealing.owner.query != query:
            self._sealing = self._begin(frame, query)
        if run is not None:
            self._check_first(self._sealing, run, batch)
        self._sealing.run(frame, batch, planned_by(frame, query, batch))

    def _check_first(self, sealing: Sealing, run: str, batch: int) -> None:
        """A second frame of a batch would be taken for the first one that is run again, and dropped."""
        servers = sink_options(self._options).client["bootstrap.servers"]
        used = (f"path={sealing.storage.where('')!r}", f"sink {sealing.owner.sink!r} at {servers}")
        for each in used:
            if _given.get(each) == (run, batch):
                raise SealedError(
                    f"batch {batch} was given to a sealed sink with {each} before, by the same run of the query: this "
                    "frame is not written. Leave the first sealed(...) as it is, and give the other one a path and a "
                    "`sink.name` of its own"
                )
        _given.update(dict.fromkeys(used, (run, batch)))

    def _begin(self, frame: Any, query: str) -> Sealing:
        owner = Owner(query=query, sink=sink_options(self._options).sink_name or query)
        storage, rows = storage_of(frame, self.path)
        return Sealing(
            storage=storage,
            rows=rows,
            lanes=SparkLanes(self._options, owner, rows),
            owner=owner,
            unique=lambda: uuid.uuid4().hex,
        )


def sealed(path: str | os.PathLike[str], topic: str | None = None, **options: Any) -> Sealed:
    """A sink for queries whose batches do not repeat: for `writeStream.foreachBatch`.

    `path` is a folder of this query's own, on storage that all machines see. `options` are those of the direct sink,
    given as `**{"kafka.bootstrap.servers": ...}`.
    """
    path = os.fspath(path) if path is not None else ""
    if not path.strip():
        raise BadOption("a sealed sink needs a path: sealed(path=..., topic=...), a folder of this query's own")
    given = {name: _text(value) for name, value in options.items() if value is not None}
    if topic is not None:
        given["topic"] = topic
    read = sink_options(given)
    lane_properties(read)  # refuses what would not be exactly once
    if read.transactional_batches:
        raise BadOption(
            "transactional.batches needs no files, because what a batch left half written is never seen: use "
            "writeStream.format('oncelog'), for any query"
        )
    return Sealed(path.strip(), given)


def _narrowed(frame: Any, columns: tuple[str, ...]) -> Any:
    """Columns that are not sent are not sealed; nor are columns of nulls alone, which not every format can hold."""
    kept = [
        field.name
        for field in frame.schema.fields
        if field.name.lower() in columns and not isinstance(field.dataType, NullType)
    ]
    return frame if kept == frame.columns else frame.select(*kept)


def _text(value: Any) -> str:
    """The value as Spark writes options: True is true."""
    return str(value).lower() if isinstance(value, bool) else str(value)
