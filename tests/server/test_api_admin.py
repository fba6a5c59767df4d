"""The admin requests, in every version that is served, read back with kio's own reader."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from tests.server.admin_support import EVERY_VERSION, Admin, api_named, versions
from tests.server.topics_support import EVERY_TURN_IS_OVER


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path)


def topic_request(name: str = "orders", **values: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()} | values


def create(admin: Admin, version: int, *topics: dict[str, Any], validate_only: bool = False) -> Any:
    return admin.ask("create_topics", version, topics=topics, validate_only=validate_only).topics


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_an_empty_request_of_every_version_gets_an_answer(admin: Admin, name: str, version: int) -> None:
    assert admin.ask(name, version) is not None


# CreateTopics


@pytest.mark.parametrize("version", versions("create_topics"))
def test_topics_are_created(admin: Admin, version: int) -> None:
    config = {"name": "retention.ms", "value": "5000"}
    (result,) = create(admin, version, topic_request(num_partitions=3, configs=[config]))
    assert result.error_code is ErrorCode.none
    topic = admin.topics.get("orders")
    assert topic is not None and len(topic.partitions) == 3 and topic.configs == {"retention.ms": "5000"}
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {each.name: (each.value, each.config_source) for each in result.configs}
        assert configs["retention.ms"] == ("5000", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert result.topic_id == topic.id


@pytest.mark.parametrize("version", versions("create_topics"))
def test_each_topic_is_refused_for_itself(admin: Admin, version: int) -> None:
    wanted: list[tuple[dict[str, Any], ErrorCode]] = [
        (topic_request("good"), ErrorCode.none),
        (topic_request("bad name"), ErrorCode.invalid_topic_exception),
        (topic_request(".."), ErrorCode.invalid_topic_exception),
        (topic_request("none", num_partitions=0), ErrorCode.invalid_partitions),
        (topic_request("million", num_partitions=1_000_000), ErrorCode.invalid_partitions),
        (topic_request("three", replication_factor=3), ErrorCode.invalid_replication_factor),
        (topic_request("zero", replication_factor=0), ErrorCode.invalid_replication_factor),
        (topic_request("odd", configs=[{"name": "odd", "value": "1"}]), ErrorCode.invalid_config),
        (topic_request("nul", configs=[{"name": "retention.ms", "value": None}]), ErrorCode.invalid_config),
        (topic_request("__consumer_offsets"), ErrorCode.invalid_topic_exception),
        (topic_request("__oncelog_metadata"), ErrorCode.invalid_topic_exception),
        (topic_request("defaults", num_partitions=-1, replication_factor=-1), ErrorCode.none),
    ]
    results = create(admin, version, *(request for request, _ in wanted))
    assert [(result.name, result.error_code) for result in results] == [(r["name"], code) for r, code in wanted]
    assert all(result.error_message for result in results if result.error_code is not ErrorCode.none)
    assert {topic.name for topic in admin.topics.all()} == {"good", "defaults"}


def test_a_topic_that_is_there_is_not_created_again(admin: Admin) -> None:
    """Nor refused for another reason: Connect makes its topics at each start, and must not be kept where a broker is
    away and they could have no third copy now."""
    topic = admin.new_topic()
    for asked in (topic_request(), topic_request(replication_factor=3), topic_request(num_partitions=0)):
        (result,) = create(admin, 7, asked)
        assert result.error_code is ErrorCode.topic_already_exists
    assert admin.topics.get("orders") is topic


def test_a_name_that_is_there_twice_is_answered_once_and_not_created(admin: Admin) -> None:
    results = create(admin, 7, topic_request("a"), topic_request("b"), topic_request("a"))
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.invalid_request),
        ("b", ErrorCode.none),
    ]
    assert admin.topics.get("a") is None


@pytest.mark.parametrize("version", versions("create_topics"))
def test_validating_creates_nothing(admin: Admin, version: int) -> None:
    good, bad = create(admin, version, topic_request("a"), topic_request("b", num_partitions=0), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.none, ErrorCode.invalid_partitions)
    assert admin.topics.all() == []


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        ([(0, [1]), (1, [1])], ErrorCode.none),
        ([(1, [1]), (0, [1])], ErrorCode.none),
        ([(0, [2])], ErrorCode.invalid_replica_assignment),
        ([(0, [1, 2])], ErrorCode.invalid_replica_assignment),
        ([(0, [1, 1])], ErrorCode.invalid_replica_assignment),
        ([(0, [])], ErrorCode.invalid_replica_assignment),
        ([(0, [1]), (2, [1])], ErrorCode.invalid_replica_assignment),
        ([(0, [1]), (0, [1])], ErrorCode.invalid_replica_assignment),
        ([(-1, [1])], ErrorCode.invalid_replica_assignment),
    ],
)
def test_a_manual_assignment_must_name_this_node(
    admin: Admin, assignments: list[tuple[int, list[int]]], code: ErrorCode
) -> None:
    given = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assignments]
    (result,) = create(admin, 7, topic_request(num_partitions=-1, replication_factor=-1, assignments=given))
    assert result.error_code is code
    topic = admin.topics.get("orders")
    assert (topic is not None and len(topic.partitions) == len(assignments)) is (code is ErrorCode.none)


def test_an_assignment_and_a_count_contradict_each_other(admin: Admin) -> None:
    given = [{"partition_index": 0, "broker_ids": [1]}]
    (result,) = create(admin, 7, topic_request(assignments=given))
    assert result.error_code is ErrorCode.invalid_request


# DeleteTopics


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(admin: Admin, version: int, tmp_path: Path) -> None:
    admin.new_topic("gone", 2)
    admin.new_topic("kept")
    gone, unknown = admin.ask("delete_topics", version, topic_names=["gone", "never"]).responses
    assert (gone.name, gone.error_code) == ("gone", ErrorCode.none)
    assert (unknown.name, unknown.error_code) == ("never", ErrorCode.unknown_topic_or_partition)
    assert [topic.name for topic in admin.topics.all()] == ["kept"]
    assert {path.name for path in tmp_path.iterdir()} == {"server.meta", "__oncelog_metadata-0", "kept-0"}


def test_topics_are_deleted_by_id(admin: Admin) -> None:
    by_id, by_name = admin.new_topic("a"), admin.new_topic("b")
    stranger = uuid4()
    asked = [
        {"name": None, "topic_id": by_id.id},
        {"name": "b", "topic_id": None},
        {"name": None, "topic_id": stranger},
        {"name": None, "topic_id": None},
        {"name": "c", "topic_id": stranger},
    ]
    responses = admin.ask("delete_topics", 6, topics=asked).responses
    assert [(each.name, each.topic_id, each.error_code) for each in responses] == [
        ("a", by_id.id, ErrorCode.none),
        ("b", by_name.id, ErrorCode.none),
        (None, stranger, ErrorCode.unknown_topic_id),
        (None, None, ErrorCode.invalid_request),
        ("c", stranger, ErrorCode.invalid_request),
    ]
    assert admin.topics.all() == []


def test_what_was_asked_is_deleted_whole_also_when_the_client_hangs_up_half_way(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        admin.new_topic(name)
    admin.broker.turns = EVERY_TURN_IS_OVER
    removed: list[None] = []
    remove = admin.topics.remove_deleted
    monkeypatch.setattr(admin.topics, "remove_deleted", lambda: removed.append(remove()))

    async def hang_up_half_way() -> None:
        asked = SimpleNamespace(topics=[SimpleNamespace(name=name, topic_id=None) for name in ("first", "second")])
        handle = api_named("delete_topics").handle
        assert handle is not None
        deleting = asyncio.ensure_future(handle(asked, admin.call("delete_topics", 6)))
        await asyncio.sleep(0)
        deleting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deleting
        while not removed:
            await asyncio.sleep(0)

    asyncio.run(hang_up_half_way())
    assert admin.topics.all() == []
    assert list(tmp_path.glob("deleted.*")) == []


@pytest.mark.parametrize("version", range(1, 6))
def test_deletion_that_is_off_is_said_in_words_that_the_version_knows(tmp_path: Path, version: int) -> None:
    admin = Admin(tmp_path, "delete.topic.enable=false")
    admin.new_topic("a")
    (response,) = admin.ask("delete_topics", version, topic_names=["a"]).responses
    assert response.error_code is (ErrorCode.topic_deletion_disabled if version >= 3 else ErrorCode.invalid_request)


# CreatePartitions


@pytest.mark.parametrize("version", versions("create_partitions"))
def test_a_topic_grows(admin: Admin, version: int) -> None:
    topic = admin.new_topic("a", 2)
    first = topic.partitions[0]
    asked = [{"name": "a", "count": 4, "assignments": None}]
    (dry,) = admin.ask("create_partitions", version, topics=asked, validate_only=True).results
    assert (dry.error_code, len(topic.partitions)) == (ErrorCode.none, 2)
    (result,) = admin.ask("create_partitions", version, topics=asked).results
    assert result.error_code is ErrorCode.none
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
    assert topic.partitions[0] is first


@pytest.mark.parametrize("version", versions("create_partitions"))
@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"name": "a", "count": 2}, ErrorCode.invalid_partitions),
        ({"name": "a", "count": 1}, ErrorCode.invalid_partitions),
        ({"name": "a", "count": 1_000_000}, ErrorCode.invalid_partitions),
        ({"name": "never", "count": 3}, ErrorCode.unknown_topic_or_partition),
        ({"name": "a", "count": 3, "assignments": [{"broker_ids": [1]}]}, ErrorCode.none),
        ({"name": "a", "count": 3, "assignments": [{"broker_ids": [2]}]}, ErrorCode.invalid_replica_assignment),
        ({"name": "a", "count": 3, "assignments": []}, ErrorCode.invalid_replica_assignment),
        ({"name": "a", "count": 4, "assignments": [{"broker_ids": [1]}]}, ErrorCode.invalid_replica_assignment),
    ],
)
def test_growing_is_refused_for_its_reason(admin: Admin, version: int, values: dict[str, Any], code: ErrorCode) -> None:
    admin.new_topic("a", 2)
    (result,) = admin.ask("create_partitions", version, topics=[{"assignments": None, **values}]).results
    assert result.error_code is code


# The rest


@pytest.mark.parametrize("version", versions("describe_log_dirs"))
def test_log_folders_are_described(admin: Admin, version: int, tmp_path: Path) -> None:
    admin.new_topic("a", 2)
    admin.new_topic("b")
    (everything,) = admin.ask("describe_log_dirs", version, topics=None).results
    assert everything.log_dir == str(tmp_path)
    found = {topic.name: [each.partition_index for each in topic.partitions] for topic in everything.topics}
    assert found == {"a": [0, 1], "b": [0]}
    asked = [{"topic": "a", "partitions": [1, 9]}, {"topic": "never", "partitions": [0]}]
    (some,) = admin.ask("describe_log_dirs", version, topics=asked).results
    assert [(topic.name, len(topic.partitions)) for topic in some.topics] == [("a", 1)]
    if version >= 4:
        assert everything.usable_bytes > 0


@pytest.mark.parametrize("version", versions("elect_leaders"))
def test_no_election_is_needed(admin: Admin, version: int) -> None:
    admin.new_topic("a")
    asked = [{"topic": "a", "partitions": [0, 1]}]
    (result,) = admin.ask("elect_leaders", version, topic_partitions=asked).replica_election_results
    codes = [each.error_code for each in result.partition_result]
    assert codes == [ErrorCode.election_not_needed, ErrorCode.unknown_topic_or_partition]


@pytest.mark.parametrize("version", versions("describe_acls"))
def test_access_rules_are_said_to_be_off(admin: Admin, version: int) -> None:
    assert admin.ask("describe_acls", version).error_code is ErrorCode.security_disabled


def test_no_partition_is_on_its_way_anywhere(admin: Admin) -> None:
    admin.new_topic("a")
    answer = admin.ask("list_partition_reassignments", 0, topics=None)
    assert (answer.error_code, answer.topics) == (ErrorCode.none, ())


@pytest.mark.parametrize("version", versions("describe_quorum"))
def test_a_server_that_stands_alone_is_its_own_quorum(admin: Admin, version: int) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    first = admin.ask("describe_quorum", version, topics=asked).topics[0].partitions[0].high_watermark
    admin.new_topic("a")
    answer = admin.ask("describe_quorum", version, topics=asked)
    (partition,) = answer.topics[0].partitions
    assert (answer.error_code, partition.error_code, partition.leader_id) == (ErrorCode.none, ErrorCode.none, 1)
    assert partition.high_watermark > first, "what a topic is stands in that log"
    assert [each.replica_id for each in partition.current_voters] == [1] and not partition.observers


@pytest.mark.parametrize("version", versions("alter_partition_reassignments"))
def test_partitions_that_are_asked_to_where_they_are_stay(admin: Admin, version: int) -> None:
    """Each entry is answered by itself, also where one partition is named twice."""
    admin.new_topic("a")
    partitions = [{"partition_index": 0, "replicas": to} for to in ([1], None, [1, 1], [1])]
    topics = [{"name": "a", "partitions": partitions}]
    (topic,) = admin.ask("alter_partition_reassignments", version, topics=topics).responses
    assert [each.error_code for each in topic.partitions] == [
        ErrorCode.none,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.none,
    ]
