"""The common part of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: resources, entries, changes.

There is one node, so what is set for "this broker" and for "all brokers" is one and the same set of values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from oncelog.clock import Now
from oncelog.log.work_steps import Steps
from oncelog.security.documents import Document
from oncelog.security.documents import Kind as DocumentKind
from oncelog.security.operations import Operation as Right
from oncelog.security.operations import Resource as Guarded
from oncelog.server import client_metrics, group_configs
from oncelog.server.access import Rights
from oncelog.server.api_rights import demand, demand_cluster
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.group_configs import GROUP_CONFIGS
from oncelog.server.settings import SETTINGS, Settings
from oncelog.server.settings_reading import conflicts
from oncelog.server.topic_configs import TOPIC_CONFIGS, effective
from oncelog.server.topic_rules import check_name
from oncelog.server.topics import Topic, Topics
from oncelog.settings import INT_MAX, Kind, Setting, SettingsError, text_of
from oncelog.wire.bounds import MOST_STRING_BYTES

Inherited = Callable[[str], Any]  # the value of a name that is not set here


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """The origin of a value, numbered as in the answer to DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


# As the answer to DescribeConfigs numbers types.
_TYPES: Final = {Kind.BOOLEAN: 1, Kind.TEXT: 2, Kind.INTEGER: 3, Kind.NUMBER: 6, Kind.LIST: 7}
_LONG: Final = 5


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    value: str | None
    source: Source
    config_type: int
    doc: str
    is_read_only: bool
    is_sensitive: bool = False
    synonyms: list[Synonym] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    operation: int
    value: str | None


def demand_configs(rights: Rights, operation: Right, resource_type: int, name: str) -> None:
    """Raises KafkaError where they may not be described, or altered. Of no other resource are there any."""
    if resource_type == Resource.TOPIC:
        demand(rights, operation, Guarded.TOPIC, name)
    elif resource_type == Resource.GROUP:
        demand(rights, operation, Guarded.GROUP, name)
    elif resource_type in (Resource.BROKER, Resource.CLIENT_METRICS):
        demand_cluster(rights, operation)


# Describing


def describe(topics: Topics, resource_type: int, name: str) -> list[Entry]:
    if resource_type == Resource.TOPIC:
        check_name(name)
        return describe_configs(topics.settings, existing_topic(topics, name).configs)
    if resource_type == Resource.BROKER:
        return describe_broker(topics.settings, name)
    if resource_type == Resource.GROUP:
        group_configs.check_name(name)
        return describe_group(topics, name)
    if resource_type == Resource.CLIENT_METRICS:
        client_metrics.check_name(name)
        return [_fixed_entry(key, config) for key, config in client_metrics.CONFIGS.items()]
    raise unsupported_resource(resource_type)


def describe_configs(settings: Settings, own: Mapping[str, str]) -> list[Entry]:
    """Every topic config as it counts for a topic with these of its own."""
    values = effective(settings, own)
    entries = []
    for name, config in TOPIC_CONFIGS.items():
        synonyms = [Synonym(name, own[name], Source.TOPIC)] if name in own else []
        for broker_name in config.broker_names:
            synonyms += _broker_synonyms(settings, broker_name)
        entries.append(_changeable_entry(config.setting, values[name], synonyms))
    return entries


def describe_group(topics: Topics, name: str) -> list[Entry]:
    """The configs of a group as they were set: where one is out of bounds by now, the nearest value counts."""
    own, settings = group_configs.own_of(topics.document(DocumentKind.GROUP_CONFIGS), name), topics.settings
    values = group_configs.parsed(own)
    entries = []
    for key, config in GROUP_CONFIGS.items():
        synonyms = [Synonym(key, own[key], Source.GROUP)] if key in values else []
        if config.broker_name in SETTINGS:
            synonyms += _broker_synonyms(settings, config.broker_name)
        else:
            synonyms.append(Synonym(config.broker_name, text_of(config.setting.default), Source.DEFAULT))
        value = values.get(key, config.broker_value(settings))
        entries.append(_changeable_entry(config.setting, value, synonyms))
    return entries


