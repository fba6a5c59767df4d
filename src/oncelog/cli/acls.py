"""`oncelog acls`: who may do what, in the words of kafka-acls."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.endings import speaks_to_brokers
from oncelog.cli.parts.groups import ListsAtFirst
from oncelog.cli.parts.options import Connecting, connecting, formatted
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.rules import (
    CLUSTER,
    EVERYTHING,
    EVERYWHERE,
    OPERATIONS_OF,
    OPTIONS,
    ROLES,
    THINGS,
    Given,
    Principal,
    Target,
    Targets,
    about,
    name_of,
    on_cluster,
    operations_option,
    word_of,
)

if TYPE_CHECKING:
    from oncelog.client.admin import AclBinding, AclBindingFilter

COLUMNS = ("permission", "principal", "host", "operation", "resource", "name", "pattern")

principals_option = click.option(
    "--principal", "principals", type=Principal(), multiple=True, help="Only rules about these, such as User:alice."
)


@click.group(name="acls", cls=ListsAtFirst)
def command() -> None:
    """List, add and remove access rules; without a command: list.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C.
    """


def whom(body: Any) -> Any:
    """Adds who a rule is about, as `allowed` and `denied`, and where from."""
    for option, name, words in reversed(
        (
            ("--allow-principal", "allowed", "Who may, such as User:alice, or User:* for everybody; repeatable."),
            ("--deny-principal", "denied", "Who may not, whatever else allows it; repeatable."),
        )
    ):
        body = click.option(option, name, type=Principal(), multiple=True, help=words)(body)
    for option, name in (("--allow-host", "allowed_hosts"), ("--deny-host", "denied_hosts")):
        words = (
            f"An address from which {'--' + option[2:-5]}-principal is meant; from everywhere by default; repeatable."
        )
        body = click.option(option, name, metavar="ADDRESS", multiple=True, help=words)(body)
    for flag, words in (
        (
            "--producer",
            "What a producer needs: Write, Describe and Create of the topics, Write and Describe of transactional ids.",
        ),
        ("--consumer", "What a consumer needs: Read and Describe of the topics, Read of the groups."),
        ("--idempotent", "With --producer: IdempotentWrite of the cluster, which Kafka before 2.8 asks for."),
    ):
        body = click.option(flag, is_flag=True, help=words)(body)
    return body


@command.command(name="list")
@connecting
@formatted
@about(("any", "literal", "prefixed", "match"))
@principals_option
@speaks_to_brokers
def list_acls(to: Connecting, form: str, targets: Targets, principals: tuple[str, ...]) -> None:
    """All access rules, or those about these resources and principals."""
    from oncelog.cli.parts.cluster import opened

    with opened(to, takes=on_cluster("Describe")) as cluster:
        found: dict[AclBinding, None] = {}
        for each in _filters(list(targets) or [None], targets.pattern, principals):
            found |= dict.fromkeys(cluster.admin.describe_acls(each).result())
    _tell(form, found)


@command.command()
@connecting
@formatted
@about(("literal", "prefixed"))
@operations_option("All, where none and no role is given.")
@whom
@speaks_to_brokers
def add(to: Connecting, form: str, targets: Targets, operations: tuple[str, ...], **said: Any) -> None:
    """Add rules and print them: about all operations, where none is named. One that is there already is no failure."""
    from oncelog.cli.parts.cluster import each_outcome, opened
    from oncelog.client.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    who = _who(said) or _nothing("who: --allow-principal or --deny-principal")
    if not list(targets):
        _nothing(f"what about: {THINGS}")
    _refuse_unless_addresses((*said["allowed_hosts"], *said["denied_hosts"]))
    given = _given(targets, operations, said)
    _check(given)
    wanted = [
        AclBinding(
            ResourceType[each.target.kind],
            each.target.name,
            ResourcePatternType[targets.pattern_of(each.target)],
            principal,
            host,
            AclOperation[name_of(each.operation)],
            AclPermissionType[permission],
        )
        for each, (permission, principal, host) in product(given, who)
    ]
    with opened(to) as cluster:
        futures = cluster.admin.create_acls(list(dict.fromkeys(wanted)))
        try:
            each_outcome(futures, takes=on_cluster("Alter"), name_of=_said)
        finally:
            made = [each for each, future in futures.items() if future.done() and future.exception() is None]
            if made:
                _tell(form, made)


@command.command()
@connecting
@formatted
@about(("literal", "prefixed", "any", "match"))
@operations_option(
    "Only rules of this operation; without it and without --allow-principal or --deny-principal, of every one."
)
@whom
@principals_option
@click.option("--all", "is_all", is_flag=True, help="All rules, with those that no broker can read.")
@speaks_to_brokers
def remove(
    to: Connecting,
    form: str,
    is_all: bool,
    targets: Targets,
    operations: tuple[str, ...],
    principals: tuple[str, ...],
    **said: Any,
) -> None:
    """Remove rules and print them: all about these resources, these principals (--principal), or both.

    With --allow-principal or --deny-principal, the rules that `add` makes of the same options.
    """
    from oncelog.cli.parts.cluster import opened

    who = _who(said)
    _refuse_too_much(is_all, targets, operations, principals, said)
    if who or operations or _roles(said):
        wanted = _exact_filters(targets, operations, who, principals, said)
    else:
        wanted = _filters(list(targets) or [None], targets.pattern, principals)
    with opened(to, takes=on_cluster("Alter")) as cluster:
        found: dict[AclBinding, None] = {}
        for future in cluster.admin.delete_acls(list(dict.fromkeys(wanted))).values():
            found |= dict.fromkeys(future.result())
    _tell(form, found)
    if not found and not is_all:
        click.echo("No rule is like that; `oncelog acls list` shows all.", err=True)


def _refuse_too_much(
    is_all: bool, targets: Targets, operations: Sequence[str], principals: Sequence[str], said: dict[str, Any]
) -> None:
    """Refuse to remove more rules than were probably meant."""
    things, is_about_somebody = bool(list(targets)), bool(said["allowed"] or said["denied"])
    is_named = things or is_about_somebody or bool(principals)
    if operations and not is_named and not is_all:
        raise click.UsageError(
            "--operation alone would take it from everybody: "
            "name --topic, --group, --transactional-id, --cluster or --principal"
        )
    if is_named == is_all or (is_all and operations):
        _nothing("which rules: --topic, --group, --transactional-id, --cluster, --principal, or --all and nothing else")
    if not things and (is_about_somebody or _roles(said)):
        _nothing(f"what about: {THINGS}; all rules about somebody: --principal User:alice")


Who = tuple[str, str, str]  # a permission, a principal, a host


def _who(said: dict[str, Any]) -> list[Who]:
    for word, principals, hosts in (("allow", "allowed", "allowed_hosts"), ("deny", "denied", "denied_hosts")):
        if said[hosts] and not said[principals]:
            raise click.UsageError(f"--{word}-host is from where a --{word}-principal is meant, and there is none")
    allowed = product(["ALLOW"], said["allowed"], said["allowed_hosts"] or (EVERYWHERE,))
    return [*allowed, *product(["DENY"], said["denied"], said["denied_hosts"] or (EVERYWHERE,))]


def _refuse_unless_addresses(hosts: Iterable[str]) -> None:
    """Requests come from addresses: a rule about a network or a name would never be about any."""
    for host in hosts:
        if host == EVERYWHERE:
            continue
        try:
            ip_address(host)
        except ValueError:
            raise click.UsageError(f"{host}: rules name single addresses, or {EVERYWHERE}") from None


def _roles(said: dict[str, Any]) -> list[str]:
    if said["idempotent"] and not said["producer"]:
        raise click.UsageError("--idempotent goes with --producer")
    return [each for each in ROLES if said[each]]


def _given(targets: Targets, operations: Sequence[str], said: dict[str, Any]) -> list[Given]:
    """The rules that the options name."""
    found, roles = [], _roles(said)
    for target in targets:
        wanted = list(operations)
        for role in roles:
            wanted += ROLES[role].get(target.kind, ())
        if not wanted and roles:
            _nothing(f"what may be done to {target.name}: a {roles[0]} needs nothing of it")
        found += [Given(target, each) for each in dict.fromkeys(wanted or [EVERYTHING])]
    if said["idempotent"]:
        found.append(Given(CLUSTER, "IdempotentWrite"))
    return found


def _check(given: Sequence[Given]) -> None:
    """Refuse an operation that no request ever asks for: it is a slip, as in kafka-acls."""
    for target, operation in given:
        known = (EVERYTHING, *OPERATIONS_OF[target.kind])
        if operation not in known:
            raise click.UsageError(f"--operation {operation}: with {OPTIONS[target.kind]} one of {', '.join(known)}")


def _filters(targets: Sequence[Target | None], pattern: str, principals: Iterable[str]) -> "list[AclBindingFilter]":
    from oncelog.client.admin import AclBindingFilter, ResourcePatternType, ResourceType

    return [
        AclBindingFilter(
            ResourceType.ANY if target is None else ResourceType[target.kind],
            None if target is None else target.name,
            ResourcePatternType.ANY if target is None else ResourcePatternType[pattern],
            principal,
        )
        for target, principal in product(targets, tuple(principals) or (None,))
    ]


def _exact_filters(
    targets: Targets,
    operations: Sequence[str],
    who: Sequence[Who],
    principals: Sequence[str],
    said: dict[str, Any],
) -> "list[AclBindingFilter]":
    from oncelog.client.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    plain: list[tuple[str, str | None, str | None]] = [("ANY", each, None) for each in principals or (None,)]
    given: list[tuple[Target | None, str]] = [(None, each) for each in operations or (EVERYTHING,)]
    if list(targets):
        given = [(each.target, each.operation) for each in _given(targets, operations, said)]
    return [
        AclBindingFilter(
            ResourceType.ANY if target is None else ResourceType[target.kind],
            None if target is None else target.name,
            ResourcePatternType.ANY if target is None else ResourcePatternType[targets.pattern_of(target)],
            principal,
            host,
            AclOperation[name_of(operation)],
            AclPermissionType[permission],
        )
        for (target, operation), (permission, principal, host) in product(given, who or plain)
    ]


def _nothing(words: str) -> Any:
    raise click.UsageError(f"say {words}")


def _said(binding: "AclBinding") -> str:
    what = f"{binding.principal} {word_of(binding.operation.name)} {binding.restype.name.lower()} {binding.name}"
    return f"{binding.permission_type.name.lower()} {what}"


def _tell(form: str, found: "Iterable[AclBinding]") -> None:
    rows = [
        {
            "permission": each.permission_type.name.lower(),
            "principal": each.principal,
            "host": each.host,
            "operation": word_of(each.operation.name),
            "resource": "cluster" if each.restype.name == "BROKER" else each.restype.name.lower(),
            "name": each.name,
            "pattern": each.resource_pattern_type.name.lower(),
        }
        for each in found
    ]
    rows.sort(key=lambda row: [row[column] for column in ("resource", "name", "pattern", *COLUMNS)])
    emit(form, rows, rows, COLUMNS)
