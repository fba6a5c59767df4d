"""What clients ask before they begin: versions, brokers, topics, coordinators, pids."""

import struct
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.log.work_steps import at_once
from oncelog.server.api import apis
from oncelog.server.errors import ErrorCode
from tests.raw import RawConnection, message
from tests.raw.topics import new_topic


def listed(answer: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_versions_are_listed_as_the_files_say(raw: RawConnection, version: int) -> None:
    named = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    found = listed(raw.call("api_versions", version, **named))
    assert found.keys() == apis().keys()
    for key, api in apis().items():
        low = api.versions[0] if api.advertise_from is None else api.advertise_from
        assert found[key] == (low, api.versions[1]), api.name


def test_features_that_clients_read_from_version_0_are_there(raw: RawConnection) -> None:
    """librdkafka sends lz4 uncompressed, and says nothing, unless it sees these."""
    found = listed(raw.call("api_versions", 0))
    assert found[0][0] == 0 and found[10][0] == 0


def test_a_too_new_version_is_answered_in_version_0_with_the_list(raw: RawConnection) -> None:
    raw.send_bytes(struct.pack(">hhi", 18, 99, 5) + b"\xff\xff" + b"whatever")
    kind = message("api_versions", 0)
    data = raw.receive_bytes()
    header, at = kind.read_header(data, 0)
    answer, _ = kind.read_response(data, at)
    assert (header.correlation_id, answer.error_code) == (5, ErrorCode.unsupported_version)
    assert 18 in listed(answer)
    assert raw.call("api_versions", 0).error_code is ErrorCode.none


def test_a_client_without_a_proper_name_is_told(raw: RawConnection) -> None:
    answer = raw.call("api_versions", 3, client_software_name="", client_software_version="1")
    assert answer.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("api", apis().values(), ids=lambda api: api.name)
def test_every_version_that_is_listed_has_its_messages(api: Any) -> None:
    for version in range(api.versions[0], api.versions[1] + 1):
        assert message(api.name, version).request.__api_key__ == api.key


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_brokers_and_topics_in_every_version(server: Server, raw: RawConnection, version: int) -> None:
    topic = new_topic(raw, 2)
    more = {"topic_id": None} if version >= 10 else {}
    flags: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    if version >= 8:
        flags |= {"include_topic_authorized_operations": True}
    if 8 <= version <= 10:
        flags |= {"include_cluster_authorized_operations": True}
    answer = raw.call("metadata", version, topics=[{"name": topic, **more}], **flags)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == server.bootstrap_servers
    assert answer.topics[0].name == topic
    partitions = answer.topics[0].partitions
    assert [(each.partition_index, each.leader_id) for each in partitions] == [(0, 1), (1, 1)]
    if version >= 8:
        assert answer.topics[0].topic_authorized_operations == 3576


def test_all_topics_are_listed_where_none_is_named(raw: RawConnection, topic: str) -> None:
    for version in (0, 1, 12):
        topics: list[Any] | None = [] if version == 0 else None
        flags: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
        if version >= 8:
            flags |= {"include_topic_authorized_operations": False}
        answer = raw.call("metadata", version, topics=topics, **flags)
        assert topic in [each.name for each in answer.topics]
    assert raw.call("metadata", 1, topics=[]).topics == ()


def test_topics_are_found_by_id(server: Server, raw: RawConnection, topic: str) -> None:
    from uuid import UUID

    found = server.broker.topics.get(topic)
    assert found is not None
    asked = [{"topic_id": found.id, "name": None}, {"topic_id": UUID(int=9), "name": None}]
    answer = raw.call("metadata", 12, topics=asked, include_topic_authorized_operations=False)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        (topic, ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]


def test_naming_a_topic_makes_it_where_both_sides_allow_that(raw: RawConnection) -> None:
    def name(topic: str, allow: bool) -> ErrorCode:
        answer = raw.call("metadata", 4, topics=[{"name": topic}], allow_auto_topic_creation=allow)
        code: ErrorCode = answer.topics[0].error_code
        return code

    assert name("made-by-name", False) is ErrorCode.unknown_topic_or_partition
    assert name("made-by-name", True) is ErrorCode.leader_not_available, "as in Kafka: librdkafka counts on it"
    assert name("made-by-name", True) is ErrorCode.none
    assert name("made-by-name", False) is ErrorCode.none
    assert name("no/such name", True) is ErrorCode.invalid_topic_exception
    assert name("__oncelog_metadata", True) is ErrorCode.unknown_topic_or_partition


def test_a_topic_that_somebody_else_is_making_is_asked_for_again(server: Server, raw: RawConnection) -> None:
    topics = server.broker.topics
    making = topics.creating("on-its-way", 2, {}, server.broker.clock.now())
    goes_on = [lambda: next(making), lambda: next(making), lambda: at_once(making)]
    for go_on, wanted in zip(goes_on, [ErrorCode.leader_not_available] * 2 + [ErrorCode.none], strict=True):
        server.call(go_on)
        answer = raw.call("metadata", 9, topics=[{"name": "on-its-way"}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code is wanted


def test_nothing_is_made_where_the_server_does_not_allow_it() -> None:
    with Server(auto_create_topics_enable=False) as server, RawConnection(server.bootstrap_servers) as raw:
        answer = raw.call("metadata", 4, topics=[{"name": "x"}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition


def test_a_request_that_names_more_topics_than_there_may_be_is_bounded() -> None:
    with Server(oncelog_max_partitions=20) as server, RawConnection(server.bootstrap_servers) as raw:
        asked = [{"name": f"t{number}"} for number in range(100)]
        codes = [
            each.error_code for each in raw.call("metadata", 4, topics=asked, allow_auto_topic_creation=True).topics
        ]
        assert 0 < codes.count(ErrorCode.leader_not_available) <= 20
        assert set(codes) == {ErrorCode.leader_not_available, ErrorCode.invalid_partitions}


def test_clients_are_told_the_advertised_address() -> None:
    with Server(advertised_listeners="PLAINTEXT://kafka.example:1234") as server:
        port = server.broker.ports["PLAINTEXT"]
        with RawConnection(f"127.0.0.1:{port}") as raw:
            (broker,) = raw.call("metadata", 1, topics=[]).brokers
            assert (broker.host, broker.port) == ("kafka.example", 1234)
            assert raw.call("find_coordinator", 0, key="g").host == "kafka.example"


def test_each_listener_advertises_its_own_address() -> None:
    with Server(
        listeners="PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        listener_security_protocol_map="INSIDE:PLAINTEXT",
        advertised_listeners="PLAINTEXT://outside.example:1,INSIDE://inside.example:2",
    ) as server:
        for name, host in (("PLAINTEXT", "outside.example"), ("INSIDE", "inside.example")):
            with RawConnection(f"127.0.0.1:{server.broker.ports[name]}") as raw:
                assert raw.call("metadata", 1, topics=[]).brokers[0].host == host


def test_a_server_on_every_interface_advertises_the_one_that_was_used() -> None:
    with (
        Server(listeners="PLAINTEXT://0.0.0.0:0") as server,
        RawConnection(server.broker.ports["PLAINTEXT"]) as raw,
    ):
        assert raw.call("metadata", 1, topics=[]).brokers[0].host == "127.0.0.1"


# Coordinators and pids


@pytest.mark.parametrize("version", range(7))
def test_this_server_coordinates_every_group(server: Server, raw: RawConnection, version: int) -> None:
    values: dict[str, Any] = {"coordinator_keys": ["g1", "g2"]} if version >= 4 else {"key": "g1"}
    answer = raw.call("find_coordinator", version, **values)
    for each in answer.coordinators if version >= 4 else [answer]:
        assert (each.error_code, f"{each.host}:{each.port}") == (ErrorCode.none, server.bootstrap_servers)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_transactional_id_has_a_coordinator(server: Server, raw: RawConnection, version: int) -> None:
    values: dict[str, Any] = {"coordinator_keys": ["tx"]} if version >= 4 else {"key": "tx"}
    answer = raw.call("find_coordinator", version, key_type=1, **values)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (ErrorCode.none, server.broker.node_id)


@pytest.mark.parametrize("version", range(7))
def test_pids_are_granted_once(raw: RawConnection, version: int) -> None:
    granted = [raw.call("init_producer_id", version, transactional_id=None, transaction_timeout=1) for _ in range(150)]
    pids = [each.producer_id for each in granted]
    assert len(set(pids)) == 150 and min(pids) >= 2**32
    assert {each.producer_epoch for each in granted} == {0}


def test_a_pid_that_a_producer_names_is_not_taken_for_its_own(raw: RawConnection) -> None:
    def init(pid: int, epoch: int) -> Any:
        return raw.call(
            "init_producer_id", 3, transactional_id=None, transaction_timeout=1, producer_id=pid, producer_epoch=epoch
        )

    pid = init(-1, -1).producer_id
    renewed = init(pid, 4)
    assert renewed.producer_id > pid and renewed.producer_epoch == 0
    assert init(pid, -1).error_code is ErrorCode.invalid_request


def test_a_transactional_producer_keeps_its_pid_and_gets_another_epoch(raw: RawConnection) -> None:
    first, second = (raw.call("init_producer_id", 1, transactional_id="tx", transaction_timeout=1) for _ in range(2))
    assert first.producer_id == second.producer_id >= 2**32
    assert second.producer_epoch == first.producer_epoch + 1


# Describing


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(server: Server, raw: RawConnection, version: int) -> None:
    more: dict[str, Any] = {"include_fenced_brokers": False} if version >= 2 else {}
    answer = raw.call("describe_cluster", version, include_cluster_authorized_operations=True, **more)
    assert (answer.error_code, answer.cluster_id) == (ErrorCode.none, server.broker.cluster_id)
    assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" == server.bootstrap_servers
    if version >= 1:
        refused = raw.call(
            "describe_cluster", version, include_cluster_authorized_operations=False, endpoint_type=2, **more
        )
        assert refused.error_code is ErrorCode.mismatched_endpoint_type


def test_topics_are_described_a_page_at_a_time(raw: RawConnection) -> None:
    first, second = sorted([new_topic(raw, 5), new_topic(raw, 2)])
    counts = {first: len(pages_of(raw, first)), second: len(pages_of(raw, second))}
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(20):
        answer = raw.call(
            "describe_topic_partitions",
            0,
            topics=[{"name": first}, {"name": second}],
            response_partition_limit=3,
            cursor=cursor,
        )
        page = [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]
        assert 0 < len(page) <= 3
        seen += page
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert seen == [(name, index) for name in (first, second) for index in range(counts[name])]
    assert len(seen) == 7


def pages_of(raw: RawConnection, topic: str) -> Any:
    answer = raw.call(
        "describe_topic_partitions", 0, topics=[{"name": topic}], response_partition_limit=2000, cursor=None
    )
    return answer.topics[0].partitions


def test_unknown_topics_are_described_as_unknown(raw: RawConnection) -> None:
    answer = raw.call("describe_topic_partitions", 0, topics=[{"name": "nowhere"}], cursor=None)
    assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
