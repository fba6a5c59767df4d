"""What members of the classic protocol tell each other in bytes, as far as a group has to understand it."""

import pytest

from oncelog.server.groups import embedded
from oncelog.server.groups.embedded import Malformed, Share, Subscription, read_share, read_subscription, share_bytes
from tests.server.groups.words import subscription

HAS = {"a": (0, 2), "é": (1,)}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_subscription_is_read_in_every_version(version: int) -> None:
    places = [(topic, index) for topic, indexes in HAS.items() for index in indexes]
    found = read_subscription(subscription(["a", "é"], places, 7, version))
    assert found == Subscription(("a", "é"), HAS if version else {}, None)


def test_the_third_version_has_a_rack_and_a_later_one_may_have_more() -> None:
    third = subscription(["a"], version=3).replace(b"\0\2", b"\0\3", 1) + b"\0\4rack"
    assert read_subscription(third).rack_id == "rack"
    assert read_subscription(b"\0\x09" + third[2:] + b"and more") == Subscription(("a",), {}, "rack")


def test_a_share_is_read_as_it_was_written() -> None:
    assert read_share(share_bytes(subscription([]), HAS)) == Share(HAS, has_user_data=False)
    assert read_share(b"") == Share({}, has_user_data=False), "nobody was told yet"
    assert read_share(share_bytes(subscription([]), {})[:-4] + b"\0\0\0\1x").has_user_data


def test_a_share_has_the_version_that_its_member_knows() -> None:
    versions = [share_bytes(subscription([], version=each), {})[:2] for each in (0, 1, 2, 9)]
    assert versions == [b"\0\0", b"\0\1", b"\0\2", b"\0\3"]


@pytest.mark.parametrize("read", [read_subscription, read_share])
@pytest.mark.parametrize("cut", range(1, 24))
def test_what_is_cut_short_is_not_guessed_at(read: object, cut: int) -> None:
    whole = (
        subscription(["topic"], [("topic", 1)]) if read is read_subscription else share_bytes(b"\0\0", {"topic": (1,)})
    )
    with pytest.raises(Malformed):
        read(whole[: max(len(whole) - cut, 1)])  # type: ignore[operator]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xff\0\0\0\0\xff\xff\xff\xff",  # version -1
        b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff",  # no text
        b"\0\0\0\0\0\1\xff\xff\xff\xff\xff\xff",  # a topic without a name
        b"\0\0\xff\xff\xff\xff",  # fewer than no topics
        b"\0\0\x7f\xff\xff\xff",  # more than can be
    ],
)
def test_an_unreadable_subscription_is_refused(damaged: bytes) -> None:
    with pytest.raises(Malformed):
        read_subscription(damaged)


def test_no_more_is_looked_at_than_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MOST_LISTED", 2)
    monkeypatch.setattr(embedded, "MOST_PARTITIONS", 3)
    read_subscription(subscription(["a", "b"], [("a", 0), ("b", 0), ("b", 1)]))
    for much in (subscription(["a", "b", "c"]), subscription([], [("a", 0), ("a", 1), ("b", 0), ("b", 1)])):
        with pytest.raises(Malformed):
            read_subscription(much)
