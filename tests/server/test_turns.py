"""However much one request asks for, other connections have their turns while it is answered."""

import asyncio
import threading
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.log.partition import PartitionLog
from oncelog.server.topics import Topics
from oncelog.wire.messages import Schema
from tests.raw import RawConnection, batch
from tests.server.conftest import new_topic


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened in which order: each look at a log or a name, and each turn that others had."""
    happened: list[str] = []

    def watch(owner: type, method: str) -> None:
        whole = getattr(owner, method)

        def watched(self: Any, *arguments: Any, **keywords: Any) -> Any:
            happened.append("look")
            asyncio.get_running_loop().call_soon(happened.append, "turn")
            return whole(self, *arguments, **keywords)

        monkeypatch.setattr(owner, method, watched)

    watch(PartitionLog, "offset_for_time")
    watch(PartitionLog, "max_timestamp")
    watch(Topics, "check_create")
    return happened


def most_in_one_turn(happened: list[str]) -> int:
    return max(len(each) for each in "".join(one[0] for one in happened).split("t"))


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
    assert most_in_one_turn(turns) == 1


def test_others_have_turns_between_topics_that_are_only_checked(server: Server, turns: list[str]) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        wanted = [
            {"name": f"wanted-{number}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for number in range(5)
        ]
        raw.call("create_topics", 7, topics=wanted, timeout=1000, validate_only=True)
    assert turns.count("look") == 5
    assert most_in_one_turn(turns) == 1


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


def test_answers_keep_the_order_of_requests_whoever_packs_them(server: Server) -> None:
    many = [f"name-{number}" for number in range(9000)]
    with RawConnection(server.bootstrap_servers) as raw:
        for _ in range(3):
            raw.ask("find_coordinator", 4, key_type=0, coordinator_keys=many)
            raw.ask("find_coordinator", 4, key_type=0, coordinator_keys=many[:1])
        assert [len(raw.answer().coordinators) for _ in range(6)] == [9000, 1] * 3
