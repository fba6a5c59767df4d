"""`oncelog topics`: what topics there are, and changes to them."""

from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.endings import speaks_to_brokers
from oncelog.cli.parts.groups import ListsAtFirst
from oncelog.cli.parts.least_rights import ROLES, Needs, parts
from oncelog.cli.parts.options import Connecting, PartitionCount, connecting, formatted, pairs
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.rules import Principal, command_of

if TYPE_CHECKING:
    from oncelog.cli.parts.cluster import Cluster
    from oncelog.client.consumer.cluster_metadata import TopicMetadata

names_argument = click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
config_option = click.option(
    "-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help="A setting of the topic; repeatable."
)


class TopicCommands(ListsAtFirst):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--acls` is a command here, whatever it looks like."""
        return super().parse_args(ctx, ["acls", *args[1:]] if args[:1] == ["--acls"] else args)


@click.group(name="topics", cls=TopicCommands)
def command() -> None:
    """List, describe, create, delete and alter topics, tell what rights they take; without a command: list."""


@command.command(name="list")
@connecting
@formatted
@click.option("-t", "names", metavar="TOPIC", multiple=True, help="Only this one; repeatable.")
@speaks_to_brokers
def list_topics(to: Connecting, form: str, names: tuple[str, ...]) -> None:
    """All topics, with their partitions and replicas."""
    from oncelog.cli.parts.cluster import opened

    with opened(to) as cluster:
        known = cluster.topics(names) if names else cluster.metadata().topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0),
            "error": topic.error.name() if topic.error else None,
        }
        for name, topic in sorted(known.items())
    ]
    has_errors = any(row["error"] for row in rows)
    emit(form, rows, rows, ["topic", "partitions", "replicas", *(["error"] if has_errors else [])])


@command.command()
@connecting
@formatted
@click.option("-a", "--all", "is_all", is_flag=True, help="Also settings that are as by default.")
@names_argument
@speaks_to_brokers
def describe(to: Connecting, form: str, is_all: bool, names: tuple[str, ...]) -> None:
    """Partitions with their leaders and offsets, and the settings that differ from the defaults."""
    from oncelog.cli.parts.cluster import opened

    with opened(to) as cluster:
        partitions = _partitions(cluster, names)
        configs = _configs(cluster, names, is_all=is_all)
    if form != "table":
        told = [
            {
                "topic": name,
                "partitions": [_without(row, "topic") for row in partitions if row["topic"] == name],
                "configs": {row["setting"]: row["value"] for row in configs if row["topic"] == name},
            }
            for name in dict.fromkeys(names)
        ]
        emit(form, told, (), ())
        return
    emit(form, None, partitions, ["topic", "partition", "leader", "replicas", "in_sync", "start", "end"])
    if configs:
        click.echo()
        emit(form, None, configs, ["topic", "setting", "value", "source"])


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def _partitions(cluster: "Cluster", names: tuple[str, ...]) -> list[dict[str, Any]]:
    from oncelog.cli.parts.start_offsets import BEGINNING_TIME, END_TIME
    from oncelog.slots import Place

    topics = cluster.topics(names)
    led = [Place(name, index) for name in topics for index, each in topics[name].partitions.items() if each.leader >= 0]
    starts, ends = cluster.offsets(led, BEGINNING_TIME), cluster.offsets(led, END_TIME)
    return [
        {
            "topic": name,
            "partition": index,
            "leader": each.leader if each.leader >= 0 else None,
            "replicas": each.replicas,
            "in_sync": each.isrs,
            "start": starts.get(Place(name, index)),
            "end": ends.get(Place(name, index)),
        }
        for name, topic in topics.items()
        for index, each in sorted(topic.partitions.items())
    ]


def _configs(cluster: "Cluster", names: tuple[str, ...], *, is_all: bool) -> list[dict[str, Any]]:
    from oncelog.client.admin import ConfigResource, ConfigSource, ResourceType

    wanted = [ConfigResource(ResourceType.TOPIC, name) for name in dict.fromkeys(names)]
    found = {each.name: future.result() for each, future in cluster.admin.describe_configs(wanted).items()}
    return [
        {"topic": name, "setting": entry.name, "value": entry.value, "source": entry.source.name.lower()}
        for name, entries in found.items()
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
        if is_all or entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    ]


@command.command()
@connecting
@click.option("-p", "--partitions", metavar="N", type=PartitionCount(), help="The server's default if not given.")
@click.option("-r", "--replicas", metavar="N", type=click.IntRange(min=1), help="The server's default if not given.")
@config_option
@click.option("--if-not-exists", "may_exist", is_flag=True, help="One that is there already is no failure.")
@names_argument
@speaks_to_brokers
def create(
    to: Connecting,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    may_exist: bool,
    names: tuple[str, ...],
) -> None:
    """Make topics."""
    from oncelog.cli.parts.cluster import each_outcome, opened
    from oncelog.client.errors import KafkaError
    from oncelog.client.types import NewTopic

    settings = pairs("-c", configs)
    with opened(to) as cluster:
        cluster.metadata()
        wanted = [NewTopic(name, partitions or -1, replicas or -1, config=settings) for name in dict.fromkeys(names)]
        passed_over = KafkaError.TOPIC_ALREADY_EXISTS if may_exist else None
        each_outcome(cluster.admin.create_topics(wanted), passed_over, topics_take="Create")
        cluster.wait_until(lambda now: all(_is_ready(now.topics.get(name)) for name in names))


def _is_ready(topic: "TopicMetadata | None", partitions: int = 1) -> bool:
    """Whether it has that number of partitions, and leaders for all."""
    if topic is None or len(topic.partitions) < partitions:
        return False
    return all(each.leader >= 0 for each in topic.partitions.values())


@command.command()
@connecting
@click.option("--if-exists", "may_lack", is_flag=True, help="One that is not there is no failure.")
@names_argument
@speaks_to_brokers
def delete(to: Connecting, may_lack: bool, names: tuple[str, ...]) -> None:
    """Remove topics with all their records, at once and for good."""
    from oncelog.cli.parts.cluster import each_outcome, opened
    from oncelog.client.errors import KafkaError

    with opened(to) as cluster:
        if not may_lack:
            cluster.topics(names)
        futures = cluster.admin.delete_topics(list(dict.fromkeys(names)))
        each_outcome(futures, KafkaError.UNKNOWN_TOPIC_OR_PART if may_lack else None, topics_take="Delete")
        cluster.wait_until(lambda now: not any(name in now.topics for name in names))


@command.command()
@connecting
@click.option("-p", "--partitions", metavar="N", type=PartitionCount(), help="How many there are to be.")
@config_option
@click.option("-u", "--unset", metavar="NAME", multiple=True, help="A setting that is to be as by default again.")
@names_argument
@speaks_to_brokers
def alter(
    to: Connecting, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Add partitions, or change settings. Keys go to other partitions once there are more of them."""
    from oncelog.cli.parts.cluster import each_outcome, opened
    from oncelog.client.admin import AlterConfig, AlterOperation, ConfigResource, ResourceType
    from oncelog.client.types import NewPartitions

    changes = [AlterConfig(name, value) for name, value in pairs("-c", configs).items()]
    changes += [AlterConfig(name, operation=AlterOperation.DELETE) for name in unset]
    if partitions is None and not changes:
        raise click.UsageError("nothing to alter: -p N, -c NAME=VALUE or -u NAME")
    with opened(to) as cluster:
        known = list(cluster.topics(names))
        if changes:
            wanted = [ConfigResource(ResourceType.TOPIC, name, changes) for name in known]
            futures = cluster.admin.incremental_alter_configs(wanted)
            each_outcome(futures, name_of=lambda each: each.name, topics_take="AlterConfigs")
        if partitions is not None:
            grown = cluster.admin.create_partitions([NewPartitions(name, partitions) for name in known])
            each_outcome(grown, topics_take="Alter")
            cluster.wait_until(lambda now: all(_is_ready(now.topics.get(name), partitions) for name in known))


@command.command()
@click.option("--principal", type=Principal(), default="User:NAME", show_default=True, help="The user who needs them.")
@click.option("--group", metavar="GROUP", help="The group of a consumer, or of a saved producer.")
@click.option("--name", metavar="NAME", help="The name of the sink, the copy or the flow.")
@click.option("--to", metavar="TOPIC", multiple=True, help="A topic that a copy or a flow writes to; repeatable.")
@click.option("--through", metavar="TOPIC", multiple=True, help="Between the stages of a flow; repeatable.")
@click.option("--transactional", "is_transactional", is_flag=True, help="Of a sink that writes in transactions.")
@click.argument("role", type=click.Choice(ROLES))
@click.argument("topics", metavar="TOPIC...", nargs=-1)
def acls(
    principal: str,
    group: str | None,
    name: str | None,
    to: tuple[str, ...],
    through: tuple[str, ...],
    is_transactional: bool,
    role: str,
    topics: tuple[str, ...],
) -> None:
    """Print, as commands, the rights that somebody needs of topics, and no more. `oncelog topics --acls` is the same.

    No broker is asked. TOPIC is what is written by a producer or a sink, and what is read by a consumer, a copy or a
    flow.
    """
    if is_transactional and role != "sink":
        raise click.UsageError("--transactional goes with a sink")
    needs = Needs(
        role=role,
        topics=topics,
        to=to,
        through=through,
        group=group,
        name=name,
        is_transactional=is_transactional,
    )
    if needs.lacks is not None:
        raise click.UsageError(f"what a {role} needs depends on {needs.lacks}, which is missing")
    where = ""
    for part in parts(needs):
        if part.where != where:
            where = part.where
            click.echo(f"# {where}")
        click.echo(command_of(principal, part.given, "PREFIXED" if part.is_prefix else "LITERAL"))
