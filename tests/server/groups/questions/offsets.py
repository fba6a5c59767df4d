"""What may be committed, by whom, and what is found again."""

import time
import uuid

from tests.raw import RawConnection
from tests.server.groups.questions.asking import commit, committed, error_of, member_of, part, question, stable, sync


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
