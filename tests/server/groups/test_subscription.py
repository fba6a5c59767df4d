"""Which topics a group reads, as far as the coordinator can see it."""

import gc
import struct
from weakref import ref

import pytest

from oncelog.clock import ManualClock
from oncelog.server.groups.messages import GroupLimits
from oncelog.server.groups.rebalance import Rebalance
from oncelog.server.groups.subscription import subscribed_topics


def subscription(*topics: str, version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + rest


def test_the_topics_of_all_members_are_put_together() -> None:
    metadatas = [subscription("a", "bb", "é"), subscription("a", "c")]
    assert subscribed_topics("consumer", metadatas) == frozenset(("a", "bb", "é", "c"))


def test_newer_versions_begin_like_the_first() -> None:
    assert subscribed_topics("consumer", [subscription("a", version=3, rest=b"what came later")]) == frozenset(("a",))


def test_a_group_without_members_reads_nothing() -> None:
    assert subscribed_topics("consumer", []) == frozenset[str]()


@pytest.mark.parametrize("protocol_type", [None, "connect", ""])
def test_other_protocols_do_not_say_what_they_read(protocol_type: str | None) -> None:
    assert subscribed_topics(protocol_type, [subscription("a")]) is None


@pytest.mark.parametrize(
    "damaged", [b"", b"\0", subscription("abc")[:9], struct.pack(">hih", 0, 1, -5), b"\0\0\x7f\xff\xff\xff"]
)
def test_an_unreadable_subscription_is_not_guessed_at(damaged: bytes) -> None:
    assert subscribed_topics("consumer", [subscription("a"), damaged]) is None


def test_no_more_names_are_looked_at_than_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.server.groups.subscription.MOST_LOOKED_AT", 3)
    same = [subscription("a", "b")] * 10
    assert subscribed_topics("consumer", same) == frozenset("ab"), "what all say is looked at once"
    assert subscribed_topics("consumer", [*same, subscription("c")]) == frozenset("abc")
    assert subscribed_topics("consumer", [*same, subscription("c", "d")]) is None


def test_a_name_that_no_topic_can_have_is_passed_over() -> None:
    assert subscribed_topics("consumer", [subscription("a" * 250, "a" * 249)]) == frozenset(("a" * 249,))


def test_what_was_asked_of_a_group_last_goes_with_it() -> None:
    now = ManualClock().now()
    rebalance = Rebalance(GroupLimits(), now)
    rebalance.protocol_type = "consumer"
    assert rebalance.topics == frozenset()
    lives = ref(rebalance)
    gc.disable()
    try:
        del rebalance
        assert lives() is None
    finally:
        gc.enable()
