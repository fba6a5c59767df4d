"""`oncelog flow cleanup`: beside a topic that at-least-once writers fill, one that holds each record once, without a
program."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.flow_runs import metrics_option, work
from oncelog.cli.parts.flows import looked, speaks_of_flows
from oncelog.cli.parts.options import Connecting, connecting
from oncelog.cli.parts.pinning import pin_hashes

if TYPE_CHECKING:
    from oncelog.flow import Flow
    from oncelog.runner.looking import Looking

MOST_IDS = 1_000_000


@click.command()
@connecting
@click.option(
    "--id",
    "field",
    metavar="FIELD",
    help="By this field of values that are JSON objects; without it by the header oncelog.source.",
)
@click.option(
    "--most",
    metavar="N",
    type=click.IntRange(min=1),
    default=MOST_IDS,
    show_default=True,
    help="How many ids of each partition are kept, the newest.",
)
@click.option("--name", metavar="NAME", help="Of the flow that this is; cleanup-MESSY if not given.")
@click.option("--until", type=click.Choice(["end"]), help="Up to where MESSY ends now; without it, until Ctrl-C.")
@click.option("--run-id", metavar="ID", help="A retry with the same ID is the same run, and ends where it was to end.")
@metrics_option
@click.argument("messy", metavar="MESSY")
@click.argument("pristine", metavar="PRISTINE")
@speaks_of_flows
def cleanup(
    to: Connecting,
    field: str | None,
    most: int,
    name: str | None,
    until: str | None,
    run_id: str | None,
    metrics: str | None,
    messy: str,
    pristine: str,
) -> None:
    """Write what topic MESSY holds to topic PRISTINE, each record once.

    Records of one id must have the same key, or stand in the same partition. It is a flow: what it is stopped or killed
    at it goes on from, and the other commands take its NAME.

    Exit codes: as those of `run`.
    """
    pin_hashes()

    async def asked(look: "Looking") -> list[int]:
        known = (await look.cluster.brokers.refresh()).topics
        return [len(known[each].partitions) if each in known else 0 for each in (messy, pristine)]

    read, written = looked(to, asked)
    flow = made(
        name or f"cleanup-{messy.replace('.', '-')}", messy, read or 1, pristine, written or read or 1, field, most
    )
    work(to, flow.program, until, run_id, metrics)


def made(name: str, messy: str, read: int, pristine: str, written: int, field: str | None, most: int) -> "Flow":
    from oncelog.flow import Topic, optional, raw
    from oncelog.flow import cleanup as job

    of, to = (
        Topic(topic, optional(raw), optional(raw), count) for topic, count in ((messy, read), (pristine, written))
    )
    id_of = None if field is None else _field(field)
    return job(of, to, id=id_of, most=most, name=name, version=f"by {field or 'source'}")


def _field(name: str) -> Callable[[bytes | None], str]:
    from msgspec.json import decode, encode

    def id_of(value: bytes | None) -> str:
        found: Any = None if value is None else decode(value)
        if not isinstance(found, dict) or found.get(name) is None:
            raise ValueError(f"its value is no JSON object with something in its field {name}")
        return encode(found[name], order="sorted").decode()  # so "1" and 1 are two

    return id_of
