"""However much one request asks for, other connections have their turns while it is answered."""

import asyncio
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.clock import SystemClock
from oncelog.embedded import Server
from oncelog.log.disk import RealDisk, RealFile
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import at_once
from oncelog.records.header import read_header
from oncelog.server import produce
from oncelog.server.broker import Broker
from oncelog.server.call import Call
from oncelog.server.connection import Connection
from oncelog.server.errors import ErrorCode
from oncelog.server.folders import Folders
from oncelog.server.polls import Polls
from oncelog.server.topics import Partition, Topics
from oncelog.server.turns import Turns
from oncelog.wire.bounds import MOST_ELEMENTS
from oncelog.wire.messages import Schema
from tests.raw import RawConnection, Rec, ServerClosed, batch, message
from tests.raw.topics import new_topic
from tests.server.test_connection_bounds import fetch_values, frame
from tests.waiting import until


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a turn of its own."""
    monkeypatch.setattr("oncelog.server.turns.TURN_MS", 0)


@pytest.fixture
def turns(short_turns: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened in which order: each look at a log or a name, and each turn that others had."""
    happened: list[str] = []

    def watch(owner: type, method: str) -> None:
        whole = getattr(owner, method)

        def watched(self: Any, *arguments: Any, **keywords: Any) -> Any:
            happened.append("look")
            asyncio.get_running_loop().call_soon(happened.append, "turn")
            return whole(self, *arguments, **keywords)

        monkeypatch.setattr(owner, method, watched)

    watch(PartitionLog, "finding_time")
    watch(PartitionLog, "finding_latest")
    watch(Topics, "check_create")
    watch(Polls, "add")
    watch(Polls, "discard")
    return happened


def most_in_one_turn(happened: list[str]) -> int:
    return max(len(each) for each in "".join(one[0] for one in happened).split("t"))


def test_others_have_turns_between_topics_of_which_no_offset_is_asked(
    server: Server, short_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    new = Call.new

    def watched(self: Call, *arguments: Any, **values: Any) -> Any:
        happened.append("look")
        asyncio.get_running_loop().call_soon(happened.append, "turn")
        return new(self, *arguments, **values)

    monkeypatch.setattr(Call, "new", watched)
    with RawConnection(server.bootstrap_servers) as raw:
        topics = [{"name": f"nowhere-{number}", "partitions": []} for number in range(5)]
        answer = raw.call("list_offsets", 8, replica_id=-1, isolation_level=0, topics=topics)
    assert [each.name for each in answer.topics] == [each["name"] for each in topics]
    assert happened.count("look") == 6
    assert most_in_one_turn(happened) <= 2


@pytest.mark.parametrize("timestamp_ms", [0, 1, -3])
def test_others_have_turns_between_looks_for_times(server: Server, turns: list[str], timestamp_ms: int) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=5)
        for index in range(5):
            raw.produce(topic, index, batch([b"x"]))
        turns.clear()
        wanted = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp_ms} for index in range(5)
        ]
        topics = [{"name": topic, "partitions": wanted}]
        answer = raw.call("list_offsets", 8, replica_id=-1, isolation_level=0, topics=topics)
        assert [each.offset for each in answer.topics[0].partitions] == [0] * 5
    assert turns.count("look") == 5
    assert most_in_one_turn(turns) <= 2


