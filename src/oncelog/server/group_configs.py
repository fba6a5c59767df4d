"""The configs of one group: Kafka's names, values and bounds, and the server's settings that they fall back on.

All of them are one document, in which each group has an entry: {"orders": {"consumer.session.timeout.ms": "50000"}}.
Groups of two kinds, `share` and `streams`, are not served here: what is set for them is kept and shown. Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.security.documents import Document
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.settings import SETTINGS, Settings
from oncelog.settings import Kind, Setting, SettingsError

Own = Mapping[str, str]  # what one group has set
NOTHING: Final[Own] = {}

_PART = r"[+-]?\d+"
_DURATION = re.compile(
    rf"([+-]?)P(?=.*\d)(?:({_PART})D)?(?:T(?=.*\d)(?:({_PART})H)?(?:({_PART})M)?(?:({_PART}(?:\.\d{{0,9}})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS = (86_400, 3_600, 60, 1)


@dataclass(frozen=True, slots=True)
class Bound:
    """A setting of the server; Kafka's default where there is none of that name here."""

    name: str
    default: int

    def value(self, settings: Settings) -> int:
        return int(settings.value(self.name)) if self.name in SETTINGS else self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    setting: Setting
    broker_name: str  # of the setting that it falls back on, as Kafka calls it
    least: Bound | None = None
    most: Bound | None = None
    fits: Callable[[str], bool] = lambda _: True  # what its kind cannot say

    def broker_value(self, settings: Settings) -> Any:
        return settings.value(self.broker_name) if self.broker_name in SETTINGS else self.setting.default

    def bounds(self, settings: Settings) -> tuple[int | None, int | None]:
        """The bounds of a value, which always let in the value that all groups have."""
        common = self.broker_value(settings)
        least = None if self.least is None else min(self.least.value(settings), common)
        most = None if self.most is None else max(self.most.value(settings), common)
        return least, most


def _of(
    kind: str, name: str, default: int, doc: str, *, low: int, bounds: tuple[int, int] | None = None
) -> GroupConfig:
    return GroupConfig(
        setting=Setting(name=f"{kind}.{name}", kind=Kind.INTEGER, default=default, doc=doc, low=low, high=2**31 - 1),
        broker_name=f"group.{kind}.{name}",
        least=None if bounds is None else Bound(f"group.{kind}.min.{name}", bounds[0]),
        most=None if bounds is None else Bound(f"group.{kind}.max.{name}", bounds[1]),
    )


def _is_offset_reset(text: str) -> bool:
    """Durations are Java's, which may have a sign in front of each part."""
    word, _, duration = text.partition(":")
    if word != "by_duration":
        return text in ("earliest", "latest")
    found = _DURATION.fullmatch(duration)
    if found is None:
        return False
    sign, *parts = found.groups()
    seconds = sum(float(part or 0) * each for part, each in zip(parts, _SECONDS, strict=True))
    return seconds <= 0 if sign == "-" else seconds >= 0


def _common(kind: str) -> Iterable[GroupConfig]:
    yield _of(
        kind,
        "heartbeat.interval.ms",
        5_000,
        "How often members shall tell that they are there.",
        low=1,
        bounds=(5_000, 15_000),
    )
    yield _of(
        kind,
        "session.timeout.ms",
        45_000,
        "After how long without a heartbeat a member is gone.",
        low=1,
        bounds=(45_000, 60_000),
    )
    yield _of(
        kind, "assignment.interval.ms", 1_000, "How often a group's assignment may change.", low=0, bounds=(0, 15_000)
    )


def _of_share_groups(name: str, kind: Kind, default: Any, doc: str, **more: Any) -> GroupConfig:
    """Kafka says that these fall back on what no server can set."""
    return GroupConfig(setting=Setting(name=name, kind=kind, default=default, doc=doc), broker_name=name, **more)


