"""`oncelog topics`: what topics there are, and changes to them."""

from typing import TYPE_CHECKING, Any

import click

from oncelog.cli._endings import speaks_to_brokers
from oncelog.cli._groups import ListsAtFirst
from oncelog.cli._options import Connecting, PartitionCount, connecting, formatted, pairs
from oncelog.cli._output import emit

if TYPE_CHECKING:
    from oncelog.cli._cluster import Cluster
    from oncelog.client.consumer.cluster_metadata import TopicMetadata

names_argument = click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
config_option = click.option(
    "-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help="A setting of the topic; repeatable."
)


@click.group(name="topics", cls=ListsAtFirst)
def command() -> None:
    """List, describe, create, delete and alter topics; without a command: list."""


@command.command(name="list")
@connecting
@formatted
@click.option("-t", "names", metavar="TOPIC", multiple=True, help="Only this one; repeatable.")
@speaks_to_brokers
def list_topics(to: Connecting, form: str, names: tuple[str, ...]) -> None:
    """All topics, with their partitions and replicas."""
    from oncelog.cli._cluster import opened

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
    from oncelog.cli._cluster import opened

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
    from oncelog.cli._start_offsets import BEGINNING_TIME, END_TIME

    topics = cluster.topics(names)
    led = [(name, index) for name in topics for index, each in topics[name].partitions.items() if each.leader >= 0]
    starts, ends = cluster.offsets(led, BEGINNING_TIME), cluster.offsets(led, END_TIME)
    return [
        {
            "topic": name,
            "partition": index,
            "leader": each.leader if each.leader >= 0 else None,
            "replicas": each.replicas,
            "in_sync": each.isrs,
            "start": starts.get((name, index)),
            "end": ends.get((name, index)),
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
    from oncelog.cli._cluster import each_outcome, opened
    from oncelog.client.errors import KafkaError
    from oncelog.client.types import NewTopic

    settings = pairs("-c", configs)
    with opened(to) as cluster:
        cluster.metadata()
        wanted = [NewTopic(name, partitions or -1, replicas or -1, config=settings) for name in dict.fromkeys(names)]
        each_outcome(cluster.admin.create_topics(wanted), KafkaError.TOPIC_ALREADY_EXISTS if may_exist else None)
        cluster.settle(lambda now: all(_is_ready(now.topics.get(name)) for name in names))


def _is_ready(topic: "TopicMetadata | None", partitions: int = 1) -> bool:
    """Whether it has so many partitions, and leaders for all."""
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
    from oncelog.cli._cluster import each_outcome, opened
    from oncelog.client.errors import KafkaError

    with opened(to) as cluster:
        if not may_lack:
            cluster.topics(names)
        futures = cluster.admin.delete_topics(list(dict.fromkeys(names)))
        each_outcome(futures, KafkaError.UNKNOWN_TOPIC_OR_PART if may_lack else None)
        cluster.settle(lambda now: not any(name in now.topics for name in names))


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
    from oncelog.cli._cluster import each_outcome, opened
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
            each_outcome({each.name: future for each, future in futures.items()})
        if partitions is not None:
            each_outcome(cluster.admin.create_partitions([NewPartitions(name, partitions) for name in known]))
            cluster.settle(lambda now: all(_is_ready(now.topics.get(name), partitions) for name in known))
