"""Sealed rows as Arrow files in a folder that every machine sees: tasks write and read them, past the JVM."""

import json
import os
from typing import Any, Final

from oncelog.spark.sealed import tasks
from oncelog.spark.sealed.local import LocalStorage
from oncelog.spark.sealed.manifest import Manifest, SealedError, SealedFile


class ArrowFiles:
    layout: Final = "arrow"

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage

    def write(self, frame: Any, folder: str) -> tuple[SealedFile, ...]:
        place = self._storage.where(folder)
        frame.write.format("oncelog").mode("append").option(tasks.FOLDER, place).save()
        listing = os.path.join(place, tasks.LISTING)
        try:
            with open(listing, encoding="ascii") as file:
                told = json.load(file)
        except FileNotFoundError:
            raise SealedError(_unseen(listing)) from None
        return tuple(SealedFile(**each) for each in told)

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

    def to_send(self, frame: Any, manifest: Manifest) -> Any:
        count = len(manifest.files)
        return frame.sparkSession.range(0, count, 1, count)

    def options(self, manifest: Manifest) -> dict[str, str]:
        return {tasks.PLACE: self._storage.where(manifest.folder)}


def _unseen(path: str) -> str:
    return (
        f"{path} was written by a task and is not there: the path must be one that all machines of the cluster see, "
        "such as a mounted share, and nobody else may remove files from it"
    )
