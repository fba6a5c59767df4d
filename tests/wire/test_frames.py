"""What surrounds a message: the header of a request, varints, tagged fields; and where each of them breaks off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.frames import (
    MalformedFrame,
    read_client_id,
    read_uvarint,
    skip_client_id,
    skip_tagged_fields,
    write_uvarint,
)


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    data = write_uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))


def test_a_varint_without_end_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        read_uvarint(b"\xff" * 10, 0)


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ключ"])
def test_client_ids_are_read_and_skipped_alike(client_id: str | None) -> None:
    data = b"\xff\xff" if client_id is None else len(client_id.encode()).to_bytes(2, "big") + client_id.encode()
    assert read_client_id(data, 0, len(data)) == (client_id, len(data))
    assert skip_client_id(data, 0, len(data)) == len(data)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x05abc"])
def test_a_client_id_beyond_its_frame_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_client_id(data + b"xxxxxxxx"[: 0 if len(data) < 2 else 8], 0, len(data))
    with pytest.raises(MalformedFrame):
        skip_client_id(data + b"xxxxxxxx"[: 0 if len(data) < 2 else 8], 0, len(data))


def test_a_client_id_that_is_no_text_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        read_client_id(b"\x00\x02\xff\xfe", 0, 4)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05ab", b"\xff\xff\xff\xff\x0f"])
def test_tagged_fields_beyond_their_frame_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        skip_tagged_fields(data, 0, len(data))


def test_tagged_fields_are_skipped() -> None:
    assert skip_tagged_fields(b"\x00rest", 0, 5) == 1
    assert skip_tagged_fields(b"\x02\x00\x02ab\x07\x00rest", 0, 11) == 7
