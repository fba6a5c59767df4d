"""A consumer in a group: which topics it wants, and what becomes of the partitions that the group gives and takes.

The group waits for the application: its callbacks run where it polls (`Call`), and only when they are through are
partitions given back or read.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oncelog.client.consumer.calls import Call
from oncelog.client.consumer.core import Core
from oncelog.client.errors import KafkaError, KafkaException, invalid_argument
from oncelog.client.fetching.values import STORED
from oncelog.client.groups.coordinator import CONSUMER, Group
from oncelog.client.net.metadata import Metadata
from oncelog.client.types import TopicPartition
from oncelog.slots import AnyPlace

PATTERN_MARK = "^"
UNKNOWN_TOPIC_LOOK_MS = 1000
POLLS_LOOK_MS = 1000

OnRebalance = Callable[[list[TopicPartition]], Any]


@dataclass(frozen=True, slots=True)
class Callbacks:
    on_assign: OnRebalance | None = None
    on_revoke: OnRebalance | None = None
    on_lost: OnRebalance | None = None


class Reader(Protocol):
    """The application's side of what is read."""

    def activity(self) -> object:
        """None while the application waits for records, else what changes when it takes some."""

    async def commit_what_was_read(self, partitions: Iterable[AnyPlace] | None = None) -> None: ...

    async def release(self, partitions: Iterable[AnyPlace]) -> None: ...


