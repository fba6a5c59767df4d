"""`oncelog acls`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    Admin,
    ResourcePatternType,
    ResourceType,
)
from oncelog.embedded import Server
from oncelog.server.secure import AUTHORIZER
from oncelog.server.users import add_user
from tests.cli.running import Oncelog
from tests.server.test_access import ASKED


@pytest.fixture(scope="module")
def asked() -> Iterator[Server]:
    name, value = ASKED.split("=")
    with Server(settings={name: value, "super.users": "User:ANONYMOUS"}) as server:
        yield server


@pytest.fixture
def acls(asked: Server) -> Iterator[Oncelog]:
    oncelog = Oncelog(asked.bootstrap_servers)
    yield oncelog
    oncelog("acls remove", "--resource-pattern-type", "any", "--topic", "orders", "--topic", "ord", "--cluster")
    oncelog("acls remove", "--principal", "User:alice")


def rows(said: object) -> list[tuple[str, ...]]:
    assert isinstance(said, list)
    return [tuple(each[name] for name in ("permission", "operation", "resource", "name", "pattern")) for each in said]


def test_a_rule_is_added_listed_and_removed(acls: Oncelog) -> None:
    acls("acls add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    row = {
        "permission": "allow",
        "principal": "User:alice",
        "host": "*",
        "operation": "Read",
        "resource": "topic",
        "name": "orders",
        "pattern": "literal",
    }
    assert acls("acls", "-J").json == acls("acls list", "--topic", "orders", "-J").json == [row]
    assert acls("acls list", "--topic", "others", "-J").json == []
    assert acls("acls list", "--principal", "User:bob", "-J").json == []
    assert acls("acls list").lines == [
        "PERMISSION  PRINCIPAL   HOST  OPERATION  RESOURCE  NAME    PATTERN",
        "allow       User:alice  *     Read       topic     orders  literal",
    ]
    removing = ("acls remove", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders", "-J")
    assert acls(*removing).json == [row]
    assert acls("acls", "-J").json == acls(*removing).json == []


def test_what_was_made_is_told_and_without_an_operation_it_is_all_of_them(acls: Oncelog) -> None:
    whom = ("--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--cluster")
    assert acls("acls add", *whom).lines == [
        "PERMISSION  PRINCIPAL  HOST      OPERATION  RESOURCE  NAME           PATTERN",
        "deny        User:*     10.0.0.1  All        cluster   kafka-cluster  literal",
    ]
    assert rows(acls("acls", "-J").json) == [("deny", "All", "cluster", "kafka-cluster", "literal")]


def test_the_words_that_made_a_rule_take_it_away_and_no_other(acls: Oncelog) -> None:
    alice = ("--allow-principal", "User:alice", "--topic", "orders")
    for more in ((), ("--operation", "Read")):
        acls("acls add", *alice, *more)
    assert rows(acls("acls remove", *alice, "-J").json) == [("allow", "All", "topic", "orders", "literal")]
    assert rows(acls("acls", "-J").json) == [("allow", "Read", "topic", "orders", "literal")]


def test_a_producer_and_a_consumer_get_what_kafka_acls_gives_them(acls: Oncelog) -> None:
    whom = ("--allow-principal", "User:alice")
    acls("acls add", *whom, "--producer", "--topic", "ord", "--resource-pattern-type", "prefixed")
    acls("acls add", *whom, "--consumer", "--topic", "orders", "--group", "readers")
    assert rows(acls("acls", "-J").json) == [
        ("allow", "Read", "group", "readers", "literal"),
        ("allow", "Create", "topic", "ord", "prefixed"),
        ("allow", "Describe", "topic", "ord", "prefixed"),
        ("allow", "Write", "topic", "ord", "prefixed"),
        ("allow", "Describe", "topic", "orders", "literal"),
        ("allow", "Read", "topic", "orders", "literal"),
    ]
    matching = acls("acls list", "--topic", "orders", "--resource-pattern-type", "match", "-J").json
    assert {each["name"] for each in matching} == {"orders", "ord"}
    acls("acls remove", *whom, "--producer", "--topic", "ord", "--resource-pattern-type", "prefixed")
    assert {each["name"] for each in acls("acls", "-J").json} == {"orders", "readers"}


def test_a_producer_with_transactions_gets_what_kafka_acls_gives_it(acls: Oncelog) -> None:
    things = ("--topic", "ord", "--transactional-id", "t", "--resource-pattern-type", "prefixed")
    role = ("--allow-principal", "User:alice", "--producer", "--idempotent", *things)
    made = acls("acls add", *role, "-J").json
    assert rows(made) == [
        ("allow", "IdempotentWrite", "cluster", "kafka-cluster", "literal"),
        *(("allow", each, "topic", "ord", "prefixed") for each in ("Create", "Describe", "Write")),
        *(("allow", each, "transactional_id", "t", "prefixed") for each in ("Describe", "Write")),
    ]
    assert acls("acls remove", *role, "-J").json == made
    assert acls("acls", "-J").json == []


def test_all_rules_of_a_principal_or_of_a_topic_are_removed(acls: Oncelog) -> None:
    for whom in ("User:alice", "User:bob"):
        acls("acls add", "--allow-principal", whom, "--topic", "orders", "--group", "readers", "--operation", "Read")
    assert len(acls("acls remove", "--principal", "User:alice", "-J").json) == 2
    assert len(acls("acls remove", "--topic", "orders", "-J").json) == 1
    assert rows(acls("acls", "-J").json) == [("allow", "Read", "group", "readers", "literal")]
    acls("acls remove", "--principal", "User:bob")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add --topic orders", "say who"),
        ("add --allow-principal User:a", "say what about: --topic, --group, --transactional-id or --cluster"),
        (
            "add --allow-principal User:a --allow-principal User:b --deny-host h --topic t",
            "a --deny-principal is meant",
        ),
        ("add --allow-principal User:a --producer --group g", "a producer needs nothing of it"),
        ("add --allow-principal User:a --idempotent --topic t", "--idempotent goes with --producer"),
        ("remove --principal User:a --idempotent", "--idempotent goes with --producer"),
        ("remove --topic t --idempotent", "--idempotent goes with --producer"),
        (
            "add --allow-principal User:a --operation Write --topic t --group g",
            "with --group one of All, Read, Delete,",
        ),
        ("add --allow-principal User:a --allow-host 10.0.0.0/8 --topic t", "10.0.0.0/8: rules name single addresses"),
        ("add --deny-principal User:a --deny-host there --topic t", "there: rules name single addresses, or *"),
        ("remove --allow-principal User:a --producer", "say what about"),
        ("remove --deny-principal User:a", "all rules about somebody: --principal User:alice"),
        ("remove", "say which rules: --topic, --group, --transactional-id, --cluster, --principal, or --all"),
        ("remove --principal alice", "alice: expected TYPE:NAME, such as User:alice"),
        ("list --principal alice", "alice: expected TYPE:NAME, such as User:alice"),
        ("add --allow-principal User:a --topic t --operation Fly", "'Fly' is not one of"),
    ],
)
def test_what_lacks_a_part_is_refused(acls: Oncelog, words: str, said: str) -> None:
    ended = acls.run(f"acls {words}")
    assert ended.code == 2 and said in ended.refusal


def test_an_operation_alone_takes_nothing_from_everybody(acls: Oncelog) -> None:
    acls("acls add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    said = acls.run("acls remove", "--operation", "Read")
    assert said.code == 2 and "--operation alone would take it from everybody: name --topic, --group," in said.refusal
    assert len(acls("acls", "-J").json) == 1
    assert len(acls("acls remove", "--operation", "Read", "--principal", "User:alice", "-J").json) == 1


def test_where_no_rule_is_like_that_it_is_said_and_is_no_failure(acls: Oncelog) -> None:
    acls("acls add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    said = acls("acls remove", "--allow-principal", "User:alice", "--topic", "orders", "-J")
    assert (said.json, said.err) == ([], "No rule is like that; `oncelog acls list` shows all.\n")
    assert acls("acls remove", "--topic", "orders", "-J").err == ""


def test_rules_of_a_network_that_others_have_made_can_be_taken_away(acls: Oncelog, asked: Server) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "10.0.0.0/8",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    with Admin({"bootstrap.servers": asked.bootstrap_servers}) as admin:
        for future in admin.create_acls([rule]).values():
            future.result(60)
    words = ("--deny-principal", "User:alice", "--deny-host", "10.0.0.0/8", "--operation", "Read", "--topic", "orders")
    assert [each["host"] for each in acls("acls remove", *words, "-J").json] == ["10.0.0.0/8"]


@pytest.mark.parametrize("option", ["--allow-principal", "--deny-principal"])
def test_a_principal_without_a_type_is_refused_with_one(option: str, acls: Oncelog) -> None:
    ended = acls.run("acls add", option, "alice", "--topic", "orders")
    assert ended.code == 2 and "expected TYPE:NAME, such as User:alice" in ended.refusal


GIVES = "`oncelog acls add --allow-principal User:... --operation"


@pytest.fixture(scope="module")
def without_rights() -> Iterator[Oncelog]:
    name, value = ASKED.split("=")
    with Server(settings={name: value}) as server:
        yield Oncelog(server.bootstrap_servers)


@pytest.mark.parametrize(
    ("command", "operation", "option"),
    [
        ("acls", "Describe", "--cluster"),
        ("acls add --allow-principal User:a --topic t", "Alter", "--cluster"),
        ("acls remove --topic t", "Alter", "--cluster"),
        ("users", "Describe", "--cluster"),
        ("users remove a", "Alter", "--cluster"),
        ("quotas", "DescribeConfigs", "--cluster"),
        ("quotas set -u a producer_byte_rate=1", "AlterConfigs", "--cluster"),
        ("cluster describe", "Describe", "--cluster"),
        ("groups describe billing", "Describe", "--group billing"),
        ("groups delete billing", "Delete", "--group billing"),
        ("groups reset billing -o end", "Read", "--group billing"),
    ],
)
def test_who_lacks_a_right_is_told_which_and_what_gives_it(
    without_rights: Oncelog, command: str, operation: str, option: str
) -> None:
    where = "the cluster" if option == "--cluster" else "the group billing"
    refusal = without_rights.run(command).refusal
    assert f"uthorization failed: this takes {operation} on {where}: {GIVES} {operation} {option}`" in refusal


def test_who_lacks_a_right_on_a_topic_is_told_which_and_what_gives_it(without_rights: Oncelog) -> None:
    refusal = without_rights.run("topics create", "orders").refusal
    assert refusal.startswith("orders: Broker: Topic authorization failed: this takes Create on the topic orders: ")
    assert refusal.endswith(f"{GIVES} Create --topic orders`") and refusal.count("uthorization failed") == 1
    refusal = without_rights.run("produce -t orders", stdin=b"a").refusal
    assert refusal.endswith(f"{GIVES} Write --topic orders`")


def test_the_user_is_named_where_he_has_said_his_name(without_rights: Oncelog) -> None:
    refusal = without_rights.run("topics create -X sasl.username=ann", "orders").refusal
    assert refusal.endswith("`oncelog acls add --allow-principal User:ann --operation Create --topic orders`")


def test_the_name_of_a_group_is_quoted_as_shells_want_it(without_rights: Oncelog) -> None:
    refusal = without_rights.run("groups describe", "a b").refusal
    assert refusal.endswith(f"on the group a b: {GIVES} Describe --group 'a b'`")


def test_who_is_answered_is_not_told_to_start_a_server() -> None:
    with Server(secure=True) as server:
        refusal = Oncelog(server.bootstrap_servers).run("topics list").refusal
    assert "does this listener want TLS" in refusal and "start a server" not in refusal


@pytest.mark.parametrize("command", ["acls", "acls add --allow-principal User:a --operation All --topic t"])
def test_where_nobody_is_asked_for_rights_that_is_said_and_what_asks(oncelog: Oncelog, command: str) -> None:
    refusal = oncelog.run(command).refusal
    assert "No Authorizer is configured: start the server with --secure, or with authorizer.class.name=" in refusal
    assert refusal.endswith(AUTHORIZER)


def test_all_rules_are_taken_away_by_that_word_alone(acls: Oncelog) -> None:
    """Where some cannot be read, no other filter finds them."""
    acls("acls add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    said = acls.run("acls remove", "--operation", "Read", "--all")
    assert said.code == 2 and "--all and nothing else" in said.refusal
    assert [each["name"] for each in acls("acls remove", "--all", "-J").json] == ["orders"]
    assert acls("acls", "-J").json == []


def test_what_is_not_there_may_be_hidden_and_a_refusal_is_said_once(tmp_path: Path) -> None:
    with Server(secure=True) as server:
        file = tmp_path / "client.properties"
        file.write_text("\n".join(f"{name}={value}" for name, value in server.client_config.items()))
        server.call(add_user, server.broker, "alice", "hers")
        oncelog = Oncelog(server.bootstrap_servers)
        refusal = oncelog.run("topics describe", "orders", "-F", str(file)).refusal
        as_alice = ("-F", str(file), "-X", "sasl.username=alice", "-X", "sasl.password=hers")
        refused = oncelog.run("acls list", *as_alice).refusal
    assert "there is no topic orders, or this user may not describe it: `oncelog topics` lists all" in refusal
    assert refused.count("uthorization failed") == 1
