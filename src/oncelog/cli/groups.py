"""`oncelog groups`: consumer groups, how far behind they are, and where they go on."""

from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.endings import failure, nearest, speaks_to_brokers, words_of
from oncelog.cli.parts.groups import ListsAtFirst
from oncelog.cli.parts.options import Connecting, connecting, formatted, partitions_option
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.rules import on_group
from oncelog.printable import printable

if TYPE_CHECKING:
    from oncelog.cli.parts.cluster import Cluster
    from oncelog.client.admin import GroupDescription
    from oncelog.client.errors import KafkaException
    from oncelog.client.types import TopicPartition
    from oncelog.slots import Place

COLUMNS = ("group", "topic", "partition", "committed", "end", "lag", "member", "client", "host")
names_argument = click.argument("names", metavar="GROUP...", nargs=-1, required=True)


@click.group(name="groups", cls=ListsAtFirst)
def command() -> None:
    """List, describe, delete and reset consumer groups; without a command: list."""


@command.command(name="list")
@connecting
@formatted
@speaks_to_brokers
def list_groups(to: Connecting, form: str) -> None:
    """All groups, with their states, and the protocol by which their members agree."""
    from oncelog.cli.parts.cluster import opened

    with opened(to) as cluster:
        cluster.metadata()
        found = cluster.admin.list_consumer_groups().result()
    rows = [
        {
            "group": each.group_id,
            "state": each.state,
            "kind": each.protocol_type or None,
            "protocol": each.group_type or None,
        }
        for each in found
    ]
    emit(form, rows, rows, ["group", "state", "kind", "protocol"])


@command.command()
@connecting
@formatted
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@speaks_to_brokers
def describe(to: Connecting, form: str, names: tuple[str, ...]) -> None:
    """Committed offsets, how far they are behind the end, and whose partitions they are. Without a name: all groups."""
    from oncelog.cli.parts.cluster import opened

    with opened(to) as cluster:
        described = _described(cluster, names or _all(cluster))
        told = [_told(cluster, each) for each in described]
    if form != "table":
        emit(form, told, (), ())
        return
    rows = [{"group": group["group"], **row} for group in told for row in group["partitions"]]
    emit(form, None, rows, COLUMNS)
    for group in told:
        click.echo(f"\n{printable(group['group'])}: {group['state']}, {_counted(len(group['members']))}")


def _counted(members: int) -> str:
    return f"{members} member{'s' * (members != 1)}"


def _all(cluster: "Cluster") -> tuple[str, ...]:
    cluster.metadata()
    return tuple(sorted(each.group_id for each in cluster.admin.list_consumer_groups().result()))


def _described(cluster: "Cluster", names: tuple[str, ...]) -> "list[GroupDescription]":
    from oncelog.client.errors import KafkaError, KafkaException

    cluster.metadata()
    found = []
    for name, future in cluster.admin.describe_consumer_groups(list(dict.fromkeys(names))).items():
        try:
            found.append(future.result())
        except KafkaException as refusal:
            if refusal.error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                raise _no_group(cluster, name) from refusal
            raise _refused(refusal, "Describe", name) from refusal
    return found


def _refused(refusal: "KafkaException", operation: str, name: str) -> Exception:
    """The same, or, where it is a right on this group that lacks, which one."""
    from oncelog.client.errors import KafkaError

    if refusal.error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
        return refusal
    return failure(words_of(refusal.error, on_group(operation, name)))


def _no_group(cluster: "Cluster", name: str) -> click.ClickException:
    known = [each.group_id for each in cluster.admin.list_consumer_groups().result()]
    return failure(f"there is no group {name}{nearest(name, known)}: `oncelog groups` lists all")


def _has_members(cluster: "Cluster", name: str) -> click.ClickException:
    """The refusal, with the members. A member that has a name of its own does not leave when it ends."""
    from oncelog.client.errors import KafkaException

    words = f"group {name} has members: stop them first"
    try:
        members = cluster.admin.describe_consumer_groups([name])[name].result().members
    except KafkaException:  # who may delete it need not be who may describe it
        return failure(words)
    static = sorted({each.group_instance_id for each in members if each.group_instance_id})
    if static:
        words += f"; {', '.join(static)} may have ended already: a static member counts until its session is over, "
        words += "and the owner of a saved producer for half an hour after its last commit"
    return failure(words)


