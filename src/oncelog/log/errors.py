"""Errors of a log, in its own words; only the server speaks of Kafka's error codes."""

import errno

# No more files may be open at the moment. Nothing was written, and nothing is wrong with the disk.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class LogError(Exception):
    """Anything that a log can refuse."""


class LogStorageError(LogError):
    """The disk refused, or what is on it is not what was written. Kafka's KAFKA_STORAGE_ERROR."""


class Damaged(LogStorageError):
    """The stored bytes are not those that were written; the rest of the log can be read. Kafka's CORRUPT_MESSAGE."""


class OffsetOutOfRange(LogError):
    def __init__(self, offset: int, first: int, last: int) -> None:
        super().__init__(f"offset {offset} is outside of {first} to {last}")
        self.offset = offset
        self.first = first
        self.last = last
