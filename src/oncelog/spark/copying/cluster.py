"""How a cluster is reached: properties of the client, for those who read and for those who write."""

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.client.properties.property import CONSUMER as CONSUMER
from oncelog.client.properties.property import EVERY
from oncelog.client.properties.property import PRODUCER as PRODUCER
from oncelog.client.properties.table import ALIASES, PROPERTIES


class Cluster(NamedTuple):
    reading: Mapping[str, str]
    writing: Mapping[str, str]


def of_role(properties: Mapping[str, str], role: str) -> dict[str, str]:
    """Without what concerns only clients of the other role; what nobody knows stays, and is refused."""
    found = {}
    for name, value in properties.items():
        known = PROPERTIES.get(ALIASES.get(name, name))
        if known is None or known.scope in (EVERY, role):
            found[name] = str(value)
    return found
