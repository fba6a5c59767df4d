"""The folders of partitions in the data folder: `NAME-0`, `NAME-1` ... as in Kafka, and what a crash left of them.

A folder that no definition knows is removed only where that loses nothing: when it bears the mark of a deleted topic,
or holds no record. Any other stays where it is, and its name stays taken, until a person has looked.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from uuid import UUID, uuid4

from oncelog.log.disk import Disk
from oncelog.log.notes import read_opened
from oncelog.server.topic_rules import is_legal_name

_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<index>0|[1-9][0-9]{0,8})")
_DELETED = re.compile(r"deleted\.[0-9a-f]{32}\.[0-9]+")


METADATA_ID = UUID(int=1)  # as in Kafka


def owner_of(topic_id: UUID, index: int) -> str:
    """The owner that a partition's folder names: a topic's name may come again, an id does not."""
    return f"{topic_id}/{index}"


class Folders:
    def __init__(self, disk: Disk, data_dir: str) -> None:
        self.disk = disk
        self.data_dir = data_dir

    def path(self, topic: str, index: int) -> str:
        return f"{self.data_dir}/{topic}-{index}"

    def exists(self, topic: str, index: int) -> bool:
        return self.disk.exists(self.path(topic, index))

    def found(self) -> Iterator[tuple[str, int]]:
        """The folders of all partitions, also of topics that are gone."""
        for name in sorted(self.disk.listdir(self.data_dir)):
            match = _PARTITION_FOLDER.fullmatch(name)
            if match and is_legal_name(match["topic"]):
                yield match["topic"], int(match["index"])

    def holds_records(self, topic: str, index: int) -> bool:
        folder = self.path(topic, index)
        try:
            return any(".log" in name and self.disk.size(f"{folder}/{name}") > 0 for name in self.disk.listdir(folder))
        except IsADirectoryError:  # in the place of a log
            return True

    def is_bare(self, topic: str, index: int) -> bool:
        """Whether there is no file in the folder, or no folder."""
        if not self.exists(topic, index):
            return True
        with suppress(OSError):  # who opens it says what is wrong
            return not self.disk.listdir(self.path(topic, index))
        return False

    def owner(self, topic: str, index: int) -> UUID | None:
        """The topic that the folder belongs to; None where it does not say it, or is not there."""
        try:
            topic_id, _, _ = read_opened(self.disk, self.path(topic, index)).owner.partition("/")
            return UUID(topic_id) if topic_id else None
        except (OSError, ValueError):
            return None

    def mark_deleted(self, topic: str, indexes: Iterable[int]) -> None:
        """Mark folders as nobody's from here on, also if the server dies before they are removed. Each gets a name of
        its own: a partition that has moved away may be back, and away again, before its first one is removed."""
        for index in indexes:
            if self.exists(topic, index):
                self.disk.rename(self.path(topic, index), f"{self.data_dir}/deleted.{uuid4().hex}.{index}")

    def sync(self) -> None:
        self.disk.sync_folder(self.data_dir)

    def remove(self, topic: str, index: int) -> None:
        self._remove_folder(self.path(topic, index))

    def remove_deleted(self) -> None:
        """Remove what is marked. It may take long and touches nothing that is in use: any thread may call it."""
        for name in self.disk.listdir(self.data_dir):
            if _DELETED.fullmatch(name):
                self._remove_folder(f"{self.data_dir}/{name}")

    def _remove_folder(self, folder: str) -> None:
        for name in self.disk.listdir(folder):
            self.disk.unlink(f"{folder}/{name}")
        self.disk.rmdir(folder)
