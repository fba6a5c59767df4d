"""Producers and groups: ids, members, committed offsets."""

import time
from typing import Any

from tests.peers.questions.asking import question
from tests.raw import RawConnection

# --- producers ------------------------------------------------------------------------------------------------------


@question
def describe_the_producers_of_unknown_places(c: RawConnection, topic: str) -> object:
    absent = c.describe_producers(topic, 0).error_code.name
    c.create_topic(topic)
    return absent, c.describe_producers(topic, 9).error_code.name, c.describe_producers(topic, 0).error_code.name


@question
def producer_ids_are_granted_once(c: RawConnection, topic: str) -> object:
    granted = [c.init_producer_id() for _ in range(50)]
    return len({pid for pid, _ in granted}), {epoch for _, epoch in granted}


@question
def init_producer_id_with_half_an_identity(c: RawConnection, topic: str) -> object:
    answers = []
    for pid, epoch in ((5, -1), (-1, 5), (10**9, 3)):
        answer = c.call("init_producer_id", 4, transaction_timeout=60_000, producer_id=pid, producer_epoch=epoch)
        answers.append((answer.error_code.name, answer.producer_id >= 0))
    return answers


@question
def transactions(c: RawConnection, topic: str) -> object:
    found = c.call("find_coordinator", 3, key="a-transaction", key_type=1).error_code.name
    return found in ("none", "coordinator_not_available") or found


# --- groups ---------------------------------------------------------------------------------------------------------


@question
def find_coordinator_of_strange_kinds(c: RawConnection, topic: str) -> object:
    answers = [c.call("find_coordinator", 3, key=topic, key_type=kind).error_code.name for kind in (9, -1)]
    return answers, c.call("find_coordinator", 3, key=topic, key_type=0).error_code.name in (
        "none",
        "coordinator_not_available",
    )


def await_coordinator(c: RawConnection, group: str) -> None:
    for _ in range(200):
        wanted = [{"name": "warm-up", "partition_indexes": [0]}]
        found = c.call("find_coordinator", 3, key=group, key_type=0).error_code.name
        if found == "none" and c.call("offset_fetch", 7, group_id=group, topics=wanted).error_code.name == "none":
            return
        time.sleep(0.1)
    raise TimeoutError("the coordinator of groups did not come up")


