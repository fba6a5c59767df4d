"""The files that one life of a cell writes. Used by one thread at a time, and by any.

The bytes of a file follow from its rows alone: a row group ends behind a number of rows, or of bytes, counted in steps
of rows, in whatever pieces they came.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from oncelog.flow.filing import hour_of
from oncelog.runner.storing.place import FilePlace, Unreachable, told

GROUP_ROWS: Final = 1 << 17
GROUP_BYTES: Final = 32 << 20
STEP_ROWS: Final = 1 << 10
MOST_HOURS: Final = 24  # that are looked at for a file, the newest; as many may be empty
COMPRESSION: Final = "zstd"


OFFSETS: Final = ("offset", "kafka_offset")


class Differs(Exception):
    """A file of this name holds something else."""


class _File:
    def __init__(self, path: str, schema: Any) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._group: list[Any] = []
        self._group_rows = self._group_bytes = 0

    def add(self, rows: Any) -> None:
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= STEP_ROWS:
            self._step(self._waiting_rows - self._waiting_rows % STEP_ROWS)

    def _step(self, whole: int) -> None:
        """Rows in whole steps go to the group."""
        table = pa.Table.from_batches(self._waiting, self._schema)
        for first in range(0, whole, STEP_ROWS):
            step = table.slice(first, min(STEP_ROWS, whole - first))
            self._group.append(step)
            self._group_rows += step.num_rows
            self._group_bytes += step.nbytes
            if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
                self._write()
        self._waiting = table.slice(whole).to_batches()
        self._waiting_rows -= whole

    def _write(self) -> None:
        if self._writer is None:
            repeating = _repeating(self._schema)
            self._writer = pq.ParquetWriter(self.path, self._schema, compression=COMPRESSION, use_dictionary=repeating)
        if self._group:
            self._writer.write_table(pa.concat_tables(self._group).combine_chunks(), row_group_size=GROUP_ROWS)
        self._group.clear()
        self._group_rows = self._group_bytes = 0

    def finish(self, about: Mapping[str, str]) -> None:
        if self._waiting_rows:
            self._step(self._waiting_rows)
        self._write()
        self._writer.add_key_value_metadata(dict(about))
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
        Path(self.path).unlink(missing_ok=True)


def _repeating(schema: Any) -> list[str]:
    """Columns that may have a dictionary: all but the offsets, none of which comes twice."""
    about = pa.BufferOutputStream()
    pq.write_metadata(schema, about)
    parquet = pq.read_metadata(pa.BufferReader(about.getvalue())).schema
    paths = [parquet.column(index).path for index in range(len(parquet))]
    return [path for path in paths if path not in OFFSETS]


class FileWriter:
    def __init__(self, place: FilePlace, owner: str, monotonic_ms: Callable[[], int]) -> None:
        """`owner`: the cell, by which leftovers are known."""
        self._place = place
        self._owner = owner
        self._monotonic_ms = monotonic_ms
        self._files: dict[str, _File] = {}
        self._lock = Lock()
        self._is_over = self._is_swept = self._is_checked = False
        self._at = ""  # what is written

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._lock:
            if self._is_over:
                raise Unreachable(f"{self._owner} is over")
            try:
                if not self._is_swept:
                    self._place.sweep(self._owner)
                    self._is_swept = True
                yield
            except (Unreachable, Differs):
                raise
            except self._place.failures as error:
                raise Unreachable(f"{self._place.where(self._at)} cannot be written: {told(error)}") from error

    def write(self, name: str, rows: Any) -> None:
        self._at = name
        with self._turn():
            if name not in self._files:
                self._check_columns(rows.schema)
                self._files[name] = _File(self._place.unfinished(self._owner), rows.schema)
            self._files[name].add(rows)

    def finish(self, about: Mapping[str, str], until_ms: int) -> None:
        """Raises Unreachable, where it may go well another time, or Differs."""
        with self._turn():
            for name, file in self._files.items():
                self._at = name
                file.finish(about)
                if self._monotonic_ms() >= until_ms:
                    raise Unreachable(f"{self._place.where(name)} was written for too long")
                if not self._place.publish(file.path, name):
                    self._compare(name, file, about)
            self._files.clear()

    def abandon(self) -> None:
        """Nothing more is written, and what is not finished goes."""
        with self._lock:
            self._is_over = True
            for file in self._files.values():
                file.abandon()
            self._files.clear()

    def _check_columns(self, schema: Any) -> None:
        """Against a file of the newest hour that has any."""
        place, self._is_checked, was_checked = self._place, True, self._is_checked
        hours = () if was_checked else sorted(each for each in place.folders() if hour_of(each) is not None)
        for name in (name for hour in hours[: -MOST_HOURS - 1 : -1] for name in place.files(hour)):
            there = self._columns_of(name)
            for field in schema if there is not None else ():
                if field.name in there.names and (before := there.field(field.name).type) != field.type:
                    raise Differs(
                        f"{place.where(name)} has the column {field.name} as {before}, and it would be {field.type} "
                        "now: readers cannot take both from one folder. Give the files of the changed flow a folder of "
                        "their own, or leave the type as it was"
                    )
            if there is not None:
                return

    def _columns_of(self, name: str) -> Any:
        """None where no flow has written it."""
        with self._place.open(name) as there:
            try:
                footer = pq.read_metadata(there)
            except pa.ArrowInvalid:
                return None
        return footer.schema.to_arrow_schema() if b"oncelog.flow" in (footer.metadata or {}) else None

    def _compare(self, name: str, file: _File, about: Mapping[str, str]) -> None:
        with self._place.open(name) as there:
            try:
                footer = pq.read_metadata(there)
            except pa.ArrowInvalid as error:
                raise Differs(
                    f"{self._place.where(name)} is there already and cannot be read as Parquet ({error}), so this "
                    "flow has not written it. Remove it, or give this flow a folder of its own"
                ) from error
        said = {key.decode(): value.decode() for key, value in (footer.metadata or {}).items()}
        found = {key: said.get(key) for key in about}
        if found == dict(about) and footer.num_rows == file.rows:
            return
        raise Differs(
            f"{self._place.where(name)} is there already with {footer.num_rows} rows of {found}, and it would have "
            f"{file.rows} rows of {dict(about)}: another flow, or another version of it, has written it. Give this one "
            "a folder of its own, or remove the file"
        )
