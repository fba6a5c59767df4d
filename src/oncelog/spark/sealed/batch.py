"""One batch of a sealed sink, step by step.

What a query yields is written to files once, and the manifest that names them is published by the first run that comes.
From then on the batch is those files: a replay sends them again, whatever the query yields this time. So rows need not
repeat, only files do, and the rules of the direct sink, which ask for rows that repeat, hold.

Knows neither Spark nor a file system: `Rows`, `Lanes` and `Storage` are its doors, and tests stand behind them with
crashes between any two steps.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from oncelog.spark.sealed import milestones
from oncelog.spark.sealed.manifest import (
    OWNER,
    Manifest,
    Owner,
    SealedError,
    SealedFile,
    folder_name,
    is_foreign,
    manifest_name,
    outdated,
)
from oncelog.spark.sealed.storage import Storage
from oncelog.spark.sink.milestones import reached

_log: Final = logging.getLogger("oncelog.spark")


class Rows(Protocol):
    """A frame's way into files."""

    @property
    def layout(self) -> str: ...

    def write(self, frame: Any, folder: str) -> tuple[SealedFile, ...]:
        """Run the frame, once, into files of this folder; those with rows, in the order of the frame's partitions."""
        ...

    def advance(self, frame: Any) -> None:
        """Run the frame and keep nothing. Spark expects it of every batch, so that the state of the query goes on."""
        ...

    def check(self, manifest: Manifest) -> None:
        """SealedError where a file of it is not there, or not as it was written."""
        ...


class Lanes(Protocol):
    def is_saved(self, batch: int) -> bool:
        """Whether this is the batch that was saved last. Refuses one that cannot be its turn."""
        ...

    def send(self, frame: Any, manifest: Manifest) -> None:
        """Lane i sends file i, by the rules of the direct sink, and all lanes are saved."""
        ...


