"""Every request about groups in every version that is served, over a socket, read back by kio's own reader."""

from itertools import count
from typing import Any

import pytest

from oncelog.server.api import apis
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

_numbers = count()
SHARE = b"share"
METADATA = b"\0\0\0\0\0\1\0\4mine\xff\xff\xff\xff"


def versions(key: int) -> range:
    low, high = apis()[key].versions
    return range(low, high + 1)


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def join(raw: RawConnection, group: str, member: str = "", *, version: int = 9, **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
    } | more
    if version == 0:
        del values["rebalance_timeout"]
    answer = raw.call("join_group", version, **values)
    if answer.error_code.name == "member_id_required":
        return join(raw, group, answer.member_id, version=version, **more)
    return answer


def sync(raw: RawConnection, group: str, joined: Any, *, version: int = 5) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": SHARE}],
    }
    if version >= 5:
        values |= {"protocol_type": "consumer", "protocol_name": "range"}
    return raw.call("sync_group", version, **values)


def stable(raw: RawConnection, group: str) -> Any:
    joined = join(raw, group)
    sync(raw, group, joined)
    return joined


def commit(raw: RawConnection, group: str, topic: str, offset: int, *, version: int = 8, **more: Any) -> Any:
    part: dict[str, Any] = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "about"}
    if version >= 6:
        part["committed_leader_epoch"] = 4
    named: dict[str, Any] = {"name": topic}
    if version >= 10:
        named = {"topic_id": raw.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id}
    values: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", **more}
    answer = raw.call("offset_commit", version, topics=[{**named, "partitions": [part]}], **values)
    return answer.topics[0].partitions[0].error_code.name


@pytest.mark.parametrize("version", versions(11))
def test_join_group(raw: RawConnection, group: str, version: int) -> None:
    answer = join(raw, group, version=version)
    assert (answer.error_code.name, answer.generation_id, answer.protocol_name) == ("none", 1, "range")
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, METADATA)]
    assert answer.leader == answer.member_id
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", versions(14))
def test_sync_group(raw: RawConnection, group: str, version: int) -> None:
    answer = sync(raw, group, join(raw, group), version=version)
    assert (answer.error_code.name, answer.assignment) == ("none", SHARE)


@pytest.mark.parametrize("version", versions(12))
def test_heartbeat(raw: RawConnection, group: str, version: int) -> None:
    joined = stable(raw, group)
    named: dict[str, Any] = {"group_id": group, "member_id": joined.member_id}
    assert raw.call("heartbeat", version, generation_id=1, **named).error_code.name == "none"
    assert raw.call("heartbeat", version, generation_id=2, **named).error_code.name == "illegal_generation"


@pytest.mark.parametrize("version", versions(13))
def test_leave_group(raw: RawConnection, group: str, version: int) -> None:
    member = stable(raw, group).member_id
    leaving: dict[str, Any] = {"members": [{"member_id": member}]} if version >= 3 else {"member_id": member}
    answer = raw.call("leave_group", version, group_id=group, **leaving)
    assert answer.error_code.name == "none"
    assert raw.call("describe_groups", 0, groups=[group]).groups[0].group_state == "Empty"


@pytest.mark.parametrize("version", versions(8))
def test_offset_commit(raw: RawConnection, topic: str, group: str, version: int) -> None:
    assert commit(raw, group, topic, 42, version=version) == "none"
    answer = raw.call("offset_fetch", 7, group_id=group, topics=None)
    (part,) = answer.topics[0].partitions
    epoch = 4 if version >= 6 else -1
    assert (part.committed_offset, part.committed_leader_epoch, part.metadata) == (42, epoch, "about")


@pytest.mark.parametrize("version", versions(9))
def test_offset_fetch(raw: RawConnection, topic: str, group: str, version: int) -> None:
    commit(raw, group, topic, 42)
    named: dict[str, Any] = {"name": topic}
    if version >= 10:
        named = {"topic_id": raw.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id}
    both: list[Any] = [[{**named, "partition_indexes": [0, 1]}], None]
    for topics in both[: 1 if version == 1 else 2]:
        if version >= 8:
            (answer,) = raw.call("offset_fetch", version, groups=[{"group_id": group, "topics": topics}]).groups
        else:
            answer = raw.call("offset_fetch", version, group_id=group, topics=topics)
        found = {part.partition_index: (part.committed_offset, part.metadata) for part in answer.topics[0].partitions}
        assert found == ({0: (42, "about")} if topics is None else {0: (42, "about"), 1: (-1, "")})


@pytest.mark.parametrize("version", versions(15))
def test_describe_groups(raw: RawConnection, group: str, version: int) -> None:
    joined = stable(raw, group)
    described, absent = raw.call("describe_groups", version, groups=[group, group + "-absent"]).groups
    (member,) = described.members
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "raw", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (METADATA, SHARE)
    assert absent.group_state == "Dead"
    assert absent.error_code.name == ("group_id_not_found" if version >= 6 else "none")


