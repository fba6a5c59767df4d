"""The records of `__consumer_offsets`: golden bytes as Kafka 4.3 wrote them, and every damage to them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.server.coordinator_topic import BadRecord, java_hash
from oncelog.server.coordinator_topic import partition_of_name as partition_of_group
from oncelog.server.groups.messages import StoredGroup, StoredMember
from oncelog.server.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)

TEXT = st.text(max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
POSITIVE = st.integers(0, 2**31 - 1)
MEMBERS = st.builds(
    StoredMember,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=POSITIVE,
    session_timeout_ms=POSITIVE,
    subscription=st.binary(max_size=60),
    assignment=st.binary(max_size=60),
)
GROUPS = st.builds(
    StoredGroup,
    protocol_type=TEXT,
    generation=INT32,
    protocol_name=st.none() | TEXT,
    leader=st.none() | TEXT,
    state_since_wall_ms=INT64,
    members=st.lists(MEMBERS, max_size=4).map(tuple),
)


# As an Apache Kafka 4.3 wrote them, asked by `tests/peers/questions`.
EMPTY_GROUP = "0003000000000000ffffffff000001a1fdc7986200000000"
STABLE_GROUP = (
    "00030008636f6e73756d657200000001000572616e676500286f6e652d37373930396566322d366263392d343937622d396464612d3266"
    "34656661306132336662000001a1fdc798640000000100286f6e652d37373930396566322d366263392d343937622d396464612d32663465"
    "666130613233666200036f6e650003726177000a2f3132372e302e302e3100007530000075300000001000000000000100046d696e65ffff"
    "ffff000000057368617265"
)
MEMBER_ID = "one-77909ef2-6bc9-497b-9dda-2f4efa0a23fb"
GROUP_KEY_BYTES = "00020004676f6c64"
OFFSET_KEY_BYTES = "0001000b676f6c642d73696d706c650006676f6c64656e00000001"
OFFSET_WITH_TOPIC_ID = "00040000000000000005000000030661626f7574000001a1fdc7989a0100105ef5c7137ad945608b3bb31a989ad305"
OFFSET_WITH_EXPIRY = "000100000000000000060002c3a9000001a1fdc798ac000001a1fdfe872c"


def test_a_group_is_read_and_written_as_kafka_does() -> None:
    key, value = bytes.fromhex(GROUP_KEY_BYTES), bytes.fromhex(STABLE_GROUP)
    group = decode_group(value)
    assert decode_key(key) == GroupKey("gold")
    assert (group.protocol_type, group.generation, group.protocol_name, group.leader) == (
        "consumer", 1, "range", MEMBER_ID,
    )  # fmt: skip
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.client_id, member.client_host) == (
        MEMBER_ID, "one", "raw", "/127.0.0.1",
    )  # fmt: skip
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 30_000)
    assert member.assignment == b"share"
    assert (encode_group_key("gold"), encode_group(group)) == (key, value)


def test_an_empty_group_is_read_and_written_as_kafka_does() -> None:
    value = bytes.fromhex(EMPTY_GROUP)
    assert encode_group(decode_group(value)) == value


def test_an_offset_is_read_as_kafka_wrote_it_in_its_newest_version() -> None:
    assert decode_key(bytes.fromhex(OFFSET_KEY_BYTES)) == OffsetKey("gold-simple", "golden", 1)
    assert encode_offset_key("gold-simple", "golden", 1).hex() == OFFSET_KEY_BYTES
    assert decode_offset(bytes.fromhex(OFFSET_WITH_TOPIC_ID)) == CommittedOffset(5, 3, "about", 1795259078810)


def test_an_offset_with_an_expiry_is_read_and_written_as_kafka_does() -> None:
    value = bytes.fromhex(OFFSET_WITH_EXPIRY)
    assert decode_offset(value) == CommittedOffset(6, -1, "é", 1795259078828, 1795262678828)
    assert encode_offset(decode_offset(value)) == value


def text(value: str | None) -> bytes:
    data = None if value is None else value.encode()
    return struct.pack(">h", -1) if data is None else struct.pack(">h", len(data)) + data


@given(TEXT, TEXT, INT32)
def test_an_offset_key_comes_back(group: str, topic: str, partition: int) -> None:
    assert decode_key(encode_offset_key(group, topic, partition)) == OffsetKey(group, topic, partition)


@given(TEXT)
def test_a_group_key_comes_back(group: str) -> None:
    assert decode_key(encode_group_key(group)) == GroupKey(group)


@given(INT64, INT32, TEXT, INT64)
def test_an_offset_comes_back(offset: int, epoch: int, metadata: str, commit_ms: int) -> None:
    committed = CommittedOffset(offset, epoch, metadata, commit_ms)
    assert decode_offset(encode_offset(committed)) == committed


def test_an_offset_with_an_expiry_of_its_own_comes_back_without_its_epoch() -> None:
    stored = decode_offset(encode_offset(CommittedOffset(5, 3, "m", 1000, 2000)))
    assert stored == CommittedOffset(5, -1, "m", 1000, 2000)


@given(GROUPS)
def test_a_group_comes_back(group: StoredGroup) -> None:
    assert decode_group(encode_group(group)) == group


@given(GROUPS, st.data())
def test_a_group_cut_short_is_refused(group: StoredGroup, data: st.DataObject) -> None:
    encoded = encode_group(group)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises((BadRecord, struct.error, UnicodeDecodeError)):
        decode_group(encoded[:cut])


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_read_but_never_crashes(data: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_group):
        try:
            decode(data)
        except (BadRecord, struct.error, UnicodeDecodeError):
            continue


def test_older_offset_values_are_read() -> None:
    times = struct.pack(">q", 77)
    assert decode_offset(struct.pack(">hq", 0, 9) + text("m") + times) == CommittedOffset(9, -1, "m", 77)
    assert decode_offset(struct.pack(">hq", 2, 9) + text("m") + times) == CommittedOffset(9, -1, "m", 77)


def test_the_flexible_offset_value_is_read_with_tags_that_came_later() -> None:
    tags = b"\x01\x00\x10" + bytes(16)  # one tagged field: tag 0, sixteen bytes, as a topic id
    flexible = struct.pack(">hqi", 4, 9, 2) + b"\x02m" + struct.pack(">q", 77) + tags
    assert decode_offset(flexible) == CommittedOffset(9, 2, "m", 77)


def test_the_oldest_group_value_is_read_and_gets_its_session_timeout_for_rebalances() -> None:
    member = text("m") + text("client") + text("/host") + struct.pack(">i", 6000) + struct.pack(">i", 1) + b"s"
    member += struct.pack(">i", 1) + b"a"
    value = struct.pack(">h", 0) + text("consumer") + struct.pack(">i", 4) + text("range") + text("m")
    value += struct.pack(">i", 1) + member
    group = decode_group(value)
    assert (group.generation, group.leader, group.state_since_wall_ms) == (4, "m", -1)
    assert group.members == (
        StoredMember(
            member_id="m",
            instance_id=None,
            client_id="client",
            client_host="/host",
            rebalance_timeout_ms=6000,
            session_timeout_ms=6000,
            subscription=b"s",
            assignment=b"a",
        ),
    )


def test_records_of_other_kinds_of_groups_are_passed_over() -> None:
    assert decode_key(struct.pack(">h", 3) + text("consumer-group-of-kip-848")) is None


@pytest.mark.parametrize(
    ("name", "hash_code"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899), ("é", 233)],
)
def test_a_group_is_hashed_as_java_hashes_strings(name: str, hash_code: int) -> None:
    assert java_hash(name) == hash_code


def test_the_one_hash_without_a_positive_counterpart_goes_to_partition_zero() -> None:
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("group", 50) == 98629247 % 50
