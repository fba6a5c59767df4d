"""How a cluster is reached: properties of the client, for those who read and for those who write."""

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.client.door import CONSUMER as CONSUMER
from oncelog.client.door import PRODUCER as PRODUCER
from oncelog.client.door import for_role


class Cluster(NamedTuple):
    reading: Mapping[str, str]
    writing: Mapping[str, str]


def of_role(properties: Mapping[str, str], role: str) -> dict[str, str]:
    return {name: str(value) for name, value in for_role(properties, role).items()}
