"""Groups whose members speak both protocols: how they go over from one to the other, and who is refused.

A broker may share out, or hear of a topic, a little later than it answers, so members are asked until they are told.
"""

import time
from typing import Any

from oncelog.server.groups.embedded import read_share, share_bytes
from tests.raw import RawConnection
from tests.server.groups.questions.asking import commit, error_of, heartbeat, join, member_of, part, question, sync
from tests.server.groups.questions.consumer_groups import beat, joining, owned
from tests.server.groups.words import subscription

PAUSE_S = 0.05
ROUNDS = 200


class Member:
    """One that speaks the classic protocol, and gives up all before it joins again."""

    def __init__(self, c: RawConnection, group: str, partitions: int, instance: str | None = None) -> None:
        self.c, self.group, self.partitions = c, group, partitions
        self.more: dict[str, Any] = {"protocols": [{"name": "range", "metadata": subscription([group])}]}
        self.instance = {"group_instance_id": instance}
        self.id, self.generation = member_of(c, group, **self.more, **self.instance)
        self.heard: list[object] = []

    def heartbeat(self) -> str:
        return heartbeat(self.c, self.group, self.id, self.generation, **self.instance)

    def join(self, **more: Any) -> Any:
        answer = join(self.c, self.group, self.id, version=7, **(self.more | self.instance | more))
        if error_of(answer) == "none":
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, *, version: int = 5, **more: Any) -> Any:
        """Where it leads it takes all; where it does not nobody looks at that."""
        share = share_bytes(subscription([]), {self.group: tuple(range(self.partitions))})
        values: dict[str, Any] = {"assignments": [{"member_id": self.id, "assignment": share}], **self.instance}
        if version >= 5:
            values |= {"protocol_type": "consumer", "protocol_name": "range"}
        return sync(self.c, self.group, self.id, self.generation, version=version, **(values | more))

    def go_on(self) -> list[int] | None:
        """One round. What it is told to have, where it is told."""
        if self.heartbeat() == "none":
            return None
        self.join()
        answer = self.sync()
        return share_of(answer, self.group) if error_of(answer) == "none" else None


def share_of(answer: Any, topic: str) -> list[int]:
    return sorted(read_share(answer.assignment).partitions.get(topic, ()))


def indexes(answer: Any) -> list[int]:
    topics = () if answer.assignment is None else answer.assignment.topic_partitions
    return sorted(index for each in topics for index in each.partitions)


def type_of(c: RawConnection, group: str) -> object:
    listed = c.call("list_groups", 5, states_filter=[], types_filter=[]).groups
    return [(each.group_type, each.protocol_type) for each in listed if each.group_id == group]


def settled(c: RawConnection, group: str, classic: Member, newer: str, epoch: int, sizes: list[int]) -> int:
    """Rounds of both until they have so much. The epoch of the newer one."""
    mine: list[int] = []
    theirs: list[int] = []
    for _ in range(ROUNDS):
        told = classic.go_on()
        mine = mine if told is None else told
        answer = beat(c, group, newer, epoch)
        epoch = answer.member_epoch
        if answer.assignment is not None:
            theirs = indexes(answer)
            epoch = beat(c, group, newer, epoch, topic_partitions=owned(answer)).member_epoch
        if [len(mine), len(theirs)] == sizes and not set(mine) & set(theirs) and classic.heartbeat() == "none":
            return epoch
        time.sleep(PAUSE_S)
    raise TimeoutError(f"the members have {mine} and {theirs}")


