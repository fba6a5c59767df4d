"""Decisions: against a plain reading of Kafka's StandardAuthorizer, which goes through all rules for every question."""

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.security.acls import Acls, principals_of
from oncelog.security.bindings import EVERYBODY, EVERYTHING, Binding, Pattern, Permission
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource

ALICE, BOB = "User:alice", "User:bob"
HOST, OTHER_HOST = "10.0.0.1", "10.0.0.2"
IMPLY_DESCRIBE = {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
IMPLY_DESCRIBE_CONFIGS = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
ASKED = [each for each in Operation if each not in (Operation.ANY, Operation.ALL)]


def binding(
    name: str = "orders",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    *,
    principal: str = ALICE,
    host: str = EVERYTHING,
    pattern: Pattern = Pattern.LITERAL,
    resource: Resource = Resource.TOPIC,
) -> Binding:
    return Binding(resource, pattern, name, principal, host, operation, permission)


def acls_of(*bindings: Binding, allow_if_none: bool = False) -> Acls:
    acls = Acls(allow_if_none=allow_if_none)
    for each in bindings:
        acls.add(each)
    return acls


def may(acls: Acls, operation: Operation, name: str = "orders", principal: str = ALICE, host: str = HOST) -> bool:
    return acls.granted(principal, host, Resource.TOPIC, name) >> operation & 1 == 1


# The plain reading


def is_about(rule: Binding, resource: Resource, name: str) -> bool:
    if rule.resource is not resource:
        return False
    if rule.pattern is Pattern.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, EVERYTHING)


def is_meant(rule: Binding, principal: str, host: str, operation: Operation) -> bool:
    if rule.principal not in (principal, EVERYBODY) or rule.host not in (host, EVERYTHING):
        return False
    if rule.operation is Operation.ALL or rule.operation is operation:
        return True
    if rule.permission is Permission.DENY:
        return False
    if operation is Operation.DESCRIBE:
        return rule.operation in IMPLY_DESCRIBE
    return operation is Operation.DESCRIBE_CONFIGS and rule.operation in IMPLY_DESCRIBE_CONFIGS


def plainly(
    rules: Iterable[Binding], who: tuple[str, str], operation: Operation, resource: Resource, name: str, default: bool
) -> bool:
    about = [rule for rule in rules if is_about(rule, resource, name)]
    meant = {rule.permission for rule in about if is_meant(rule, *who, operation)}
    if Permission.DENY in meant:
        return False
    return Permission.ALLOW in meant or (default and not about)


