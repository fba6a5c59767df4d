"""The options that commands have in common, and the client's properties that come of them."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

from oncelog.cli.parts.endings import USER

DEFAULT_BROKER = "127.0.0.1:9092"
# The server's own variables begin with ONCELOG_ too; it passes over these.
ENVIRONMENT_PREFIX = "ONCELOG_CLIENT_"
SERVERS = ("bootstrap.servers", "metadata.broker.list")
PRODUCER, CONSUMER, ADMIN = "producer", "consumer", "admin client"

MOST_SECONDS = 86_400.0
MOST_PARTITIONS = 2**31 - 1


class PartitionCount(click.IntRange):
    def __init__(self) -> None:
        super().__init__(min=1, max=MOST_PARTITIONS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value}: a topic has 1 to {MOST_PARTITIONS} partitions", param, ctx)


def _refuse_nan(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):  # neither below nor above any limit
        raise click.BadParameter("nan is no number of seconds", context, parameter)
    return value


@dataclass(frozen=True, slots=True)
class Connecting:
    """The options that say how to reach the brokers."""

    properties: Mapping[str, str] = field(repr=False)  # a password may be among them
    timeout_s: float

    @property
    def is_guarded(self) -> bool:
        """Whether brokers know who one is, and so may have rules of what that one may see."""
        return self.properties.get("security.protocol", "plaintext").lower() != "plaintext"

    def of(self, role: str, **defaults: Any) -> dict[str, Any]:
        """The properties for a client of this role. What concerns only clients of another one is left out, since files
        and the environment are shared by all commands; what nobody knows stays, and is refused."""
        from oncelog.client.properties.table import ALIASES, for_role

        said = for_role(self.properties, role)
        names = {ALIASES.get(name, name) for name in said}
        dotted = {name.replace("_", "."): value for name, value in defaults.items()}
        return {name: value for name, value in dotted.items() if name not in names} | said


GIVEN_OPTION = click.option(
    "-X",
    "given",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property of the client, by librdkafka's name; repeatable.",
)
FILE_OPTION = click.option(
    "-F",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties of the client, one NAME=VALUE a line.",
)


def connecting(body: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -b, -X, -F and -m, and hands them over as one `Connecting` named `to`."""

    @click.option(
        "-b",
        "brokers",
        metavar="HOST:PORT,...",
        help=f"The brokers to ask first; {DEFAULT_BROKER} when nothing else says.",
    )
    @GIVEN_OPTION
    @FILE_OPTION
    @click.option(
        "-m",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True, max=MOST_SECONDS),
        callback=_refuse_nan,
        default=5.0,
        show_default=True,
        help="How long to wait for the cluster's first answer.",
    )
    @wraps(body)
    def run(
        *arguments: Any,
        brokers: str | None,
        given: tuple[str, ...],
        file: Path | None,
        timeout_s: float,
        **keywords: Any,
    ) -> Any:
        to = connecting_by(brokers, given, file, timeout_s)
        click.get_current_context().meta[USER] = to.properties.get("sasl.username")
        return body(*arguments, to=to, **keywords)

    return run


def connecting_by(brokers: str | None, given: tuple[str, ...], file: Path | None, timeout_s: float) -> Connecting:
    """-X goes before the environment, that before the file; -b goes before all of them."""
    properties = _from_file(file) if file else {}
    properties |= _from_environment(os.environ)
    for each in given:
        name, value = _pair("-X", each)
        properties[name] = value
    properties = {name: _resolved(name, value) for name, value in properties.items()}
    if brokers is not None:
        for name in SERVERS:
            properties.pop(name, None)
        properties[SERVERS[0]] = brokers
    elif not any(name in properties for name in SERVERS):
        properties[SERVERS[0]] = DEFAULT_BROKER
    return Connecting(properties, timeout_s)


def _from_file(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"-F {file} is no UTF-8: {error}") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, value = _pair(f"{file} line {number}", text)
            found[name] = value
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _resolved(name: str, value: str) -> str:
    from oncelog.references import resolved
    from oncelog.settings import SettingsError

    try:
        return resolved(name, value)
    except SettingsError as refusal:
        raise click.UsageError(str(refusal)) from None


def _pair(where: str, text: str, expected: str = "NAME=VALUE, such as client.id=me") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        from oncelog.references import name_in

        raise click.UsageError(f"{where} {name_in(text)}: expected {expected}")
    return name.strip(), value


def pairs(option: str, given: tuple[str, ...], *expected: str) -> dict[str, str]:
    """The values of an option of the kind NAME=VALUE that may be repeated."""
    return dict(_pair(option, each, *expected) for each in given)


def client_properties(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """The same of properties of a client, whose values may stand elsewhere."""
    return {name: _resolved(name, value) for name, value in pairs(option, given).items()}


def formatted(body: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --format and its short form -J, handed over as `form`."""

    @click.option(
        "--format",
        "form",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="How to print it.",
    )
    @click.option("-J", "is_json", is_flag=True, help="The same as --format json.")
    @wraps(body)
    def run(*arguments: Any, form: str, is_json: bool, **keywords: Any) -> Any:
        return body(*arguments, form="json" if is_json else form, **keywords)

    return run


partitions_option = click.option(
    "-p",
    "indexes",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition; repeatable.",
)


def refuse_unless_address(option: str, given: str | None, example: str) -> None:
    """Speak of the option that was typed, not of the setting that it stands for."""
    from oncelog.settings import SettingsError, parse_address

    if given is None:
        return
    try:
        parse_address(option, given)
    except SettingsError:
        raise click.UsageError(f"{option} {given or 'is empty'}: expected HOST:PORT, such as {example}") from None
