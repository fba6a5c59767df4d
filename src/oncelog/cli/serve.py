"""`oncelog serve`: the log server in the foreground, until SIGTERM or SIGINT."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.parts.options import refuse_unless_address
from oncelog.cli.parts.parents import keep_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.server.running import Beside
    from oncelog.server.settings import Settings

CONSOLE_ADDRESS: Final = "127.0.0.1:8080"


@click.command(name="serve")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; 127.0.0.1:9092 when not given, port 0 for any.")
@click.option(
    "--secure",
    is_flag=True,
    help="Ask for TLS and a password. Certificate and user are made on the first start. Needs the extra [secure].",
)
@click.option("--data", metavar="DIR", help="The data folder; it is made on the first start.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings in Java's .properties form, with Kafka's names.",
)
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, help="One setting, by Kafka's name; repeatable.")
@click.option("--cluster", metavar="zk://HOST:PORT,.../FOLDER", help="Be a broker of the cluster that agrees there.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 16),
    default=1,
    help="How many processes share the folder and its partitions, at ports one behind the other: more cores.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus text at /metrics there.")
@click.option(
    "--console",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=CONSOLE_ADDRESS,
    help=f"Serve the page to look at there; {CONSOLE_ADDRESS} when not given. Needs the extra [console].",
)
@click.option("--until-input-ends", is_flag=True, hidden=True)
@click.option("--settings-from-input", is_flag=True, hidden=True)
@click.option("--console-faults", metavar="FILE", hidden=True, type=click.Path(dir_okay=False, path_type=Path))
def command(
    listen: str | None,
    secure: bool,
    data: str | None,
    config: Path | None,
    given: tuple[str, ...],
    cluster: str | None,
    workers: int,
    metrics: str | None,
    console: str | None,
    console_faults: Path | None,
    until_input_ends: bool,
    settings_from_input: bool,
) -> None:
    """Serve a log over the Kafka protocol.

    Settings come from --set, then from ONCELOG_... variables of the environment, then from --config.
    """
    _leave_out("hypothesis")
    from oncelog.cluster.file import DamagedFolder, UnfitFolder
    from oncelog.cluster.folder_lock import FolderInUse
    from oncelog.cluster.tree import TreeError
    from oncelog.log.errors import LogError
    from oncelog.server.ports import ClusterStorageError
    from oncelog.server.running import serve
    from oncelog.server.settings_reading import read_settings
    from oncelog.settings import SettingsError

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    refuse_unless_address("--listen", listen, "127.0.0.1:9092")
    refuse_unless_address("--metrics", metrics, "127.0.0.1:9308")
    refuse_unless_address("--console", console, CONSOLE_ADDRESS)
    pages, beside = _console(console, console_faults)
    if data is not None and not data.strip():
        raise click.UsageError("--data is empty: name a folder, such as --data data, or leave it out for oncelog-data")
    if workers > 1 and (console is not None or cluster is not None or secure):
        raise click.UsageError("--workers goes with neither --console nor --cluster nor --secure")
    short = [
        ("listeners", listen and f"{'SASL_SSL' if secure else 'PLAINTEXT'}://{listen}"),
        ("oncelog.secure", "true" if secure else None),
        ("log.dir", data),
        ("oncelog.cluster", cluster),
        ("oncelog.metrics.listener", metrics),
    ]
    told = [f"{name}={value}" for name, value in _first_line().items()] if settings_from_input else []
    try:
        settings = read_settings(
            [*given, *told, *(f"{name}={value}" for name, value in short if value)], environ=os.environ, file=config
        )
        until = _read_to_the_end if until_input_ends else None
        if workers > 1:
            _serve_by_workers(settings, workers, until)
            return
        from oncelog.embedded import open_service

        serve(lambda: open_service(settings, beside=pages), click.echo, beside=beside, until=until)
    except SettingsError as refusal:
        raise _Misused(_one_below_the_other(str(refusal))) from refusal
    except (FolderInUse, DamagedFolder, UnfitFolder) as refusal:
        raise click.ClickException(_one_below_the_other(str(refusal))) from refusal
    except (ClusterStorageError, LogError, TreeError) as refusal:
        raise click.ClickException(_one_below_the_other(str(refusal))) from refusal
    except OSError as refusal:
        raise click.ClickException(_in_words(refusal)) from refusal


class _Misused(click.ClickException):
    exit_code = click.UsageError.exit_code


def _serve_by_workers(settings: "Settings", count: int, until: "Callable[[], object] | None") -> None:
    from oncelog.cluster.parent import BrokerEnded, Parent, TreeFailed
    from oncelog.cluster.workers import Workers

    def say(parent: Parent) -> None:
        click.echo(f"{count} workers listen on {parent.bootstrap_servers} and keep their data in {settings.log_dir}")

    try:
        keep_up(lambda: Workers(settings, count), say, until=until)
    except (BrokerEnded, TreeFailed) as refusal:
        raise click.ClickException(str(refusal)) from refusal


def _console(address: str | None, faults: Path | None) -> "tuple[list[tuple[str, int]], Beside | None]":
    """The addresses of the page, and the page. `faults`: the file in which `oncelog chaos` notes what it does to the
    server."""
    if address is None:
        return [], None
    try:
        from oncelog.console.faults import FaultFile
        from oncelog.console.serving import beside
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise click.ClickException(
            f"--console needs {package}, which is not installed: pip install 'oncelog[console]'"
        ) from missing
    from oncelog.settings import parse_address

    host, port = parse_address("--console", address)
    return [(host, port)], beside(host, port, None if faults is None else FaultFile(faults))


def _first_line() -> "dict[str, str]":
    """The first line of the input: settings as JSON, from the process that has started this server. A command line
    would show them to everybody."""
    import json

    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 65_536)
        if not piece:
            raise click.UsageError("the input ended before the settings were there")
        line += piece
    return dict(json.loads(line))


def _read_to_the_end() -> None:
    """Read the input, but not by `sys.stdin`: a thread that waits in it while the interpreter ends makes that a fatal
    error."""
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass


def _one_below_the_other(problems: str) -> str:
    lines = problems.splitlines()
    return problems if len(lines) < 2 else "\n  ".join([f"{len(lines)} things are wrong", *lines])


def _in_words(error: OSError) -> str:
    """`afile: not a folder`, and not `[Errno 17] File exists: 'afile'`."""
    if error.filename is None:
        return str(error)
    is_file = isinstance(error, FileExistsError | NotADirectoryError)
    why = "not a folder" if is_file else (error.strerror or str(error)).lower()
    return f"{error.filename} cannot be used: {why}. The data folder (--data) must be one that this user may write to"


def _leave_out(name: str) -> None:
    """Have kio find that hypothesis is not installed: where it is, kio makes it strategies for every type, which costs
    a third of a second and 10 MB at each start."""
    if name not in sys.modules:
        sys.modules[name] = None  # type: ignore[assignment]
