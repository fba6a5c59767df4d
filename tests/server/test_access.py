"""What counts of the rules here, and from when on."""

import gc
from pathlib import Path
from typing import Any

import pytest

from oncelog.log.work_steps import at_once
from oncelog.security.bindings import Binding, Pattern, Permission
from oncelog.security.documents import Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server import access as access_module
from oncelog.server.access import EVERY_RIGHT, Rights
from oncelog.server.names import METADATA_TOPIC
from oncelog.server.operations import CLUSTER, KNOWN
from tests.server.admin_support import CLOCK, Admin

ALICE = "User:alice"
ASKED = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def rule(name: str = "orders", operation: Operation = Operation.READ, **others: Any) -> Binding:
    plain = Binding(Resource.TOPIC, Pattern.LITERAL, name, ALICE, "*", operation, Permission.ALLOW)
    return plain._replace(**others)


def give(admin: Admin, *bindings: Binding) -> None:
    given = {each.key: True for each in bindings}
    at_once(admin.topics.changing_document(Kind.ACLS, lambda document: {**document, **given}, CLOCK.now()))


def take_all(admin: Admin) -> None:
    at_once(admin.topics.changing_document(Kind.ACLS, lambda document: {}, CLOCK.now()))


def may_read(rights: Rights, name: str = "orders") -> bool:
    return rights.may(Operation.READ, Resource.TOPIC, name)


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path, ASKED, "super.users=User:root;User:other root")


def test_without_an_authorizer_everybody_has_every_right_and_nothing_is_looked_up(tmp_path: Path) -> None:
    assert Admin(tmp_path).broker.access.rights(ALICE, "10.0.0.1") is EVERY_RIGHT


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["super.users=User:root"], "super.users counts for nothing, and everybody may do everything"),
        (
            ["super.users=User:a", "allow.everyone.if.no.acl.found=false"],
            "super.users and allow.everyone.if.no.acl.found count for nothing",
        ),
        ([], None),
        ([ASKED, "super.users=User:root"], None),
    ],
)
def test_who_gives_rights_and_has_nobody_ask_for_them_is_told_at_the_start(
    given: list[str], told: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Admin(tmp_path, *given)
    assert (told is None) is not ("count" in caplog.text)
    assert told is None or (told in caplog.text and ASKED in caplog.text)


def test_rules_and_users_of_before_that_nobody_asks_for_now_are_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Admin(tmp_path, ASKED)
    give(before, rule())
    at_once(before.topics.changing_document(Kind.USERS, lambda document: {**document, "alice": {}}, CLOCK.now()))
    assert "access rules" not in caplog.text
    Admin(tmp_path)
    assert "access rules: 1. They count for nothing" in caplog.text and ASKED in caplog.text
    assert "users with a password: 1. No listener asks for one" in caplog.text
    caplog.clear()
    Admin(tmp_path, ASKED)
    assert "access rules" not in caplog.text


@pytest.mark.parametrize("name", ["User:root", "User:other root"])
def test_super_users_have_every_right(admin: Admin, name: str) -> None:
    assert admin.broker.access.rights(name, "10.0.0.1") is EVERY_RIGHT


def test_a_rule_counts_at_once_and_no_longer_than_it_is_there(admin: Admin) -> None:
    rights = admin.broker.access.rights(ALICE, "10.0.0.1")
    assert not may_read(rights)
    give(admin, rule())
    assert may_read(rights) and not may_read(rights, "others")
    take_all(admin)
    assert not may_read(rights)


def test_who_must_decide_anew_is_told_of_a_change(admin: Admin) -> None:
    told = []
    admin.broker.access.tell_changes(lambda: told.append(may_read(admin.broker.access.rights(ALICE, "10.0.0.1"))))
    give(admin, rule())
    take_all(admin)
    assert told == [True, False]


def test_rules_are_there_after_a_start(tmp_path: Path) -> None:
    first = Admin(tmp_path, ASKED)
    give(first, rule())
    first.topics.close()
    first.broker.cluster.close()
    assert may_read(Admin(tmp_path, ASKED).broker.access.rights(ALICE, "10.0.0.1"))


def test_connections_of_one_principal_at_one_host_share_what_was_decided(admin: Admin) -> None:
    access = admin.broker.access
    rights = access.rights(ALICE, "::ffff:10.0.0.1")
    assert access.rights(ALICE, "10.0.0.1") is rights
    assert access.rights(ALICE, "10.0.0.2") is not rights and access.rights("User:bob", "10.0.0.1") is not rights


def test_what_was_decided_is_forgotten_with_the_last_connection(admin: Admin) -> None:
    rights = admin.broker.access.rights(ALICE, "10.0.0.1")
    may_read(rights)
    assert admin.broker.access.remembered() == {(ALICE, "10.0.0.1"): 1}
    del rights
    gc.collect()
    assert admin.broker.access.remembered() == {}


def test_not_more_is_remembered_than_was_said(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_REMEMBERED", 100)
    access = admin.broker.access
    two = [access.rights(each, "10.0.0.1") for each in (ALICE, "User:bob")]
    for number in range(1000):
        may_read(two[number % 2], f"topic-{number}")
        assert 0 < sum(access.remembered().values()) <= 100
    before = access.remembered()
    may_read(two[0], "x" * 250)
    assert access.remembered() == before


@pytest.mark.parametrize("resource", KNOWN)
def test_what_may_be_done_is_told_of_what_can_be_done(admin: Admin, resource: Resource) -> None:
    name = CLUSTER_NAME if resource is Resource.CLUSTER else "orders"
    rights = admin.broker.access.rights(ALICE, "10.0.0.1")
    assert rights.operations(resource, name) == 0
    give(admin, rule(name, Operation.ALL, resource=resource))
    assert rights.operations(resource, name) == KNOWN[resource] == EVERY_RIGHT.operations(resource, name)


def test_bits_of_the_cluster_are_kafkas() -> None:
    assert CLUSTER == 0b1_1111_1010_0000 & ~(1 << Operation.DELETE) & ~(1 << Operation.READ)


def test_a_right_to_write_somewhere_is_remembered_until_a_change(admin: Admin) -> None:
    rights = admin.broker.access.rights(ALICE, "10.0.0.1")
    assert not rights.may_somewhere(Operation.WRITE, Resource.TOPIC)
    give(admin, rule(operation=Operation.WRITE))
    assert rights.may_somewhere(Operation.WRITE, Resource.TOPIC)


def test_a_rule_that_cannot_be_read_allows_nothing_and_is_said(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    give(admin, rule())
    at_once(admin.topics.changing_document(Kind.ACLS, lambda old: {**old, "from later": True}, CLOCK.now()))
    assert "from later" in caplog.text
    assert METADATA_TOPIC in caplog.text
    assert not may_read(admin.broker.access.rights(ALICE, "10.0.0.1"))
