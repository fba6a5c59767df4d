"""Errors of the room of records. All are ValueErrors: the bytes are wrong, not the program."""

from enum import Enum


class BadBatchKind(Enum):
    """The kind of a produced batch that is refused, as Kafka's error codes tell kinds apart."""

    CORRUPT = "corrupt"  # framing, magic above 2, CRC: Kafka answers CORRUPT_MESSAGE
    INVALID = "invalid"  # well framed, but not what a client may send: INVALID_RECORD
    OLD_FORMAT = "old format"  # magic 0 or 1: INVALID_RECORD since Produce v3, which brought magic 2
    UNKNOWN_CODEC = "unknown codec"  # UNSUPPORTED_COMPRESSION_TYPE
    TIMESTAMP_TYPE = "timestamp type"  # claims the log's append time: INVALID_TIMESTAMP
    TRANSACTIONAL = "transactional"  # refused here whatever the rest says


class BadBatch(ValueError):
    def __init__(self, kind: BadBatchKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class InvalidRecord(ValueError):
    """The bytes behind a batch header are not the records that it announces."""


class BadCompression(InvalidRecord):
    """The codec refuses the bytes."""


class TooLarge(BadCompression):
    """Unfolded, the bytes would exceed what the caller allowed."""