def test_others_have_turns_between_topics_that_are_only_checked(server: Server, turns: list[str]) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        wanted = [
            {"name": f"wanted-{number}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for number in range(5)
        ]
        raw.call("create_topics", 7, topics=wanted, timeout=1000, validate_only=True)
    assert turns.count("look") == 5
    assert most_in_one_turn(turns) <= 2


def test_others_have_turns_while_a_fetch_begins_to_wait_at_many_partitions_and_while_it_is_forgotten(
    server: Server, turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", 1)
    monkeypatch.setattr("oncelog.server.fetch.ASKED_IN_A_STEP", 2)
    topics, looks, count = server.broker.topics, server.broker.looks, 30
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=count)
        turns.clear()
        with RawConnection(server.bootstrap_servers) as waiting:
            waiting.ask("fetch", 11, **fetch_values(topic, list(range(count)), max_wait=60_000))
            until(lambda: turns.count("look") == count, "it to wait everywhere")
            assert most_in_one_turn(turns) <= 6
            turns.clear()
        until(lambda: turns.count("look") == count and looks.awaited == 0, "it to be forgotten")
    assert most_in_one_turn(turns) <= 6
    found = topics.get(topic)
    assert found is not None and not any(partition.polls for partition in found.partitions)


def test_what_comes_while_a_fetch_begins_to_wait_at_many_partitions_is_noticed(
    server: Server, short_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of them: it was read before, and it is waited there only later."""
    monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", 1)
    monkeypatch.setattr("oncelog.server.fetch.ASKED_IN_A_STEP", 1)
    count, now = 4, server.broker.clock.now()
    add = Polls.add
    with RawConnection(server.bootstrap_servers) as raw:
        for grown in range(count):
            topic = new_topic(raw, partitions=count)
            found = server.broker.topics.get(topic)
            assert found is not None
            partition = found.partitions[grown]

            def watched(*arguments: Any, partition: Partition = partition) -> None:
                add(*arguments)
                if partition.log.next_offset == 0:  # at the first of them
                    data = bytearray(batch([b"x"]))
                    partition.log.append(data, read_header(data), now)
                    partition.wake()

            monkeypatch.setattr(Polls, "add", watched)
            answer = raw.call("fetch", 11, **fetch_values(topic, list(range(count)), max_wait=60_000))
            assert [bool(each.records) for each in answer.responses[0].partitions].index(True) == grown
            until(lambda: server.broker.looks.awaited == 0, "it to be forgotten")


# Batches that are looked into


def compacted_produce(topic: str, *, partitions: int = 1) -> dict[str, Any]:
    records = batch([Rec(value=b"x", key=b"k")])
    data = [{"index": index, "records": records} for index in range(partitions)]
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def test_others_have_turns_between_batches_that_are_looked_into(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes may unfold to megabytes: what came before is committed and answered, then others go on."""
    monkeypatch.setattr(produce, "TURN_MS", 0)
    staged: list[int] = []
    requests = server.broker.metrics.requests
    serve = Connection.serve

    def counted(self: Any, *arguments: Any) -> None:
        before = requests[0]
        serve(self, *arguments)
        staged.append(requests[0] - before)

    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, cleanup_policy="compact")
        monkeypatch.setattr(Connection, "serve", counted)
        raw.socket.sendall(frame("produce", 9, **compacted_produce(topic)) * 30)
        kind = message("produce", 9)
        offsets = []
        for _ in range(30):
            data = raw.receive_bytes()
            answer, _ = kind.read_response(data, kind.read_header(data, 0)[1])
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        until(lambda: sum(staged) == 30, "the last turn to be counted")
    assert offsets == list(range(30))
    assert max(staged) == 1


def test_a_request_with_too_much_to_look_into_is_served_in_part_and_may_come_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "TURN_MS", 0)
    monkeypatch.setattr(produce, "MOST_TURN_MS", 0)
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=3, cleanup_policy="compact")
        answer = raw.call("produce", 9, **compacted_produce(topic, partitions=3))
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.none, ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas]
        again = raw.call("produce", 9, **compacted_produce(topic))
        assert again.responses[0].partition_responses[0].base_offset == 1


# What waits for the disk


