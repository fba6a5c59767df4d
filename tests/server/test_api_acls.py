"""DescribeAcls, CreateAcls and DeleteAcls, in every version that is served."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from oncelog.log.work_steps import at_once
from oncelog.security.bindings import Binding, Pattern, Permission
from oncelog.security.documents import Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from tests.server.admin_support import CLOCK, Admin, versions
from tests.server.test_access import ALICE, ASKED, give, rule

EVERYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ORDERS, PREFIX = rule("orders"), rule("ord", pattern=Pattern.PREFIXED)
CLUSTER = rule(CLUSTER_NAME, Operation.ALTER, resource=Resource.CLUSTER)


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    found = Admin(tmp_path, ASKED, "super.users=User:root")
    found.principal = "User:root"
    return found


def creation(binding: Binding, **others: Any) -> dict[str, Any]:
    return {
        "resource_type": binding.resource,
        "resource_pattern_type": binding.pattern,
        "resource_name": binding.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    } | others


def create(admin: Admin, version: int, *creations: dict[str, Any]) -> list[ErrorCode]:
    return [each.error_code for each in admin.ask("create_acls", version, creations=creations).results]


def described(admin: Admin, version: int, **wanted: Any) -> set[Binding]:
    answer = admin.ask("describe_acls", version, **EVERYTHING | wanted)
    assert answer.error_code is ErrorCode.none
    return {
        Binding(
            Resource(place.resource_type),
            Pattern(place.pattern_type),
            place.resource_name,
            each.principal,
            each.host,
            Operation(each.operation),
            Permission(each.permission_type),
        )
        for place in answer.resources
        for each in place.acls
    }


@pytest.mark.parametrize("version", versions("create_acls"))
def test_rules_are_made_told_and_taken_away(admin: Admin, version: int) -> None:
    made = [creation(each) for each in (ORDERS, PREFIX, CLUSTER)]
    assert create(admin, version, *made) == [ErrorCode.none] * 3
    assert described(admin, version) == {ORDERS, PREFIX, CLUSTER}
    assert described(admin, version, resource_type_filter=Resource.CLUSTER) == {CLUSTER}
    assert described(admin, version, resource_name_filter="orders", pattern_type_filter=2) == {ORDERS, PREFIX}
    of_topics, nothing = {"resource_type_filter": 2}, {"principal_filter": "User:nobody"}
    answer = admin.ask("delete_acls", version, filters=[EVERYTHING | of_topics, EVERYTHING | nothing])
    first, second = answer.filter_results
    assert {(each.resource_name, each.error_code) for each in first.matching_acls} == {
        ("orders", ErrorCode.none),
        ("ord", ErrorCode.none),
    }
    assert second.matching_acls == ()
    assert described(admin, version) == {CLUSTER}


def test_a_rule_that_is_there_already_is_made_again(admin: Admin) -> None:
    assert create(admin, 3, creation(ORDERS), creation(ORDERS)) == [ErrorCode.none] * 2
    assert create(admin, 3, creation(ORDERS)) == [ErrorCode.none]
    assert described(admin, 3) == {ORDERS}


def test_each_rule_is_refused_for_itself(admin: Admin) -> None:
    wrong = [
        creation(ORDERS, resource_name=""),
        creation(CLUSTER, resource_name="orders"),
        creation(ORDERS, operation=1),
    ]
    assert create(admin, 3, *wrong, creation(ORDERS)) == [ErrorCode.invalid_request] * 3 + [ErrorCode.none]


def test_a_filter_of_one_rule_takes_that_one(admin: Admin) -> None:
    give(admin, ORDERS, PREFIX)
    one = {
        "resource_type_filter": ORDERS.resource,
        "pattern_type_filter": ORDERS.pattern,
        "resource_name_filter": ORDERS.name,
        "principal_filter": ORDERS.principal,
        "host_filter": ORDERS.host,
        "operation": ORDERS.operation,
        "permission_type": ORDERS.permission,
    }
    first, second = admin.ask("delete_acls", 3, filters=[one, one | {"host_filter": "10.9.9.9"}]).filter_results
    assert (len(first.matching_acls), len(second.matching_acls)) == (1, 0)
    assert described(admin, 3) == {PREFIX}


@pytest.mark.parametrize("wrong", [{"operation": 99}, {"resource_type_filter": 0}, {"pattern_type_filter": 77}])
def test_a_filter_that_means_nothing_is_refused(admin: Admin, wrong: dict[str, int]) -> None:
    assert admin.ask("describe_acls", 3, **EVERYTHING | wrong).error_code is ErrorCode.invalid_request
    (result,) = admin.ask("delete_acls", 3, filters=[EVERYTHING | wrong]).filter_results
    assert result.error_code is ErrorCode.invalid_request


def test_only_who_takes_all_rules_away_takes_those_that_nobody_can_read(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then nobody but super users may do anything, and the log says which they are."""
    unread = PREFIX.key.replace("PREFIXED", "GLOB").replace("ALLOW", "DENY")
    give(admin, ORDERS)
    at_once(admin.topics.changing_document(Kind.ACLS, lambda rules: {**rules, unread: True}, CLOCK.now()))
    assert "GLOB" in caplog.text and "super.users" in caplog.text
    rights = admin.broker.access.rights(ALICE, "10.0.0.1")
    assert not rights.may(Operation.READ, Resource.TOPIC, "orders")
    assert admin.broker.access.rights("User:root", "10.0.0.1").may(Operation.READ, Resource.TOPIC, "orders")
    (result,) = admin.ask("delete_acls", 3, filters=[EVERYTHING | {"resource_type_filter": 2}]).filter_results
    assert len(result.matching_acls) == 1
    assert list(admin.topics.document(Kind.ACLS)) == [unread]
    (result,) = admin.ask("delete_acls", 3, filters=[EVERYTHING]).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.none, ())
    assert not admin.topics.document(Kind.ACLS)
    give(admin, ORDERS)
    assert rights.may(Operation.READ, Resource.TOPIC, "orders")


def test_there_is_no_room_for_rules_without_end(admin: Admin) -> None:
    """Each rule is answered for itself; what was made before there was no more room is there."""
    rules = [creation(rule("x" * 200 + str(number))) for number in range(6_000)]
    errors = create(admin, 3, *rules)
    assert errors[0] is ErrorCode.none and errors[-1] is ErrorCode.policy_violation
    assert len(described(admin, 3)) == errors.count(ErrorCode.none)


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    admin = Admin(tmp_path)
    assert admin.ask("describe_acls", 3, **EVERYTHING).error_code is ErrorCode.security_disabled
    assert create(admin, 3, creation(ORDERS)) == [ErrorCode.security_disabled]
    (result,) = admin.ask("delete_acls", 3, filters=[EVERYTHING]).filter_results
    assert result.error_code is ErrorCode.security_disabled


def test_who_may_not_alter_the_cluster_changes_no_rules(admin: Admin) -> None:
    give(admin, ORDERS)
    admin.principal = ALICE
    assert create(admin, 3, creation(PREFIX)) == [ErrorCode.cluster_authorization_failed]
    (result,) = admin.ask("delete_acls", 3, filters=[EVERYTHING]).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.cluster_authorization_failed, ())
    assert admin.ask("describe_acls", 3, **EVERYTHING).error_code is ErrorCode.cluster_authorization_failed
    admin.principal = "User:root"
    assert described(admin, 3) == {ORDERS}
