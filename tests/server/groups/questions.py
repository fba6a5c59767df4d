"""What a broker says about groups in the cases where memory is not to be trusted, asked by raw requests.

    python -m tests.server.groups.questions HOST:PORT [HOST:PORT]

prints the answers of one broker, or the differences between two. `test_against_kafka.py` asks oncelog and a real
Kafka. Nothing here depends on ids or times that two honest brokers would choose differently.
"""

import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from tests.raw import RawConnection, ServerClosed

Question = Callable[[RawConnection, str], object]
QUESTIONS: dict[str, Question] = {}
CONSUMER = "consumer"
SUBSCRIBED = b"\0\0\0\0\0\1\0\4mine\xff\xff\xff\xff"  # version 0, one topic, no user data
SESSION_MS = 30_000


def question(ask: Question) -> Question:
    QUESTIONS[ask.__name__.replace("_", " ")] = ask
    return ask


def error_of(answer: Any) -> str:
    code: ErrorCode = answer.error_code
    return code.name


def join(c: RawConnection, group: str, member: str = "", *, version: int = 5, **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": SESSION_MS,
        "protocol_type": CONSUMER,
        "protocols": [{"name": "range", "metadata": SUBSCRIBED}],
    } | more
    if version == 0:
        del values["rebalance_timeout"]
    return c.call("join_group", version, **values)


def member_of(c: RawConnection, group: str, **more: Any) -> tuple[str, int]:
    """A member that joined, alone; not in sync yet."""
    first = join(c, group, **more)
    answer = join(c, group, first.member_id, **more) if error_of(first) == "member_id_required" else first
    return answer.member_id, answer.generation_id


def sync(c: RawConnection, group: str, member: str, generation: int, *, version: int = 3, **more: Any) -> Any:
    mine = [{"member_id": member, "assignment": b"share"}]
    values: dict[str, Any] = {"group_id": group, "member_id": member, "generation_id": generation, "assignments": mine}
    return c.call("sync_group", version, **(values | more))


def stable(c: RawConnection, group: str, **more: Any) -> tuple[str, int]:
    member, generation = member_of(c, group, **more)
    sync(c, group, member, generation, group_instance_id=more.get("group_instance_id"))
    return member, generation


def heartbeat(c: RawConnection, group: str, member: str, generation: int, **more: Any) -> str:
    answer = c.call("heartbeat", 3, group_id=group, member_id=member, generation_id=generation, **more)
    return error_of(answer)


def commit(c: RawConnection, group: str, parts: list[dict[str, Any]], *, version: int = 8, **more: Any) -> object:
    topics = more.pop("topics", None) or [{"name": group, "partitions": parts}]
    values: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    answer = c.call("offset_commit", version, **(values | more))
    return sorted((p.partition_index, error_of(p)) for t in answer.topics for p in t.partitions)


def part(index: int = 0, offset: int = 7, metadata: str | None = "m") -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}


def shortened(metadata: str) -> str:
    return metadata if len(metadata) < 10 else f"{metadata[:1]} times {len(metadata)}"


def committed(c: RawConnection, group: str, topic: str, partitions: tuple[int, ...] = (0,)) -> object:
    answer = c.call("offset_fetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": list(partitions)}])
    found = [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, shortened(p.metadata), error_of(p))
        for t in answer.topics
        for p in t.partitions
    ]
    return error_of(answer), sorted(found)


# --- joining ------------------------------------------------------------------------------------------------------


@question
def joins_that_are_refused(c: RawConnection, name: str) -> object:
    asked = [
        join(c, ""),
        join(c, name, session_timeout=100),
        join(c, name, session_timeout=99_000_000),
        join(c, name, "stranger"),
        join(c, name, protocols=[]),
        join(c, name, protocol_type=""),
        join(c, name, "stranger", group_instance_id="unknown-instance"),
    ]
    return [(error_of(each), each.member_id, each.generation_id, each.leader) for each in asked]


