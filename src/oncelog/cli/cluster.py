"""`oncelog cluster`: several brokers on one machine, and what a person asks of brokers that replicate."""

import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.parts.endings import failure, speaks_to_brokers
from oncelog.cli.parts.groups import Pointing
from oncelog.cli.parts.options import Connecting, connecting, formatted, partitions_option, refuse_unless_address
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.parents import keep_up
from oncelog.cli.parts.rules import on_cluster

if TYPE_CHECKING:
    from oncelog.cli.parts.cluster import Cluster
    from oncelog.slots import Place

FIRST_PORT: Final = 9092


BROKERS: Final = ("id", "address", "rack", "state", "leads", "replicas")
COUNTS: Final = (
    "partitions",
    "without_leader",
    "under_replicated",
    "under_min_isr",
    "at_min_isr",
    "not_preferred",
    "moving",
)
PARTITIONS: Final = ("topic", "partition", "leader", "epoch", "replicas", "in_sync", "eligible", "lag", "moves")

topics_option = click.option("-t", "names", metavar="TOPIC", multiple=True, help="Only this one; repeatable.")
dry_run = click.option("--dry-run", "is_tried", is_flag=True, help="Only say what would move.")
wait = click.option("--wait", "is_awaited", is_flag=True, help="End once everything is where it is to be.")


@click.group(name="cluster", cls=Pointing)
def command() -> None:
    """Brokers that have copies of each other's records: start them, and look after them."""


@command.command()
@click.option("--brokers", default=3, show_default=True, type=int, help="How many, 1 to 5.")
@click.option("--data", metavar="DIR", default="oncelog-cluster", show_default=True, help="A folder for all of them.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"127.0.0.1:{FIRST_PORT}",
    show_default=True,
    help="Where the first one listens; the others at the ports behind it. Port 0 for any.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../FOLDER",
    help="Agree in this ZooKeeper, and not in this process. Needs the extra [zookeeper].",
)
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, help="One setting of each, by Kafka's name.")
@click.option(
    "--secure",
    is_flag=True,
    help="Ask for TLS and a password. Certificate and user are made on the first start. Needs the extra [secure].",
)
def start(brokers: int, data: str, listen: str, zookeeper: str | None, given: tuple[str, ...], secure: bool) -> None:
    """Brokers on this machine, until SIGTERM or SIGINT. One that ends by itself is started again.

    A topic has as many copies as there are brokers, at most 3, and acks=all waits for 2 of them, unless --set
    says otherwise.
    """
    from oncelog.cluster.file import UnfitFolder
    from oncelog.cluster.folder_lock import FolderInUse
    from oncelog.cluster.parent import BrokerEnded, Parent, TreeFailed, copies
    from oncelog.cluster.tree import TreeError
    from oncelog.cluster.tree_store import DamagedTree
    from oncelog.embedded import open_cluster
    from oncelog.server.settings_reading import ZOOKEEPER
    from oncelog.settings import SettingsError, parse_address

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    refuse_unless_address("--listen", listen, f"127.0.0.1:{FIRST_PORT}")
    host, port = parse_address("--listen", listen)
    addresses = [f"{host}:{port + each if port else 0}" for each in range(brokers)]

    def say(parent: Parent) -> None:
        click.echo(f"{brokers} brokers listen on {parent.bootstrap_servers} and keep their data in {data}")
        if secure:
            click.echo(getattr(parent, "for_people", ""))

    try:
        settings = copies(brokers) | dict(_pair(each) for each in given)
        if zookeeper is not None:
            settings["oncelog.cluster"] = f"{ZOOKEEPER}{zookeeper.removeprefix(ZOOKEEPER)}"
        folder = str(Path(data).absolute())
        keep_up(lambda: open_cluster(folder, brokers, settings, addresses=addresses, is_secure=secure), say)
    except (BrokerEnded, TreeFailed, TreeError, DamagedTree) as refusal:
        raise click.ClickException(str(refusal)) from refusal
    except (FolderInUse, UnfitFolder, SettingsError, OSError) as refusal:
        raise click.ClickException(str(refusal)) from refusal


