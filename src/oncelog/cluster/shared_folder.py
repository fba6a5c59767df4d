"""A data folder that several workers share, as their parent keeps it, and as each of them finds it.

It is the folder of a server that stands alone, and one of those may have it before and afterwards. What workers agree
on is therefore kept where such a server looks for it: topics in its log of topics, pids in `server.meta`, epochs in
the partitions' own folders. The rest (who is up, who has which partition) lasts as long as the parent.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from oncelog.clock import Clock
from oncelog.cluster.documents import PIDS, TOPICS, TopicDocument, decode_topic, encode_topic
from oncelog.cluster.file import FileCluster, periods_of, read_state
from oncelog.cluster.tree import Node, Refused
from oncelog.cluster.tree_nodes import Stored, Writes
from oncelog.log.disk import Disk
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import at_once
from oncelog.producers import ProducerMap
from oncelog.producers.leases import GrantHistory
from oncelog.replication.leadership import NOBODY
from oncelog.replication.sharing import beginning, is_deleted, shared_out
from oncelog.security import documents
from oncelog.security.documents import Kind
from oncelog.server.errors import KafkaError
from oncelog.server.folders import METADATA_ID, Folders, owner_of
from oncelog.server.local_topics import METADATA_CONFIG, check_there, open_metadata, what_is_in_the_way
from oncelog.server.metadata_log import Definition, MetadataLog
from oncelog.server.names import METADATA_TOPIC
from oncelog.server.ports import ClusterStorageError, PidKind
from oncelog.server.settings import Settings

logger = logging.getLogger(__name__)

DOCUMENTS = frozenset(Kind)


class SharedFolder:
    """The nodes of the workers' tree, as they are on the disk."""

    def __init__(self, settings: Settings, disk: Disk, clock: Clock, workers: Sequence[int]) -> None:
        """Open it with the folder's lock held. Raises what a server that stands alone raises."""
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self.own = FileCluster(
            disk,
            settings.log_dir,
            clock,
            node_id=settings.node_id,
            lease_lifetime_ms=settings.oncelog_lease_lifetime_ms,
            boot_id=disk.boot_id(),
        )
        self._folders = Folders(disk, settings.log_dir)
        self._metadata: MetadataLog = open_metadata(self._folders, self._open_metadata_log)
        self._staged: list[Writes] = []
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="oncelog-tree")
        for definition in self._metadata.definitions.values():
            if not definition.is_deleting:
                for index in range(definition.partitions):
                    check_there(self._folders, definition.name, index)

    @property
    def failure(self) -> str:
        return self._metadata.log.offline or ""

    @property
    def changed_settings(self) -> dict[str, str]:
        """The settings that a server that stood alone was told at run time."""
        return dict(self._metadata.broker_configs)

    def load(self) -> Iterator[tuple[str, Stored | None]]:
        for name, definition in self._metadata.definitions.items():
            yield f"{TOPICS}/{name}", Stored(Node(encode_topic(self._document(definition)), 0))
        for each, document in self._metadata.documents.items():
            if document:
                yield f"/{each}", Stored(Node(documents.encode(each, document), 0))
        for kind in PidKind:
            yield f"{PIDS}/{kind}", Stored(Node(b"%d" % self.own.next_pid(kind), 0))

    def stage(self, writes: Writes) -> None:
        for path, stored in writes.items():
            if path.startswith(f"{TOPICS}/") and stored is not None:
                self._check_room(_definition(path, stored))
        self._staged.append(writes)

    async def flush(self) -> None:
        staged, self._staged = self._staged, []
        await asyncio.get_running_loop().run_in_executor(self._threads, self._write, staged)

    async def close(self) -> None:
        self._threads.shutdown()
        try:
            self._metadata.log.close()
        finally:
            self.own.close()

    def remove_deleted(self) -> None:
        """The files of topics that are gone. Slow; one call at a time."""
        try:
            self._folders.remove_deleted()
        except OSError as error:
            logger.warning("files of deleted topics stay until the next start: %s", error)

    # Below

    def _open_metadata_log(self) -> PartitionLog:
        return PartitionLog.open(
            self._disk,
            self._folders.path(METADATA_TOPIC, 0),
            METADATA_CONFIG,
            ProducerMap(),
            self._clock.now(),
            topic=METADATA_TOPIC,
            stayed_up=self.own.stayed_up,
            owner=owner_of(METADATA_ID, 0),
        )

    def _document(self, definition: Definition) -> TopicDocument:
        def target(index: int) -> int:
            if definition.is_deleting:
                return NOBODY
            return shared_out(definition.name, index, self._workers, self._workers)

        states = tuple(beginning(target(index)) for index in range(definition.partitions))
        return TopicDocument(definition.id, definition.configs, definition.is_internal, states)

    def _new_partitions(self, definition: Definition) -> range:
        before = self._metadata.definitions.get(definition.name)
        have = before.partitions if before is not None and before.id == definition.id else 0
        return range(have, definition.partitions)

    def _check_room(self, definition: Definition) -> None:
        for index in self._new_partitions(definition):
            if why := what_is_in_the_way(self._folders, definition.name, index):
                raise Refused(why)

    def _write(self, staged: list[Writes]) -> None:
        """Write in the order in which a server that stands alone does it: see `local_topics.py`."""
        try:
            for writes in staged:
                for path, stored in writes.items():
                    if path.startswith(f"{TOPICS}/"):
                        self._write_topic(path, stored)
                    elif path[1:] in DOCUMENTS and stored is not None:
                        self._write_document(Kind(path[1:]), stored)
                    elif path.startswith(f"{PIDS}/") and stored is not None:
                        self.own.note_pids(PidKind(path.removeprefix(f"{PIDS}/")), int(stored.node.value))
        except (KafkaError, ClusterStorageError) as error:
            raise LogStorageError(str(error)) from error

    def _write_document(self, kind: Kind, stored: Stored) -> None:
        now = self._clock.now()
        self._metadata.put_document(kind, documents.decode(kind, stored.node.value), now)
        at_once(self._metadata.making_durable(now))

    def _write_topic(self, path: str, stored: Stored | None) -> None:
        folders, metadata, now = self._folders, self._metadata, self._clock.now()
        if stored is None:
            gone = metadata.definitions[path.removeprefix(f"{TOPICS}/")]
            folders.mark_deleted(gone.name, range(gone.partitions))
            folders.sync()
            metadata.forget(gone.name, now)
        else:
            definition = _definition(path, stored)
            if definition == metadata.definitions.get(definition.name):
                return  # who has which of its partitions is nobody's business later
            for index in self._new_partitions(definition):
                if folders.exists(definition.name, index):
                    folders.remove(definition.name, index)
                self._disk.mkdir(folders.path(definition.name, index))
            folders.sync()
            metadata.put(definition, now)
        at_once(metadata.making_durable(now))