@question
def joins_in_every_version(c: RawConnection, name: str) -> object:
    found = []
    for version in range(10):
        group = f"{name}-{version}"
        first = join(c, group, version=version)
        second = join(c, group, first.member_id, version=version) if version >= 4 else first
        found.append(
            (error_of(first), error_of(second), second.generation_id, second.protocol_name, len(second.members))
        )
    return found


@question
def what_refusals_look_like_in_old_and_new_versions(c: RawConnection, name: str) -> object:
    return [
        (error_of(answer), answer.protocol_name, getattr(answer, "protocol_type", "-"))
        for answer in (join(c, name, "stranger", version=version) for version in range(10))
    ]


@question
def a_stranger_joins_a_group_that_is_there(c: RawConnection, name: str) -> object:
    stable(c, name)
    return [
        error_of(each)
        for each in (
            join(c, name, "stranger"),
            join(c, name, "stranger", group_instance_id="one"),
            join(c, name, protocol_type="connect"),
            join(c, name, protocols=[{"name": "other", "metadata": b""}]),
        )
    ]


@question
def a_pending_id_with_an_instance(c: RawConnection, name: str) -> object:
    first = join(c, name)
    return error_of(join(c, name, first.member_id, group_instance_id="one"))


@question
def a_member_alone_changes_its_protocols(c: RawConnection, name: str) -> object:
    member, _ = stable(c, name)
    other = join(c, name, member, protocols=[{"name": "other", "metadata": b""}])
    more = join(c, name, member, protocols=[{"name": "other", "metadata": b""}, {"name": "range", "metadata": b""}])
    return error_of(other), error_of(more), more.generation_id, more.protocol_name


@question
def a_static_member_comes_back(c: RawConnection, name: str) -> object:
    found = []
    for version in (5, 8, 9):
        group = f"{name}-{version}"
        first, generation = stable(c, group, group_instance_id="one")
        again = join(c, group, version=version, group_instance_id="one")
        found.append(
            (
                error_of(again),
                again.generation_id - generation,
                again.leader == first,
                again.leader == again.member_id,
                len(again.members),
                getattr(again, "skip_assignment", "-"),
                heartbeat(c, group, first, generation, group_instance_id="one"),
                heartbeat(c, group, again.member_id, generation, group_instance_id="one"),
                error_of(join(c, group, first, group_instance_id="one")),
                sync(c, group, again.member_id, generation, group_instance_id="one").assignment,
            )
        )
    return found


@question
def heartbeats_of_an_instance_that_is_not_known(c: RawConnection, name: str) -> object:
    member, generation = stable(c, name)
    return heartbeat(c, name, member, generation, group_instance_id="one"), heartbeat(c, "", member, generation)


# --- sharing out --------------------------------------------------------------------------------------------------


@question
def syncs_that_are_refused(c: RawConnection, name: str) -> object:
    member, generation = member_of(c, name)
    same = {"protocol_type": CONSUMER, "protocol_name": "range"}
    return [
        error_of(each)
        for each in (
            sync(c, name, member, generation + 1),
            sync(c, name, "stranger", generation),
            sync(c, name + "-absent", member, generation),
            sync(c, "", member, generation),
            sync(c, name, member, generation, version=5, **(same | {"protocol_name": "other"})),
            sync(c, name, member, generation, version=5, **(same | {"protocol_type": "other"})),
            sync(c, name, member, generation, version=5, **(same | {"protocol_type": None})),
            sync(c, name, member, generation, version=5, **(same | {"protocol_name": None})),
            sync(c, name, member, generation, version=5, **same),
        )
    ]


@question
def a_share_in_every_version(c: RawConnection, name: str) -> object:
    member, generation = member_of(c, name)
    found = []
    for version in range(6):
        more = {"protocol_type": CONSUMER, "protocol_name": "range"} if version == 5 else {}
        answer = sync(c, name, member, generation, version=version, **more)
        found.append((error_of(answer), answer.assignment, getattr(answer, "protocol_name", "-")))
    return found


