"""`AsyncProducer`: the same engine on the caller's event loop."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from oncelog.client.consumer.cluster_metadata import ClusterMetadata, cluster_metadata
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.arguments import (
    FAILED_FLUSH_S,
    bulk_module,
    check_pinned,
    named,
)
from oncelog.client.producer.beginning import begin
from oncelog.client.producer.delivery import ProducedMessage, Report
from oncelog.client.producer.engine import Engine
from oncelog.client.producer.face import CLOSED, Data, Face
from oncelog.client.properties import NOTHING_GIVEN

if TYPE_CHECKING:
    from oncelog.client.producer.bulk import BulkSend, BulkWriter
    from oncelog.client.producer.raw import RawWriter
    from oncelog.client.saving.saved import SavedProducer
    from oncelog.records.header import Buffer
    from oncelog.records.passing_columns import Passed


class AsyncProducer(Face):
    """A producer for one event loop, the one that it is started on (`async with`, or `await start()`)."""

    def __init__(
        self,
        properties: Mapping[str, Any] = NOTHING_GIVEN,
        /,
        *,
        saved: "SavedProducer | str | None" = None,
        **more: Any,
    ) -> None:
        """`saved`: go on as this producer, which any process may have saved (docs/saved-producers.md)."""
        super().__init__(properties, more, saved)
        settings = self._settings
        self._engine = Engine(settings, self._budget, self._deliver, self._tell, self._tell_statistics)
        self._blocks = settings.oncelog_queue_full == "block" or "oncelog.queue.full" not in settings.given
        self._changes: set[asyncio.Future[None]] = set()
        self._thread_id = 0
        self._watch_forks()
        self._unusable = "not started: use `async with`, or await start()"

    async def start(self) -> Self:
        if not self._thread_id:
            self._thread_id = get_ident()
            self._unusable = None
            try:
                await begin(self._engine, self._goes_on_as)
            except BaseException:
                self._unusable = "it could not be started"
                await self._engine.close()
                raise
        return self

    async def produce(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> "asyncio.Future[ProducedMessage]":
        """Take a record, waiting for room in the queue (with oncelog.queue.full=raise it raises BufferError instead).

        The future is done when the record is: with its message, or with a KafkaException.
        """
        record = self._record(topic, value, key, partition, timestamp, headers)
        if not self._budget.has_room(record.size_bytes):
            if not self._blocks:
                raise BufferError("Local: Queue full")
            await self._wait_until(lambda: self._budget.has_room(record.size_bytes))
        future: asyncio.Future[ProducedMessage] = asyncio.get_running_loop().create_future()
        self._put(topic, record, future)
        return future

    async def send(self, topic: str, value: Any = None, *arguments: Any, **more: Any) -> "asyncio.Future[Any]":
        """As `produce`. Of an Arrow table or record batch all rows are taken, as by `Producer.send`, and the future is
        done with their `BulkSend` when all of them are delivered."""
        if hasattr(value, "schema"):
            return await self._send_rows(topic, value)
        return await self.produce(topic, value, *arguments, **more)

    async def _send_rows(self, topic: str, data: Any) -> "asyncio.Future[BulkSend]":
        writer: BulkWriter = self._begin(bulk_module("bulk").BulkWriter, topic, data)
        writer.know(await self._engine.know(topic))
        with _handing_over(writer) as future:
            for piece in writer.pieces():
                await self._wait_until(partial(writer.has_room, piece))
                # In a thread, since a piece takes some milliseconds and other work of this loop need not wait for it.
                await asyncio.to_thread(writer.send, piece)
        return future

    async def send_batches(
        self, topic: str, partition: int, batches: "Buffer | Sequence[Passed]"
    ) -> "asyncio.Future[BulkSend]":
        """Take batches that are encoded already (v2, any codec), as a fetch brings them; done when all of them are
        delivered. Writable bytes are used as they lie, and must be left alone meanwhile."""
        raw = bulk_module("raw")
        writer: RawWriter = self._begin(raw.RawWriter, topic, batches)
        writer.know(await self._engine.know(topic), partition)
        with _handing_over(writer) as future:
            for part in writer.parts():
                if part is None:
                    await asyncio.sleep(raw.REPLAY_PAUSE_S)
                    self._check_usable()
                    self._engine.saving.check(topic)
                else:
                    await self._wait_until(partial(writer.has_room, part))
                    writer.put(part)
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
        """Give up what is queued or under way; its futures fail as purged."""
        self._check_usable()
        self._engine.purge(in_queue=in_queue, in_flight=in_flight)

    async def list_topics(self, topic: str | None = None) -> ClusterMetadata:
        """The cluster's brokers and topics, or one topic alone."""
        self._check_usable()
        return cluster_metadata(await self._engine.brokers.refresh(named(topic)), topic)

    # --- saved, and resumed

    async def pin(self, *topics: str) -> None:
        """Say which topics the saved producer is for, before the first record: their partition counts and an identity
        are fixed. Save it then, before producing."""
        self._check_usable()
        check_pinned(topics)
        await self._engine.saving.pin(topics)

    async def saved(self) -> "SavedProducer":
        """Wait until every record produced so far is stored, and return the state behind them. The application stores
        it beside its input position, before it produces the next record."""
        self._check_usable()
        return await self._engine.saving.save()

    async def close(self, timeout: float | None = None) -> None:
        """Flush for at most `timeout` seconds, and end. Records not delivered by then are reported as purged."""
        if self._unusable is not None:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.flush()
        finally:
            self._unusable = CLOSED
            await self._engine.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An exception must get out though no broker answers: records not sent soon are purged."""
        await self.close(None if kind is None else FAILED_FLUSH_S)

    # --- inside

    async def _wait_until(self, has_room: Callable[[], bool]) -> None:
        while not has_room():
            await self._changed()
            self._check_usable()
        self._check_usable()

    async def _changed(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.add(waiting)
        try:
            await waiting
        finally:
            self._changes.discard(waiting)

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
        for waiting in self._changes:
            if not waiting.done():
                waiting.set_result(None)

    def _tell(self, error: KafkaError) -> None:
        """Call the application's function on its loop, which tells what it raises; the engine's turn goes on."""
        if self._settings.error_cb is not None:
            self._engine.loop.call_soon(self._settings.error_cb, error)

    def _tell_statistics(self, text: str) -> None:
        if self._settings.stats_cb is not None:
            self._engine.loop.call_soon(self._settings.stats_cb, text)


@contextmanager
def _handing_over(writer: "BulkWriter | RawWriter") -> "Iterator[asyncio.Future[BulkSend]]":
    """The future of all that is handed over within. Where that fails, its caller gets the failure in the place of the
    future, which is cancelled: nobody could ask it for the outcome of the rows before."""
    future = _done(writer.handle)
    try:
        yield future
    except BaseException:
        future.cancel()
        raise
    finally:
        writer.finish()


def _done(handle: "BulkSend") -> "asyncio.Future[BulkSend]":
    """Done when all its rows are."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[BulkSend] = loop.create_future()
    handle.watch(lambda: loop.call_soon_threadsafe(_set, future, handle))
    return future


def _set(future: "asyncio.Future[BulkSend]", handle: "BulkSend") -> None:
    if future.done():
        return
    if handle.error is None:
        future.set_result(handle)
    else:
        future.set_exception(KafkaException(handle.error))