def describe_broker(settings: Settings, name: str) -> list[Entry]:
    """The configs of a broker: by the node's number every setting; by no name what was changed for all brokers, as
    Kafka does."""
    check_broker_name(settings, name)
    if not name:
        return [
            _entry(SETTINGS[changed], text, Source.ALL_BROKERS, [Synonym(changed, text, Source.ALL_BROKERS)])
            for changed, text in settings.changed.items()
        ]
    entries = []
    for setting in SETTINGS.values():
        synonyms = _broker_synonyms(settings, setting.name)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        entries.append(_entry(setting, text_of(settings.value(setting.name)), source, synonyms))
    return entries


def _changeable_entry(setting: Setting, value: Any, synonyms: list[Synonym]) -> Entry:
    return Entry(
        name=setting.name,
        value=text_of(value),
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        config_type=_config_type(setting),
        doc=setting.doc,
        is_read_only=False,
        synonyms=synonyms,
    )


def _fixed_entry(name: str, config: client_metrics.FixedConfig) -> Entry:
    return Entry(
        name=name,
        value=config.value,
        source=Source.DEFAULT,
        config_type=_TYPES[config.kind],
        doc=config.doc,
        is_read_only=True,
    )


def _config_type(setting: Setting) -> int:
    is_long = setting.kind is Kind.INTEGER and setting.high is not None and setting.high > INT_MAX
    return _LONG if is_long else _TYPES[setting.kind]


def _entry(setting: Setting, value: str | None, source: Source, synonyms: list[Synonym]) -> Entry:
    """A secret is never told, as in Kafka."""
    return Entry(
        name=setting.name,
        value=None if setting.is_secret else value,
        source=source,
        config_type=_config_type(setting),
        doc=setting.doc,
        is_read_only=not setting.dynamic,
        is_sensitive=setting.is_secret,
        synonyms=[Synonym(each.name, None, each.source) for each in synonyms] if setting.is_secret else synonyms,
    )


def _broker_synonyms(settings: Settings, name: str) -> list[Synonym]:
    found = []
    if name in settings.changed:
        found.append(Synonym(name, settings.changed[name], Source.BROKER))
    if name in settings.given:
        found.append(Synonym(name, settings.given[name], Source.STATIC))
    default = SETTINGS[name].default
    if default is not None:
        found.append(Synonym(name, text_of(default), Source.DEFAULT))
    return found


# Changing


def alter(
    topics: Topics,
    resource_type: int,
    name: str,
    changes: Iterable[Change],
    now: Now,
    *,
    validate_only: bool,
    replaces: bool = False,
) -> Steps[None]:
    """Apply changes to what the resource has now, or where it `replaces` that, to nothing."""
    if resource_type == Resource.TOPIC:
        topic = existing_topic(topics, name)
        settings = {key: config.setting for key, config in TOPIC_CONFIGS.items()}
        all_changes = list(changes)

        def own_after(configs: Mapping[str, str]) -> Mapping[str, str]:
            have = {} if replaces else configs
            return _changed(have, all_changes, settings, lambda key: TOPIC_CONFIGS[key].broker_value(topics.settings))

        if validate_only:
            topics.check_alter_configs(topic, own_after(topic.configs))
        else:
            yield from topics.altering_configs(topic, own_after, now)
    elif resource_type == Resource.BROKER:
        check_broker_name(topics.settings, name)
        have = {} if replaces else topics.settings.changed
        changed = _changed(have, changes, SETTINGS, topics.settings.value)
        _check_broker_configs(topics.settings, changed)
        if not validate_only:
            yield from topics.altering_broker_configs(changed, now)
    elif resource_type == Resource.GROUP:
        group_configs.check_name(name)
        changing = _changing_group(topics.settings, name, list(changes), replaces=replaces)
        if validate_only:
            changing(topics.document(DocumentKind.GROUP_CONFIGS))
        else:
            yield from topics.changing_document(DocumentKind.GROUP_CONFIGS, changing, now)
    elif resource_type == Resource.CLIENT_METRICS:
        client_metrics.check_name(name)
        for change in changes:
            client_metrics.check_change(change.name, None if change.operation == Operation.DELETE else change.value)
    else:
        raise unsupported_resource(resource_type)