def _definition(path: str, stored: Stored) -> Definition:
    document = decode_topic(stored.node.value)
    definition = document.definition(path.removeprefix(f"{TOPICS}/"))
    return definition.deleting() if is_deleted(document.partitions) else definition


class FolderOfParent:
    """The same for a worker: its parent has the lock, and writes."""

    holds_partitions = False  # that could be of another cluster
    lacks_records = False

    def __init__(self, disk: Disk, folder: str, clock: Clock, node_id: int, lease_lifetime_ms: int) -> None:
        now = clock.now()  # before it is read: pids that are taken from here on are not older
        state = read_state(disk, folder)
        self.node_id = node_id
        self.cluster_id: str = state["cluster_id"]
        self.start_epoch: int = state["start_epoch"]
        self.folder_id: str = state["folder_id"]
        self.pid_secret: str = state["pid_secret"]  # outlives what workers agree on
        self.stayed_up = bool(state["boot_id"]) and state["boot_id"] == disk.boot_id()
        self.earlier_pids = GrantHistory(
            lease_lifetime_ms, periods_of(state, clock.now()), int(state["next_pids"][PidKind.LEASED]), now.monotonic_ms
        )

    def join(self, cluster_id: str) -> None:
        """It is the same."""

    def note_lack(self) -> None:
        """Nobody else has anything."""

    def recovered(self) -> None:
        """The parent says that, once all partitions were open."""

    def close(self) -> None:
        """The parent does."""
