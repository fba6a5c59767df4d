"""Configs that are shown and stay as they are: those of groups and of subscriptions to clients' metrics.

Consoles and tools that manage a cluster ask for them. Names, types and values are Kafka's 4.3, and so a group or a
subscription looks like one that nobody has changed. A change that changes nothing is accepted. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.settings import Kind


class FixedConfig(NamedTuple):
    value: str
    kind: Kind
    doc: str
    synonym: str | None = None  # the broker's setting that it would fall back on


@dataclass(frozen=True, slots=True)
class FixedConfigs:
    what: str
    nameless: str  # what is said where no name is given
    unknown: ErrorCode
    configs: Mapping[str, FixedConfig]

    def check_name(self, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, self.nameless)

    def check_change(self, name: str, value: str | None) -> None:
        """`value` is None where it is taken away."""
        config = self.configs.get(name)
        if config is None:
            raise KafkaError(self.unknown, f"Unknown {self.what} config name: {name}")
        if value is not None and value.strip() != config.value:
            raise KafkaError(
                ErrorCode.invalid_config, f"{name} of a {self.what} cannot be changed here: it stays {config.value!r}"
            )


def _of_groups(kind: str, *configs: tuple[str, str, str]) -> dict[str, FixedConfig]:
    return {
        f"{kind}.{name}": FixedConfig(value, Kind.INTEGER, doc, f"group.{kind}.{name}") for name, value, doc in configs
    }


def _of_share_groups(name: str, value: str, kind: Kind, doc: str) -> dict[str, FixedConfig]:
    return {name: FixedConfig(value, kind, doc, name)}


_ASSIGNMENT: Final = ("assignment.interval.ms", "1000", "How often a group's assignment may change.")
_HEARTBEAT: Final = ("heartbeat.interval.ms", "5000", "How often members shall tell that they are there.")
_SESSION: Final = ("session.timeout.ms", "45000", "After how long without a heartbeat a member is gone.")

GROUPS: Final = FixedConfigs(
    what="group",
    nameless="Group name must not be empty",
    unknown=ErrorCode.invalid_config,
    configs=_of_groups("consumer", _ASSIGNMENT, _HEARTBEAT, _SESSION)
    | _of_groups(
        "share",
        _ASSIGNMENT,
        ("delivery.count.limit", "5", "How often a record may be delivered."),
        _HEARTBEAT,
        ("partition.max.record.locks", "2000", "How many records of a partition may be locked."),
        ("record.lock.duration.ms", "30000", "For how long a record is locked."),
        _SESSION,
    )
    | _of_share_groups("share.auto.offset.reset", "latest", Kind.TEXT, "Where a new share group begins.")
    | _of_share_groups("share.isolation.level", "read_uncommitted", Kind.TEXT, "What is read of transactions.")
    | _of_share_groups("share.renew.acknowledge.enable", "true", Kind.BOOLEAN, "Whether locks may be renewed.")
    | _of_groups(
        "streams",
        _ASSIGNMENT,
        _HEARTBEAT,
        ("initial.rebalance.delay.ms", "3000", "How long a new group waits for more members."),
        ("num.standby.replicas", "0", "Copies of each task's state."),
        _SESSION,
    ),
)

CLIENT_METRICS: Final = FixedConfigs(
    what="client metrics",
    nameless="Client metrics subscription name must not be empty",
    unknown=ErrorCode.invalid_request,
    configs={
        "interval.ms": FixedConfig("300000", Kind.INTEGER, "How often metrics are pushed."),
        "match": FixedConfig("", Kind.LIST, "Which clients push metrics."),
        "metrics": FixedConfig("", Kind.LIST, "Which metrics are pushed."),
    },
)
