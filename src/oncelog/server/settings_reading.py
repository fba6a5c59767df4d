"""Settings from a file, the environment and the command line; what cannot be meant stops the start.

The command line goes before the environment, that before the file, that before the defaults. Everything that is wrong
is said at once, with where it was written, the nearest known name, and what would be allowed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from oncelog.server.listeners import check_advertised, parse_listeners, parse_protocols
from oncelog.server.settings import SETTINGS, Settings, attribute
from oncelog.server.topic_configs import TOPIC_CONFIGS
from oncelog.settings import SettingsError, nearest, parse_address

ENVIRONMENT = "the environment"
ENVIRONMENT_PREFIX = "ONCELOG_"
CLIENTS_PREFIX = "ONCELOG_CLIENT_"  # what the commands that connect to a server read
ALIASES = {"broker.id": "node.id", "log.dirs": "log.dir"}
# Names of one meaning: who writes any of them in a stronger place has not asked for the others from a weaker one.
FAMILIES = (("log.retention.ms", "log.retention.minutes", "log.retention.hours"), ("log.roll.ms", "log.roll.hours"))
# What people bring along from a Kafka, and why it has no place here.
NOT_HERE = {
    "zookeeper.": "a single server needs no ZooKeeper",
    "process.roles": "there is one process and one role",
    "controller.": "there is no controller",
    "inter.broker.": "a single server speaks to no other",
    "transaction.state.log.load.buffer.size": "the topic is read by pieces of one size",
    "transaction.two.phase.commit.enable": "no other coordinator may decide about transactions",
    "ssl.": "there is no TLS yet",
    "sasl.": "there is no SASL yet",
    "authorizer.": "there are no access rules yet",
    "num.network.threads": "one event loop serves all connections",
    "num.io.threads": "one event loop serves all connections",
    "remote.log.": "there is no tiered storage",
    "log.flush.": "oncelog.flush decides when the disk is waited for",
}


def read_settings(
    given: Iterable[str] | Mapping[str, str] = (),
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """`given` is what the command line says, as `name=value` texts, or what oncelog.Server was given, as a mapping."""
    problems: list[str] = []
    first = "the settings given to oncelog.Server" if isinstance(given, Mapping) else "the command line"
    layers = [
        (first, _pairs(given, problems)),
        (ENVIRONMENT, _from_environment(environ or {})),
        (str(file), _from_file(file, problems) if file else {}),
    ]
    merged: dict[str, str] = {}
    for where, layer in layers:
        merged |= _weaker(merged, _known(where, layer, problems))
    values: dict[str, Any] = {}
    for name, text in merged.items():
        try:
            values[attribute(name)] = SETTINGS[name].parse(text.strip())
        except SettingsError as refusal:
            problems.append(str(refusal))
    if not problems:
        settings = Settings(**values, given=merged)
        problems = conflicts(settings)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def conflicts(settings: Settings) -> list[str]:
    """Sentences about settings that are fine alone and impossible together."""
    found = [sentence for is_wrong, sentence in _pairs_that_clash(settings) if is_wrong]
    try:
        protocols = parse_protocols(settings.listener_security_protocol_map)
        listening = parse_listeners("listeners", settings.listeners, protocols)
        if settings.advertised_listeners is not None:
            advertised = parse_listeners("advertised.listeners", settings.advertised_listeners, protocols)
            check_advertised(listening, advertised)
        if settings.oncelog_metrics_listener is not None:
            parse_address("oncelog.metrics.listener", settings.oncelog_metrics_listener)
    except SettingsError as refusal:
        found.append(str(refusal))
    return found


def _pairs_that_clash(settings: Settings) -> list[tuple[bool, str]]:
    queue_bytes = settings.queued_max_request_bytes
    return [
        (not settings.log_dir, "log.dir is empty: expected a folder, such as log.dir=data"),
        ("," in settings.log_dir, f"log.dirs={settings.log_dir}: only one folder is understood"),
        (
            settings.num_partitions > settings.oncelog_max_partitions,
            f"num.partitions={settings.num_partitions}: no topic could be made without saying how many it wants; "
            f"oncelog.max.partitions is {settings.oncelog_max_partitions}",
        ),
        (settings.retention_ms == 0, "log.retention: expected -1 (for ever) or at least 1"),
        (
            settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms,
            "group.min.session.timeout.ms is above group.max.session.timeout.ms",
        ),
        (
            settings.log_cleaner_min_compaction_lag_ms > settings.log_cleaner_max_compaction_lag_ms,
            "log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms",
        ),
        (
            settings.message_max_bytes > settings.socket_request_max_bytes,
            f"message.max.bytes={settings.message_max_bytes} can never arrive: "
            f"socket.request.max.bytes is {settings.socket_request_max_bytes}",
        ),
        (
            -1 < queue_bytes < settings.socket_request_max_bytes,
            f"queued.max.request.bytes={queue_bytes} is less than one request may have: "
            f"socket.request.max.bytes is {settings.socket_request_max_bytes}",
        ),
        (
            "oncelog.flush.interval.ms" in settings.given and settings.oncelog_flush != "interval",
            f"oncelog.flush.interval.ms says nothing with oncelog.flush={settings.oncelog_flush}",
        ),
    ]


def _weaker(stronger: Mapping[str, str], layer: Mapping[str, str]) -> dict[str, str]:
    """What of a weaker layer still counts."""
    settled = set(stronger)
    for family in FAMILIES:
        if settled & set(family):
            settled |= set(family)
    return {name: text for name, text in layer.items() if name not in settled}


def _known(where: str, layer: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    known: dict[str, str] = {}
    for written, text in layer.items():
        name = ALIASES.get(written, written)
        if name not in SETTINGS:
            shown = _variable if where == ENVIRONMENT else str
            problems.append(f"unknown setting {shown(written)} (in {where}){_hint(written, shown)}")
        elif known.get(name, text) != text:
            problems.append(f"{written}={text} (in {where}) contradicts {name}={known[name]}")
        else:
            known[name] = text
    return known


def _variable(name: str) -> str:
    """The variable of the environment that means this setting."""
    own = name.removeprefix("oncelog.") if name in SETTINGS else name
    return ENVIRONMENT_PREFIX + own.upper().replace(".", "_")


def _hint(name: str, shown: Callable[[str], str]) -> str:
    for prefix, reason in NOT_HERE.items():
        if name.startswith(prefix):
            return f": {reason}"
    topic_config = TOPIC_CONFIGS.get(name)
    if topic_config is not None and topic_config.broker_names:
        return f": that is a setting of a topic; the server's is {shown(topic_config.broker_names[0])}"
    near = nearest(name, SETTINGS, at_least=0.5)
    return f"; did you mean {shown(near)}? It takes {SETTINGS[near].allowed}" if near else ""


def _pairs(given: Iterable[str] | Mapping[str, str], problems: list[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(given)
    pairs: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        name = name.strip()
        if not equals:
            problems.append(f"{each}: expected name=value")
        elif pairs.get(name, text) != text:
            problems.append(f"{name} is given twice: {pairs[name]} and {text}")
        else:
            pairs[name] = text
    return pairs


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """ONCELOG_LOG_SEGMENT_BYTES is log.segment.bytes, ONCELOG_FLUSH is oncelog.flush."""
    found: dict[str, str] = {}
    for variable in sorted(environ):
        if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(CLIENTS_PREFIX):
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            is_own = name not in SETTINGS and f"oncelog.{name}" in SETTINGS
            found[f"oncelog.{name}" if is_own else name] = environ[variable]
    return found


def _from_file(file: Path, problems: list[str]) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{file} cannot be read: {error}")
        return {}
    found: dict[str, str] = {}
    for name, text in _properties(lines):
        if found.get(name, text) != text:
            problems.append(f"{file}: {name} is there twice: {found[name]} and {text}")
        found[name] = text
    return found


_SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _properties(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Java's .properties: # and ! begin a comment, a backslash at the end goes on with the next line."""
    logical = ""
    for line in [*lines, ""]:
        part = line.lstrip()
        if not logical and (not part or part[0] in "#!"):
            continue
        if len(part) - len(part.rstrip("\\")) & 1:
            logical += part[:-1]
            continue
        name, *rest = _SEPARATOR.split(logical + part, maxsplit=1)
        logical = ""
        yield _unescape(name), _unescape(rest[0] if rest else "")


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        body = match[1]
        return chr(int(body[1:], 16)) if len(body) == 5 else _ESCAPED.get(body, body)

    return _ESCAPE.sub(one, text)
