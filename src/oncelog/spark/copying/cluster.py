"""A cluster and how it is reached: properties of the client, for readers and for writers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.client.door import CONSUMER as CONSUMER
from oncelog.client.door import PRODUCER as PRODUCER
from oncelog.client.door import for_role


@dataclass(frozen=True, slots=True)
class Cluster:
    reading: Mapping[str, str] = field(repr=False)  # a password may be among them
    writing: Mapping[str, str] = field(repr=False)


def of_role(properties: Mapping[str, str], role: str) -> dict[str, str]:
    return {name: str(value) for name, value in for_role(properties, role).items()}