# --- leaving ------------------------------------------------------------------------------------------------------


@question
def leaving_in_every_version(c: RawConnection, name: str) -> object:
    found = []
    for version in range(6):
        group = f"{name}-{version}"
        member, _ = stable(c, group)
        for who in ("stranger", member, member):
            one = {"members": [{"member_id": who}]} if version >= 3 else {"member_id": who}
            answer = c.call("leave_group", version, group_id=group, **one)
            found.append((error_of(answer), [error_of(each) for each in getattr(answer, "members", ())]))
    return found


@question
def leaving_in_company(c: RawConnection, name: str) -> object:
    member, _ = stable(c, name, group_instance_id="one")
    pending = join(c, name).member_id
    wanted = [
        {"member_id": "stranger"},
        {"member_id": "", "group_instance_id": "two"},
        {"member_id": ""},
        {"member_id": "stranger", "group_instance_id": "one"},
        {"member_id": pending},
        {"member_id": "", "group_instance_id": "one"},
        {"member_id": member, "group_instance_id": "one"},
    ]
    answer = c.call("leave_group", 5, group_id=name, members=wanted)
    absent = c.call("leave_group", 5, group_id=name + "-absent", members=wanted[:1])
    nameless = c.call("leave_group", 5, group_id="", members=wanted[:1])
    return [(error_of(each), [error_of(m) for m in each.members]) for each in (answer, absent, nameless)]


# --- offsets ------------------------------------------------------------------------------------------------------


