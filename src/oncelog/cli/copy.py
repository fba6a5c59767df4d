"""`oncelog copy`: a topic to another one, record by record once, on Spark."""

import sys
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.endings import ended_by_sigterm, failure, speaks_to_brokers
from oncelog.cli.parts.options import SERVERS, Connecting, client_properties, connecting, pairs

if TYPE_CHECKING:
    from oncelog.spark.copying.copy_planning import Plan
    from oncelog.spark.copying.copy_running import Copying, Summary


@click.command(name="copy")
@connecting
@click.option("--from-servers", metavar="HOST:PORT,...", help="The brokers of SOURCE, where they are not those of -b.")
@click.option("--to-servers", metavar="HOST:PORT,...", help="The brokers of DEST, where they are not those of -b.")
@click.option("--from-property", metavar="NAME=VALUE", multiple=True, help="As -X, for SOURCE only; repeatable.")
@click.option("--to-property", metavar="NAME=VALUE", multiple=True, help="As -X, for DEST only; repeatable.")
@click.option("--follow", "follows", is_flag=True, help="Go on with new records, until Ctrl-C or SIGTERM.")
@click.option("--name", metavar="NAME", help="The name of this copy; SOURCE-DEST if not given.")
@click.option("--skip-lost", "skips_lost", is_flag=True, help="Pass over records that are gone from SOURCE.")
@click.option("--master", metavar="MASTER", help="Spark's master: local[*] if neither this nor Spark's files say.")
@click.option("--conf", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; repeatable.")
@click.option("-q", "is_quiet", is_flag=True, help="No progress on stderr.")
@click.argument("source", metavar="SOURCE")
@click.argument("destination", metavar="DEST")
@speaks_to_brokers
def command(
    to: Connecting,
    from_servers: str | None,
    to_servers: str | None,
    from_property: tuple[str, ...],
    to_property: tuple[str, ...],
    follows: bool,
    name: str | None,
    skips_lost: bool,
    master: str | None,
    conf: tuple[str, ...],
    is_quiet: bool,
    source: str,
    destination: str,
) -> None:
    """Copy the topic SOURCE to DEST, partition by partition, every record once, up to the end as it is now.

    Keys, values, headers and timestamps stay as they are. Killed anywhere and started again it goes on where it was;
    two at once do no harm. DEST is made where it is not there. How far it got is kept on DEST's cluster, in the topic
    oncelog.copy.NAME.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
    """
    try:
        from oncelog.spark.copying.copy_planning import Plan, spec_of
        from oncelog.spark.copying.copy_running import Copying
        from oncelog.spark.session import session
    except ImportError as missing:
        raise failure(f'a copy runs on Spark: pip install "oncelog[spark]" ({missing})') from missing
    from oncelog.spark.copying.job import CopyFailed, CopyRefused
    from oncelog.spark.copying.lane import BadState

    spec = spec_of(
        source,
        destination,
        _properties(to, from_servers, client_properties("--from-property", from_property)),
        _properties(to, to_servers, client_properties("--to-property", to_property)),
        name=name,
        skips_lost=skips_lost,
    )
    settings = pairs("--conf", conf)

    def spark() -> Any:
        return session(f"oncelog copy {source} {destination}", settings, progress=False, master=master)

    try:
        with ended_by_sigterm(), Plan(spec) as plan:
            copying = Copying(spark, plan)
            for words in plan.warnings(copying.job):
                _say(f"note: {words}")
            if follows:
                _follow(copying, plan, is_quiet)
            else:
                _once(copying, plan, is_quiet)
    except (CopyRefused, BadState) as refused:
        raise failure(str(refused)) from refused
    except CopyFailed as failed:
        raise failure(f"{failed}; the same command goes on where this one was") from failed


def _once(copying: "Copying", plan: "Plan", is_quiet: bool) -> None:
    if is_quiet:
        summary = copying.once()
    else:
        with _progress(copying, plan, copying.left()):
            summary = copying.once()
    _tell(copying, summary)


def _follow(copying: "Copying", plan: "Plan", is_quiet: bool) -> None:
    has_failed = False
    try:
        if is_quiet:
            copying.follow(Event(), _say)
        else:
            with _progress(copying, plan, None):
                copying.follow(Event(), _say)
    except Exception:
        has_failed = True
        raise
    finally:
        if not has_failed or copying.summary.records:  # who failed before the first record does not know what is left
            _tell(copying, copying.summary)


def _progress(copying: "Copying", plan: "Plan", wanted: int | None) -> Any:
    from oncelog.spark.copying.showing import Showing

    job = copying.job
    return Showing(job.destination.reading, job.destination_topic, plan.destination_ends(job), sys.stderr, wanted)


def _tell(copying: "Copying", summary: "Summary") -> None:
    for words in summary.lost:
        _say(f"lost: {words}")
    job = copying.job
    if not summary.records and not summary.found:
        click.echo(f"nothing to copy: {job.destination_topic} has all of {job.source_topic}")
        return
    per_s = summary.records / summary.took_s if summary.took_s else 0
    found = f"; {summary.found:,} stood there already" if summary.found else ""
    click.echo(
        f"copied {summary.records:,} records ({summary.size_bytes / 1e6:,.1f} MB) of {job.source_topic} to "
        f"{job.destination_topic}, {summary.partitions} partitions, in {summary.took_s:.1f} s: {per_s:,.0f} records/s"
        f"{found}"
    )


def _say(words: str) -> None:
    click.echo(words, err=True)


def _properties(to: Connecting, servers: str | None, own: dict[str, str]) -> dict[str, str]:
    """The properties of one side, which go before those of both."""
    properties = {name: value for name, value in to.properties.items() if servers is None or name not in SERVERS}
    return properties | own | ({} if servers is None else {SERVERS[0]: servers})
