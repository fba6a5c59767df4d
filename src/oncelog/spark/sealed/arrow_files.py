"""Sealed rows as Arrow files in a folder that every machine sees: tasks write and read them, past the JVM."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from oncelog.spark.sealed import tasks
from oncelog.spark.sealed.local import LocalStorage
from oncelog.spark.sealed.manifest import Manifest, SealedError, SealedFile

FEW_BYTES: Final = 1 << 20


class ArrowFiles:
    layout: Final = "arrow"

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage

    def write(self, frame: Any, folder: str) -> tuple[SealedFile, ...]:
        place = self._storage.where(folder)
        frame.write.format("oncelog").mode("append").option(tasks.FOLDER, place).save()
        return joined(place, self.listed(folder))

    def listed(self, folder: str) -> tuple[SealedFile, ...]:
        """The files that Spark committed; those of failed attempts lie beside them."""
        listing = os.path.join(self._storage.where(folder), tasks.LISTING)
        try:
            with open(listing, encoding="ascii") as file:
                return tuple(SealedFile(**each) for each in json.load(file))
        except FileNotFoundError:
            raise SealedError(_unseen(listing)) from None

    def advance(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def check(self, manifest: Manifest) -> None:
        place = self._storage.where(manifest.folder)
        for file in manifest.files:
            path = os.path.join(place, file.name)
            try:
                size_bytes = os.path.getsize(path)
            except FileNotFoundError:
                raise SealedError(_unseen(path)) from None
            if size_bytes != file.size_bytes:
                raise SealedError(
                    f"{path} has {size_bytes} bytes, and the manifest of batch {manifest.batch} says "
                    f"{file.size_bytes}: nothing of the batch is sent until the file is brought back"
                )

    def few(self, manifest: Manifest) -> Iterable[pa.RecordBatch] | None:
        """The rows of a batch that is one small file, or none at all; None for a batch that needs tasks."""
        if not manifest.files:
            return ()
        (file, *more) = manifest.files
        if more or file.size_bytes > FEW_BYTES:
            return None
        return tasks.read_file(os.path.join(self._storage.where(manifest.folder), file.name), file.rows)

    @contextmanager
    def to_send(self, frame: Any, manifest: Manifest) -> Iterator[Any]:
        """A frame with one task for each file, planned within the context."""
        count = len(manifest.files)
        yield frame.sparkSession.range(0, count, 1, count)

    def options(self, manifest: Manifest) -> dict[str, str]:
        """Further options for these tasks."""
        return {tasks.PLACE: self._storage.where(manifest.folder)}


def joined(place: str, files: tuple[SealedFile, ...]) -> tuple[SealedFile, ...]:
    """Few rows in one file, and so in one lane: two hundred lanes of a row each would be two hundred producers."""
    if len(files) < 2 or sum(file.size_bytes for file in files) > FEW_BYTES:
        return files
    batches = (batch for file in files for batch in tasks.read_file(os.path.join(place, file.name), file.rows))
    one = tasks.write_file(place, 0, batches)
    assert one is not None, "files without rows are not listed"
    return (one,)


def _unseen(path: str) -> str:
    return (
        f"{path} was written by a task and is not there: the path must be one that all machines of the cluster see, "
        "such as a mounted share, and nobody else may remove files from it"
    )