@dataclass(slots=True, kw_only=True)
class Sealing:
    storage: Storage
    rows: Rows
    lanes: Lanes
    owner: Owner
    unique: Callable[[], str]
    _is_ours: bool = False
    _done: int | None = field(default=None)  # the batch that this object was through with last

    def run(self, frame: Any, batch: int, planned: str = "") -> None:
        """`planned`: what tells the plan of this batch from any other, where that is known."""
        self._take_path()
        names = self.storage.names()
        manifest = self._manifest(batch) if manifest_name(batch) in names else None
        self._remove_outdated(names, batch, manifest)
        if manifest is None:
            manifest = self._overlooked(batch)
        if manifest is None:
            reached(milestones.SEALING, batch=batch)
            manifest = self._seal(frame, batch, planned)
        else:
            self._check_plan(manifest, planned)
            self.rows.check(manifest)
            self.rows.advance(frame)
            reached(milestones.ADVANCED, batch=batch)
        reached(milestones.SENDING, batch=batch)
        self.lanes.send(frame, manifest)
        self._done = batch
        reached(milestones.SAVED, batch=batch)

    def _take_path(self) -> None:
        """A path belongs to the query that came first: another one's manifests would be taken for its own."""
        if self._is_ours:
            return
        known = self.storage.read(OWNER)
        if known is None:
            foreign = sorted(filter(is_foreign, self.storage.names()), key=lambda name: (name[:1] == ".", name))
            if foreign:
                raise SealedError(
                    f"path={self.storage.where('')!r} holds {foreign[0]!r}, which is not of a sealed sink: give it a "
                    "folder of its own, in which nothing else lies"
                )
            if not self.storage.create(OWNER, self.owner.to_bytes()):
                known = self.storage.read(OWNER)
        if known is not None:
            self._check_owner(Owner.from_bytes(known, self.storage.where(OWNER)))
        self._is_ours = True

    def _check_owner(self, found: Owner) -> None:
        if found == self.owner:
            return
        raise SealedError(
            f"path={self.storage.where('')!r} belongs to query {found.query!r} with the sink {found.sink!r}, and this "
            f"is query {self.owner.query!r} with the sink {self.owner.sink!r}: give each query a path of its own. If "
            "this is the same query with a new checkpoint, give it a new path and a new 'sink.name' as well"
        )

    def _manifest(self, batch: int) -> Manifest | None:
        name = manifest_name(batch)
        data = self.storage.read(name)
        if data is None:
            return None
        manifest = Manifest.from_bytes(data, self.storage.where(name))
        if manifest.batch != batch or manifest.query != self.owner.query:
            raise SealedError(
                f"{self.storage.where(name)} is the manifest of batch {manifest.batch} of query {manifest.query!r}, "
                f"and this is batch {batch} of query {self.owner.query!r}: somebody moved files. Nothing was written"
            )
        if manifest.layout != self.rows.layout:
            raise SealedError(
                f"batch {batch} was sealed as {manifest.layout} files and cannot be read as {self.rows.layout} files: "
                f"spell the path as when it was sealed, with the same scheme"
            )
        return manifest

    def _check_plan(self, manifest: Manifest, planned: str) -> None:
        """The rows of one plan of a batch are never taken for those of another plan."""
        if planned and manifest.planned and planned != manifest.planned:
            raise SealedError(
                f"batch {manifest.batch} was sealed, and Spark has planned it anew since: an older copy of the "
                "checkpoint was put back, or a file of its `offsets` was removed. The sealed rows would be sent in the "
                "place of those of the new plan, and what came since would be lost. Nothing was written: go on from a "
                "checkpoint that has the batch as it was sealed, or begin with a new checkpoint, path, `sink.name` and "
                "output topic"
            )

    def _remove_outdated(self, names: list[str], batch: int, manifest: Manifest | None) -> None:
        published = {} if manifest is None else {batch: manifest.folder}
        if manifest_name(batch - 1) in names:
            before = self._manifest(batch - 1)
            if before is not None:
                published[batch - 1] = before.folder
        for name in outdated(names, batch, published):
            reached(milestones.REMOVING, batch=batch, name=name)
            self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            self.storage.remove(name)
        except OSError as error:
            # It only takes room, and the next batch tries again.
            _log.warning("%s is not needed any more and cannot be removed: %s", self.storage.where(name), error)

    def _overlooked(self, batch: int) -> Manifest | None:
        """The manifest of a saved batch. Made anew it would have other rows, beside those of its first run. So a saved
        batch has a manifest that another driver published a moment ago, or it is lost."""
        if self._done is not None and self._done == batch - 1:
            return None
        if not self.lanes.is_saved(batch):
            return None
        manifest = self._manifest(batch)
        if manifest is None:
            raise SealedError(
                f"batch {batch} of sink {self.owner.sink!r} is written, and there is no manifest of it in "
                f"{self.storage.where('')}: the path was emptied, or is another one than before. Bring it back: made "
                "anew, the batch would have other rows than were written"
            )
        return manifest

    def _seal(self, frame: Any, batch: int, planned: str) -> Manifest:
        folder = folder_name(batch, self.unique())
        try:
            files = self.rows.write(frame, folder)
            reached(milestones.WRITTEN, batch=batch, folder=folder)
            mine = Manifest(
                query=self.owner.query,
                batch=batch,
                folder=folder,
                layout=self.rows.layout,
                files=files,
                planned=planned,
            )
            self.rows.check(mine)
        except Exception:
            with suppress(Exception):  # what failed first is told
                self._remove(folder)  # unpublished, it would lie there until the batch is sealed: one more for each try
            raise
        self.storage.create(manifest_name(batch), mine.to_bytes())
        # Read back: what counts is what stands there, not what this driver believes to have written.
        published = self._manifest(batch)
        if published is None:
            raise SealedError(
                f"{self.storage.where(manifest_name(batch))} was published and is gone: somebody removes files from "
                "the path of a running query. Nothing was written"
            )
        reached(milestones.PUBLISHED, batch=batch, won=published == mine)
        if published != mine:
            self._check_plan(published, planned)
            _log.info("Another driver has sealed batch %s before this one: its files are sent", batch)
            self._remove(folder)
            self.rows.check(published)
        return published
