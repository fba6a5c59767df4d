"""Subscriptions and assignments in Kafka's bytes: the same as another client writes, and safe against any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from oncelog.client.groups.protocol import (
    MalformedMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

texts = st.text(max_size=12)
places = st.frozensets(st.tuples(texts, st.integers(0, 2**31 - 1)), max_size=8)
subscriptions = st.builds(
    Subscription,
    topics=st.frozensets(texts, max_size=5),
    userdata=st.binary(max_size=20),
    owned=places,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | texts,
)

# Version 3, topic "a", userdata "xy", owned a/1 and a/2, generation 7, rack "r".
WRITTEN = bytes.fromhex(
    "0003 00000001 0001 61 00000002 7879 00000001 0001 61 00000002 00000001 00000002 00000007 0001 72".replace(" ", "")
)
READ = Subscription(frozenset({"a"}), b"xy", frozenset({("a", 1), ("a", 2)}), 7, "r")


def test_a_subscription_is_these_bytes() -> None:
    assert encode_subscription(READ) == WRITTEN
    assert decode_subscription(WRITTEN) == READ


@pytest.mark.parametrize(
    ("version", "size", "read"),
    [
        (0, 15, Subscription(frozenset({"a"}), b"xy")),
        (1, 34, Subscription(frozenset({"a"}), b"xy", READ.owned)),
        (2, 38, Subscription(frozenset({"a"}), b"xy", READ.owned, 7)),
        (3, 41, READ),
        (9, 41, READ),
    ],
)
def test_older_and_newer_versions_are_read(version: int, size: int, read: Subscription) -> None:
    data = version.to_bytes(2, "big") + WRITTEN[2:size]
    assert decode_subscription(data + (b"later" if version > 3 else b"")) == read


def test_an_assignment_is_these_bytes() -> None:
    written = bytes.fromhex("0001 00000001 0001 61 00000001 00000002 00000000".replace(" ", ""))
    assert encode_assignment([("a", 2)]) == written
    assert decode_assignment(written) == {("a", 2)}


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == frozenset()


@given(subscription=subscriptions)
def test_what_is_written_is_read(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(subscription=subscriptions, partitions=places)
def test_another_client_reads_the_same(subscription: Subscription, partitions: frozenset[tuple[str, int]]) -> None:
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(subscription))
    assert set(theirs.topics) == subscription.topics
    assert {(each.topic, index) for each in theirs.owned_partitions for index in each.partitions} == subscription.owned
    assert (theirs.generation_id, theirs.rack_id) == (subscription.generation, subscription.rack)
    shares = ConsumerProtocolAssignment.decode(encode_assignment(partitions))
    assert {(each.topic, index) for each in shares.assigned_partitions for index in each.partitions} == partitions


@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedMessage:
            continue


@pytest.mark.parametrize("size", range(41))
def test_a_subscription_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(MalformedMessage):
        decode_subscription(WRITTEN[:size])


def test_a_count_that_lies_is_refused_before_anything_is_made_of_it() -> None:
    with pytest.raises(MalformedMessage, match="more elements than there are bytes"):
        decode_subscription(b"\0\3\x7f\xff\xff\xff")
