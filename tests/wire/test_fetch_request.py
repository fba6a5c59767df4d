"""A Fetch request read by structs is what kio reads, in every version; whatever is unusual is left to kio."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.fetch_request import FetchRequest, from_entity, read_fetch
from oncelog.wire.follower_fetch import FollowedPartition, FollowerFetch, pack_follower_fetch
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.hot import FETCH_TOPIC_IDS
from oncelog.wire.messages import schema
from tests.raw import encode_request, make, message

VERSIONS = range(4, 19)
BEHIND = b"\1\1\1\1\1\1\1\1"  # the next frame in the receive buffer

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text("abcXYZ019._-\u00e9", max_size=140)
ids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))


def body_of(version: int, values: dict[str, Any]) -> bytes:
    """What stands behind the request header."""
    kind = message("fetch", version)
    payload = encode_request(kind, make(kind.request, values), 1, None)
    return payload[10 + (version >= 12) :]


def values_of(data: st.DataObject, version: int, **more: Any) -> dict[str, Any]:
    partition: dict[str, Any] = {"partition": int32, "fetch_offset": int64, "partition_max_bytes": int32}
    if version >= 5:
        partition["log_start_offset"] = int64
    if version >= 9:
        partition["current_leader_epoch"] = int32
    if version >= 12:
        partition["last_fetched_epoch"] = int32
    topic: dict[str, Any] = {"topic_id": ids} if version >= FETCH_TOPIC_IDS else {"topic": names}
    topic["partitions"] = st.lists(st.fixed_dictionaries(partition), max_size=4) | st.tuples(
        st.fixed_dictionaries(partition)
    )
    whole: dict[str, Any] = {
        "max_wait": int32,
        "min_bytes": int32,
        "max_bytes": int32,
        "isolation_level": st.integers(-128, 127),
        "topics": st.lists(st.fixed_dictionaries(topic), max_size=4) | st.tuples(st.fixed_dictionaries(topic)),
    }
    if version < 15:
        whole["replica_id"] = int32
    if version >= 7:
        whole |= {"session_id": int32, "session_epoch": int32}
    if version >= 11:
        whole["rack_id"] = st.just("") | names
    return {**data.draw(st.fixed_dictionaries(whole)), **more}


def read_by_kio(version: int, body: bytes) -> FetchRequest | FollowerFetch:
    return from_entity(schema("fetch", version).read(body, 0)[0], version)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_the_usual_request_is_read_as_kio_reads_it(version: int, data: st.DataObject) -> None:
    body = body_of(version, values_of(data, version))
    found = read_fetch(bytearray(b"?" + body + BEHIND), 1, 1 + len(body), version)
    assert found is not None
    assert found == read_by_kio(version, body)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_damaged_request_is_read_as_kio_reads_it_or_left_to_kio(version: int, data: st.DataObject) -> None:
    body = bytearray(body_of(version, values_of(data, version)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.just(len(body)) | st.integers(0, len(body)))]
    found = read_fetch(bytearray(body + BEHIND), 0, len(body), version)
    if found is not None:
        assert found == read_by_kio(version, bytes(body))


@pytest.mark.parametrize("version", range(7, 19))
def test_forgotten_topics_are_left_to_kio(version: int) -> None:
    called = UUID(int=7).bytes if version >= FETCH_TOPIC_IDS else b"t"
    name: dict[str, Any] = {"topic_id": UUID(int=7)} if version >= FETCH_TOPIC_IDS else {"topic": "t"}
    body = body_of(version, {"topics": [], "forgotten_topics_data": [{**name, "partitions": [1]}]})
    assert read_fetch(body, 0, len(body), version) is None
    read = read_by_kio(version, body)
    assert isinstance(read, FetchRequest) and (read.topics, read.forgotten) == ([], ((called, (1,)),))


followed = st.builds(FollowedPartition, int32, int32, int64, int32, int64, int32, int64)
topics = st.lists(st.tuples(ids.map(lambda each: each.bytes), st.lists(followed, max_size=4)), max_size=4)
follower_fetches = st.builds(FollowerFetch, st.integers(0, 2**31 - 1), int64, int32, int32, int32, int32, topics)


def packed(fetch: FollowerFetch) -> bytes:
    """The body of a follower's request."""
    frame = pack_follower_fetch(7, "me", fetch)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4 + 8 + 4 + 1 :]


@given(fetch=follower_fetches)
def test_a_follower_is_understood_by_structs_and_by_kio(fetch: FollowerFetch) -> None:
    body = packed(fetch)
    assert read_fetch(bytearray(b"?" + body + BEHIND), 1, 1 + len(body), 18) == fetch
    assert read_by_kio(18, body) == fetch


@given(data=st.data(), fetch=follower_fetches)
def test_a_damaged_request_of_a_follower_is_read_as_kio_reads_it_or_left_to_kio(
    data: st.DataObject, fetch: FollowerFetch
) -> None:
    body = bytearray(packed(fetch))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.just(len(body)) | st.integers(0, len(body)))]
    found = read_fetch(bytearray(body + BEHIND), 0, len(body), 18)
    if found is not None:
        assert found == read_by_kio(18, bytes(body))


@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_a_follower_that_says_less_is_left_to_kio(version: int) -> None:
    one = {"partition": 3, "current_leader_epoch": 5, "fetch_offset": 70, "last_fetched_epoch": 4}
    topics = [{"topic_id": UUID(int=7), "partitions": [{**one, "log_start_offset": 2, "partition_max_bytes": 9}]}]
    more = {"max_wait": 500, "min_bytes": 1, "max_bytes": 8, "replica_state": {"replica_id": 2, "replica_epoch": 6}}
    body = body_of(version, {"topics": topics, **more})
    assert read_fetch(body, 0, len(body), version) is None
    one_read = FollowedPartition(3, 5, 70, 4, 2, 9)
    assert read_by_kio(version, body) == FollowerFetch(2, 6, 500, 1, 8, -1, [(UUID(int=7).bytes, [one_read])])


@pytest.mark.parametrize("version", [11, 12, 17])
def test_a_claim_of_more_than_there_is_costs_nothing_and_is_left_to_kio(version: int) -> None:
    body = bytearray(body_of(version, {"topics": []}))
    count_at = (0 if version >= 15 else 4) + 12 + 1 + 8
    claim = b"\xff\xff\xff\xff\x0f" if version >= 12 else b"\x7f\xff\xff\xff"
    body[count_at : count_at + (1 if version >= 12 else 4)] = claim
    assert read_fetch(body, 0, len(body), version) is None
    with pytest.raises(MalformedFrame):
        read_by_kio(version, bytes(body))