@question
def commits_that_are_refused_by_who_commits(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    member, generation = member_of(c, name)
    early = commit(c, name, [part()], member_id=member, generation_id_or_member_epoch=generation)
    sync(c, name, member, generation)
    return early, [
        commit(c, name, [part()], member_id=who, generation_id_or_member_epoch=when, group_instance_id=instance)
        for who, when, instance in (
            ("", -1, None),
            (member, -1, None),
            ("", generation, None),
            (member, generation + 1, None),
            ("stranger", generation, None),
            (member, generation, "one"),
            (member, generation, None),
        )
    ]


@question
def commits_into_a_group_that_is_not_there(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    found = []
    for version in range(2, 10):
        group = f"{name}-{version}"
        topics = [{"name": name, "partitions": [part()]}]
        found.append(
            (
                commit(c, group, [], version=version, topics=topics, member_id="m", generation_id_or_member_epoch=3),
                commit(c, group, [], version=version, topics=topics, member_id="m"),
                commit(c, group, [], version=version, topics=topics),
            )
        )
    return found


@question
def a_commit_into_the_group_without_a_name(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    topics = [{"name": name, "partitions": [part()]}]
    return commit(c, "", [], topics=topics), committed(c, "", name), commit(c, name, [], topics=topics)


@question
def an_entry_is_refused_alone(c: RawConnection, name: str) -> object:
    c.create_topic(name, partitions=6)
    parts = [
        part(0, 1),
        part(1, 2, "x" * 4097),
        part(2, 3, "x" * 4096),
        part(3, 4, None),
        part(4, 5, "é" * 4096),
        part(5, 6, "\U0001f600" * 2049),
        part(17),
        part(-1),
    ]
    return commit(c, name, parts), [committed(c, name, name, (index,)) for index in range(6)]


@question
def an_entry_for_an_unknown_topic_is_refused_alone(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    topics = [
        {"name": name, "partitions": [part()]},
        {"name": name + "-absent", "partitions": [part(3)]},
    ]
    refused = commit(c, name, [], topics=topics, member_id="m", generation_id_or_member_epoch=3)
    return commit(c, name, [], topics=topics), refused


@question
def a_commit_of_nothing(c: RawConnection, name: str) -> object:
    answer = c.call("offset_commit", 8, group_id=name, generation_id_or_member_epoch=-1, member_id="", topics=[])
    return len(answer.topics), [g.group_id == name for g in c.call("list_groups", 3).groups if g.group_id == name]


@question
def a_commit_of_a_negative_offset(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    return commit(c, name, [part(0, -1)]), committed(c, name, name), commit(c, name, [part(0, -5)])


@question
def topics_by_their_ids(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    known = c.call("metadata", 12, topics=[{"name": name}]).topics[0].topic_id
    strange = uuid.UUID(int=99)
    topics = [{"topic_id": known, "partitions": [part()]}, {"topic_id": strange, "partitions": [part(1)]}]
    said = commit(c, name, [], version=10, topics=topics)
    wanted = [{"topic_id": known, "partition_indexes": [0, 5]}, {"topic_id": strange, "partition_indexes": [1]}]
    groups = [{"group_id": name, "topics": wanted}, {"group_id": name, "topics": None}]
    answer = [c.call("offset_fetch", 10, groups=[group], require_stable=True).groups[0] for group in groups]
    return said, [
        (
            error_of(group),
            sorted(
                (t.topic_id == known, p.partition_index, p.committed_offset, p.metadata, error_of(p))
                for t in group.topics
                for p in t.partitions
            ),
        )
        for group in answer
    ]


@question
def offsets_of_nobody_in_every_version(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    topics = [{"name": name, "partition_indexes": [0, 9]}, {"name": name + "-absent", "partition_indexes": [0]}]
    found: list[object] = []
    for version in range(1, 8):
        answer = c.call("offset_fetch", version, group_id=name, topics=topics)
        parts = [
            (p.partition_index, p.committed_offset, p.metadata, error_of(p))
            for t in answer.topics
            for p in t.partitions
        ]
        found.append((error_of(answer) if version >= 2 else "-", sorted(parts)))
    for version in (8, 9):
        group = c.call("offset_fetch", version, groups=[{"group_id": name, "topics": topics}]).groups[0]
        parts = [
            (p.partition_index, p.committed_offset, p.metadata, error_of(p)) for t in group.topics for p in t.partitions
        ]
        found.append((error_of(group), sorted(parts)))
    return found


@question
def offsets_asked_for_by_members_of_the_newer_protocol(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    commit(c, name, [part()])
    member, _ = stable(c, name)
    topics = [{"name": name, "partition_indexes": [0]}]
    return [
        error_of(c.call("offset_fetch", 9, groups=[{"group_id": group, "topics": topics, **who}]).groups[0])
        for group, who in (
            (name, {"member_id": member, "member_epoch": 1}),
            (name, {"member_id": "stranger", "member_epoch": 5}),
            (name + "-absent", {"member_id": "stranger", "member_epoch": 5}),
            ("", {}),
        )
    ]


@question
def the_leader_epoch_is_kept(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    commit(c, name, [part() | {"committed_leader_epoch": 5}])
    return committed(c, name, name)


@question
def offsets_of_a_deleted_topic_are_gone(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    commit(c, name, [part()])
    c.delete_topic(name)
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up and c.call("offset_fetch", 7, group_id=name, topics=None).topics:
        time.sleep(0.05)
    return len(c.call("offset_fetch", 7, group_id=name, topics=None).topics)


# --- looking and deleting -----------------------------------------------------------------------------------------


@question
def what_one_may_do_to_a_group(c: RawConnection, name: str) -> object:
    stable(c, name)
    asked = c.call("describe_groups", 5, groups=[name, name + "-absent", ""], include_authorized_operations=True)
    plain = c.call("describe_groups", 5, groups=[name])
    return [(error_of(g), g.authorized_operations) for g in (*asked.groups, *plain.groups)]


@question
def a_group_in_each_state(c: RawConnection, name: str) -> object:
    found = []

    def look() -> None:
        group = c.call("describe_groups", 5, groups=[name]).groups[0]
        members = [
            (m.client_id, m.client_host, m.group_instance_id, m.member_metadata, m.member_assignment)
            for m in group.members
        ]
        found.append((error_of(group), group.group_state, group.protocol_type, group.protocol_data, members))

    look()
    member, generation = member_of(c, name)
    look()
    sync(c, name, member, generation)
    look()
    c.call("leave_group", 3, group_id=name, members=[{"member_id": member}])
    look()
    return found


@question
def an_unknown_group_in_the_newest_version(c: RawConnection, name: str) -> object:
    answer = c.call("describe_groups", 6, groups=[name + "-absent", ""])
    return sorted((error_of(g), g.group_state, (g.error_message or "").replace(name, "NAME")) for g in answer.groups)


@question
def lists_of_groups_by_state_and_type(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    member_of(c, name)
    commit(c, name + "-simple", [], topics=[{"name": name, "partitions": [part()]}])
    found = []
    for states, types in (
        ([], []),
        (["Stable"], []),
        (["completingrebalance"], []),
        ([" Empty "], ["classic"]),
        ([], ["CLASSIC"]),
        ([], ["consumer"]),
        ([], ["nonsense"]),
        (["nonsense"], []),
        ([], ["classic", "nonsense"]),
    ):
        answer = c.call("list_groups", 5, states_filter=states, types_filter=types)
        mine = [g for g in answer.groups if g.group_id.startswith(name)]
        found.append(
            (
                error_of(answer),
                sorted((g.group_id.replace(name, "NAME"), g.protocol_type, g.group_state, g.group_type) for g in mine),
            )
        )
    return found


@question
def groups_that_cannot_be_deleted(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    stable(c, name)
    commit(c, name + "-simple", [], topics=[{"name": name, "partitions": [part()]}])
    names = [name, name + "-absent", "", name + "-simple"]
    answer = c.call("delete_groups", 2, groups_names=names)
    return (
        sorted((r.group_id.replace(name, "NAME"), error_of(r)) for r in answer.results),
        committed(c, name + "-simple", name),
    )


@question
def offsets_that_cannot_be_deleted(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    commit(c, name, [part()])
    subscribed = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name.encode() + b"\xff\xff\xff\xff"

    def delete(group: str, topic: str = name) -> object:
        wanted = [{"name": topic, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
        answer = c.call("offset_delete", 0, group_id=group, topics=wanted)
        return error_of(answer), sorted((p.partition_index, error_of(p)) for t in answer.topics for p in t.partitions)

    before = [delete(""), delete(name + "-absent"), delete(name, name + "-absent")]
    stable(c, name, protocols=[{"name": "range", "metadata": subscribed}])
    stable(c, name + "-connect", protocol_type="connect")
    stable(c, name + "-unreadable", protocols=[{"name": "range", "metadata": b"\0"}])
    during = [delete(name), delete(name + "-connect"), delete(name + "-unreadable")]
    stable(c, name + "-elsewhere")
    return before, during, delete(name + "-elsewhere"), committed(c, name, name)


def answers(address: str, name: str) -> dict[str, object]:
    """Each on a connection of its own; a broker that just started is asked until its coordinator is there."""
    found: dict[str, object] = {}
    with RawConnection(address) as c:
        await_coordinator(c)
    for number, (title, ask) in enumerate(QUESTIONS.items()):
        with RawConnection(address) as c:
            try:
                found[title] = ask(c, f"{name}-{number}")
            except ServerClosed:
                found[title] = "the connection was closed"
    return found


def await_coordinator(c: RawConnection) -> None:
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        ready = error_of(c.call("find_coordinator", 3, key="any", key_type=0)) == "none"
        if ready and error_of(c.call("offset_fetch", 7, group_id="any", topics=None)) == "none":
            return
        time.sleep(0.1)
    raise TimeoutError("the coordinator of groups did not come up")


def main(addresses: list[str]) -> None:
    name = f"asked-{time.time_ns()}"
    every = [answers(address, name) for address in addresses]
    for title in QUESTIONS:
        said = [each[title] for each in every]
        if len(said) == 1 or said[0] != said[1]:
            sys.stdout.write(f"\n{title}\n" + "".join(f"  {a}: {s}\n" for a, s in zip(addresses, said, strict=True)))


if __name__ == "__main__":
    main(sys.argv[1:])