@pytest.mark.parametrize("version", versions(16))
def test_list_groups(raw: RawConnection, group: str, version: int) -> None:
    stable(raw, group)
    listed = {each.group_id: each for each in raw.call("list_groups", version).groups}
    assert listed[group].protocol_type == "consumer"
    if version >= 4:
        assert listed[group].group_state == "Stable"
        filtered = raw.call("list_groups", version, states_filter=["Dead", "empty"]).groups
        assert group not in {each.group_id for each in filtered}
    if version >= 5:
        assert listed[group].group_type == "classic"
        assert not raw.call("list_groups", version, types_filter=["consumer"]).groups


@pytest.mark.parametrize("version", versions(42))
def test_delete_groups(raw: RawConnection, topic: str, group: str, version: int) -> None:
    commit(raw, group, topic, 1)
    stable(raw, group + "-busy")
    names = [group, group + "-busy", group + "-absent"]
    results = raw.call("delete_groups", version, groups_names=names).results
    errors = [each.error_code.name for each in results]
    assert errors == ["none", "non_empty_group", "group_id_not_found"]


def test_offset_delete(raw: RawConnection, group: str) -> None:
    topic = new_topic(raw, 2)
    commit(raw, group, topic, 1)
    wanted = [{"name": topic, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    answer = raw.call("offset_delete", 0, group_id=group, topics=wanted)
    assert [part.error_code.name for part in answer.topics[0].partitions] == ["none", "none"]
    assert not raw.call("offset_fetch", 7, group_id=group, topics=None).topics


def test_an_oversized_entry_fails_alone(raw: RawConnection, group: str) -> None:
    topic = new_topic(raw, 3)
    parts = [
        {"partition_index": index, "committed_offset": 5, "committed_metadata": "x" * size}
        for index, size in enumerate((4096, 4097, 1))
    ]
    answer = raw.call(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": parts}],
    )
    errors = [part.error_code.name for part in answer.topics[0].partitions]
    assert errors == ["none", "offset_metadata_too_large", "none"]
    (stored,) = raw.call("offset_fetch", 7, group_id=group, topics=None).topics
    assert {part.partition_index: len(part.metadata) for part in stored.partitions} == {0: 4096, 2: 1}


def test_an_entry_with_a_retention_of_its_own_is_kept_as_long(raw: RawConnection, topic: str, group: str) -> None:
    assert commit(raw, group, topic, 3, version=4, retention_time=3_600_000) == "none"
    assert raw.call("offset_fetch", 5, group_id=group, topics=None).topics[0].partitions[0].committed_offset == 3


def test_a_member_waits_until_the_other_has_joined(raw: RawConnection, server: Any, group: str) -> None:
    first = stable(raw, group)
    with RawConnection(server.bootstrap_servers) as other:
        pending = join_without_waiting(other, group)
        beat = raw.call("heartbeat", 4, group_id=group, member_id=first.member_id, generation_id=1)
        assert beat.error_code.name == "rebalance_in_progress"
        again = join(raw, group, first.member_id)
        joined = other.answer()
        assert (again.generation_id, joined.generation_id) == (2, 2)
        assert {member.member_id for member in again.members} == {first.member_id, pending}
        assert not joined.members


def test_the_join_of_a_client_that_is_gone_holds_nobody_up(raw: RawConnection, server: Any, group: str) -> None:
    first = stable(raw, group)
    with RawConnection(server.bootstrap_servers) as other:
        join_without_waiting(other, group, version=3)
        beat = raw.call("heartbeat", 4, group_id=group, member_id=first.member_id, generation_id=1)
        assert beat.error_code.name == "rebalance_in_progress"
    until(lambda: member_count(raw, group) == 1, "the end of the connection to be seen")
    again = join(raw, group, first.member_id)
    assert (again.generation_id, len(again.members)) == (2, 1)


def join_without_waiting(raw: RawConnection, group: str, *, version: int = 9) -> str:
    """The join of a second member is on its way, and seen by the group, when this returns."""
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
    }
    member = raw.call("join_group", version, member_id="", **values).member_id if version >= 4 else ""
    raw.ask("join_group", version, member_id=member, **values)
    with RawConnection(raw.socket.getpeername()[1]) as observer:
        until(lambda: is_rebalancing(observer, group), "the rebalance that the join begins")
    return member


def is_rebalancing(raw: RawConnection, group: str) -> bool:
    state: str = raw.call("describe_groups", 0, groups=[group]).groups[0].group_state
    return state == "PreparingRebalance"


def member_count(raw: RawConnection, group: str) -> int:
    return len(raw.call("describe_groups", 0, groups=[group]).groups[0].members)