def test_changes_to_topics_and_deletions_of_records_wait_for_the_disk_aside(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = server.call(lambda: threading.current_thread().name)
    waited: list[str] = []

    def watch(owner: type, method: str) -> None:
        whole = getattr(owner, method)

        def watched(*arguments: Any) -> Any:
            waited.append(threading.current_thread().name)
            return whole(*arguments)

        monkeypatch.setattr(owner, method, watched)

    def change(api: str, version: int, **values: Any) -> None:
        waited.clear()
        with RawConnection(server.bootstrap_servers) as raw:
            raw.call(api, version, **values)
        assert waited and loop not in waited, api

    watch(RealDisk, "sync_folder")
    watch(RealFile, "fdatasync")
    watch(Folders, "mark_deleted")  # a rename may wait for others' flushes
    own = {"name": "aside", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    config = {"name": "retention.ms", "value": "1000000", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": "aside", "configs": [config]}
    grown = {"name": "aside", "count": 4, "assignments": None}
    change("create_topics", 7, topics=[own], timeout=1000, validate_only=False)
    change("metadata", 9, topics=[{"name": "named-aside"}], allow_auto_topic_creation=True)
    change("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    with RawConnection(server.bootstrap_servers) as raw:
        for index in range(2):
            raw.produce("aside", index, batch([b"x"]))
    deleted = [{"partition_index": index, "offset": 1} for index in range(2)]
    change("delete_records", 2, topics=[{"name": "aside", "partitions": deleted}], timeout=1000)
    change("create_partitions", 3, topics=[grown], timeout=1000, validate_only=False)
    change("delete_topics", 5, topic_names=["aside", "named-aside"], timeout=1000)


# Requests that name very much


@pytest.mark.parametrize("api", ["describe_configs", "describe_topic_partitions"])
def test_others_have_turns_while_many_things_are_looked_up(
    server: Server, short_turns: None, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    happened: list[str] = []
    get = Topics.get

    def watched(self: Topics, name: str) -> Any:
        happened.append("look")
        if len(happened) == 1:
            asyncio.get_running_loop().call_soon(again)
        return get(self, name)

    def again() -> None:
        happened.append("turn")
        if happened.count("look") < 500:
            asyncio.get_running_loop().call_soon(again)

    monkeypatch.setattr(Topics, "get", watched)
    names = [f"nowhere-{number}" for number in range(500)]
    with RawConnection(server.bootstrap_servers) as raw:
        if api == "describe_configs":
            wanted = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
            answer = raw.call(api, 4, resources=wanted, include_synonyms=False, include_documentation=False)
            assert [each.resource_name for each in answer.results] == names
        else:
            wanted = [{"name": name} for name in names]
            answer = raw.call(api, 0, topics=wanted, response_partition_limit=2000, cursor=None)
            assert [each.name for each in answer.topics] == sorted(names)
    assert happened.count("look") == 500
    assert most_in_one_turn(happened) <= 2


def test_a_request_that_names_more_than_can_be_looked_up_in_time_costs_the_connection(server: Server) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        wanted = [{"name": f"nowhere-{number}"} for number in range(MOST_ELEMENTS + 1)]
        with pytest.raises(ServerClosed):
            raw.call("describe_topic_partitions", 0, topics=wanted, response_partition_limit=2000, cursor=None)


@pytest.fixture
def packers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that put answers into bytes."""
    found: list[str] = []
    encode = Schema.encode

    def watched(self: Schema, *arguments: Any) -> bytes:
        found.append(threading.current_thread().name)
        return encode(self, *arguments)

    monkeypatch.setattr(Schema, "encode", watched)
    return found


def test_large_answers_are_packed_while_others_are_served(server: Server, packers: list[str]) -> None:
    loop = server.call(lambda: threading.current_thread().name)
    many = [f"name-{number}" for number in range(9000)]
    with RawConnection(server.bootstrap_servers) as raw:
        found = raw.call("find_coordinator", 4, key_type=0, coordinator_keys=many)
        assert [each.key for each in found.coordinators] == many
        named = [{"name": each} for each in many]
        metadata = raw.call("metadata", 9, topics=named, allow_auto_topic_creation=False)
        assert [each.name for each in metadata.topics] == many
        assert loop not in packers
        packers.clear()
        assert len(raw.call("find_coordinator", 4, key_type=0, coordinator_keys=many[:3]).coordinators) == 3
        raw.call("metadata", 9, topics=named[:3], allow_auto_topic_creation=False)
    assert set(packers) == {loop}, "small ones are not worth another thread"


def test_what_a_leader_is_told_of_many_members_is_packed_while_others_are_served(packers: list[str]) -> None:
    with Server(group_initial_rebalance_delay_ms=0) as server, RawConnection(server.bootstrap_servers) as raw:
        loop = server.call(lambda: threading.current_thread().name)
        packers.clear()
        joined = raw.call(
            "join_group",
            1,
            group_id="g",
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"x" * 20_000}],
        )
    assert [len(each.metadata) for each in joined.members] == [20_000]
    assert packers and loop not in packers


def test_those_who_hang_up_while_they_wait_are_given_up_in_turns(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 that wait for a long list would be given up in one round of the loop."""
    happened: list[str] = []
    discard = Polls.discard

    def watched(self: Polls, *arguments: Any) -> None:
        happened.append("look")
        asyncio.get_running_loop().call_soon(happened.append, "turn")
        discard(self, *arguments)

    async def waiting() -> list[Connection]:
        return [each for each in server.service.connections.each() if isinstance(each, Connection) and each.is_waiting]

    async def hang_up() -> None:
        for each in await waiting():
            each.connection_lost(None)

    with ExitStack() as stack:
        raws = [stack.enter_context(RawConnection(server.bootstrap_servers)) for _ in range(5)]
        topic = new_topic(raws[0])
        for raw in raws:
            raw.ask("fetch", 11, **fetch_values(topic, [0], max_wait=60_000))
        until(lambda: len(server.call(waiting)) == 5, "all to wait")
        monkeypatch.setattr(Polls, "discard", watched)
        server.call(hang_up)
        until(lambda: happened.count("look") == 5, "all to be given up")
    assert most_in_one_turn(happened) <= 2


async def test_what_all_members_of_a_group_are_answered_at_once_is_made_in_turns(short_turns: None) -> None:
    loop = asyncio.get_running_loop()
    now = SystemClock().now()
    broker = cast(Broker, SimpleNamespace(turns=Turns(lambda: 0)))
    call = Call(broker, "join_group", 9, None, "127.0.0.1", "PLAINTEXT", now)
    told: asyncio.Future[str] = loop.create_future()
    happened: list[str] = []

    async def member() -> None:
        assert await call.later(told) == "told"
        happened.append("look")
        loop.call_soon(happened.append, "turn")

    members = [asyncio.ensure_future(member()) for _ in range(5)]
    await asyncio.sleep(0)
    told.set_result("told")
    await asyncio.gather(*members)
    assert happened.count("look") == 5
    assert most_in_one_turn(happened) <= 2


def test_answers_keep_the_order_of_requests_whoever_packs_them(server: Server) -> None:
    many = [f"name-{number}" for number in range(9000)]
    with RawConnection(server.bootstrap_servers) as raw:
        for _ in range(3):
            raw.ask("find_coordinator", 4, key_type=0, coordinator_keys=many)
            raw.ask("find_coordinator", 4, key_type=0, coordinator_keys=many[:1])
        assert [len(raw.answer().coordinators) for _ in range(6)] == [9000, 1] * 3


def test_large_requests_and_the_first_of_a_version_are_read_while_others_are_served(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[str] = []
    read = Schema.read

    def watched(self: Schema, *arguments: Any) -> Any:
        readers.append(threading.current_thread().name)
        return read(self, *arguments)

    monkeypatch.setattr(Schema, "read", watched)
    loop = server.call(lambda: threading.current_thread().name)
    many = [f"name-{number}" for number in range(1000)]
    with RawConnection(server.bootstrap_servers) as raw:
        with monkeypatch.context() as first:
            first.setattr("oncelog.server.connection.is_loaded", lambda name, version: False)
            raw.call("find_coordinator", 4, key_type=0, coordinator_keys=["a"])
        assert loop not in readers, "its structs are made for the first time"
        readers.clear()
        raw.call("find_coordinator", 4, key_type=0, coordinator_keys=["a"])
        assert readers == [loop], "a small one is not worth another thread"
        readers.clear()
        raw.call("find_coordinator", 4, key_type=0, coordinator_keys=many)
        assert loop not in readers
    assert server.call(lambda: server.broker.memory.unserved.held_bytes) == 0


def test_what_is_committed_for_a_topic_that_goes_meanwhile_is_not_stored(
    server: Server, short_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be where the group goes on in the next topic of that name."""
    whole_next = Turns.next

    async def next_turn(self: Turns) -> None:
        topics, now = server.broker.topics, server.broker.clock.now()
        if (found := topics.get(going)) is not None:
            at_once(topics.deleting(found, now))
            topics.create(going, 1, {}, now)
        await whole_next(self)

    with RawConnection(server.bootstrap_servers) as raw:
        going, staying = new_topic(raw), new_topic(raw)
        monkeypatch.setattr(Turns, "next", next_turn)
        part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        asked = [{"name": name, "partitions": [part]} for name in (going, staying)]
        who = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = raw.call("offset_commit", 8, topics=asked, **who)
    groups = server.broker.groups
    assert [each.partitions[0].error_code.name for each in answer.topics] == ["unknown_topic_or_partition", "none"]
    assert server.call(lambda: groups.committed("g", going, 0)) is None
    assert server.call(lambda: groups.committed("g", staying, 0)) is not None


def test_what_a_fetch_in_turns_has_read_counts_against_the_memory_of_all(
    server: Server, short_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", 1)
    unsent = server.broker.memory.unsent
    held: list[int] = []
    whole_next = Turns.next

    async def next_turn(self: Turns) -> None:
        held.append(unsent.held_bytes)
        await whole_next(self)

    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=2)
        for index in range(2):
            raw.produce(topic, index, batch([b"x" * 1000]))
        monkeypatch.setattr(Turns, "next", next_turn)
        wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(2)]
        values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        answer = raw.call("fetch", 11, topics=[{"topic": topic, "partitions": wanted}], **values)
        assert all(each.records for each in answer.responses[0].partitions)
    assert max(held) > 1000
    assert server.call(lambda: unsent.held_bytes) == 0
