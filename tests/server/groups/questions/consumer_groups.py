"""Groups of KIP-848: heartbeats that are taken and refused, how partitions move, what others are told."""

import time
from datetime import timedelta
from typing import Any

from tests.raw import RawConnection
from tests.server.groups.questions.asking import commit, committed, error_of, part, question, stable

SOON = timedelta(milliseconds=60_000)
SAME = timedelta(milliseconds=-1)
PAUSE_S = 0.05


def beat(c: RawConnection, group: str, member: str, epoch: int, *, version: int = 1, **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout": SAME,
        "topic_partitions": None,
    }
    return c.call("consumer_group_heartbeat", version, **(values | more))


def joining(c: RawConnection, group: str, member: str, topics: list[str], **more: Any) -> Any:
    values: dict[str, Any] = {"rebalance_timeout": SOON, "subscribed_topic_names": topics, "topic_partitions": []}
    return beat(c, group, member, 0, **(values | more))


def told(answer: Any, name: str = "", since: int = 0) -> object:
    """Epochs are counted from one: a broker that hears late of a topic has one more before it."""
    message = (answer.error_message or "").replace(f"({since})", "(then)")
    epoch = answer.member_epoch - since if answer.member_epoch > 0 else answer.member_epoch
    return error_of(answer), message.replace(name, "NAME") if name else message, epoch, places(answer.assignment)


def places(assignment: Any) -> object:
    return None if assignment is None else sorted(sorted(each.partitions) for each in assignment.topic_partitions)


def owned(answer: Any) -> list[dict[str, Any]]:
    topics = answer.assignment.topic_partitions
    return [{"topic_id": each.topic_id, "partitions": list(each.partitions)} for each in topics]


def await_assignment(c: RawConnection, group: str, member: str, answer: Any) -> Any:
    """A broker may share out a little later than it hears of a member."""
    for _ in range(200):
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        answer = beat(c, group, member, answer.member_epoch)
        time.sleep(PAUSE_S)
    return answer


@question
def by_which_features_clients_know_of_it(c: RawConnection, name: str) -> object:
    told = c.call("api_versions", 3, client_software_name="raw", client_software_version="1")
    final = {each.name: each.max_version_level for each in told.finalized_features}
    served = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
    return final["group.version"], final["transaction.version"], served[68], served[69]


