"""An array that may not be null is refused where the request is read, not where a handler stumbles over it."""

import struct

import pytest

from oncelog.wire.messages import schema
from oncelog.wire.nulls import NullArray

NULL = struct.pack(">i", -1)
ONE = struct.pack(">i", 1)


def test_a_null_array_at_the_top_is_refused() -> None:
    with pytest.raises(NullArray, match="topics is null"):
        schema("list_offsets", 1).read(struct.pack(">i", -1) + NULL, 0)


def test_a_null_array_within_an_array_is_refused() -> None:
    with pytest.raises(NullArray, match="partitions is null"):
        schema("list_offsets", 1).read(struct.pack(">i", -1) + ONE + b"\x00\x01t" + NULL, 0)


def test_an_array_that_may_be_null_is_read_as_none() -> None:
    request, _ = schema("metadata", 1).read(NULL, 0)
    assert request.topics is None


def test_an_empty_array_is_no_null() -> None:
    request, _ = schema("list_offsets", 1).read(struct.pack(">ii", -1, 0), 0)
    assert request.topics == ()
