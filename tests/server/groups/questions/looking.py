"""Looking at groups, and deleting them."""

from tests.raw import RawConnection
from tests.server.groups.questions.asking import commit, committed, error_of, member_of, part, question, stable, sync


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