@command.command()
@connecting
@formatted
@click.option("-t", "--topic", "names", metavar="TOPIC", multiple=True, help="Its partitions, too; repeatable.")
@click.option("-a", "--all", "is_all", is_flag=True, help="The partitions of all topics, too.")
@speaks_to_brokers
def describe(to: Connecting, form: str, names: tuple[str, ...], is_all: bool) -> None:
    """Brokers, and the partitions that lack something: those without a leader, those of which fewer replicas are
    in sync than there are, and those that move.

    A broker is up, stopping or down. LAG is how many records each follower lacks.
    """
    from oncelog.cli.parts.replicas import opened_past_who_hangs, rows_of, seen

    with opened_past_who_hangs(to, "Describe") as cluster:
        places = cluster.places(names)
        found = seen(cluster)
        if is_all:
            places = sorted(found.replicas)
        shown = [each for each in places if each in found.replicas] or ([] if names else found.troubled())
        rows = rows_of(cluster, found, shown, to.timeout_s)
    counts = found.counts()
    if form != "table":
        told = {"cluster_id": found.cluster_id, "controller": found.controller, "brokers": found.brokers}
        emit(form, told | {"counts": counts, "partitions": rows}, (), ())
        return
    emit(form, None, found.brokers, BROKERS)
    click.echo()
    emit(form, None, [counts], COUNTS)
    if rows:
        click.echo()
        emit(form, None, [_for_people(row) for row in rows], PARTITIONS)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    lag = [f"{broker}:{'?' if behind is None else behind}" for broker, behind in row["lag"].items()]
    moves = [f"+{broker}" for broker in row["adding"]] + [f"-{broker}" for broker in row["removing"]]
    return row | {"lag": ",".join(lag), "moves": ",".join(moves), "eligible": row["eligible"] or None}


@command.command()
@connecting
@formatted
@topics_option
@partitions_option
@speaks_to_brokers
def elect(to: Connecting, form: str, names: tuple[str, ...], indexes: tuple[int, ...]) -> None:
    """Let the first replica of each partition lead it again, and print what has moved.

    Brokers do it by themselves five minutes after that replica is back in sync (auto.leader.rebalance.enable).
    """
    from oncelog.cli.parts.cluster import each_outcome, partition_name
    from oncelog.cli.parts.replicas import opened_past_who_hangs
    from oncelog.client.types import TopicPartition
    from oncelog.slots import Place

    with opened_past_who_hangs(to) as cluster:
        wanted = [TopicPartition(*place) for place in _places(cluster, names, indexes)]
        futures = cluster.admin.elect_leaders(wanted) if wanted else {}
        each_outcome(futures, takes=on_cluster("Alter"), name_of=partition_name)
        held = sorted(Place(each.topic, each.partition) for each, future in futures.items() if future.result())

        def are_elected(now: Any) -> bool:
            known = (now.topics[topic].partitions[index] for topic, index in held if topic in now.topics)
            return all(each.leader == each.replicas[0] for each in known)

        cluster.wait_until(are_elected)
        leaders = cluster.leaders(held)
    rows = [{"topic": place[0], "partition": place[1], "leader": leaders[place]} for place in held]
    emit(form, rows, rows, ["topic", "partition", "leader"])


def _places(cluster: "Cluster", names: tuple[str, ...], indexes: tuple[int, ...]) -> "list[Place]":
    """All there are, where no topic is named."""
    if indexes and not names:
        raise click.UsageError("-p is a partition of a topic: name that with -t")
    return cluster.places(names or cluster.metadata().topics, indexes)


