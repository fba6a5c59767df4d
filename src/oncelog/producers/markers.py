"""The control record that ends a transaction in a partition, byte for byte as Kafka's, with one header more.

    key    int16 version, int16 type: 0 aborts, 1 commits
    value  int16 version, int32 epoch of the coordinator that decided

The batch's header carries pid and epoch of the producer. The record's header `oncelog.first` says where in the log the
transaction began, as an int64: so a marker alone tells what it is about, and whatever is known of ended transactions
can be made anew from the markers. Clients skip control records and never look at their headers.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

ABORT, COMMIT = 0, 1
NO_TRANSACTION: Final = -1  # nothing was written here in it
NO_COORDINATOR: Final = -1
FIRST_HEADER: Final = b"oncelog.first"
_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_FIRST = struct.Struct(">q")


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int
    first_offset: int  # of the transaction that it ends; NO_TRANSACTION where there was none


def marker_key(marker: Marker) -> bytes:
    return _KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT)


def marker_value(marker: Marker) -> bytes:
    return _VALUE.pack(_VERSION, marker.coordinator_epoch)


def marker_headers(marker: Marker) -> tuple[tuple[bytes, bytes], ...]:
    return () if marker.first_offset < 0 else ((FIRST_HEADER, _FIRST.pack(marker.first_offset)),)


def read_marker(key: bytes | None, value: bytes | None, headers: Iterable[tuple[bytes, bytes | None]]) -> Marker | None:
    """None for a control record of another kind."""
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    first_offset = NO_TRANSACTION
    for name, told in headers:
        if name == FIRST_HEADER and told is not None and len(told) == _FIRST.size:
            (first_offset,) = _FIRST.unpack(told)
    return Marker(kind == COMMIT, _VALUE.unpack_from(value)[1], first_offset)
