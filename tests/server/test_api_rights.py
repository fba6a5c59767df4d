"""What each request asks for is what the table says; and what one may not know of looks like what is not there."""

import asyncio
import inspect
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from oncelog.embedded import Server
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.access import EVERY_RIGHT, Rights
from oncelog.server.api import apis
from oncelog.server.api_rights import NEEDS
from oncelog.server.operations import KNOWN
from oncelog.wire.follower_fetch import FollowedPartition, FollowerFetch
from tests.peers import rights
from tests.raw import RawConnection, Rec, batch
from tests.server.admin_support import Admin, _answered, api_named
from tests.server.rights_page import PAGE, page_with, table
from tests.server.test_access import ASKED
from tests.waiting import until

THERE, ABSENT = "orders", "absent"  # as long as each other: answers are compared as texts
GROUP, OTHER_GROUP, ABSENT_GROUP = "readers", "others", "nobodys"
TRANSACTIONAL_ID, ABSENT_ID = "payments", "absentee"
NOBODY = {"producer_id": -1, "producer_epoch": -1}

Asked = tuple[str, int, dict[str, Any]]


def questions(topic: str, group: str = GROUP, transactional_id: str = TRANSACTIONAL_ID) -> list[Asked]:
    """Of each request one, or what it takes to come by all that it asks for; of a version that has a place for it."""
    one = [{"name": topic, "partitions": [0]}]
    offset = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    ours = {"transactional_id": transactional_id, "producer_id": 2**32, "producer_epoch": 0}
    commit_of_transaction = {"group_id": group, "generation_id": -1, "member_id": "", "topics": offset}
    commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": offset}
    member = {"group_id": group, "member_id": "nobody", "generation_id": 1}
    joining = {
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout": timedelta(seconds=1),
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    quota = {"entity": [{"entity_type": "user", "entity_name": "anna"}], "ops": []}
    configs = [{"resource_type": 2, "resource_name": topic}, {"resource_type": 4, "resource_name": ""}]
    configs += [{"resource_type": 16, "resource_name": topic}, {"resource_type": 32, "resource_name": group}]
    return [
        ("fetch", 12, {"replica_id": -1, "topics": [{"topic": topic, "partitions": [{"partition": 0}]}]}),
        ("list_offsets", 7, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
        ("metadata", 9, {"topics": [{"name": topic}], "include_topic_authorized_operations": True}),
        ("metadata", 9, {"topics": [{"name": "new"}]}),
        ("metadata", 9, {"topics": None, "include_cluster_authorized_operations": True}),
        ("offset_commit", 8, commit),
        ("offset_fetch", 8, {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]}),
        ("offset_fetch", 8, {"groups": [{"group_id": group, "topics": None}]}),
        ("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [group]}),
        ("find_coordinator", 4, {"key_type": 1, "coordinator_keys": [transactional_id]}),
        ("join_group", 5, {"group_id": group, "member_id": "nobody", "session_timeout": 10_000}),
        ("heartbeat", 3, member),
        ("leave_group", 3, {"group_id": group, "members": [{"member_id": "nobody"}]}),
        ("sync_group", 3, member),
        ("describe_groups", 5, {"groups": [group], "include_authorized_operations": True}),
        ("list_groups", 4, {}),
        ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        ("api_versions", 3, {}),
        ("create_topics", 7, {"topics": [{"name": topic, "num_partitions": 1}], "validate_only": True}),
        ("create_topics", 7, {"topics": [{"name": "newer", "num_partitions": 1, "replication_factor": 1}]}),
        ("delete_records", 2, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]}),
        ("init_producer_id", 4, {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}),
        ("init_producer_id", 4, {"transactional_id": transactional_id, "transaction_timeout": 1000, **NOBODY}),
        ("add_partitions_to_txn", 3, {f"v3_and_below_{name}": each for name, each in (ours | {"topics": one}).items()}),
        ("add_partitions_to_txn", 4, {"transactions": [ours | {"topics": one, "verify_only": True}]}),
        ("add_offsets_to_txn", 3, ours | {"group_id": group}),
        ("end_txn", 3, ours | {"committed": True}),
        ("write_txn_markers", 1, {"markers": []}),
        ("txn_offset_commit", 3, ours | commit_of_transaction),
        ("list_transactions", 0, {"state_filters": [], "producer_id_filters": []}),
        ("offset_for_leader_epoch", 3, {"topics": [{"topic": topic, "partitions": [{"partition": 0}]}]}),
        (
            "describe_acls",
            3,
            {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
        ),
        ("create_acls", 3, {"creations": [{}]}),
        ("delete_acls", 3, {"filters": [{}]}),
        ("describe_configs", 4, {"resources": [each | {"configuration_keys": None} for each in configs]}),
        ("alter_configs", 2, {"resources": configs, "validate_only": True}),
        ("incremental_alter_configs", 1, {"resources": configs, "validate_only": True}),
        ("describe_log_dirs", 4, {"topics": [{"topic": topic, "partitions": [0]}]}),
        ("sasl_authenticate", 2, {"auth_bytes": b""}),
        ("create_partitions", 3, {"topics": [{"name": topic, "count": 2, "assignments": None}], "validate_only": True}),
        ("delete_groups", 2, {"groups_names": [group]}),
        ("elect_leaders", 0, {"topic_partitions": [{"topic": topic, "partitions": [0]}]}),
        ("elect_leaders", 2, {"topic_partitions": [{"topic": topic, "partitions": [0]}]}),
        ("alter_partition_reassignments", 0, {"topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}),
        ("list_partition_reassignments", 0, {"topics": [{"name": topic, "partition_indexes": [0]}]}),
        ("offset_delete", 0, {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}),
        ("describe_client_quotas", 1, {"components": [], "strict": False}),
        ("alter_client_quotas", 1, {"entries": [quota], "validate_only": True}),
        ("describe_user_scram_credentials", 0, {"users": None}),
        ("alter_user_scram_credentials", 0, {"deletions": [{"name": "anna", "mechanism": 1}], "upsertions": []}),
        ("describe_quorum", 2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": []}]}),
        ("list_config_resources", 1, {"resource_types": []}),
        ("describe_cluster", 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
        ("describe_producers", 0, {"topics": [{"name": topic, "partition_indexes": [0]}]}),
        ("unregister_broker", 0, {"broker_id": 7}),
        ("describe_topic_partitions", 0, {"topics": [{"name": topic}], "response_partition_limit": 10}),
        ("describe_topic_partitions", 0, {"topics": [], "response_partition_limit": 10}),
        ("lease_pid", 0, {"topics": one}),
        ("resume_pid", 0, {"timeout": 0, "producers": [{"producer_id": 1, "generation": 1, "topics": one}]}),
        ("describe_leases", 0, {"topics": one}),
        ("consumer_group_heartbeat", 1, {"group_id": f"{group}-848"} | joining),
        ("consumer_group_describe", 1, {"group_ids": [f"{group}-848"], "include_authorized_operations": True}),
        ("delete_topics", 5, {"topic_names": [topic]}),
    ]


class Noting:
    """Rights that write down what is asked for."""

    def __init__(self, *, topics: bool, groups: bool, cluster: bool) -> None:
        self.asked: set[tuple[Operation, Resource]] = set()
        self._given = {Resource.TOPIC: topics, Resource.GROUP: groups, Resource.CLUSTER: cluster}
        self._given[Resource.TRANSACTIONAL_ID] = groups

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        assert resource is not Resource.CLUSTER or name == CLUSTER_NAME
        self.asked.add((operation, resource))
        return self._given[resource]

    def may_somewhere(self, operation: Operation, resource: Resource) -> bool:
        return self.may(operation, resource, "")

    def operations(self, resource: Resource, name: str) -> int:
        return KNOWN[resource]


class Asking(Admin):
    rights: Rights = EVERY_RIGHT

    def call(self, name: str, version: int) -> Any:
        call = super().call(name, version)
        call.rights = self.rights
        return call

    async def start_groups(self) -> None:
        self.broker.groups.start()
        self.broker.transactions.start()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[Operation, Resource]]]:
    """By request: what is asked of one who may do everything, of one who may nothing to the cluster, and so on."""
    found: dict[str, set[tuple[Operation, Resource]]] = {}
    for given in (
        {"topics": True, "groups": True, "cluster": True},
        {"topics": True, "groups": True, "cluster": False},
        {"topics": False, "groups": True, "cluster": False},
        {"topics": False, "groups": False, "cluster": False},
    ):
        admin = Asking(tmp_path_factory.mktemp("asked"))
        admin.new_topic(THERE)
        asyncio.run(admin.start_groups())
        for group in (GROUP, OTHER_GROUP):
            committed = next(values for name, _, values in questions(THERE, group) if name == "offset_commit")
            admin.ask("offset_commit", 8, **committed)  # with every right, so that there is something to be seen
            beat = next(values for name, _, values in questions(THERE, group) if name == "consumer_group_heartbeat")
            admin.ask("consumer_group_heartbeat", 1, **beat)
        for name, version, values in questions(THERE):
            admin.rights = noting = Noting(**given)
            admin.ask(name, version, **values)
            found.setdefault(name, set()).update(noting.asked)
    return found


OF_ANOTHER_KIND = {
    "produce": {(Operation.WRITE, Resource.TOPIC), (Operation.WRITE, Resource.TRANSACTIONAL_ID)},  # has no handler
    "describe_transactions": {  # kio reads no answer about one that there is not
        (Operation.DESCRIBE, Resource.TOPIC),
        (Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),
    },
    "fetch": {(Operation.CLUSTER_ACTION, Resource.CLUSTER)},  # a follower's is read by structs
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_request_asks_for_what_the_table_says(name: str, asked: dict[str, set[tuple[Operation, Resource]]]) -> None:
    wanted = {(need.operation, need.resource) for need in NEEDS[name]}
    assert asked.get(name, set()) == wanted - OF_ANOTHER_KIND.get(name, set())


def test_every_request_is_in_the_table() -> None:
    assert NEEDS.keys() == {api.name for api in apis().values()}
    asked = {name for name, _, _ in questions(THERE)}
    assert NEEDS.keys() - asked == {"produce", "describe_transactions"}


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text() == page_with(table()), "run: python -m tests.server.rights_page"


def test_a_follower_asks_for_the_cluster(tmp_path: Path) -> None:
    admin = Asking(tmp_path)
    admin.rights = noting = Noting(topics=False, groups=False, cluster=False)
    topic = admin.new_topic(THERE)
    followed = FollowedPartition(0, 0, 0, -1, 0, 100, 0)
    fetch = FollowerFetch(1, 1, 0, 0, 100, -1, [(topic.id.bytes, [followed])])
    handle = api_named("fetch").handle
    assert handle is not None
    asyncio.run(_answered(handle, fetch, admin.call("fetch", 15)))
    assert noting.asked == OF_ANOTHER_KIND["fetch"]


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Admin:
    admin = Admin(tmp_path_factory.mktemp("nobody"), ASKED)
    admin.new_topic(THERE)
    return admin


@pytest.mark.parametrize("number", range(len(questions(THERE))), ids=lambda number: questions(THERE)[number][0])
def test_what_one_may_not_know_of_looks_like_what_is_not_there(nobody: Admin, number: int) -> None:
    (name, version, there), (_, _, absent) = questions(THERE)[number], questions(ABSENT)[number]
    answers = [repr(nobody.ask(name, version, **values)) for values in (there, absent)]
    assert answers[0] == answers[1].replace(ABSENT, THERE)
    assert len(nobody.topics.all()) == 1, "nothing was made or taken away"


@pytest.fixture(scope="module")
def among_others(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    """Who may do nothing, where others have groups and transactions."""
    admin = Asking(tmp_path_factory.mktemp("others"), ASKED)
    admin.new_topic(THERE)
    asyncio.run(admin.start_groups())
    for name, version, values in questions(THERE):
        if name in ("offset_commit", "consumer_group_heartbeat", "init_producer_id"):
            admin.ask(name, version, **values)
    assert {GROUP, f"{GROUP}-848"} <= admin.broker.groups.groups.keys()
    assert TRANSACTIONAL_ID in admin.broker.transactions.entries
    admin.rights = admin.broker.access.rights(admin.principal, "127.0.0.1")
    return admin


@pytest.mark.parametrize("number", range(len(questions(THERE))), ids=lambda number: questions(THERE)[number][0])
def test_groups_and_transactions_of_others_look_like_none(among_others: Asking, number: int) -> None:
    (name, version, there), (_, _, absent) = (
        questions(THERE)[number],
        questions(THERE, ABSENT_GROUP, ABSENT_ID)[number],
    )
    answers = [repr(among_others.ask(name, version, **values)) for values in (there, absent)]
    assert answers[0] == answers[1].replace(ABSENT_GROUP, GROUP).replace(ABSENT_ID, TRANSACTIONAL_ID)


def test_a_pattern_is_not_tried_on_names_of_others(among_others: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long that takes would tell of them."""
    tried: list[str] = []
    handler = inspect.getmodule(api_named("list_transactions").handle)
    monkeypatch.setattr(handler, "compiled", lambda *_: SimpleNamespace(fullmatch=tried.append))
    asked = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": ".*"}
    answer = among_others.ask("list_transactions", 2, **asked)
    assert (answer.error_code, answer.transaction_states, tried) == (ErrorCode.none, (), [])


# On the wire: who comes from one address may do everything, who comes from another what they are given


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings=rights.SETTINGS) as server:
        with RawConnection(server.bootstrap_servers) as connection:
            rights.open_to_one_host(connection)
        yield server


def write(c: RawConnection, topic: str) -> ErrorCode:
    answer: ErrorCode = c.produce(topic, 0, batch([Rec(value=b"v")])).error_code
    return answer


def test_a_right_that_is_taken_away_counts_for_connections_that_have_used_it(server: Server) -> None:
    with (
        RawConnection(server.bootstrap_servers) as admin,
        RawConnection(server.bootstrap_servers, from_host=rights.THERE) as other,
    ):
        admin.create_topic("taken")
        assert write(other, "taken") is write(other, "gone") is ErrorCode.topic_authorization_failed
        rights.give(admin, [rights.rule(Resource.TOPIC, Operation.WRITE, name="taken")])
        assert [write(other, "taken") for _ in range(3)] == [ErrorCode.none] * 3
        rights.take_back(admin)
        assert write(other, "taken") is ErrorCode.topic_authorization_failed


@pytest.mark.parametrize("partitions", [1, 501])
def test_a_right_that_is_taken_away_counts_for_a_fetch_that_waits(server: Server, partitions: int) -> None:
    """It may wait for weeks, and would be answered with what was written since."""
    topic = f"awaited-{partitions}"  # more than 500 partitions are answered in turns
    with (
        RawConnection(server.bootstrap_servers) as admin,
        RawConnection(server.bootstrap_servers, from_host=rights.THERE) as other,
    ):
        admin.create_topic(topic, partitions)
        rights.give(admin, [rights.rule(Resource.TOPIC, Operation.READ, name=topic)])
        wanted = [{"partition": at, "partition_max_bytes": 1000} for at in range(partitions)]
        topics = [{"topic": topic, "partitions": wanted}]
        other.ask("fetch", 11, max_wait=60_000, min_bytes=1, max_bytes=1000, topics=topics)
        until(lambda: server.call(lambda: server.broker.looks.awaited) == partitions, "it to wait")
        rights.take_back(admin)
        admin.produce(topic, 0, batch([Rec(value=b"secret")]))
        first = other.answer().responses[0].partitions[0]
    assert first.error_code is ErrorCode.topic_authorization_failed
    assert not first.records and first.high_watermark == -1