_EVERY: Final = (
    *_common("consumer"),
    *_common("share"),
    _of(
        "share",
        "record.lock.duration.ms",
        30_000,
        "For how long a record is locked.",
        low=1000,
        bounds=(15_000, 60_000),
    ),
    _of("share", "delivery.count.limit", 5, "How often a record may be delivered.", low=2, bounds=(2, 10)),
    _of(
        "share",
        "partition.max.record.locks",
        2_000,
        "How many records of a partition may be locked.",
        low=100,
        bounds=(100, 4_000),
    ),
    _of_share_groups(
        "share.auto.offset.reset",
        Kind.TEXT,
        "latest",
        "Where a new share group begins.",
        fits=_is_offset_reset,
    ),
    _of_share_groups(
        "share.isolation.level",
        Kind.TEXT,
        "read_uncommitted",
        "What is read of transactions.",
        fits=lambda text: text in ("read_committed", "read_uncommitted"),
    ),
    _of_share_groups("share.renew.acknowledge.enable", Kind.BOOLEAN, True, "Whether locks may be renewed."),
    *_common("streams"),
    _of("streams", "initial.rebalance.delay.ms", 3_000, "How long a new group waits for more members.", low=0),
    GroupConfig(
        setting=Setting(
            name="streams.num.standby.replicas", kind=Kind.INTEGER, default=0, doc="Copies of each task's state.", low=0
        ),
        broker_name="group.streams.num.standby.replicas",
        most=Bound("group.streams.max.standby.replicas", 2),
    ),
)

GROUP_CONFIGS: Final = {config.setting.name: config for config in _EVERY}
KINDS: Final = ("consumer", "share", "streams")


# Kept


def own_of(document: Document, group: str) -> Own:
    """The configs of a group. Values that no broker has written are passed over: they are no reason not to serve."""
    found = _entry(document, group).items()
    return {name: text for name, text in found if name in GROUP_CONFIGS and isinstance(text, str)}


def strange_of(document: Document, group: str) -> Mapping[str, Any]:
    """Configs that a newer broker has set: they count for nothing here, and stay."""
    return {name: each for name, each in _entry(document, group).items() if name not in GROUP_CONFIGS}


def _entry(document: Document, group: str) -> Mapping[str, Any]:
    found = document.get(group)
    return found if isinstance(found, Mapping) else {}


def with_own(document: Document, group: str, own: Mapping[str, Any]) -> Document:
    rest = {name: each for name, each in document.items() if name != group}
    return {**rest, group: dict(own)} if own else rest


# Checked


def check_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")


def check(settings: Settings, given: Own) -> Own:
    """The configs in the form that is stored. Raises KafkaError(INVALID_CONFIG)."""
    own = {name: text.strip() for name, text in given.items()}
    values: dict[str, Any] = {name: _parse(name, text) for name, text in own.items()}
    for name, config in GROUP_CONFIGS.items():
        if name in values:
            _check_bounds(config, values[name], settings)
    for kind in KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        pair = [values.get(name, GROUP_CONFIGS[name].broker_value(settings)) for name in (session, heartbeat)]
        if pair[0] <= pair[1] and not values.keys().isdisjoint((session, heartbeat)):
            raise _invalid(f"{session} must be greater than {heartbeat}")
    return own


def parsed(own: Own) -> dict[str, Any]:
    """The values that can be parsed: a broker of another version may have set one that is none here."""
    found = {}
    for name, text in own.items():
        try:
            found[name] = _parse(name, text)
        except KafkaError:
            continue
    return found


def effective(settings: Settings, own: Own) -> dict[str, Any]:
    """Every config with the value that counts: the group's own within the server's bounds, else the server's."""
    values = {name: config.broker_value(settings) for name, config in GROUP_CONFIGS.items()}
    for name, value in parsed(own).items():
        least, most = GROUP_CONFIGS[name].bounds(settings)
        value = value if least is None else max(value, least)
        values[name] = value if most is None else min(value, most)
    return values


def _parse(name: str, given: str) -> Any:
    config = GROUP_CONFIGS.get(name)
    if config is None:
        raise _invalid(f"Unknown group config name: {name}")
    try:
        value = config.setting.parse(given)
    except SettingsError as refusal:
        raise _invalid(f"Invalid value {given} for configuration {name}: {refusal}") from None
    if not config.fits(given):
        raise _invalid(f"Invalid value {given} for configuration {name}")
    return value


def _check_bounds(config: GroupConfig, value: Any, settings: Settings) -> None:
    least, most = config.bounds(settings)
    if least is not None and value < least:
        assert config.least is not None
        raise _invalid(f"{config.setting.name} must be greater than or equal to {config.least.name}, which is {least}")
    if most is not None and value > most:
        assert config.most is not None
        raise _invalid(f"{config.setting.name} must be less than or equal to {config.most.name}, which is {most}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)
