"""How a cluster is reached: properties of the client, for those who read and for those who write."""

from collections.abc import Mapping
from typing import NamedTuple


class Cluster(NamedTuple):
    reading: Mapping[str, str]
    writing: Mapping[str, str]