def replace(
    topics: Topics,
    resource_type: int,
    name: str,
    configs: Iterable[tuple[str, str | None]],
    now: Now,
    validate_only: bool,
) -> Steps[None]:
    """Make these the resource's only own configs, as AlterConfigs has it: what is not named is back at its default."""
    changes = [Change(key, Operation.SET, value) for key, value in configs]
    return alter(topics, resource_type, name, changes, now, validate_only=validate_only, replaces=True)


def _changing_group(
    settings: Settings, name: str, changes: Sequence[Change], *, replaces: bool
) -> Callable[[Document], Document]:
    """A change of the document that is agreed on, where the old values stand: this broker may not have seen
    them yet, or not know their names."""
    known = {key: config.setting for key, config in GROUP_CONFIGS.items()}
    named = frozenset(change.name for change in changes)

    def change(document: Document) -> Document:
        before = {} if replaces else document
        have = group_configs.own_of(before, name)
        own = _changed(have, changes, known, lambda key: GROUP_CONFIGS[key].broker_value(settings))
        kept = {key: each for key, each in group_configs.strange_of(before, name).items() if key not in named}
        return group_configs.with_own(document, name, {**kept, **group_configs.check(settings, own)})

    return change


def _changed(
    have: Mapping[str, str], changes: Iterable[Change], known: Mapping[str, Setting], inherited: Inherited
) -> dict[str, str]:
    result = dict(have)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise _invalid_request(f"Error due to duplicate config keys : {change.name}")
        seen.add(change.name)
        if change.operation == Operation.DELETE:
            result.pop(change.name, None)
            continue
        if change.value is None:
            raise _invalid_request(f"Null value not supported for : {change.name}")
        if change.operation == Operation.SET:
            result[change.name] = change.value
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            result[change.name] = _changed_list(change, result.get(change.name), known, inherited)
        else:
            raise _invalid_request(f"Unknown operation type {change.operation}")
    return result


def _changed_list(change: Change, have: str | None, known: Mapping[str, Setting], inherited: Inherited) -> str:
    setting = known.get(change.name)
    if setting is None or setting.kind is not Kind.LIST:
        verb = Operation(change.operation).name
        raise KafkaError(ErrorCode.invalid_config, f"Can't {verb} to key {change.name} because its type is not LIST.")
    parts = list(_parts(inherited(change.name) if have is None else setting.parse(have.strip())))
    named = [part.strip() for part in (change.value or "").split(",")]
    if change.operation == Operation.APPEND:
        there = frozenset(parts)
        parts += [part for part in named if part not in there]
    else:
        gone = frozenset(named)
        parts = [part for part in parts if part not in gone]
    changed = ",".join(parts)
    if len(changed.encode()) > MOST_STRING_BYTES:
        raise KafkaError(
            ErrorCode.invalid_config, f"{change.name} would be longer than a value can be: {MOST_STRING_BYTES} bytes"
        )
    return changed


def _parts(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _check_broker_configs(settings: Settings, changed: Mapping[str, str]) -> None:
    fixed = [name for name in changed if name not in SETTINGS or not SETTINGS[name].dynamic]
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    try:
        problems = conflicts(settings.with_changes(changed))
    except SettingsError as refusal:
        problems = [str(refusal)]
    if problems:
        raise KafkaError(ErrorCode.invalid_config, "; ".join(problems))


# Naming


def existing_topic(topics: Topics, name: str) -> Topic:
    topic = topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    return topic


def check_broker_name(settings: Settings, name: str) -> None:
    if name and name != str(settings.node_id):
        raise _invalid_request(
            f"Unexpected broker id, expected {settings.node_id} or empty string, but received {name}"
        )


def unsupported_resource(resource_type: int) -> KafkaError:
    return _invalid_request(
        f"Unsupported resource type {resource_type}: topics (2), brokers (4), client metrics (16) and groups (32) have "
        "configs here"
    )


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
