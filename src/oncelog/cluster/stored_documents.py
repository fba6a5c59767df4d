"""Users, rights and quotas where they are kept, changed while nobody serves them: so the first user comes to be.

In the data folder of a server that stands alone, or of a cluster on one machine, with the folder's lock held; or where
the brokers of a cluster agree, whether they are up or not.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.clock import SystemClock
from oncelog.cluster.file import TREE_FOLDER, prepare_folder
from oncelog.cluster.folder_lock import FolderLock
from oncelog.cluster.tree import ABSENT, Node, Outdated, Put, Tree
from oncelog.cluster.tree_store import TreeStore
from oncelog.log.disk import RealDisk
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import at_once
from oncelog.producers import ProducerMap
from oncelog.security import documents
from oncelog.security.documents import Change, Document, Kind
from oncelog.server.folders import METADATA_ID, Folders, owner_of
from oncelog.server.local_topics import METADATA_CONFIG, open_metadata
from oncelog.server.metadata_log import MetadataLog
from oncelog.server.names import METADATA_TOPIC

TRIES = 100  # each that fails is a change of somebody else that is made; a broker makes its own one by one


def change_in_folder(folder: str, kind: Kind, change: Change) -> Document:
    """The document after the change. Raises FolderInUse where a server runs, and what `change` and the start of a
    server raise."""
    lock = FolderLock(folder)
    try:
        if os.path.isdir(os.path.join(folder, TREE_FOLDER)):
            return asyncio.run(_change_in_store(os.path.join(folder, TREE_FOLDER), kind, change))
        return _change_in_log(folder, kind, change)
    finally:
        lock.release()


def _change_in_log(folder: str, kind: Kind, change: Change) -> Document:
    clock = SystemClock()
    with _metadata(folder, clock) as metadata:
        changed = change(metadata.documents[kind])
        if changed != metadata.documents[kind]:
            now = clock.now()
            metadata.put_document(kind, changed, now)
            at_once(metadata.making_durable(now))
        return changed


@contextmanager
def _metadata(folder: str, clock: SystemClock) -> Iterator[MetadataLog]:
    disk = RealDisk()
    prepare_folder(disk, folder)
    folders = Folders(disk, folder)

    def open_log() -> PartitionLog:
        path, owner = folders.path(METADATA_TOPIC, 0), owner_of(METADATA_ID, 0)
        return PartitionLog.open(
            disk, path, METADATA_CONFIG, ProducerMap(), clock.now(), topic=METADATA_TOPIC, owner=owner
        )

    metadata = open_metadata(folders, open_log)
    try:
        yield metadata
    finally:
        metadata.log.close()


async def _change_in_store(folder: str, kind: Kind, change: Change) -> Document:
    store = TreeStore.open(RealDisk(), folder, SystemClock())
    try:
        stored = store.nodes.get(f"/{kind}")
        node = None if stored is None else stored.node
        before, after = _changed(kind, node, change)
        if before != after:
            await store.change([_put(kind, node, after)], 0, lambda: True)
        return after
    finally:
        await store.close()


async def change_in_tree(tree: Tree, kind: Kind, change: Change) -> Document:
    """Raises TreeError."""
    for _ in range(TRIES):
        node = await tree.get(f"/{kind}")
        before, after = _changed(kind, node, change)
        if before != after:
            try:
                await tree.change(_put(kind, node, after))
            except Outdated:
                continue
        return after
    raise Outdated(f"/{kind}")


def _changed(kind: Kind, node: Node | None, change: Change) -> tuple[Document, Document]:
    before: Document = {} if node is None else documents.decode(kind, node.value)
    return before, change(before)


def _put(kind: Kind, node: Node | None, document: Document) -> Put:
    return Put(f"/{kind}", documents.encode(kind, document), ABSENT if node is None else node.version)
