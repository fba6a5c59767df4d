"""The configs of one topic: Kafka's names, the server settings that they fall back on, and the configuration of a log.

Every name of Apache Kafka 4.3 is taken, with the values that Kafka takes: a tool that copies a topic's settings sends
them all, and where one is refused the topic is made without any. What has no meaning here is kept and shown.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from oncelog.log.config import Flush, LogConfig, TimestampType
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.settings import SETTINGS, Settings
from oncelog.settings import INT_MAX, LONG_MAX, LONG_MIN, Kind, Setting, SettingsError, nearest

NO_EFFECT = "Kept and shown for the sake of tools; it changes nothing here."
NO_FLUSH = "Kept and shown; oncelog.flush decides for the whole server when the disk is waited for."
NO_TIERS = "Kept and shown; there is no tiered storage."

_THROTTLED = re.compile(r"|\*|\d+:\d+(,\d+:\d+)*", re.ASCII)


def _anything(_: str) -> bool:
    return True


def _is_not_zero(text: str) -> bool:
    return int(text) != 0


@dataclass(frozen=True, slots=True)
class TopicConfig:
    setting: Setting
    broker_names: tuple[str, ...] = ()  # the server's settings behind it, the strongest first
    fits: Callable[[str], bool] = _anything  # what its kind and bounds cannot say

    def broker_value(self, settings: Settings) -> Any:
        name = self.setting.name
        if name == "retention.ms":
            return settings.retention_ms
        if name == "segment.ms":
            return settings.roll_ms
        return settings.value(self.broker_names[0]) if self.broker_names else self.setting.default


def _inherits(name: str, *broker_names: str, **other: Any) -> TopicConfig:
    """A topic's setting with the bounds, the words and the description of the server's setting of the same meaning."""
    setting = replace(SETTINGS[broker_names[0]], name=name, attribute=None, dynamic=True, **other)
    return TopicConfig(setting, broker_names)


def _ignored(
    name: str,
    default: bool | int | tuple[str, ...],
    low: int = 0,
    high: int = LONG_MAX,
    *,
    doc: str = NO_EFFECT,
    fits: Callable[[str], bool] = _anything,
    takes: str = "",
) -> TopicConfig:
    kinds = {bool: Kind.BOOLEAN, int: Kind.INTEGER, tuple: Kind.LIST}
    kind = kinds[type(default)]
    setting = Setting(name=name, kind=kind, default=default, doc=doc, low=low, high=high, dynamic=True, takes=takes)
    return TopicConfig(setting, fits=fits)


def _throttled(name: str) -> TopicConfig:
    return _ignored(name, (), fits=lambda text: bool(_THROTTLED.fullmatch(text)), takes="`*`, or a list of `0:1`")


_EVERY = (
    _inherits("cleanup.policy", "log.cleanup.policy"),
    _inherits("compression.type", "compression.type"),
    _inherits("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _inherits("index.interval.bytes", "log.index.interval.bytes"),
    _inherits("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _inherits("max.message.bytes", "message.max.bytes"),
    _inherits("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _inherits("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _inherits("message.timestamp.type", "log.message.timestamp.type"),
    _inherits("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _inherits("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _inherits(
        "min.insync.replicas",
        "min.insync.replicas",
        high=INT_MAX,
        doc="Copies that acks=all waits for, and never more than there are; here there is one.",
    ),
    _inherits("retention.bytes", "log.retention.bytes", low=LONG_MIN),
    _inherits("retention.ms", "log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    _inherits("segment.bytes", "log.segment.bytes"),
    _inherits("segment.ms", "log.roll.ms", "log.roll.hours"),
    _ignored("compression.gzip.level", -1, low=-1, high=9, fits=_is_not_zero, takes="-1, or from 1 to 9"),
    _ignored("compression.lz4.level", 9, low=1, high=17),
    _ignored("compression.zstd.level", 3, low=-131072, high=22),
    _ignored("file.delete.delay.ms", 60_000),
    _ignored("flush.messages", LONG_MAX, low=1, doc=NO_FLUSH),
    _ignored("flush.ms", LONG_MAX, doc=NO_FLUSH),
    _throttled("follower.replication.throttled.replicas"),
    _throttled("leader.replication.throttled.replicas"),
    _ignored("local.retention.bytes", -2, low=-2, doc=NO_TIERS),
    _ignored("local.retention.ms", -2, low=-2, doc=NO_TIERS),
    _ignored("preallocate", False),
    _ignored("remote.log.copy.disable", False, doc=NO_TIERS),
    _ignored("remote.log.delete.on.disable", False, doc=NO_TIERS),
    _ignored(
        "remote.storage.enable",
        False,
        doc="There is no tiered storage.",
        fits=lambda text: text.lower() == "false",
        takes="only false",
    ),
    _ignored("segment.index.bytes", 10 * 2**20, low=4, high=INT_MAX),
    _ignored("segment.jitter.ms", 0),
    _ignored("unclean.leader.election.enable", False),
)

TOPIC_CONFIGS: dict[str, TopicConfig] = {config.setting.name: config for config in _EVERY}


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)


def unknown_config(name: str) -> KafkaError:
    near = nearest(name, TOPIC_CONFIGS, at_least=0.6)
    return invalid(f"Unknown topic config name: {name}" + (f" (did you mean {near}?)" if near else ""))


def parse(name: str, given: str | None) -> Any:
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise unknown_config(name)
    if given is None:
        raise invalid(f"Null value not supported for topic configs: {name}")
    try:
        return config.setting.parse(given.strip())
    except SettingsError as refusal:
        raise invalid(f"Invalid value {given} for configuration {name}: {refusal}") from None


def _check_one(name: str, given: str | None) -> None:
    parse(name, given)
    text = (given or "").strip()
    config = TOPIC_CONFIGS[name]
    if not config.fits(text):
        expected = config.setting.takes
        raise invalid(f"Invalid value {given} for configuration {name}: {name}={text}: expected {expected}")
    if config.setting.kind is Kind.LIST and text and not all(part.strip() for part in text.split(",")):
        raise invalid(f"Configuration '{name}' values must not be empty.")


def effective(settings: Settings, configs: Mapping[str, str]) -> dict[str, Any]:
    """Every topic setting with the value that counts: the topic's own, else the server's."""
    return {
        name: parse(name, configs[name]) if name in configs else config.broker_value(settings)
        for name, config in TOPIC_CONFIGS.items()
    }


def check(settings: Settings, configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs of a topic as they may be stored, or KafkaError(INVALID_CONFIG)."""
    own: dict[str, str] = {}
    for name, given in configs.items():
        _check_one(name, given)
        own[name] = (given or "").strip()
    values: dict[str, Any] = effective(settings, own)
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if shortest > longest:
        raise invalid(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
    return own


def log_config(settings: Settings, configs: Mapping[str, str]) -> LogConfig:
    """The configuration of a log for a topic with these configs, in the log's own words."""
    values: dict[str, Any] = effective(settings, configs)
    return LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        index_interval_bytes=values["index.interval.bytes"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        cleanup_policy=values["cleanup.policy"],
        delete_retention_ms=values["delete.retention.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        message_timestamp_type=TimestampType(values["message.timestamp.type"]),
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        max_message_bytes=values["max.message.bytes"],
        flush=Flush(settings.oncelog_flush),
    )
