"""`oncelog cluster`: several brokers on one machine, and what a person asks of brokers that replicate."""

import logging
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final

import click

from oncelog.cli._options import refuse_unless_address

FIRST_PORT: Final = 9092
LOOK_S: Final = 0.5


@click.group(name="cluster")
def command() -> None:
    """Brokers that have each other's records."""


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
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, help="One setting of each, by Kafka's name.")
def start(brokers: int, data: str, listen: str, given: tuple[str, ...]) -> None:
    """Brokers on this machine, until SIGTERM or SIGINT. One that ends by itself is started again.

    A topic has as many copies as there are brokers, at most 3, and acks=all waits for 2 of them, unless --set
    says otherwise.
    """
    from oncelog.cluster.file import UnfitFolder
    from oncelog.cluster.folder_lock import FolderInUse
    from oncelog.cluster.parent import BrokerEnded, Parent, TreeFailed, copies
    from oncelog.cluster.tree_store import DamagedTree
    from oncelog.settings import SettingsError, parse_address

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    refuse_unless_address("--listen", listen, f"127.0.0.1:{FIRST_PORT}")
    host, port = parse_address("--listen", listen)
    addresses = [f"{host}:{port + each if port else 0}" for each in range(brokers)]
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    try:
        settings = copies(brokers) | dict(_pair(each) for each in given)
        with Parent(str(Path(data).absolute()), brokers, settings, addresses=addresses) as parent:
            click.echo(f"{brokers} brokers listen on {parent.bootstrap_servers} and keep their data in {data}")
            while not stop.wait(LOOK_S):
                parent.keep_up()
    except (BrokerEnded, TreeFailed, DamagedTree, FolderInUse, UnfitFolder, SettingsError, OSError) as refusal:
        raise click.ClickException(str(refusal)) from refusal


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set {text}: expected KEY=VALUE")
    return name.strip(), value.strip()
