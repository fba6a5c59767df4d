"""The producer as a pure state machine: sequences, flights, retries, leases. No sockets, no clock."""

from oncelog.client.sending.actions import (
    Action,
    Answer,
    Boundary,
    Delivered,
    Failed,
    Found,
    LookUp,
    NeedIdentity,
    NeedMetadata,
    Produce,
    StoredSpan,
)
from oncelog.client.sending.batch import Batch, split_batch
from oncelog.client.sending.limits import SenderLimits
from oncelog.client.sending.sender import Sender

__all__ = [
    "Action",
    "Answer",
    "Batch",
    "Boundary",
    "Delivered",
    "Failed",
    "Found",
    "LookUp",
    "NeedIdentity",
    "NeedMetadata",
    "Produce",
    "Sender",
    "SenderLimits",
    "StoredSpan",
    "split_batch",
]