def _told(cluster: "Cluster", group: "GroupDescription") -> dict[str, Any]:
    from oncelog.slots import Place

    committed = {place: each.offset for place, each in _committed(cluster, group.group_id).items()}
    owners = {Place(*place): member for member in group.members for place in member.assignment}
    known = cluster.metadata().topics
    # A partition without a commit is a line, too: what lies there is in no lag.
    topics = {place.topic for place in (*committed, *owners)} & known.keys()
    places = {*committed, *owners, *(Place(topic, at) for topic in topics for at in known[topic].partitions)}
    ends = _ends(cluster, places)
    partitions = []
    for place in sorted(places):
        offset, end, owner = committed.get(place), ends.get(place), owners.get(place)
        partitions.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": offset,
                "end": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": owner and (owner.group_instance_id or owner.member_id),
                "client": owner and owner.client_id,
                "host": owner and owner.host,
            }
        )
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.partition_assignor or None,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.host,
                "protocol": each.member_type or None,
                "partitions": len(each.assignment),
            }
            for each in group.members
        ],
        "partitions": partitions,
    }


def _committed(cluster: "Cluster", group: str) -> "dict[Place, TopicPartition]":
    from oncelog.client.admin import GroupOffsets
    from oncelog.slots import Place

    found = cluster.admin.list_consumer_group_offsets([GroupOffsets(group)])[group].result()
    return {Place(each.topic, each.partition): each for each in found.topic_partitions or () if each.offset >= 0}


def _ends(cluster: "Cluster", places: "set[Place]") -> "dict[Place, int]":
    """The ends of those partitions whose topics are still there."""
    from oncelog.cli.parts.start_offsets import END_TIME

    known = cluster.metadata().topics
    there = [each for each in places if each.topic in known and each.partition in known[each.topic].partitions]
    return cluster.offsets(there, END_TIME)


@command.command()
@connecting
@names_argument
@speaks_to_brokers
def delete(to: Connecting, names: tuple[str, ...]) -> None:
    """Remove groups without members, with all offsets that they committed."""
    from oncelog.cli.parts.cluster import opened
    from oncelog.client.errors import KafkaError, KafkaException

    with opened(to) as cluster:
        cluster.metadata()
        for name, future in cluster.admin.delete_consumer_groups(list(dict.fromkeys(names))).items():
            try:
                future.result()
            except KafkaException as refusal:
                code = refusal.error.code()
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    raise _no_group(cluster, name) from refusal
                if code == KafkaError.NON_EMPTY_GROUP:
                    raise _has_members(cluster, name) from refusal
                raise _refused(refusal, "Delete", name) from refusal


@command.command()
@connecting
@formatted
@click.option(
    "-t", "topics", metavar="TOPIC", multiple=True, help="Only of this topic; all committed ones if not given."
)
@partitions_option
@click.option(
    "-o", "offset", metavar="WHERE", required=True, help="beginning, end, an offset, -N from the end or s@MS."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Print what would change, and change nothing.")
@click.argument("group")
@speaks_to_brokers
def reset(
    to: Connecting,
    form: str,
    topics: tuple[str, ...],
    indexes: tuple[int, ...],
    offset: str,
    is_dry: bool,
    group: str,
) -> None:
    """Commit other offsets for a group without members; prints what was and what is."""
    from oncelog.cli.parts.cluster import opened
    from oncelog.cli.parts.start_offsets import EXPECTED_OF_RESET, Where, parse_start, starts

    spot = parse_start(offset, EXPECTED_OF_RESET)
    if spot.where is Where.STORED:
        raise click.UsageError("-o stored: that is where the group is already")
    with opened(to, takes=on_group("Read", group)) as cluster:
        cluster.metadata()
        before = {place: each.offset for place, each in _committed(cluster, group).items()}
        names = topics or sorted({topic for topic, _ in before})
        if not names:
            raise failure(f"group {group} has committed nothing: -t TOPIC says of which topics")
        places = cluster.places(names, indexes)
        if not topics:
            places = [place for place in places if place in before]
        after = starts(cluster, places, spot)
        if not is_dry:
            _commit(cluster, group, after)
    rows = [
        {"group": group, "topic": place[0], "partition": place[1], "before": before.get(place), "after": after[place]}
        for place in places
    ]
    emit(form, rows, rows, ["group", "topic", "partition", "before", "after"])


def _commit(cluster: "Cluster", group: str, offsets: "dict[Place, int]") -> None:
    from oncelog.client.admin import GroupOffsets
    from oncelog.client.errors import KafkaError, KafkaException
    from oncelog.client.types import TopicPartition

    wanted = GroupOffsets(group, [TopicPartition(*place, offset) for place, offset in offsets.items()])
    try:
        answered = cluster.admin.alter_consumer_group_offsets([wanted])[group].result()
    except KafkaException as refusal:
        if refusal.error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
            raise _has_members(cluster, group) from refusal
        raise
    for each in answered.topic_partitions or ():
        if each.error is not None:
            raise failure(f"{each.topic} [{each.partition}]: {each.error.str()}")
