"""`oncelog quotas`: how much users, client ids and addresses may take."""

from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.parts.endings import speaks_to_brokers
from oncelog.cli.parts.groups import ListsAtFirst
from oncelog.cli.parts.options import Connecting, connecting, formatted, pairs
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.rules import on_cluster

if TYPE_CHECKING:
    from oncelog.client.admin import QuotaEntity

DEFAULT: Final = "<default>"
COLUMNS: Final = ("user", "client_id", "ip", "quota", "value")

user_option = click.option(
    "-u", "--user", metavar="NAME", help=f"The user; {DEFAULT} for all that have none of their own."
)
client_option = click.option("-c", "--client-id", "--client", metavar="ID", help=f"The client id, or {DEFAULT}.")
ip_option = click.option("-i", "--ip", metavar="ADDRESS", help=f"The address, or {DEFAULT}.")


@click.group(name="quotas", cls=ListsAtFirst)
def command() -> None:
    """List, set and remove quotas; without a command: list.

    A user, a client id, both together, or an address can have some: producer_byte_rate, consumer_byte_rate and
    request_percentage; an address connection_creation_rate. Who takes more has to wait.
    """


@command.command(name="list")
@connecting
@formatted
@user_option
@client_option
@ip_option
@speaks_to_brokers
def list_quotas(to: Connecting, form: str, user: str | None, client_id: str | None, ip: str | None) -> None:
    """All quotas, or those of a user, a client id or an address."""
    from oncelog.cli.parts.cluster import opened

    with opened(to, takes=on_cluster("DescribeConfigs")) as cluster:
        found = cluster.admin.describe_client_quotas(_names(user, client_id, ip)).result()
    facts = [
        {**_told(entity), "quota": quota, "value": value}
        for entity, values in sorted(found.items(), key=lambda each: str(each[0]))
        for quota, value in sorted(values.items())
    ]
    emit(form, facts, [{**each, "value": f"{each['value']:.15g}"} for each in facts], COLUMNS)


@command.command(name="set")
@connecting
@user_option
@client_option
@ip_option
@click.argument("quotas", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@speaks_to_brokers
def set_quotas(
    to: Connecting, user: str | None, client_id: str | None, ip: str | None, quotas: tuple[str, ...]
) -> None:
    """Set quotas: `set -u alice producer_byte_rate=1048576`. They also count for clients that are connected already."""
    _alter(
        to, _entity(user, client_id, ip), {name: _number(name, value) for name, value in pairs("quota", quotas).items()}
    )


@command.command()
@connecting
@user_option
@client_option
@ip_option
@click.argument("quotas", metavar="QUOTA...", nargs=-1, required=True)
@speaks_to_brokers
def remove(to: Connecting, user: str | None, client_id: str | None, ip: str | None, quotas: tuple[str, ...]) -> None:
    """Remove quotas: `remove -u alice producer_byte_rate`."""
    _alter(to, _entity(user, client_id, ip), dict.fromkeys(quotas))


def _names(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None}


def _entity(user: str | None, client_id: str | None, ip: str | None) -> "QuotaEntity":
    from oncelog.client.admin import QuotaEntity

    names = _names(user, client_id, ip)
    if not names:
        raise click.UsageError("whose? -u names a user, -c a client id, -i an address")
    return QuotaEntity.of(names)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{name}={text}: a number is expected") from None


def _told(entity: "QuotaEntity") -> dict[str, Any]:
    said = {kind.replace("-", "_"): DEFAULT if name is None else name for kind, name in entity.names}
    return {"user": None, "client_id": None, "ip": None} | said


def _alter(to: Connecting, entity: "QuotaEntity", changes: dict[str, float | None]) -> None:
    from oncelog.cli.parts.cluster import each_outcome, opened

    with opened(to) as cluster:
        futures = cluster.admin.alter_client_quotas({entity: changes})
        each_outcome(futures, takes=on_cluster("AlterConfigs"))
