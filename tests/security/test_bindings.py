"""Rules as they are made, kept and looked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.security.bindings import (
    Binding,
    Filter,
    Invalid,
    Pattern,
    Permission,
    binding_of,
    new_binding,
    new_filter,
)
from oncelog.security.hosts import plain_host
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource

GOOD: dict[str, Any] = {
    "resource": 2,
    "pattern": 3,
    "name": "orders",
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission": 3,
}
TEXT = st.text(st.characters(exclude_characters="\t", exclude_categories=["Cs"]), min_size=1, max_size=5)


def rule(**values: Any) -> Binding:
    return new_binding(**{**GOOD, **values})


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), TEXT, TEXT)
def test_a_rule_is_read_from_its_key(name: str, host: str, user: str) -> None:
    made = rule(name=name, host=host, principal=f"User:{user}", pattern=Pattern.PREFIXED)
    assert binding_of(made.key) == made


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": 0},
        {"resource": 1},
        {"resource": 99},
        {"resource": Resource.CLUSTER},
        {"pattern": 0},
        {"pattern": 1},
        {"pattern": 2},
        {"name": ""},
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": "User:a\tb"},
        {"host": ""},
        {"host": "a\tb"},
        {"operation": 0},
        {"operation": 1},
        {"operation": 99},
        {"permission": 0},
        {"permission": 1},
    ],
)
def test_what_is_no_rule_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        rule(**wrong)


def test_the_cluster_has_one_name() -> None:
    assert rule(resource=Resource.CLUSTER, name=CLUSTER_NAME).name == CLUSTER_NAME


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("*", "*"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_an_address_has_one_spelling(host: str, plain: str) -> None:
    assert plain_host(host) == plain == rule(host=host).host
    assert new_filter(1, 1, None, None, host, 1, 1).host == plain


LITERAL, PREFIXED, EVERY = rule(), rule(pattern=Pattern.PREFIXED, name="ord"), rule(name="*")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), {LITERAL, PREFIXED, EVERY}),
        (Filter(name="orders"), {LITERAL}),
        (Filter(name="ord"), {PREFIXED}),
        (Filter(name="orders", pattern=Pattern.MATCH), {LITERAL, PREFIXED, EVERY}),
        (Filter(name="other", pattern=Pattern.MATCH), {EVERY}),
        (Filter(name="orders", pattern=Pattern.PREFIXED), set()),
        (Filter(pattern=Pattern.PREFIXED), {PREFIXED}),
        (Filter(pattern=Pattern.MATCH), {LITERAL, PREFIXED, EVERY}),
        (Filter(name="*", pattern=Pattern.LITERAL), {EVERY}),
        (Filter(resource=Resource.GROUP), set()),
        (Filter(principal="User:bob"), set()),
        (Filter(host="10.0.0.1"), set()),
        (Filter(operation=Operation.WRITE), set()),
        (Filter(permission=Permission.DENY), set()),
        (
            Filter(Resource.TOPIC, Pattern.LITERAL, "orders", "User:alice", "*", Operation.READ, Permission.ALLOW),
            {LITERAL},
        ),
    ],
)
def test_a_filter_means_what_it_means_in_kafka(wanted: Filter, found: set[Binding]) -> None:
    assert {each for each in (LITERAL, PREFIXED, EVERY) if wanted.matches(each)} == found
    if wanted.only is not None:
        assert {wanted.only} == found
