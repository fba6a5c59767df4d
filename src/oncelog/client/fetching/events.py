"""The results of fetching for the application: records, an error, the end of a partition."""

from dataclasses import dataclass, field

from oncelog.client.fetching.cursor import Cursor
from oncelog.records.header import Buffer
from oncelog.slots import AnyPlace


@dataclass(frozen=True, slots=True)
class _OfCursor:
    """An event that is of no use once its cursor has a newer version."""

    cursor: Cursor = field(repr=False)
    version: int

    @property
    def is_current(self) -> bool:
        return self.cursor.version == self.version != self.cursor.damaged_version


@dataclass(frozen=True, slots=True)
class Chunk(_OfCursor):
    """The batches that one fetch brought of one partition, not looked into yet."""

    start_offset: int
    start_epoch: int  # of the record before
    next_offset: int
    record_count: int  # as the batch headers say; records before the position and aborted ones included
    records: Buffer = field(repr=False)
    aborted: list[tuple[int, int]]

    @property
    def partition(self) -> AnyPlace:
        return self.cursor.partition

    def cut(self) -> None:
        """Note that it cannot be read to its end: nothing that was fetched with it is current any more. For
        the thread that reads, which does not wait for the one that fetches."""
        self.cursor.damaged_version = self.version


@dataclass(frozen=True, slots=True)
class EndReached(_OfCursor):
    offset: int


@dataclass(frozen=True, slots=True)
class Failed(_OfCursor):
    """An error for the application: a number of librdkafka's, and words that name the offset."""

    code: int
    message: str
    offset: int


Event = Chunk | EndReached | Failed
