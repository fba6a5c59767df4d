"""The topics that members' patterns find: a thread does the long searches, before the heartbeat needs them."""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.security.patterns import REQUESTS_BYTES, BadPattern, compiled
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.topics import Found, KnownTopic
from oncelog.server.topics import Topic, Topics

MayKnow = Callable[[str], bool]  # of a topic, by its name
FEW_TOPICS = 100  # 20 ms for the worst pattern and the longest names
KEPT = 32  # patterns: all members of a group have the same, mostly


class Finding:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._kept: OrderedDict[str, Found] = OrderedDict()

    def work(self, pattern: str | None) -> Callable[[], Found] | None:
        """Work for a thread; what it finds is to be `keep`t. None where there is nothing to wait for. Raises
        KafkaError."""
        topics = self._topics.all()
        kept = None if pattern is None else self._kept.get(pattern)
        is_known = kept is not None and kept.revision == self._topics.revision
        if pattern is not None and is_known:
            self._kept.move_to_end(pattern)
        if pattern is None or is_known or len(topics) <= FEW_TOPICS:
            return None
        finds, names, revision = _compiled(pattern).fullmatch, [each.name for each in topics], self._topics.revision
        return lambda: Found(pattern, revision, frozenset(filter(finds, names)))

    def keep(self, found: Found) -> None:
        self._kept[found.pattern] = found
        self._kept.move_to_end(found.pattern)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def kept(self, pattern: str) -> Found | None:
        """The topics that were found among many, as they are or were a moment ago."""
        return self._kept.get(pattern) if len(self._topics.all()) > FEW_TOPICS else None

    def find(self, pattern: str) -> Found:
        """Find topics at once, where they are few."""
        kept = self._kept.get(pattern)
        if kept is not None and kept.revision == self._topics.revision:
            return kept
        finds = _compiled(pattern).fullmatch
        names = frozenset(each.name for each in self._topics.all() if finds(each.name))
        return Found(pattern, self._topics.revision, names)


class SeenTopics(NamedTuple):
    """The topics as a member of a group sees them."""

    topics: Topics
    finding: Finding
    may_know: MayKnow
    found: Found | None = None  # already, of what it may know

    @property
    def revision(self) -> int:
        return self.topics.revision

    def get(self, name: str) -> KnownTopic | None:
        return _known(self.topics.get(name))

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return _known(self.topics.by_id(UUID(bytes=topic_id)))

    def matching(self, pattern: str) -> Found:
        if self.found is not None and self.found.pattern == pattern:
            return self.found
        found = self.finding.find(pattern)
        return found._replace(names=frozenset(filter(self.may_know, found.names)))


def _known(topic: Topic | None) -> KnownTopic | None:
    return None if topic is None else KnownTopic(topic.id.bytes, topic.name, len(topic.partitions))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    try:
        return compiled(pattern, REQUESTS_BYTES)
    except BadPattern as error:
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None
