"""The Kafka release of a broker, by the versions that it speaks. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

Versions = Mapping[int, tuple[int, int]]

FETCH: Final = 1
INIT_PRODUCER_ID: Final = 22
DESCRIBE_PRODUCERS: Final = 61


class _Step(NamedTuple):
    release: str
    key: int
    at_least: int = 0  # of the newest version that is spoken
    low_at_least: int = 0  # of the oldest


# The versions that each release of Apache Kafka was the first to speak, newest first.
_STEPS: Final = (
    _Step("4.1", FETCH, 18),
    _Step("4.0", FETCH, low_at_least=4),  # KIP-896 took the oldest versions away
    _Step("3.9", FETCH, 17),
    _Step("3.8", 75),  # DescribeTopicPartitions
    _Step("3.7", FETCH, 16),
    _Step("3.5", FETCH, 15),
    _Step("3.1", FETCH, 13),
    _Step("3.0", 65),  # DescribeTransactions
    _Step("2.8", DESCRIBE_PRODUCERS),
    _Step("2.7", 50),  # DescribeUserScramCredentials
    _Step("2.6", 48),  # DescribeClientQuotas
    _Step("2.4", 45),  # AlterPartitionReassignments
    _Step("2.1", FETCH, 10),  # zstd
)


def kafka_release(versions: Versions) -> str | None:
    """The newest release of Apache Kafka that speaks no more than this; None where it is too old for our client."""
    for step in _STEPS:
        spoken = versions.get(step.key)
        if spoken is not None and spoken[1] >= step.at_least and spoken[0] >= step.low_at_least:
            return step.release
    return None