def join(c: RawConnection, group: str, member: str = "", **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 3_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    return c.call("join_group", more.pop("version", 5), **(values | more))


def joined(c: RawConnection, group: str) -> tuple[str, int]:
    """A group of one member, in sync."""
    await_coordinator(c, group)
    member: str = join(c, group).member_id
    answer = join(c, group, member)
    assigned = [{"member_id": member, "assignment": b"mine"}]
    c.call("sync_group", 3, group_id=group, generation_id=answer.generation_id, member_id=member, assignments=assigned)
    return member, answer.generation_id


@question
def join_without_a_member_id(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    first = join(c, topic)
    second = join(c, topic, first.member_id)
    return (
        first.error_code.name,
        bool(first.member_id),
        second.error_code.name,
        second.leader == second.member_id == first.member_id,
        second.generation_id,
        [m.metadata for m in second.members],
        second.protocol_name,
    )


@question
def join_in_an_old_version(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    answer = join(c, topic, version=2)
    return answer.error_code.name, answer.generation_id, bool(answer.member_id)


@question
def join_with_wrong_values(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    return [
        join(c, topic, "never-seen").error_code.name,
        join(c, "").error_code.name,
        join(c, topic, session_timeout=1).error_code.name,
        join(c, topic, session_timeout=2**31 - 1).error_code.name,
        join(c, topic, protocols=[], version=2).error_code.name,
        join(c, topic, protocol_type="", version=2).error_code.name,
    ]


@question
def join_with_protocols_that_do_not_fit(c: RawConnection, topic: str) -> object:
    joined(c, topic)
    other = [{"name": "roundrobin", "metadata": b""}]
    return join(c, topic, protocols=other, version=2).error_code.name, join(
        c, topic, protocol_type="connect", version=2
    ).error_code.name


@question
def sync_gives_the_assignment(c: RawConnection, topic: str) -> object:
    member, generation = joined(c, topic)
    again = c.call("sync_group", 3, group_id=topic, generation_id=generation, member_id=member, assignments=[])
    return again.error_code.name, again.assignment


@question
def sync_and_heartbeat_with_wrong_names(c: RawConnection, topic: str) -> object:
    member, generation = joined(c, topic)
    answers = []
    for group, who, when in (
        (topic, member, generation),
        (topic, member, generation + 5),
        (topic, "stranger", generation),
        (topic + "-absent", member, generation),
        ("", member, generation),
    ):
        named: dict[str, Any] = {"group_id": group, "member_id": who, "generation_id": when}
        beat = c.call("heartbeat", 3, **named).error_code.name
        sync = c.call("sync_group", 3, assignments=[], **named).error_code.name
        answers.append((beat, sync))
    return answers


@question
def leave_a_group(c: RawConnection, topic: str) -> object:
    member, _ = joined(c, topic)
    strange = c.call("leave_group", 3, group_id=topic, members=[{"member_id": "stranger"}])
    gone = c.call("leave_group", 3, group_id=topic, members=[{"member_id": member}])
    absent = c.call("leave_group", 2, group_id=topic + "-absent", member_id=member)
    beat = c.call("heartbeat", 3, group_id=topic, member_id=member, generation_id=1)
    return (
        strange.error_code.name,
        [m.error_code.name for m in strange.members],
        gone.error_code.name,
        [m.error_code.name for m in gone.members],
        absent.error_code.name,
        beat.error_code.name,
    )


@question
def static_members_come_back(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    first = join(c, topic, group_instance_id="i")
    mine = [{"member_id": first.member_id, "assignment": b"a"}]
    named: dict[str, Any] = {"group_id": topic, "group_instance_id": "i"}
    c.call("sync_group", 3, generation_id=first.generation_id, member_id=first.member_id, assignments=mine, **named)
    second = join(c, topic, group_instance_id="i")
    old = c.call("heartbeat", 3, generation_id=second.generation_id, member_id=first.member_id, **named)
    wrong = join(c, topic, first.member_id, group_instance_id="i")
    return (
        first.error_code.name,
        second.error_code.name,
        second.member_id != first.member_id,
        second.generation_id,
        old.error_code.name,
        wrong.error_code.name,
    )


def commit(c: RawConnection, group: str, topic: str, offset: int, **more: Any) -> list[str]:
    parts = [{"partition_index": more.pop("partition", 0), "committed_offset": offset, "committed_leader_epoch": -1}]
    parts[0]["committed_metadata"] = more.pop("metadata", "note")
    values: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = c.call("offset_commit", 8, topics=[{"name": topic, "partitions": parts}], **(values | more))
    return [p.error_code.name for t in answer.topics for p in t.partitions]


def committed(c: RawConnection, group: str, topic: str, partition: int = 0) -> tuple[str, object]:
    answer = c.call("offset_fetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": [partition]}])
    parts = [
        (p.error_code.name, p.committed_offset, p.committed_leader_epoch, p.metadata)
        for t in answer.topics
        for p in t.partitions
    ]
    return answer.error_code.name, parts


@question
def commit_and_fetch_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    await_coordinator(c, topic)
    none_yet = committed(c, topic, topic)
    said = commit(c, topic, topic, 42)
    return (
        none_yet,
        said,
        committed(c, topic, topic),
        committed(c, topic, topic, 5),
        committed(c, topic, "absent-topic"),
    )


@question
def commit_odd_things(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    await_coordinator(c, topic)
    return [
        commit(c, topic, topic + "-absent", 1),
        commit(c, topic, topic, 1, partition=9),
        commit(c, topic, topic, 1, metadata="x" * 4096),
        commit(c, topic, topic, 1, metadata="x" * 4097),
        commit(c, topic, topic, -1),
        commit(c, "", topic, 1),
        commit(c, topic, topic, 1, member_id="stranger", generation_id_or_member_epoch=3),
        commit(c, topic + "-new", topic, 1, member_id="stranger", generation_id_or_member_epoch=3),
        commit(c, topic, topic, 5, metadata=None),
    ], committed(c, topic, topic)


@question
def commit_as_a_member(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    member, generation = joined(c, topic)
    return [
        commit(c, topic, topic, 3, member_id=member, generation_id_or_member_epoch=generation),
        commit(c, topic, topic, 4, member_id=member, generation_id_or_member_epoch=generation + 1),
        commit(c, topic, topic, 5, member_id="stranger", generation_id_or_member_epoch=generation),
        commit(c, topic, topic, 6),
    ], committed(c, topic, topic)


@question
def fetch_the_offsets_of_everything(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    await_coordinator(c, topic)
    commit(c, topic, topic, 1)
    commit(c, topic, topic, 2, partition=1)
    answer = c.call("offset_fetch", 7, group_id=topic, topics=None)
    found = sorted((p.partition_index, p.committed_offset) for t in answer.topics for p in t.partitions)
    groups = [{"group_id": topic, "topics": None}, {"group_id": topic + "-absent", "topics": None}]
    several = c.call("offset_fetch", 8, groups=groups)
    return found, [(g.error_code.name, len(g.topics)) for g in several.groups]


@question
def describe_groups(c: RawConnection, topic: str) -> object:
    member, _ = joined(c, topic)
    answer = c.call("describe_groups", 5, groups=[topic, topic + "-absent"])
    found = []
    for group in sorted(answer.groups, key=lambda each: each.group_id):  # Kafka has them by their coordinators
        members = [(m.member_id == member, m.member_metadata, m.member_assignment) for m in group.members]
        found.append((group.error_code.name, group.group_state, group.protocol_type, group.protocol_data, members))
    return found


@question
def describe_an_absent_group_in_the_newest_version(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    group = c.call("describe_groups", 6, groups=[topic + "-absent"]).groups[0]
    return group.error_code.name, group.group_state


@question
def list_groups(c: RawConnection, topic: str) -> object:
    joined(c, topic)
    answers = []
    for states in ([], ["Stable"], ["Empty"]):
        answer = c.call("list_groups", 4, states_filter=states)
        mine = [(g.protocol_type, g.group_state) for g in answer.groups if g.group_id == topic]
        answers.append((answer.error_code.name, mine))
    return answers


@question
def delete_groups(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    member, _ = joined(c, topic)
    names = [topic, topic + "-absent"]
    before = c.call("delete_groups", 2, groups_names=names).results
    c.call("leave_group", 3, group_id=topic, members=[{"member_id": member}])
    commit(c, topic, topic, 3)
    after = c.call("delete_groups", 2, groups_names=[topic]).results
    return (
        sorted((r.group_id == topic, r.error_code.name) for r in before),
        [r.error_code.name for r in after],
        committed(c, topic, topic),
    )


@question
def delete_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    await_coordinator(c, topic)
    commit(c, topic, topic, 3)
    wanted = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    said = c.call("offset_delete", 0, group_id=topic, topics=wanted)
    absent = c.call("offset_delete", 0, group_id=topic + "-absent", topics=wanted)
    parts = [p.error_code.name for t in said.topics for p in t.partitions]
    return said.error_code.name, parts, absent.error_code.name, committed(c, topic, topic)
