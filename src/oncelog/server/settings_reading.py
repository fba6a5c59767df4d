"""Settings from a file, the environment and the command line; what cannot be meant stops the start.

The command line goes before the environment, that before the file, that before the defaults. Everything that is wrong
is said at once, with where it was written, the nearest known name, and what would be allowed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oncelog.references import name_in, properties, resolved
from oncelog.security.acls import principals_of
from oncelog.server.endpoints import check_reach, endpoints
from oncelog.server.listener_settings import listener_conflicts
from oncelog.server.listeners import check_advertised, parse_listeners, parse_protocols
from oncelog.server.mechanisms import check_mechanisms
from oncelog.server.secure import apply_secure, secure_conflicts
from oncelog.server.setting_names import (
    LISTENER_PREFIX,
    Given,
    is_of_listeners,
    of_one_listener,
    setting_named,
    shown,
)
from oncelog.server.settings import SETTINGS, Settings, attribute
from oncelog.server.topic_configs import TOPIC_CONFIGS
from oncelog.settings import SettingsError, nearest, parse_address

ZOOKEEPER = "zk://"
ENVIRONMENT = "the environment"
ENVIRONMENT_PREFIX = "ONCELOG_"
CLIENTS_PREFIX = "ONCELOG_CLIENT_"  # what the commands that connect to a server read
ALIASES = {"broker.id": "node.id", "log.dirs": "log.dir"}
# Names of one meaning: who writes any of them in a stronger place has not asked for the others from a weaker one.
FAMILIES = (("log.retention.ms", "log.retention.minutes", "log.retention.hours"), ("log.roll.ms", "log.roll.hours"))
# Settings that people bring along from a Kafka, and why they have no place here.
NOT_HERE = {
    "zookeeper.": "oncelog.cluster names ZooKeeper, where there are several brokers",
    "process.roles": "there is one process and one role",
    "controller.": "there is no controller",
    "inter.broker.protocol": "brokers speak one version of the protocol",
    "transaction.state.log.load.buffer.size": "the topic is read by pieces of one size",
    "transaction.two.phase.commit.enable": "no other coordinator may decide about transactions",
    "ssl.engine.": "TLS is OpenSSL's",
    "ssl.provider": "TLS is OpenSSL's",
    "ssl.keymanager.": "TLS is OpenSSL's",
    "ssl.trustmanager.": "TLS is OpenSSL's",
    "ssl.secure.random.": "TLS is OpenSSL's",
    "ssl.protocol": "ssl.enabled.protocols says which versions of TLS there are",
    "ssl.keystore.password": "PEM has no password of its own; ssl.key.password is the key's",
    "ssl.truststore.password": "PEM has no password of its own",
    "sasl.kerberos.": "there is no Kerberos",
    "sasl.jaas.config": "`oncelog users add` makes users, for PLAIN, too",
    "sasl.server.callback.": "there are no callbacks; tokens are checked by sasl.oauthbearer.jwks.endpoint.url",
    "sasl.login.": "brokers prove who they are by a secret that they agree on",
    "sasl.mechanism.inter.broker.protocol": "brokers prove who they are by a secret that they agree on",
    "security.inter.broker.protocol": "that of inter.broker.listener.name, or of the first listener",
    "principal.builder.class": "a name is the user's, the token's sub, or what ssl.principal.mapping.rules make of it",
    "delegation.token.": "there are no delegation tokens",
    "max.connections.per.ip": "where max.connections is reached, the host with most loses one to a host with fewer",
    "max.connection.creation.rate": "the quota connection_creation_rate says it, by address",
    "port": "listeners says where to listen, as listeners=PLAINTEXT://127.0.0.1:9092",
    "host.name": "listeners says where to listen, as listeners=PLAINTEXT://127.0.0.1:9092",
    "bootstrap.servers": "that is a client's; listeners says where to listen, as listeners=PLAINTEXT://127.0.0.1:9092",
    "advertised.host.name": "advertised.listeners says it",
    "advertised.port": "advertised.listeners says it",
    "config.providers": "${env:NAME}, ${file:/path:key} and ${dir:/path:file} are understood without",
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
    by_listener: dict[str, dict[str, Any]] = {}
    given_texts = Given()
    for name, written in merged.items():
        try:
            text = given_texts[name] = resolved(name, written, environ)
            own = of_one_listener(name)
            if own is None:
                values[attribute(name)] = SETTINGS[name].parse(text.strip())
            else:
                by_listener.setdefault(own[0], {})[attribute(own[1].name)] = own[1].parse(text.strip())
        except SettingsError as refusal:
            problems.append(str(refusal))
    if not problems:
        settings = Settings(**values, given=given_texts, by_listener=by_listener)
        if settings.oncelog_secure:
            apply_secure(settings)
        problems = conflicts(settings)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def conflicts(settings: Settings) -> list[str]:
    """Sentences about settings that are fine alone and impossible together."""
    found = [sentence for is_wrong, sentence in _pairs_that_clash(settings) if is_wrong]
    try:
        found += _unfit_super_users(settings.super_users)
        check_mechanisms(settings)
        protocols = parse_protocols(settings.listener_security_protocol_map)
        listening = parse_listeners("listeners", settings.listeners, protocols)
        if settings.advertised_listeners is not None:
            advertised = parse_listeners("advertised.listeners", settings.advertised_listeners, protocols)
            check_advertised(listening, advertised)
        by_name = {each.name: protocols.get(each.name, each.name) for each in listening}
        found += listener_conflicts(settings, by_name)
        if settings.oncelog_secure:
            found += secure_conflicts(settings, by_name)
        if (settings.oncelog_cluster or "").startswith(ZOOKEEPER):
            check_reach(endpoints(settings))
        if settings.oncelog_metrics_listener is not None:
            parse_address("oncelog.metrics.listener", settings.oncelog_metrics_listener)
    except SettingsError as refusal:
        found.append(str(refusal))
    return found


def _unfit_super_users(text: str) -> Iterator[str]:
    """One that is misspelt is nobody, and the server would start without somebody who may make its first rule."""
    for each in sorted(principals_of(text)):
        kind, _, name = each.partition(":")
        if kind != "User" or not name or ",User:" in each:
            yield f"super.users: {each}: expected User:NAME, and semicolons between several, as User:alice;User:bob"


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
        *(
            (
                settings.value(f"group.consumer.min.{each}") > settings.value(f"group.consumer.max.{each}"),
                f"group.consumer.min.{each} is above group.consumer.max.{each}",
            )
            for each in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
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
    """The settings of a weaker layer that still count."""
    taken = set(stronger)
    for family in FAMILIES:
        if taken & set(family):
            taken |= set(family)
    return {name: text for name, text in layer.items() if name not in taken}


def _known(where: str, layer: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    known: dict[str, str] = {}
    for written, text in layer.items():
        name = ALIASES.get(written, written)
        if setting_named(name) is None:
            called = _variable if where == ENVIRONMENT else str
            problems.append(f"unknown setting {called(written)} (in {where}){_hint(written, called)}")
        elif known.get(name, text) != text:
            problems.append(f"{written}={shown(name, text)} (in {where}) contradicts {name}={shown(name, known[name])}")
        else:
            known[name] = text
    return known


def _variable(name: str) -> str:
    """The variable of the environment that means this setting."""
    own = name.removeprefix("oncelog.") if name in SETTINGS else name
    return ENVIRONMENT_PREFIX + own.upper().replace(".", "_")


def _not_here(name: str) -> str | None:
    """Why. The setting of one listener may name a mechanism, too."""
    _, *behind = name.removeprefix(LISTENER_PREFIX).split(".")
    own = [".".join(behind[at:]) for at in range(len(behind))] if name.startswith(LISTENER_PREFIX) else [name]
    return next((why for each in own for prefix, why in NOT_HERE.items() if each.startswith(prefix)), None)


def _hint(name: str, called: Callable[[str], str]) -> str:
    reason = _not_here(name)
    if reason is not None:
        return f": {reason}"
    if name.startswith(LISTENER_PREFIX):
        names = ", ".join(each for each in SETTINGS if is_of_listeners(each))
        return f": expected {LISTENER_PREFIX}, the listener's name in small letters, and one of {names}"
    topic_config = TOPIC_CONFIGS.get(name)
    if topic_config is not None and topic_config.broker_names:
        return f": that is a setting of a topic; the server's is {called(topic_config.broker_names[0])}"
    near = nearest(name, SETTINGS, at_least=0.5)
    return f"; did you mean {called(near)}? It takes {SETTINGS[near].allowed}" if near else ""


def _pairs(given: Iterable[str] | Mapping[str, str], problems: list[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(given)
    pairs: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        name = name.strip()
        if not equals:
            problems.append(f"{name_in(each)}: expected name=value")
        elif pairs.get(name, text) != text:
            problems.append(f"{name} is given twice: {shown(name, pairs[name])} and {shown(name, text)}")
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
            found[f"oncelog.{name}" if is_own else _of_listener(name)] = environ[variable]
    return found


def _of_listener(name: str) -> str:
    """listener.name.sasl.ssl.ssl.client.auth is listener.name.sasl_ssl.ssl.client.auth: names have underscores."""
    if name.startswith(LISTENER_PREFIX):
        for setting in filter(is_of_listeners, SETTINGS):
            if name.endswith(f".{setting}"):
                listener = name.removeprefix(LISTENER_PREFIX).removesuffix(f".{setting}")
                return f"{LISTENER_PREFIX}{listener.replace('.', '_')}.{setting}"
    return name


def _from_file(file: Path, problems: list[str]) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{file} cannot be read: {error}")
        return {}
    found: dict[str, str] = {}
    for name, text in properties(lines):
        if found.get(name, text) != text:
            problems.append(f"{file}: {name} is there twice: {shown(name, found[name])} and {shown(name, text)}")
        found[name] = text
    return found