@question
def heartbeats_that_are_refused(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    asked = [
        joining(c, "", "m", [name]),
        joining(c, name, "", [name]),
        joining(c, name, "m", [name], instance_id=""),
        joining(c, name, "m", [name], rack_id=""),
        joining(c, name, "m", [name], server_assignor="nobody"),
        joining(c, name, "m", [name], rebalance_timeout=SAME),
        joining(c, name, "m", [name], topic_partitions=None),
        joining(c, name, "m", [name], subscribed_topic_names=None),
        joining(c, name, "m", [name], subscribed_topic_regex="("),
        beat(c, name, "m", 1),
        beat(c, name, "m", -1),
        beat(c, name, "m", -2),
        beat(c, name, "m", -2, instance_id="one"),
        beat(c, name, "m", -3),
        beat(c, name, "", 1),
    ]
    return [told(each, name) if "Regex" not in (each.error_message or "") else error_of(each) for each in asked]


@question
def heartbeats_of_strangers(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    since = await_assignment(c, name, "m", joining(c, name, "m", [name])).member_epoch
    asked = [
        beat(c, name, "stranger", 1),
        beat(c, name, "stranger", -1),
        beat(c, name, "m", 1, instance_id="one"),
        beat(c, name, "m", -1, instance_id="one"),
        beat(c, name, "m", 7),
        joining(c, name, "m", [name]),
        beat(c, name, "m", 1, topic_partitions=[]),
        beat(c, name, "m", -1),
        beat(c, name, "m", -1),
    ]
    return [told(each, name, since) for each in asked]


@question
def a_member_joins_in_both_versions(c: RawConnection, name: str) -> object:
    c.create_topic(name, 3)
    found = []
    for version in (0, 1):
        group = f"{name}-{version}"
        answer = joining(c, group, f"m{version}", [name], version=version)
        answer = await_assignment(c, group, f"m{version}", answer)
        again = beat(c, group, f"m{version}", answer.member_epoch, version=version)
        since = answer.member_epoch
        found.append((told(answer, since=since), told(again, since=since), answer.heartbeat_interval))
    return found


@question
def partitions_move_to_a_second_member(c: RawConnection, name: str) -> object:
    c.create_topic(name, 4)
    first = await_assignment(c, name, "a", joining(c, name, "a", [name]))
    second = joining(c, name, "b", [name])
    since = first.member_epoch
    found = [told(first, since=since), error_of(second), places(second.assignment)]
    asked = first
    for _ in range(200):  # until it is told to give something up
        asked = beat(c, name, "a", asked.member_epoch)
        if asked.assignment is not None:
            break
        time.sleep(PAUSE_S)
    found.append(told(asked, since=since))
    found.append(told(beat(c, name, "a", asked.member_epoch), since=since))
    waiting = beat(c, name, "b", second.member_epoch)
    found.append(places(waiting.assignment))
    given = beat(c, name, "a", asked.member_epoch, topic_partitions=owned(asked))
    found.append((error_of(given), given.member_epoch - asked.member_epoch, places(given.assignment)))
    taken = beat(c, name, "b", waiting.member_epoch)
    found.append([len(each.partitions) for each in taken.assignment.topic_partitions])
    return found


@question
def a_member_leaves_and_its_partitions_move(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    first = await_assignment(c, name, "a", joining(c, name, "a", [name]))
    left = beat(c, name, "a", -1)
    second = joining(c, name, "b", [name])
    second = await_assignment(c, name, "b", second)
    return told(first, since=first.member_epoch), told(left), places(second.assignment)


@question
def a_static_member_goes_for_a_while(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    first = await_assignment(c, name, "a", joining(c, name, "a", [name], instance_id="one"))
    taken = joining(c, name, "b", [name], instance_id="one")
    away = beat(c, name, "a", -2, instance_id="one")
    back = joining(c, name, "b", [name], instance_id="one")
    late = beat(c, name, "a", first.member_epoch, instance_id="one")
    gone = beat(c, name, "b", -1, instance_id="one")
    return [told(each, name, first.member_epoch) for each in (first, taken, away, back, late, gone)]


@question
def members_with_patterns(c: RawConnection, name: str) -> object:
    c.create_topic(f"{name}-x", 2)
    c.create_topic(f"{name}-y", 1)
    found: list[object] = []
    for pattern in (f"{name}-x", f"{name}-[xy]", f"{name}-(x|y)", f"{name}", f".*{name[3:]}-y"):
        group = f"{name}{len(found)}"
        answer = joining(c, group, "a", [], subscribed_topic_regex=pattern, subscribed_topic_names=None)
        if pattern != name:
            answer = await_assignment(c, group, "a", answer)
        found.append((error_of(answer), places(answer.assignment)))
    return found


@question
def commits_of_members(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    epoch = joining(c, name, "a", [name]).member_epoch

    def as_member(member: str, at: int, version: int) -> object:
        return commit(c, name, [part()], version=version, member_id=member, generation_id_or_member_epoch=at)

    tried = [
        as_member("a", epoch, 9),
        as_member("a", epoch + 1, 9),
        as_member("a", epoch, 8),
        as_member("stranger", epoch, 9),
        as_member("", -1, 9),
    ]
    fetched = []
    for member, at in (("a", epoch), ("a", epoch + 1), ("stranger", epoch), (None, -1)):
        group = {"group_id": name, "member_id": member, "member_epoch": at, "topics": None}
        (answer,) = c.call("offset_fetch", 9, groups=[group], require_stable=False).groups
        fetched.append((error_of(answer), [len(each.partitions) for each in answer.topics]))
    beat(c, name, "a", -1)
    return tried, fetched, as_member("", -1, 9), committed(c, name, name)


@question
def commits_of_a_member_that_lags(c: RawConnection, name: str) -> object:
    c.create_topic(name, 4)
    first = await_assignment(c, name, "a", joining(c, name, "a", [name]))
    joining(c, name, "b", [name])
    told = first
    for _ in range(200):  # until it is told to give something up
        told = beat(c, name, "a", told.member_epoch)
        if told.assignment is not None:
            break
        time.sleep(PAUSE_S)
    given = beat(c, name, "a", told.member_epoch, topic_partitions=owned(told))
    still = [index for each in told.assignment.topic_partitions for index in each.partitions]
    gone = [index for index in range(4) if index not in still]

    def as_of(epoch: int, indexes: list[int]) -> list[str]:
        parts = [part(index) for index in indexes]
        found: Any = commit(c, name, parts, version=9, member_id="a", generation_id_or_member_epoch=epoch)
        return [error for _, error in found]

    return [
        given.member_epoch > first.member_epoch,
        as_of(first.member_epoch, still),
        as_of(first.member_epoch, gone[:1]),
        as_of(first.member_epoch, [still[0], gone[0]]),
        as_of(0, still),
        as_of(given.member_epoch + 1, still),
        as_of(given.member_epoch, gone),
    ]


@question
def what_others_are_told_of_it(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    await_assignment(c, name, "a", joining(c, name, "a", [name]))
    stable(c, name + "-classic")
    described = c.call("consumer_group_describe", 1, group_ids=[name, name + "-classic", name + "-absent", ""])
    listed = c.call("list_groups", 5, states_filter=[], types_filter=["consumer"]).groups
    found = []
    for group in sorted(described.groups, key=lambda each: str(each.group_id)):
        members = [
            [
                (m.member_id, m.member_epoch == group.group_epoch, m.client_id, m.member_type),
                (m.subscribed_topic_names == (name,), m.subscribed_topic_regex),
                [t.topic_name == name for t in m.assignment.topic_partitions],
                (places(m.assignment), places(m.target_assignment)),
            ]
            for m in group.members
        ]
        message = (group.error_message or "").replace(name, "NAME")
        epochs = (group.group_epoch == group.assignment_epoch, group.assignor_name, group.authorized_operations)
        found.append(
            (group.group_id.replace(name, "NAME"), error_of(group), message, group.group_state, epochs, members)
        )
    classic = [
        (error_of(g), g.group_state, (getattr(g, "error_message", None) or "").replace(name, "NAME"), g.protocol_type)
        for version in (5, 6)
        for g in c.call("describe_groups", version, groups=[name]).groups
    ]
    mine = [(g.group_state, g.protocol_type, g.group_type) for g in listed if g.group_id == name]
    deleted = [error_of(each) for each in c.call("delete_groups", 2, groups_names=[name]).results]
    beat(c, name, "a", -1)
    (empty,) = c.call("consumer_group_describe", 1, group_ids=[name]).groups
    deleted += [error_of(each) for each in c.call("delete_groups", 2, groups_names=[name]).results]
    (gone,) = c.call("consumer_group_describe", 1, group_ids=[name]).groups
    return found, classic, mine, deleted, empty.group_state, error_of(gone)


@question
def an_empty_group_goes_from_one_protocol_to_the_other(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    commit(c, name, [part()])
    joined = joining(c, name, "a", [name])
    beat(c, name, "a", -1)
    member, generation = stable(c, name)
    kept = committed(c, name, name)
    c.call("leave_group", 3, group_id=name, members=[{"member_id": member}])
    again = joining(c, name, "a", [name])
    return error_of(joined), generation, kept, error_of(again), committed(c, name, name)


@question
def classic_requests_to_a_member(c: RawConnection, name: str) -> object:
    c.create_topic(name)
    joining(c, name, "a", [name])
    return [
        error_of(c.call("heartbeat", 3, group_id=name, member_id="a", generation_id=1)),
        error_of(c.call("sync_group", 3, group_id=name, member_id="a", generation_id=1, assignments=[])),
        error_of(c.call("leave_group", 3, group_id=name, members=[{"member_id": "a"}]).members[0]),
    ]
