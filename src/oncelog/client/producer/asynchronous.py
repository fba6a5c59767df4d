"""`AsyncProducer`: the same engine on the caller's event loop."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from oncelog.client.consumer.cluster_metadata import ClusterMetadata, cluster_metadata
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.accumulator import RECORD_OVERHEAD_BYTES, Budget, Held, headers_bytes
from oncelog.client.producer.arguments import (
    FAILED_FLUSH_S,
    as_bytes,
    as_headers,
    as_partition,
    as_time,
    bulk_module,
    check_pinned,
    check_topic,
    refused,
)
from oncelog.client.producer.beginning import begin, saved_value
from oncelog.client.producer.delivery import ProducedMessage, Report
from oncelog.client.producer.engine import Engine
from oncelog.client.producer.transactions import NoTransactions
from oncelog.client.properties import NOTHING_GIVEN, producer_settings
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.client.producer.bulk import BulkSend
    from oncelog.client.saving.saved import SavedProducer
    from oncelog.client.saving.saving import Saving
    from oncelog.records.header import Buffer
    from oncelog.records.passing_columns import Passed


class AsyncProducer(NoTransactions):
    """For one event loop, the one that it is started on (`async with`, or `await start()`)."""

    def __init__(
        self,
        properties: Mapping[str, Any] = NOTHING_GIVEN,
        /,
        *,
        saved: "SavedProducer | str | None" = None,
        **more: Any,
    ) -> None:
        """`saved`: go on as this producer, which any process may have saved (docs/saved-producers.md)."""
        self._saved = saved_value(saved)
        self._settings = settings = producer_settings({**properties, **more})
        self._budget = Budget(settings.queue_buffering_max_messages, settings.queue_buffering_max_kbytes * 1024)
        self._engine = Engine(settings, self._budget, self._deliver, self._tell, self._tell_statistics)
        self._most_bytes = settings.message_max_bytes
        self._blocks = settings.oncelog_queue_full == "block" or "oncelog.queue.full" not in settings.given
        self._room: set[asyncio.Future[None]] = set()
        self._process_id = self._thread_id = 0
        self._state = "not started: use `async with`, or await start()"

    async def start(self) -> Self:
        if not self._process_id:
            self._process_id = os.getpid()
            self._thread_id = get_ident()
            self._state = ""
            try:
                await begin(self._engine, self._saved)
            except BaseException:
                self._state = "it could not be started"
                await self._engine.close()
                raise
        return self

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> "asyncio.Future[ProducedMessage]":
        """Take a record, waiting for room in the queue (with oncelog.queue.full=raise it raises BufferError instead).

        The future is done when the record is: with its message, or with a KafkaException.
        """
        self._check_usable()
        key, value, pairs = as_bytes(key, "key"), as_bytes(value, "value"), as_headers(headers)
        partition = as_partition(partition)
        size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if pairs is not None:
            size_bytes += headers_bytes(pairs)
        if size_bytes > self._most_bytes:
            raise refused(KafkaError.MSG_SIZE_TOO_LARGE)
        check_topic(topic)
        self._engine.saving.check(topic)
        time = as_time(timestamp, 0.0)
        if not self._budget.has_room(size_bytes):
            await self._wait_for_room(size_bytes)
        future: asyncio.Future[ProducedMessage] = asyncio.get_running_loop().create_future()
        now_s = monotonic_s()
        row = (key, value, pairs, time or now_s, future)
        known = self._engine.topic(topic)
        partitions = known.partitions
        if not partitions:
            self._budget.take(size_bytes)
            known.held.append(Held(partition, now_s, size_bytes, row))
            self._engine.want(known)
            return future
        if partition < 0:
            chosen = self._engine.choose(known, key, len(partitions), now_s)
        elif partition < len(partitions):
            chosen = partition
        else:
            raise refused(KafkaError._UNKNOWN_PARTITION)
        self._budget.take(size_bytes)
        place = partitions[chosen]
        place.rows += row
        place.size_bytes += size_bytes
        if not place.is_noticed:
            self._engine.closing.notice(place, now_s)
        if self._engine.closing.is_full(place):
            self._engine.closing.close(place)
        return future

    async def send(self, topic: str, value: Any = None, *arguments: Any, **more: Any) -> "asyncio.Future[Any]":
        """As `produce`; with an Arrow table or record batch for a value all its rows are taken, as `Producer.send`
        does, and the future is done with their `BulkSend` when all of them are delivered."""
        if hasattr(value, "schema"):
            return await self._send_rows(topic, value)
        return await self.produce(topic, value, *arguments, **more)

    async def _send_rows(self, topic: str, data: Any) -> "asyncio.Future[BulkSend]":
        bulk = bulk_module()
        self._check_usable()
        check_topic(topic)
        self._engine.saving.check(topic)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BulkSend] = loop.create_future()
        handle: BulkSend = bulk.BulkSend(topic)
        writer = bulk.BulkWriter(self._engine, data, handle)
        writer.know(await self._engine.know(topic))
        handle.watch(lambda: loop.call_soon_threadsafe(_settle, future, handle))
        try:
            for piece in writer.pieces():
                while not writer.has_room(piece):
                    await self._changed()
                    self._check_usable()
                # In a thread, since a piece takes some milliseconds and other work of this loop need not wait for it.
                await asyncio.to_thread(writer.send, piece)
        finally:
            writer.finish()
        return future

    async def send_batches(
        self, topic: str, partition: int, batches: "Buffer | Sequence[Passed]"
    ) -> "asyncio.Future[BulkSend]":
        """Take batches that are encoded already (v2, any codec), as a fetch brings them, and be done when all of them
        are delivered. Where the bytes can be written to they are used as they lie, and must be left alone meanwhile."""
        raw = bulk_module("raw")
        self._check_usable()
        check_topic(topic)
        self._engine.saving.check(topic)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BulkSend] = loop.create_future()
        handle: BulkSend = raw.BulkSend(topic)
        writer = raw.RawWriter(self._engine, batches, handle)
        writer.know(await self._engine.know(topic), partition)
        handle.watch(lambda: loop.call_soon_threadsafe(_settle, future, handle))
        try:
            for part in writer.parts():
                if part is None:
                    await asyncio.sleep(raw.REPLAY_PAUSE_S)
                    self._engine.saving.check(topic)
                    continue
                while not writer.has_room(part):
                    await self._changed()
                    self._check_usable()
                writer.put(part)
        finally:
            writer.finish()
        return future

    async def produce_and_wait(self, *arguments: Any, **more: Any) -> ProducedMessage:
        """The message of a record that is stored."""
        return await (await self.produce(*arguments, **more))

    async def flush(self) -> None:
        """Send everything now, and wait until all of it is delivered or reported."""
        self._check_usable()
        self._engine.flush(+1)
        try:
            while self._budget.messages:
                await self._changed()
        finally:
            self._engine.flush(-1)

    async def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        self._check_usable()
        self._engine.purge(in_queue=in_queue, in_flight=in_flight)

    async def list_topics(self, topic: str | None = None) -> ClusterMetadata:
        self._check_usable()
        return cluster_metadata(await self._engine.brokers.refresh(None if topic is None else [topic]), topic)

    # --- saved, and resumed

    async def pin(self, *topics: str) -> None:
        """Say which topics the saved producer is for, before the first record: their partition counts and an identity
        are fixed. Save it then, before producing."""
        self._check_usable()
        check_pinned(topics)
        await self._engine.saving.pin(topics)

    async def saved(self) -> "SavedProducer":
        """Wait until every record produced so far is stored, and say where that is, to be stored by the application
        beside its input position, before it produces the next record."""
        self._check_usable()
        return await self._engine.saving.save()

    @property
    def saving(self) -> "Saving":
        """What `commit_with_producer` asks."""
        return self._engine.saving

    def __len__(self) -> int:
        return self._budget.messages

    def __bool__(self) -> bool:
        return True

    async def close(self, timeout: float | None = None) -> None:
        """Flush, for at most so many seconds, and end. What is then not delivered is reported as purged."""
        if self._state:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.flush()
        finally:
            self._state = "the producer is closed"
            await self._engine.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An exception must get out though no broker answers: what is not delivered soon is purged."""
        await self.close(None if kind is None else FAILED_FLUSH_S)

    # --- inside

    async def _wait_for_room(self, size_bytes: int) -> None:
        if not self._blocks:
            raise BufferError("Local: Queue full")
        while not self._budget.has_room(size_bytes):
            await self._changed()
            self._check_usable()

    async def _changed(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.add(waiting)
        try:
            await waiting
        finally:
            self._room.discard(waiting)

    def _deliver(self, report: Report) -> None:
        if get_ident() != self._thread_id:
            # From the thread that hands over a table, where futures must not be touched.
            self._engine.loop.call_soon_threadsafe(self._deliver, report)
            return
        records = report.records
        records.give_back(self._budget)
        if records.handle is not None:
            records.handle.report(report)
        for future, message in report.messages():
            if future.done():
                continue
            if report.error is None:
                future.set_result(message)
            else:
                future.set_exception(KafkaException(report.error))
        for waiting in self._room:
            if not waiting.done():
                waiting.set_result(None)

    def _tell(self, error: KafkaError) -> None:
        """What the application's function raises is told by its loop; the engine's turn goes on."""
        if self._settings.error_cb is not None:
            self._engine.loop.call_soon(self._settings.error_cb, error)

    def _tell_statistics(self, text: str) -> None:
        if self._settings.stats_cb is not None:
            self._engine.loop.call_soon(self._settings.stats_cb, text)

    def _check_usable(self) -> None:
        if self._state:
            raise KafkaException(KafkaError(KafkaError._STATE, self._state))
        if os.getpid() != self._process_id:
            words = "this producer was made before the process forked: a forked process needs one of its own"
            raise KafkaException(KafkaError(KafkaError._STATE, words))


def _settle(future: "asyncio.Future[BulkSend]", handle: "BulkSend") -> None:
    if future.done():
        return
    if handle.error is None:
        future.set_result(handle)
    else:
        future.set_exception(KafkaException(handle.error))
