"""`oncelog doctor`: what this machine has of what oncelog needs, and the remedy for what is missing."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.parts.endings import speaks_to_brokers
from oncelog.cli.parts.options import ADMIN, DEFAULT_BROKER, SERVERS, Connecting, connecting
from oncelog.printable import printable

if TYPE_CHECKING:
    from oncelog.doctor.finding import Finding

EXTRAS: Final = ("columns", "spark", "connect", "chaos", "console", "secure", "oauth", "flow", "zookeeper")
NAME_WIDTH: Final = 18


@click.command(name="doctor")
@click.option(
    "--need",
    "wanted",
    type=click.Choice(EXTRAS),
    multiple=True,
    help="An extra that must be there, with what belongs to it; repeatable.",
)
@click.option("--listen", metavar="HOST:PORT", help="Where the server would listen; as of `oncelog serve`.")
@click.option("--data", metavar="DIR", help="The server's data folder; as of `oncelog serve`.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server's settings; as of `oncelog serve`.",
)
@connecting
@click.option("--json", "-J", "is_json", is_flag=True, help="The same for programs.")
@speaks_to_brokers
def command(
    wanted: tuple[str, ...], listen: str | None, data: str | None, config: Path | None, to: Connecting, is_json: bool
) -> None:
    """Look at Python, libraries, Java, folders, limits and the server's port; with -b also at a cluster.

    -b asks the brokers what they speak, and tries every address that they advertise.
    Nothing is changed, and nothing that is written stays.

    Exit codes: 0 all that is needed is there, 1 something is missing, 2 wrong usage, 130 Ctrl-C.
    """
    from oncelog import __version__
    from oncelog.doctor.finding import Verdict

    findings = list(_findings(wanted, listen, data, config, to if _is_asked(to) else None))
    is_ready = all(each.verdict is not Verdict.MISSING for each in findings)
    if is_json:
        told = {"version": __version__, "is_ready": is_ready, "findings": [each.to_json() for each in findings]}
        click.echo(json.dumps(told, indent=2))
    else:
        show(findings)
    raise SystemExit(0 if is_ready else 1)


def _is_asked(to: Connecting) -> bool:
    """Whether a cluster was named, by -b or otherwise; the default stands for no answer."""
    source = click.get_current_context().get_parameter_source("brokers")
    is_named = source is click.core.ParameterSource.COMMANDLINE
    return is_named or any(to.properties.get(name, DEFAULT_BROKER) != DEFAULT_BROKER for name in SERVERS)


def _findings(
    wanted: Sequence[str], listen: str | None, data: str | None, config: Path | None, to: Connecting | None
) -> "Iterator[Finding]":
    from oncelog.doctor.machine import check_java, check_open_files, check_python
    from oncelog.doctor.packages import check_packages

    yield check_python()
    yield from check_packages(wanted)
    yield check_java(os.environ, bool({"spark", "connect"} & set(wanted)))
    yield from _of_the_server(listen, data, config)
    yield check_open_files()
    if to is not None:
        from oncelog.doctor.cluster import check_cluster

        yield from asyncio.run(check_cluster(to.of(ADMIN), to.timeout_s))


def _of_the_server(listen: str | None, data: str | None, config: Path | None) -> "Iterator[Finding]":
    from oncelog.doctor.finding import missing, note
    from oncelog.doctor.listen_address import check_listeners
    from oncelog.doctor.machine import check_folders, check_unheeded
    from oncelog.server.access import unasked
    from oncelog.server.listeners import parse_listeners, parse_protocols
    from oncelog.server.settings_reading import read_settings
    from oncelog.settings import SettingsError

    short = [("listeners", listen and f"PLAINTEXT://{listen}"), ("log.dir", data)]
    try:
        settings = read_settings([f"{name}={value}" for name, value in short if value], environ=os.environ, file=config)
    except SettingsError as refusal:
        for line in str(refusal).splitlines():
            yield missing("settings", line, "docs/settings.md names them all")
        return
    words = unasked(settings)
    if words is not None:
        yield note("rights", words)
    yield from check_unheeded(settings)
    yield from check_folders(Path(settings.log_dir))
    protocols = parse_protocols(settings.listener_security_protocol_map)
    listeners = parse_listeners("listeners", settings.listeners, protocols)
    yield from asyncio.run(check_listeners(listeners))


def show(findings: "Sequence[Finding]") -> None:
    from oncelog.doctor.finding import Verdict

    colors = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.MISSING: "red"}
    for each in findings:
        mark = click.style(f"{each.verdict:<8}", fg=colors[each.verdict])
        # The name in a certificate may be anything, as nobody has vouched for it.
        click.echo(f"{mark} {each.name:<{NAME_WIDTH}} {printable(each.words)}")
        if each.remedy:
            click.echo(f"{'':{NAME_WIDTH + 10}}{'->'} {each.remedy}")
    lacking = sum(each.verdict is Verdict.MISSING for each in findings)
    click.echo("\nAll that is needed is there." if not lacking else f"\n{lacking} missing.")