class Subscription:
    """The listener of a `Group`."""

    def __init__(self, core: Core, reader: Reader) -> None:
        self._reader = reader
        self._core = core
        self._settings = core.settings
        self.group = Group(self._settings, self._core.brokers, self)
        self._names: frozenset[str] = frozenset()
        self._patterns: Sequence[str] = ()
        self._compiled: list[re.Pattern[str]] = []
        self.callbacks = Callbacks()
        self._watch: asyncio.Task[None] | None = None
        self._polls: asyncio.Task[None] | None = None
        self._told_unknown: set[str] = set()
        self._found: frozenset[str] | None = None  # the topics that the group was told of last

    @property
    def topics(self) -> list[str]:
        return sorted(self._names.union(self._patterns))

    @property
    def _is_resolved_here(self) -> bool:
        """Whether this client finds the topics for its patterns. In KIP-848 the coordinator does, by patterns of
        RE2."""
        return self._settings.group_protocol != CONSUMER

    async def subscribe(self, topics: Sequence[str], callbacks: Callbacks) -> None:
        patterns = [each for each in topics if each.startswith(PATTERN_MARK)]
        self._compiled = [_compiled(each) for each in patterns] if self._is_resolved_here else []
        self._names = frozenset(each for each in topics if not each.startswith(PATTERN_MARK))
        self._patterns = patterns
        self.callbacks = callbacks
        self._told_unknown.clear()
        self._found = None
        if self._watch is not None:
            self._watch.cancel()
        if not topics:
            self.group.subscribe(())
            return
        self._watch = asyncio.ensure_future(self._look_for_topics())
        if self._polls is None:
            self._polls = asyncio.ensure_future(self._look_for_polls())

    async def leave(self) -> None:
        for task in (self._watch, self._polls):
            if task is not None:
                task.cancel()
        await self.group.leave()

    # --- which topics there are

    async def _look_for_topics(self) -> None:
        """Tell the group which topics match, now and whenever they change; or what is to match, where it looks itself.
        The same again changes nothing."""
        while True:
            is_everything = bool(self._compiled)
            try:
                metadata = await self._core.brokers.refresh(None if is_everything else self._names)
            except KafkaException as failure:
                self._core.engine.tell_trouble(failure.error)
                await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
                continue
            self._core.engine.trouble_is_over()
            is_one_unknown = False
            if self._is_resolved_here:
                is_one_unknown = self._resolve(metadata)
            else:
                self.group.subscribe(self._names, _joined(self._patterns))
            await asyncio.sleep(self._look_again_ms(is_one_unknown) / 1000)

    def _resolve(self, metadata: Metadata) -> bool:
        """Tells the group which topics there are. Whether one that was named is not there."""
        known = {name: topic for name, topic in metadata.topics.items() if not topic.error_code}
        matched = {
            name
            for name, topic in known.items()
            if not topic.is_internal and any(pattern.search(name) for pattern in self._compiled)
        }
        unknown = self._names - known.keys()
        self._tell_unknown(unknown)
        found = frozenset(self._names & known.keys() | matched)
        if found != self._found and (found or self._found is not None):
            self._found = found
            self.group.subscribe(found)
        return bool(unknown)

    def _look_again_ms(self, is_one_unknown: bool) -> int:
        interval_ms = self._settings.topic_metadata_refresh_interval_ms
        if interval_ms <= 0:
            interval_ms = self._settings.metadata_max_age_ms
        return min(interval_ms, UNKNOWN_TOPIC_LOOK_MS) if is_one_unknown else interval_ms

    def _tell_unknown(self, unknown: frozenset[str]) -> None:
        for name in sorted(unknown - self._told_unknown):
            words = f"Subscribed topic not available: {name}: Broker: Unknown topic or partition"
            self.failed(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, words))
        self._told_unknown = set(unknown)

    # --- whether the application polls

    async def _look_for_polls(self) -> None:
        """Polling must cost nothing, so a poll is not reported: it shows by what has been handed out since."""
        pause_ms = min(POLLS_LOOK_MS, max(10, self._settings.max_poll_interval_ms // 10))
        before: object = None
        while True:
            now = self._reader.activity()
            if now is None or now != before:
                self.group.polled()
            before = now
            await asyncio.sleep(pause_ms / 1000)

    # --- what the group says

    async def revoked(self, partitions: frozenset[AnyPlace], *, is_lost: bool) -> None:
        callbacks = self.callbacks
        callback = callbacks.on_revoke
        if is_lost and callbacks.on_lost is not None:
            callback = callbacks.on_lost
        await self._in_application(callback, partitions, lambda: self._let_go(partitions, is_lost))

    async def assigned(self, added: frozenset[AnyPlace]) -> None:
        await self._in_application(self.callbacks.on_assign, added, lambda: self._take(added))

    def failed(self, error: KafkaError) -> None:
        self._core.engine.tell(error)

    async def _in_application(
        self,
        callback: OnRebalance | None,
        partitions: frozenset[AnyPlace],
        then: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Wait until the application polls, has its callback, and what follows is done."""
        done = asyncio.get_running_loop().create_future()
        told = [TopicPartition(*each) for each in sorted(partitions)]

        async def follow() -> None:
            try:
                await then()
            finally:
                if not done.done():
                    done.set_result(None)

        self._core.call(Call(None if callback is None else lambda: callback(told), follow))
        await done

    async def _let_go(self, partitions: frozenset[AnyPlace], is_lost: bool) -> None:
        """Give back what the callback has not given back. Of lost partitions nothing is committed: they are someone
        else's."""
        left = [each for each in partitions if each in self._core.engine.fetcher.cursors]
        if not is_lost:
            await self._reader.commit_what_was_read(left)
        await self._reader.release(left)

    async def _take(self, added: frozenset[AnyPlace]) -> None:
        """Assign what the callback has not assigned, from the committed offsets."""
        places = self._core.engine.fetcher.cursors
        await self._core.assign_more((each, STORED, -1) for each in sorted(added) if each not in places)


def _compiled(topic: str) -> "re.Pattern[str]":
    try:
        return re.compile(topic)
    except re.error as error:
        raise invalid_argument(f"{topic!r} is no regular expression: {error}") from None


def _joined(patterns: Sequence[str]) -> str:
    """Several patterns as librdkafka writes them as one."""
    return f"({')|('.join(patterns)})" if patterns else ""
