"""Keeping what is known of the cluster up to date: asked for when needed, and again now and then.

All that ask for the same topics at the same time share one question. Topics that were asked for by name are asked for
again with every periodic refresh.
"""

import asyncio
import random as chance
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from oncelog.client.errors import KafkaError, KafkaException, error_of
from oncelog.client.net.connection import Connection
from oncelog.client.net.metadata import Metadata
from oncelog.client.net.shared_work import Shared
from oncelog.error_codes import ErrorCodes as Code
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

ATTEMPTS = 6

Names = frozenset[str | UUID] | None  # of topics, or their ids


class Refresher:
    """`any_connection` finds a broker to ask; `changed` is called after every answer."""

    def __init__(
        self,
        settings: "ClientSettings",
        any_connection: Callable[[], Awaitable[Connection]],
        changed: Callable[[], None],
        random: Callable[[], float] = chance.random,
    ) -> None:
        self.metadata = Metadata()
        self._settings = settings
        self._any_connection = any_connection
        self._changed = changed
        self._random = random
        # Kafka without ZooKeeper calls a topic unknown that it is about to create.
        self._being_made = {Code.LEADER_NOT_AVAILABLE} | (
            {Code.UNKNOWN_TOPIC_OR_PART} if settings.allow_auto_create_topics else set()
        )
        self._wanted: set[str] = set()
        self._running: Shared[Names, None] = Shared()
        self._answered_s: float | None = None

    async def refresh(self, topics: Iterable[str | UUID] | None) -> Metadata:
        names: Names = None if topics is None else frozenset(topics)
        self._wanted.update(each for each in names or () if isinstance(each, str))
        await self._running.do(names, lambda: self._refresh(names))
        return self.metadata

    def forget(self, topics: Iterable[str]) -> None:
        gone = frozenset(topics)
        self._wanted -= gone
        self.metadata = self.metadata.without_topics(gone)

    async def now_and_then(self) -> None:
        interval_ms = self._settings.topic_metadata_refresh_interval_ms
        while interval_ms > 0:
            await asyncio.sleep(interval_ms / 1000 * (0.9 + 0.1 * self._random()))
            try:
                await self.refresh(tuple(self._wanted))
            except KafkaException:
                continue  # the caller that needs a broker asks itself, and gets the error

    async def close(self) -> None:
        await self._running.close()

    async def pause(self, attempt: int) -> None:
        settings = self._settings
        pause_ms = min(settings.retry_backoff_ms * 2**attempt, settings.retry_backoff_max_ms)
        await asyncio.sleep(pause_ms * (0.8 + 0.4 * self._random()) / 1000)

    async def _refresh(self, names: Names) -> None:
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            connection = await self._any_connection()
            try:
                await self._ask(connection, names)
            except KafkaException as error:
                self._forget_brokers_in_time()
                # One that closes on the first request, twice, is as one that cannot be reached: who asks hears it soon.
                is_refused = attempt > 0 and connection.is_refused
                if is_last or is_refused or not error.error.retriable():
                    raise
            else:
                if not self._is_one_being_made(names):
                    return
            if not is_last:
                await self.pause(attempt)

    def _is_one_being_made(self, names: Names) -> bool:
        topics = self.metadata.topics
        named = (name for name in names or () if isinstance(name, str) and name in topics)
        return any(topics[name].error_code in self._being_made for name in named)

    async def _ask(self, connection: Connection, names: Names) -> None:
        answer = await connection.request("metadata", lambda spoken: self._request(spoken, names))
        code = int(getattr(answer, "error_code", 0))
        if code == Code.REBOOTSTRAP_REQUIRED:
            self._forget_brokers()
            connection.close(error_of(code))
        if code:
            raise KafkaException(KafkaError(code, error_of(code).str(), retriable=True))
        self._answered_s = asyncio.get_running_loop().time()
        self.metadata = self.metadata.updated(answer, is_everything=names is None)
        self._changed()

    def _request(self, spoken: RequestSchema, names: Names) -> Any:
        topics = [
            spoken.new("MetadataRequestTopic", topic_id=each, name=None)
            if isinstance(each, UUID)
            else spoken.new("MetadataRequestTopic", topic_id=None, name=each)
            for each in sorted(names or (), key=str)
        ]
        is_all = names is None and spoken.version > 0  # before version 1 an empty list was what a null is now
        return spoken.new(
            "MetadataRequest",
            topics=None if is_all else tuple(topics),
            allow_auto_topic_creation=self._settings.allow_auto_create_topics,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def _forget_brokers_in_time(self) -> None:
        """Brokers that accept connections and never answer must not keep the user's own addresses from being tried."""
        trigger_s = self._settings.metadata_recovery_rebootstrap_trigger_ms / 1000
        if self._answered_s is not None and asyncio.get_running_loop().time() - self._answered_s > trigger_s:
            self._forget_brokers()

    def _forget_brokers(self) -> None:
        if self._settings.metadata_recovery_strategy == "rebootstrap":
            self.metadata = self.metadata.without_brokers()
