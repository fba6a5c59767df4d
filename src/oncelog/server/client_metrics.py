"""Configs of subscriptions to clients' metrics, which are shown and stay as they are.

Consoles and tools that manage a cluster ask for them. Names, types and values are Kafka's 4.3, and so a subscription
looks like one that nobody has changed. A change that changes nothing is accepted. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.settings import Kind


class FixedConfig(NamedTuple):
    value: str
    kind: Kind
    doc: str


CONFIGS: Final[Mapping[str, FixedConfig]] = {
    "interval.ms": FixedConfig("300000", Kind.INTEGER, "How often metrics are pushed."),
    "match": FixedConfig("", Kind.LIST, "Which clients push metrics."),
    "metrics": FixedConfig("", Kind.LIST, "Which metrics are pushed."),
}


def check_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")


def check_change(name: str, value: str | None) -> None:
    """`value` is None where it is taken away."""
    config = CONFIGS.get(name)
    if config is None:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown client metrics config name: {name}")
    if value is not None and value.strip() != config.value:
        raise KafkaError(
            ErrorCode.invalid_config, f"{name} of client metrics cannot be changed here: it stays {config.value!r}"
        )