@question
def a_group_with_members_goes_over_and_back(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    classic = Member(c, name, 2)
    found: list[object] = [share_of(classic.sync(), name), type_of(c, name)]
    since = classic.generation
    came = joining(c, name, "b", [name])
    found += [error_of(came), came.member_epoch - since, indexes(came), type_of(c, name), classic.heartbeat()]
    found += [error_of(classic.sync()), commit_of(classic, since)]
    epoch = settled(c, name, classic, "b", came.member_epoch, [1, 1])
    found.append(commit_of(classic, classic.generation))
    again = classic.join()
    found += [error_of(again), again.generation_id == epoch, again.leader, again.protocol_name, again.protocol_type]
    found += [again.member_id == classic.id, len(again.members)]
    (described,) = c.call("consumer_group_describe", 1, group_ids=[name]).groups
    found.append(sorted((each.member_type, len(each.subscribed_topic_names)) for each in described.members))
    left = beat(c, name, "b", -1)
    found += [error_of(left), left.member_epoch, type_of(c, name), classic.heartbeat()]
    found.append(commit_of(classic, classic.generation))
    last = classic.join()
    found += [error_of(last), last.generation_id - epoch, last.leader == classic.id, share_of(classic.sync(), name)]
    return [*found, classic.heartbeat(), commit_of(classic, classic.generation)]


def commit_of(member: Member, generation: int, *, version: int = 8) -> object:
    ids = {"member_id": member.id, "generation_id_or_member_epoch": generation, **member.instance}
    return commit(member.c, member.group, [part()], version=version, **ids)


@question
def a_group_that_a_first_member_waits_in_goes_over(c: RawConnection, name: str) -> object:
    c.create_topic(name, 1)
    classic = Member(c, name, 1)  # in its generation, and has not asked for its share
    came = joining(c, name, "b", [name])
    return error_of(came), type_of(c, name), classic.heartbeat(), error_of(classic.sync())


@question
def classic_members_that_a_newer_group_refuses(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    joining(c, name, "b", [name])
    classic = Member(c, name, 2)
    other = [{"name": "other", "metadata": subscription([name])}]
    asked = [
        join(c, name, protocol_type="connect"),
        join(c, name, protocols=other),
        join(c, name, protocols=[]),
        join(c, name, "stranger", group_instance_id="unknown", protocols=classic.more["protocols"]),
    ]
    found: list[object] = [(error_of(each), each.member_id, each.generation_id) for each in asked]
    first = join(c, name, protocols=classic.more["protocols"])
    found.append((error_of(first), bool(first.member_id)))
    found += [
        error_of(classic.sync(generation_id=classic.generation + 1)),
        error_of(classic.sync(protocol_name="other")),
        error_of(classic.sync(protocol_type="other")),
        error_of(classic.sync(member_id="stranger")),
        error_of(classic.sync(member_id="b")),
        error_of(classic.sync(group_instance_id="unknown")),
        heartbeat(c, name, "stranger", classic.generation),
        heartbeat(c, name, "b", classic.generation),
        heartbeat(c, name, classic.id, classic.generation + 1),
        heartbeat(c, name, classic.id, classic.generation, group_instance_id="unknown"),
    ]
    return found


@question
def commits_of_both_kinds_of_members(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    came = joining(c, name, "b", [name])
    classic = Member(c, name, 2)
    epoch = settled(c, name, classic, "b", came.member_epoch, [1, 1])

    def as_newer(at: int, version: int) -> object:
        return commit(c, name, [part()], version=version, member_id="b", generation_id_or_member_epoch=at)

    return [
        commit_of(classic, classic.generation, version=8),
        commit_of(classic, classic.generation, version=9),
        commit_of(classic, classic.generation + 1),
        as_newer(epoch, 9),
        as_newer(epoch, 8),
        as_newer(epoch + 1, 9),
        commit(c, name, [part()], member_id="", generation_id_or_member_epoch=-1),
        commit(c, name, [part()], member_id="stranger", generation_id_or_member_epoch=epoch),
    ]


@question
def classic_groups_that_do_not_go_over(c: RawConnection, name: str) -> object:
    c.create_topic(name, 1)
    found: list[object] = []
    shares = b"share", share_bytes(subscription([]), {name: (0,)})[:-4] + b"\0\0\0\1x"
    for number, share in enumerate(shares):
        classic = Member(c, f"{name}-{number}", 1)
        found.append(error_of(classic.sync(assignments=[{"member_id": classic.id, "assignment": share}])))
        found.append(refused(c, classic.group, name))
    other = f"{name}-connect"
    member, generation = member_of(c, other, protocol_type="connect")
    sync(c, other, member, generation)
    return [*found, refused(c, other, name), refused(c, other, name, epoch=1), refused(c, other, name, epoch=-1)]


def refused(c: RawConnection, group: str, topic: str, *, epoch: int = 0) -> object:
    answer = joining(c, group, "b", [topic]) if epoch == 0 else beat(c, group, "b", epoch)
    return error_of(answer), (answer.error_message or "").replace(group, "GROUP")


@question
def a_static_member_changes_its_protocol(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    static = Member(c, name, 2, "one")
    static.sync()
    former, since = static.id, static.generation
    newer = joining(c, name, "b", [name], instance_id="one")
    found: list[object] = [error_of(newer), newer.member_epoch - since, indexes(newer), type_of(c, name)]
    found.append(heartbeat(c, name, former, since, group_instance_id="one"))
    back = Member(c, name, 2, "one")
    found += [back.id not in ("b", former), back.generation - newer.member_epoch, type_of(c, name), back.heartbeat()]
    found.append(error_of(beat(c, name, "b", newer.member_epoch, instance_id="one")))
    found += [share_of(back.sync(), name), back.heartbeat()]
    return found


@question
def an_administrator_sends_the_last_newer_member_away(c: RawConnection, name: str) -> object:
    c.create_topic(name, 2)
    came = joining(c, name, "b", [name])
    classic = Member(c, name, 2)
    settled(c, name, classic, "b", came.member_epoch, [1, 1])
    left = c.call("leave_group", 3, group_id=name, members=[{"member_id": "b"}])
    return error_of(left), [error_of(each) for each in left.members], type_of(c, name), classic.heartbeat()


def as_its_policy_lets_it(c: RawConnection, name: str) -> object:
    """No question to every broker: it is asked of those with another policy."""
    c.create_topic(name, 2)
    classic = Member(c, name, 2)
    classic.sync()
    found = [refused(c, name, name), type_of(c, name)]
    other = f"{name}-newer"
    c.create_topic(other, 2)
    came = joining(c, other, "b", [other])
    second = Member(c, other, 2)
    settled(c, other, second, "b", came.member_epoch, [1, 1])
    beat(c, other, "b", -1)
    return [*found, type_of(c, other)]