@command.command()
@connecting
@formatted
@topics_option
@partitions_option
@click.option("--to", "target", metavar="N,...", help="Their ids; the first one is to lead.")
@click.option("--cancel", "is_cancelled", is_flag=True, help="Take moves back that have not come to their end.")
@wait
@dry_run
@speaks_to_brokers
def reassign(
    to: Connecting,
    form: str,
    names: tuple[str, ...],
    indexes: tuple[int, ...],
    target: str | None,
    is_cancelled: bool,
    is_awaited: bool,
    is_tried: bool,
) -> None:
    """Move the partitions of a topic to these brokers and no others.

    New replicas are copied first, and the command does not wait for that; then the others are removed. `spread` finds
    by itself what to move.
    """
    from oncelog.cli.parts.replicas import alter, move, opened_past_who_hangs, seen

    if is_cancelled == (target is not None):
        raise click.UsageError("where to? --to 1,2,3 names brokers, and --cancel takes a move back")
    ids = [] if target is None else _ids(target)
    if ids and not names:
        raise click.UsageError("which topic? -t names it, and -p a partition of it; `spread` moves all")
    with opened_past_who_hangs(to) as cluster:
        places = _places(cluster, names, indexes)
        if ids:
            _check_brokers(ids, [each.id for each in cluster.admin.describe_cluster().result().nodes])
            move(cluster, dict.fromkeys(places, ids), form, is_tried=is_tried, is_awaited=is_awaited)
            return
        moves = seen(cluster).moves
        moving = [place for place in places if place in moves]
        rows = [{"topic": topic, "partition": index} for topic, index in moving]
        if moving and not is_tried:
            alter(cluster, dict.fromkeys(moving))
    emit(form, rows, rows, ["topic", "partition"])


def _ids(text: str) -> list[int]:
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = [-1]
    if len(set(found)) < len(found) or any(each < 0 for each in found):
        raise click.UsageError(f"--to {text or 'is empty'}: expected ids of brokers, each once, such as 1,2,3")
    return found


def _check_brokers(ids: Iterable[int], known: Collection[int]) -> None:
    for each in ids:
        if each not in known:
            raise failure(f"there is no broker {each}: the brokers are {', '.join(map(str, sorted(known)))}")


@command.command()
@connecting
@formatted
@topics_option
@wait
@dry_run
@speaks_to_brokers
def spread(to: Connecting, form: str, names: tuple[str, ...], is_awaited: bool, is_tried: bool) -> None:
    """Spread partitions and their leaders evenly over all brokers that are up, for example after one was added.

    The number of replicas stays, and as few as possible move.
    """
    from oncelog.cli.parts.replicas import move, opened_past_who_hangs, refuse_while_moving, seen
    from oncelog.client.admin.placement import spread as spread_over

    with opened_past_who_hangs(to) as cluster:
        wanted = set(_places(cluster, names, ()))
        found = seen(cluster)
        away = [row for row in found.brokers if row["state"] != "up" and row["replicas"]]
        if away:
            row = away[0]
            raise failure(
                f"broker {row['id']} is {row['state']}, and has replicas: start it again, or take them from it with "
                f"`oncelog cluster retire {row['id']}`"
            )
        refuse_while_moving(found)
        placed = {place: each.replicas for place, each in found.replicas.items() if place in wanted}
        targets = spread_over(placed, found.ready)
        move(cluster, targets, form, is_tried=is_tried, is_awaited=is_awaited)


@command.command()
@connecting
@formatted
@dry_run
@click.argument("node", metavar="N", type=click.IntRange(min=0))
@speaks_to_brokers
def retire(to: Connecting, form: str, is_tried: bool, node: int) -> None:
    """Move the partitions of broker N to the others, wait until they have them, and remove N from the cluster.

    A broker that is up is not removed: stop it then, and give the command again.
    """
    from oncelog.cli.parts.replicas import move, opened_past_who_hangs, refuse_while_moving, seen
    from oncelog.client.admin.placement import without

    with opened_past_who_hangs(to) as cluster:
        found = seen(cluster)
        states = {row["id"]: row["state"] for row in found.brokers}
        _check_brokers([node], states)
        refuse_while_moving(found)
        try:
            targets = without({place: each.replicas for place, each in found.replicas.items()}, node, found.ready)
        except ValueError as refusal:
            raise failure(str(refusal)) from refusal
        move(cluster, targets, form, is_tried=is_tried, is_awaited=True)
        if is_tried:
            return
        if states[node] == "down":
            cluster.admin.unregister_broker(node).result()
            click.echo(f"broker {node} is forgotten", err=True)
        else:
            click.echo(
                f"broker {node} has nothing any more: stop it, and give this command again to have it forgotten",
                err=True,
            )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        from oncelog.references import name_in

        raise click.UsageError(f"--set {name_in(text)}: expected KEY=VALUE")
    return name.strip(), value.strip()
