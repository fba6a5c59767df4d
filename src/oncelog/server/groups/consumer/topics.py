"""The topics, as a group of KIP-848 needs them: their ids and partition counts."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol


class KnownTopic(NamedTuple):
    topic_id: bytes
    name: str
    partitions: int


class Found(NamedTuple):
    """The topics that a pattern has found, as they were in that revision."""

    pattern: str
    revision: int
    names: frozenset[str]


class KnownTopics(Protocol):
    @property
    def revision(self) -> int:
        """Another one whenever something of this may have changed."""

    def get(self, name: str) -> KnownTopic | None: ...

    def by_id(self, topic_id: bytes) -> KnownTopic | None: ...

    def matching(self, pattern: str) -> Found:
        """The topics that a pattern finds, of those that the client may know of. They may be some that were there a
        moment ago."""


def topics_hash(names: Iterable[str], topics: KnownTopics) -> int:
    """0 where none of them is there. Kafka's own is another number, so a group that moves from one to the other has one
    more epoch."""
    known = sorted(each for each in map(topics.get, names) if each is not None)
    if not known:
        return 0
    digest = blake2b(digest_size=8)
    for topic_id, _, partitions in known:
        digest.update(topic_id + partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
