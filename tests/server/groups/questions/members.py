"""Joining, sharing out, leaving."""

from tests.raw import RawConnection
from tests.server.groups.questions.asking import CONSUMER, error_of, heartbeat, join, member_of, question, stable, sync

# --- joining --------------------------------------------------------------------------------------------------------


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


# --- sharing out ----------------------------------------------------------------------------------------------------


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


# --- leaving --------------------------------------------------------------------------------------------------------


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