def plainly_somewhere(rules: Iterable[Binding], who: tuple[str, str], operation: Operation, default: bool) -> bool:
    """Kafka's `authorizeByResourceType`, line by line."""
    rules = list(rules)
    if plainly(rules, who, operation, Resource.TOPIC, "hardcode", default):
        return True
    own = [
        rule
        for rule in rules
        if rule.resource is Resource.TOPIC
        and rule.host in (who[1], EVERYTHING)
        and rule.principal in (who[0], EVERYBODY)
        and rule.operation in (operation, Operation.ALL)
    ]
    denied = {(rule.pattern, rule.name) for rule in own if rule.permission is Permission.DENY}
    allowed = {(rule.pattern, rule.name) for rule in own if rule.permission is Permission.ALLOW}
    if (Pattern.LITERAL, EVERYTHING) in denied:
        return False
    if (Pattern.LITERAL, EVERYTHING) in allowed:
        return True
    return any(
        not (pattern is Pattern.LITERAL and (pattern, name) in denied)
        and not any((Pattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
        for pattern, name in allowed
    )


NAMES = st.sampled_from(["a", "ab", "abc", "b", EVERYTHING, "ha", "hardcode"])
RULES = st.builds(
    Binding,
    resource=st.sampled_from([Resource.TOPIC, Resource.TOPIC, Resource.GROUP]),
    pattern=st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    name=NAMES,
    principal=st.sampled_from([ALICE, BOB, EVERYBODY]),
    host=st.sampled_from([HOST, OTHER_HOST, EVERYTHING]),
    operation=st.sampled_from([each for each in Operation if each is not Operation.ANY]),
    permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


@given(st.lists(RULES, max_size=8), st.lists(RULES, max_size=4), st.booleans())
def test_decisions_are_those_of_a_plain_reading(rules: list[Binding], gone: list[Binding], default: bool) -> None:
    acls = acls_of(*rules, *gone, allow_if_none=default)
    for each in gone:
        acls.remove(each)
    left = set(rules) - set(gone)
    assert set(acls.bindings.values()) == left
    for name in ("a", "ab", "abcd", "b", "c", EVERYTHING):
        bits = acls.granted(ALICE, HOST, Resource.TOPIC, name)
        for operation in ASKED:
            wanted = plainly(left, (ALICE, HOST), operation, Resource.TOPIC, name, default)
            assert bits >> operation & 1 == wanted, (name, operation)


@given(st.lists(RULES, max_size=8), st.booleans())
def test_what_may_be_done_somewhere_is_as_kafka_finds_it(rules: list[Binding], default: bool) -> None:
    acls = acls_of(*rules, allow_if_none=default)
    for operation in (Operation.WRITE, Operation.READ):
        found = acls.granted_somewhere(ALICE, HOST, operation, Resource.TOPIC)
        assert found == plainly_somewhere(rules, (ALICE, HOST), operation, default), operation


# Single promises


def test_nothing_is_allowed_where_no_rule_says_so() -> None:
    assert acls_of().granted(ALICE, HOST, Resource.TOPIC, "orders") == 0


def test_a_setting_allows_what_no_rule_is_about_and_nothing_else() -> None:
    acls = acls_of(binding("orders", principal=BOB), allow_if_none=True)
    assert may(acls, Operation.WRITE, "others") and not may(acls, Operation.READ, "orders")


def test_a_denial_goes_before_every_permission() -> None:
    acls = acls_of(
        binding(operation=Operation.ALL),
        binding("ord", Operation.READ, Permission.DENY, pattern=Pattern.PREFIXED, principal=EVERYBODY),
    )
    assert not may(acls, Operation.READ) and may(acls, Operation.WRITE)


@pytest.mark.parametrize("operation", sorted(IMPLY_DESCRIBE))
def test_who_may_do_something_may_know_of_it(operation: Operation) -> None:
    assert may(acls_of(binding(operation=operation)), Operation.DESCRIBE)


def test_denying_reads_does_not_hide_anything() -> None:
    denial = binding(operation=Operation.READ, permission=Permission.DENY)
    assert may(acls_of(binding(operation=Operation.WRITE), denial), Operation.DESCRIBE)


def test_a_rule_counts_at_its_host_alone() -> None:
    acls = acls_of(binding(host=HOST))
    assert may(acls, Operation.READ) and not may(acls, Operation.READ, host=OTHER_HOST)


def test_a_rule_that_is_gone_does_not_count_and_leaves_the_others() -> None:
    acls = acls_of(binding(operation=Operation.READ), binding(operation=Operation.WRITE))
    acls.remove(binding(operation=Operation.READ))
    assert not may(acls, Operation.READ) and may(acls, Operation.WRITE)


def test_all_rules_are_seen_anew_and_what_nobody_can_read_is_told() -> None:
    acls = acls_of(binding("old"))
    unread = binding("later").key.replace("READ", "FLY")
    acls.see({binding("new").key, unread})
    assert acls.unread == {unread}
    assert may(acls, Operation.READ, "new") and not may(acls, Operation.READ, "old")


DENIED = binding(permission=Permission.DENY).key
UNREADABLE = [
    DENIED.replace("LITERAL", "GLOB"),
    DENIED.replace("READ", "FLY"),
    DENIED.replace("TOPIC", "ANY"),
    DENIED.replace("LITERAL", "MATCH"),
    "nonsense",
    "",
]


@pytest.mark.parametrize("unread", UNREADABLE)
def test_while_a_rule_that_may_deny_cannot_be_read_nothing_is_allowed(unread: str) -> None:
    acls = acls_of(binding("orders"))
    acls.see({binding("orders").key, unread})
    assert not may(acls, Operation.READ)
    assert not acls.granted_somewhere(ALICE, HOST, Operation.READ, Resource.TOPIC)
    acls.see({binding("orders").key})
    assert may(acls, Operation.READ)


@pytest.mark.parametrize("unread", [*UNREADABLE, DENIED.replace("DENY", "ALLOW").replace("READ", "FLY")])
def test_where_everybody_may_what_no_rule_is_about_one_that_cannot_be_read_allows_nothing(unread: str) -> None:
    acls = Acls(allow_if_none=True)
    assert may(acls, Operation.READ)
    acls.see({unread})
    assert not may(acls, Operation.READ)


def test_super_users_are_parted_by_semicolons() -> None:
    assert principals_of("User:CN=a,O=b; User:c ;") == {"User:CN=a,O=b", "User:c"}


def test_a_decision_looks_at_few_of_five_thousand_rules() -> None:
    """Whatever machine this runs on: it takes no longer than going through a fiftieth of them would."""
    rules = [binding(f"topic-{number}", principal=f"User:{number % 100}") for number in range(2500)]
    rules += [
        binding(f"team-{number}-", principal=f"User:{number % 100}", pattern=Pattern.PREFIXED) for number in range(2500)
    ]
    acls = acls_of(*rules)

    def took(step: object) -> float:
        assert callable(step)
        best = float("inf")
        for _ in range(5):
            begin_s = time.thread_time()
            for _ in range(20):
                step()
            best = min(best, time.thread_time() - begin_s)
        return best

    few = rules[:100]
    through_few = took(lambda: plainly(few, ("User:7", HOST), Operation.READ, Resource.TOPIC, "team-7-x", False))
    assert took(lambda: acls.granted("User:7", HOST, Resource.TOPIC, "team-7-x")) < through_few
    assert may(acls, Operation.READ, "team-7-x", "User:7") and not may(acls, Operation.READ, "team-7-x", "User:8")


def test_the_cluster_is_a_resource_like_others() -> None:
    acls = acls_of(binding(CLUSTER_NAME, Operation.ALTER, resource=Resource.CLUSTER))
    assert acls.granted(ALICE, HOST, Resource.CLUSTER, CLUSTER_NAME) >> Operation.DESCRIBE & 1
