"""Which quota counts, what is taken as one, and how quotas are kept."""

import itertools

import pytest

from oncelog.security import quotas
from oncelog.security.quotas import Addresses, Entity, Limits, Quota, Refused

PRODUCE = Quota.PRODUCE


def entity(**names: str | None) -> Entity:
    return quotas.entity_of((kind.replace("_", "-"), name) for kind, name in names.items())


# In the order in which Kafka looks for them, with who shares what it is about.
PRECEDENCE: list[tuple[Entity, tuple[str, str]]] = [
    (entity(user="u", client_id="c"), ("u", "c")),
    (entity(user="u", client_id=None), ("u", "c")),
    (entity(user="u"), ("u", "")),
    (entity(user=None, client_id="c"), ("u", "c")),
    (entity(user=None, client_id=None), ("u", "c")),
    (entity(user=None), ("u", "")),
    (entity(client_id="c"), ("", "c")),
    (entity(client_id=None), ("", "c")),
]


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(range(len(PRECEDENCE)), 2)])
def test_the_more_special_quota_counts(first: int, second: int) -> None:
    limits = Limits({PRECEDENCE[each][0]: {PRODUCE.value: float(each + 1)} for each in (second, first)}, PRODUCE)
    found = limits.of("u", "c")
    assert found is not None
    assert (found.bound, (found.user, found.client_id)) == (first + 1, PRECEDENCE[first][1])


@pytest.mark.parametrize("each", PRECEDENCE)
def test_each_of_them_counts_where_it_is_alone(each: tuple[Entity, tuple[str, str]]) -> None:
    limits = Limits({each[0]: {PRODUCE.value: 7.0}}, PRODUCE)
    found = limits.of("u", "c")
    assert found is not None
    assert (found.bound, (found.user, found.client_id)) == (7, each[1])
    assert found.is_open == (dict(each[0]).get("client-id", "") is None)


def test_a_client_without_a_name_has_the_quota_of_its_user_alone() -> None:
    everything = {each: {PRODUCE.value: float(at + 1)} for at, (each, _) in enumerate(PRECEDENCE)}
    found = Limits(everything, PRODUCE).of("u", "")
    assert found is not None
    assert (found.bound, found.client_id) == (3, "")
    assert Limits({entity(client_id=None): {PRODUCE.value: 1.0}}, PRODUCE).of("u", "") is None


def test_kinds_are_looked_for_one_by_one() -> None:
    known = {entity(user="u"): {Quota.FETCH.value: 1.0}, entity(user=None): {PRODUCE.value: 2.0}}
    found = Limits(known, PRODUCE).of("u", "c")
    assert found is not None
    assert found.bound == 2
    assert not Limits(known, Quota.REQUEST)


def test_an_address_is_the_same_however_it_is_written() -> None:
    found = Addresses(
        {entity(ip="10.0.0.7"): {Quota.CONNECTION.value: 5.0}, entity(ip="::1"): {Quota.CONNECTION.value: 6.0}}
    )
    assert [found.of(each) for each in ("10.0.0.7", "::ffff:10.0.0.7", "0:0::1", "10.0.0.8", "?")] == [
        5,
        5,
        6,
        None,
        None,
    ]
    assert Addresses({entity(ip=None): {Quota.CONNECTION.value: 9.0}}).of("10.0.0.8") == 9


@pytest.mark.parametrize(
    "given",
    [
        entity(user="alice"),
        entity(user="<default>"),
        entity(user=None),
        entity(user="a/b=c%2F", client_id="ü;,"),
        entity(client_id=None, user=None),
        entity(ip="::1"),
    ],
)
def test_a_name_of_any_letters_is_kept(given: Entity) -> None:
    document = quotas.changed({}, [(given, {"producer_byte_rate": 3.0})])
    assert quotas.read(document) == {given: {"producer_byte_rate": 3.0}}
    assert quotas.changed(document, [(given, {"producer_byte_rate": None})]) == {}


def test_what_no_broker_wrote_is_passed_over() -> None:
    of_b = {"producer_byte_rate": "x", "consumer_byte_rate": 10**400, "other": 4}
    document = {"nonsense": 3, "user=a": [], "user=b": of_b, "planet=x": {"a": 1}}
    assert quotas.read(document) == {entity(user="b"): {"other": 4.0}}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("producer_byte_rate", float("nan"), "greater than 0"),
        ("request_percentage", float("inf"), "too large for a DOUBLE"),
        ("consumer_byte_rate", 1.5, "fractional"),
        ("connection_creation_rate", 5, "Invalid configuration key"),
    ],
)
def test_a_value_that_says_nothing_is_refused(key: str, value: float, words: str) -> None:
    with pytest.raises(Refused, match=words):
        quotas.check(entity(user="u"), {key: value})
