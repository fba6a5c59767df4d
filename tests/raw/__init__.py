"""A small raw Kafka client for tests and benchmarks: every request by hand, every batch by hand."""

from tests.raw.batches import CODECS, Rec, batch, message_set
from tests.raw.connection import RawConnection, ServerClosed
from tests.raw.entities import encode_request, make, message

__all__ = [
    "CODECS",
    "RawConnection",
    "Rec",
    "ServerClosed",
    "batch",
    "encode_request",
    "make",
    "message",
    "message_set",
]
