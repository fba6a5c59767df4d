"""The packed answer to Fetch is what kio writes, in every version."""

import struct
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from oncelog.wire.hot import FETCH_FLEXIBLE, FETCH_TOPIC_IDS, NO_TAGS, Fetched, diverging, encode_fetched
from tests.depth import scaled

VERSIONS = range(4, 19)

names = st.text("abcXYZ019._-", min_size=1, max_size=200).map(str.encode)
ids = st.uuids().filter(lambda each: each.int != 0).map(lambda each: each.bytes)
offsets = st.integers(-1, 2**63 - 1)
codes = st.sampled_from([int(code) for code in ErrorCode])
int32 = st.integers(-(2**31), 2**31 - 1)
ends = st.tuples(int32, offsets)  # of an epoch
tags = st.just(NO_TAGS) | ends.map(lambda end: diverging(*end))
aborted = st.lists(st.tuples(offsets, offsets), max_size=3)  # pid and first offset
fetched = st.builds(Fetched, int32, codes, offsets, offsets, st.binary(max_size=400), tags, offsets, aborted)


def written_by_kio(
    version: int, correlation_id: int, topics: Any, *, error_code: int, session_id: int, read_committed: bool
) -> bytes:
    module = __import__(f"kio.schema.fetch.v{version}.response", fromlist=["x"])
    named = "topic_id" if version >= FETCH_TOPIC_IDS else "topic"

    def partition(each: Fetched[bytes]) -> Any:
        values: dict[str, Any] = {
            "partition_index": each.partition_index,
            "error_code": ErrorCode(each.error_code),
            "high_watermark": each.high_watermark,
            "last_stable_offset": each.stable_offset,
            "aborted_transactions": tuple(
                module.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in each.aborted
            )
            if read_committed
            else None,
            "records": each.records,
        }
        if version >= 5:
            values["log_start_offset"] = each.log_start_offset
        if version >= FETCH_FLEXIBLE and each.tags != NO_TAGS:
            epoch, end_offset = struct.unpack_from(">iq", each.tags, 3)
            values["diverging_epoch"] = module.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return module.PartitionData(**values)

    top: dict[str, Any] = {"error_code": ErrorCode(error_code), "session_id": session_id} if version >= 7 else {}
    entity = module.FetchResponse(
        throttle_time=module.i32Timedelta.parse(__import__("datetime").timedelta(0)),
        responses=tuple(
            module.FetchableTopicResponse(
                **{named: UUID(bytes=name) if named == "topic_id" else name.decode()},
                partitions=tuple(map(partition, partitions)),
            )
            for name, partitions in topics
        ),
        **top,
    )
    out = BytesIO()
    header = module.FetchResponse.__header_schema__
    entity_writer(header)(out, header(correlation_id=correlation_id))
    entity_writer(module.FetchResponse)(out, entity)
    return len(out.getvalue()).to_bytes(4, "big") + out.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=scaled(15))
@given(data=st.data(), read_committed=st.booleans())
def test_answers_as_kio_writes(version: int, data: st.DataObject, read_committed: bool) -> None:
    key = ids if version >= FETCH_TOPIC_IDS else names
    topics = data.draw(st.lists(st.tuples(key, st.lists(fetched, max_size=4)), max_size=3))
    error_code = data.draw(codes | st.just(0)) if version >= 7 else 0
    session_id = data.draw(st.integers(0, 2**31 - 1)) if version >= 7 else 0
    if not read_committed:  # nobody else is told
        topics = [(name, [each._replace(aborted=()) for each in some]) for name, some in topics]

    more: dict[str, Any] = {"error_code": error_code, "session_id": session_id, "read_committed": read_committed}
    buffers = encode_fetched(version, 77, topics, **more)

    assert b"".join(buffers) == written_by_kio(version, 77, topics, **more)


def test_records_are_handed_on_without_a_copy() -> None:
    records = bytes(100)
    buffers = encode_fetched(12, 1, [(b"t", [Fetched(0, 0, 5, 0, records)])])
    assert any(each is records for each in buffers)
