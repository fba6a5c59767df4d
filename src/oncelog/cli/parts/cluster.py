"""Asking the cluster: an admin that is known to reach it, and topics that are known to be there."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from oncelog.cli.parts.endings import failure, lacks_a_right, nearest, words_of
from oncelog.cli.parts.options import ADMIN, Connecting
from oncelog.cli.parts.rules import Given, on_topic
from oncelog.client.admin import Admin
from oncelog.client.consumer.cluster_metadata import ClusterMetadata, TopicMetadata
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.retry import Patience, until_heard
from oncelog.client.types import TopicPartition
from oncelog.slots import Place

K = TypeVar("K")
T = TypeVar("T")
PAUSE_S = 0.05


class Cluster:
    def __init__(self, admin: Admin, timeout_s: float, *, may_hide: bool = False) -> None:
        """`may_hide`: whether what this user may not describe may look like what is not there."""
        self.admin = admin
        self._timeout_s = timeout_s
        self._or_hidden = ", or this user may not describe it" if may_hide else ""

    def metadata(self) -> ClusterMetadata:
        return self.admin.list_topics(timeout=self._timeout_s)

    def wait_until(self, is_so: Callable[[ClusterMetadata], bool]) -> None:
        """The next command is to find it so."""

        async def look() -> ClusterMetadata:
            return self.metadata()

        asyncio.run(until_heard(look, is_so, Patience(self._timeout_s, PAUSE_S)))

    def topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """These topics; the first one that is not there is told with the nearest that is."""
        wanted = list(dict.fromkeys(names))
        known = self.metadata().topics
        found = {}
        for name in wanted:
            if name not in known:
                near = nearest(name, known)
                raise failure(f"there is no topic {name}{self._or_hidden}{near}: `oncelog topics` lists all")
            found[name] = known[name]
        return found

    def places(self, names: Iterable[str], indexes: Sequence[int] = ()) -> list[Place]:
        """All partitions of the topics, or those with these numbers."""
        places: list[Place] = []
        for name, topic in self.topics(names).items():
            if not topic.partitions:
                raise failure(f"topic {name} has no partitions now: {words_of(topic.error) if topic.error else ''}")
            for index in indexes:
                refuse_unless_there(name, len(topic.partitions), index)
            places += [Place(name, index) for index in (dict.fromkeys(indexes) or sorted(topic.partitions))]
        return places

    def leaders(self, places: Iterable[Place]) -> dict[Place, int]:
        known = self.metadata().topics
        return {place: known[place.topic].partitions[place.partition].leader for place in places}

    def offsets(self, places: Iterable[Place], at: int) -> dict[Place, int]:
        """Offsets by timestamp; -1 is the end, -2 the beginning. -1 in the answer where no record is as late."""
        wanted = {TopicPartition(*place): at for place in places}
        if not wanted:
            return {}
        found = self.admin.list_offsets(wanted)
        return {Place(each.topic, each.partition): outcome_of(future).offset for each, future in found.items()}


def refuse_unless_there(topic: str, count: int, index: int) -> None:
    if index >= count:
        raise failure(f"topic {topic} has the partitions 0 to {count - 1}, not {index}")


@contextmanager
def opened(to: Connecting, *, takes: Given | None = None, **defaults: object) -> Iterator[Cluster]:
    """`takes`: the right that is asked for, which is named where this user lacks it."""
    with Admin(to.of(ADMIN, **defaults)) as admin:
        try:
            yield Cluster(admin, to.timeout_s, may_hide=to.is_guarded)
        except KafkaException as refusal:
            if takes is None or not lacks_a_right(refusal.error):
                raise
            raise failure(words_of(refusal.error, takes)) from refusal


def outcome_of(future: "Future[T]") -> T:
    return future.result()


def each_outcome(
    futures: Mapping[K, "Future[T]"],
    passed_over: int | None = None,
    takes: Given | None = None,
    name_of: Callable[[K], str] = str,
    *,
    topics_take: str | None = None,
) -> None:
    """Wait for all; then the first failure is raised, with the name that it belongs to. `topics_take`: the operation,
    where the names are those of topics."""
    failures = []
    for each, future in futures.items():
        try:
            future.result()
        except KafkaException as refusal:
            if refusal.error.code() != passed_over:
                failures.append((name_of(each), refusal.error))
    if failures:
        name, error = failures[0]
        if topics_take is not None:
            takes = on_topic(topics_take, name)
        more = f" (and {len(failures) - 1} more failed)" if len(failures) > 1 else ""
        raise failure(f"{name}: {words_of(error, takes)}{more}")


def partition_name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def is_unsupported(error: KafkaError) -> bool:
    return error.code() == KafkaError._UNSUPPORTED_FEATURE
