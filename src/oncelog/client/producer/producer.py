"""`Producer`: confluent-kafka's shape, with an engine in a thread of its own.

`produce` is called a million times a second if it can be, so what most calls want is done in line: a topic that is
known, a value of bytes, no headers, room in the queue, and a key of bytes, or none and a partition that such records
stick to for now. Everything else goes the longer way, which checks every argument.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from oncelog.client.consumer.arguments import timeout_s
from oncelog.client.consumer.cluster_metadata import ClusterMetadata, cluster_metadata
from oncelog.client.errors import KafkaError
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.producer.accumulator import RECORD_OVERHEAD_BYTES
from oncelog.client.producer.arguments import (
    FAILED_FLUSH_S,
    as_end,
    bulk_module,
    check_callback,
    check_pinned,
    named,
)
from oncelog.client.producer.beginning import begin
from oncelog.client.producer.delivery import Outbox
from oncelog.client.producer.engine import Engine
from oncelog.client.producer.face import CLOSED, Data, Face
from oncelog.client.producer.reporting import Reporter
from oncelog.client.properties import NOTHING_GIVEN
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.client.producer.bulk import BulkSend, BulkWriter
    from oncelog.client.producer.raw import RawWriter
    from oncelog.client.saving.saved import SavedProducer
    from oncelog.records.header import Buffer
    from oncelog.records.passing_columns import Passed

OnDelivery = Callable[[KafkaError | None, Any], object]


class Producer(Face):
    """A producer whose records are stored once and in order. All methods may be called from any thread."""

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
        self._outbox = Outbox(self._budget)
        reporter = Reporter(settings, self._budget, self._outbox)
        self._engine = Engine(
            settings,
            self._budget,
            reporter.deliver,
            reporter.tell,
            reporter.tell_statistics,
            self._outbox.__len__,
        )
        self._on_delivery: Any = settings.on_delivery
        self._batch_bytes = self._engine.closing.most_batch_bytes
        self._blocks = settings.oncelog_queue_full == "block"
        self._thread = LoopThread("oncelog-producer")
        self._topics = self._engine.topics
        self._ending = threading.RLock()  # held by the one thread that ends it
        self._finalizer = weakref.finalize(self, _abandon, self._engine, self._thread)
        self._finalizer.atexit = False
        try:
            self._thread.run(begin(self._engine, self._goes_on_as))
        except BaseException:
            self._end()
            raise
        self._watch_forks()

    # --- producing

    def produce(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
        callback: OnDelivery | None = None,
    ) -> None:
        """Take a record. Its delivery report goes to `on_delivery` (alias `callback`), called by `poll` or `flush`.

        Raises BufferError when the queue is full (with oncelog.queue.full=block it waits instead), TypeError and
        ValueError for wrong arguments, KafkaException for records that could never be sent.
        """
        now_s = monotonic_s()
        known = self._topics.get(topic)
        if (
            known is None
            or type(value) is not bytes
            or partition != -1
            or headers is not None
            or timestamp != 0
            or callback is not None
            or not (on_delivery is None or callable(on_delivery))
        ):
            self._produce(topic, value, key, partition, on_delivery or callback, timestamp, headers)
            return
        if key is None and now_s < known.sticky_until_s:
            place = known.sticky
            size_bytes = len(value) + RECORD_OVERHEAD_BYTES
        elif type(key) is bytes and key and known.hash is not None:
            partitions = known.partitions
            place = partitions[known.hash(key) % len(partitions)]
            size_bytes = len(value) + len(key) + RECORD_OVERHEAD_BYTES
        else:
            self._produce(topic, value, key, partition, on_delivery, timestamp, headers)
            return
        budget = self._budget
        if (
            size_bytes > self._most_bytes
            or budget.taken_messages >= budget.ceiling_messages
            or budget.taken_bytes + size_bytes > budget.ceiling_bytes
        ):
            self._produce(topic, value, key, partition, on_delivery, timestamp, headers)
            return
        budget.taken_messages += 1
        budget.taken_bytes += size_bytes
        rows = place.rows
        rows += (key, value, None, now_s, on_delivery or self._on_delivery)
        place.size_bytes = batch_bytes = place.size_bytes + size_bytes
        if not place.is_noticed:
            self._engine.closing.notice(place, now_s)
        if batch_bytes >= self._batch_bytes or len(rows) >= place.most_entries:
            self._engine.closing.close(place)

    def _produce(
        self, topic: Any, value: Any, key: Any, partition: Any, on_delivery: Any, timestamp: Any, headers: Any
    ) -> None:
        check_callback(on_delivery)
        record = self._record(topic, value, key, partition, timestamp, headers)
        if not self._budget.has_room(record.size_bytes):
            if not self._blocks or self._outbox.is_serving():
                # A callback that waited for room would wait for its own reports.
                raise BufferError("Local: Queue full")
            self._wait_until(lambda: self._budget.has_room(record.size_bytes))
        self._put(topic, record, on_delivery or self._on_delivery)

    def send(
        self,
        topic: str,
        data: Any,
        on_delivery: "Callable[[KafkaError | None, BulkSend], object] | None" = None,
    ) -> "BulkSend":
        """Take all rows of an Arrow table or record batch, with columns `value` and, where wanted, `key`, `headers`,
        `partition` and `timestamp`. It waits while queue.buffering.max.kbytes are taken, or much of this very table is
        under way, and serves callbacks meanwhile.

        Nothing is sent when any row is wrong. The outcome of the rows is told by the returned handle, and to
        `on_delivery`, once, from `poll` or `flush`. Needs the extra `[columns]`.
        """
        kind = bulk_module("bulk").BulkWriter
        check_callback(on_delivery)
        writer: BulkWriter = self._begin(kind, topic, data)
        handle = writer.handle
        writer.know(self._thread.run(self._engine.know(topic)))
        handle.kept = self
        if on_delivery is not None:
            outbox = self._outbox
            handle.watch(lambda: outbox.put(handle.error, on_delivery, handle))
        try:
            for piece in writer.pieces():
                self._wait_until(partial(writer.has_room, piece))
                writer.send(piece)
        finally:
            writer.finish()
        return handle

    def send_batches(self, topic: str, partition: int, batches: "Buffer | Sequence[Passed]") -> "BulkSend":
        """Take batches that are encoded already (v2, any codec), as a fetch brings them. Writable bytes are used as
        they lie, and must be left alone until the returned handle is done. It waits as `send` does."""
        raw = bulk_module("raw")
        writer: RawWriter = self._begin(raw.RawWriter, topic, batches)
        writer.know(self._thread.run(self._engine.know(topic)), partition)
        writer.handle.kept = self
        pause = threading.Event()
        try:
            for part in writer.parts():
                if part is None:
                    pause.wait(raw.REPLAY_PAUSE_S)
                    self._check_usable()
                    self._engine.saving.check(topic)
                else:
                    self._wait_until(partial(writer.has_room, part))
                    writer.put(part)
        finally:
            writer.finish()
        return writer.handle

    def _wait_until(self, has_room: Callable[[], bool]) -> None:
        outbox = self._outbox
        while not has_room():
            seen = outbox.changes
            if has_room():
                break
            self._check_usable()
            if outbox.is_serving() or not outbox.serve():
                outbox.wait(seen, WAIT_S)
        self._check_usable()

    # --- what became of it

    def poll(self, timeout: float | None = None) -> int:
        """Serve callbacks, waiting for the first one up to `timeout` seconds (None or less than 0: for ever). Returns
        the number of callbacks served."""
        self._check_usable()
        outbox = self._outbox
        if timeout == 0:
            return outbox.serve()
        end_s = as_end(timeout, monotonic_s())
        while True:
            seen = outbox.changes
            served = outbox.serve()
            if served or not _wait(outbox, seen, end_s):
                return served
            self._check_usable()

    def flush(self, timeout: float | None = None) -> int:
        """Send everything now and wait for every report, serving callbacks; returns the number of records left."""
        self._check_usable()
        return self._flush(timeout)

    def _flush(self, timeout: float | None) -> int:
        budget, outbox = self._budget, self._outbox
        end_s = as_end(timeout, monotonic_s())
        self._engine.flush(+1)
        try:
            while True:
                seen = outbox.changes
                outbox.serve()
                if budget.messages == 0 or not self._finalizer.alive:  # nobody is left who would report the others
                    break
                if not len(outbox) and not _wait(outbox, seen, end_s):
                    break
        finally:
            self._engine.flush(-1)
        outbox.serve()
        return budget.messages

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up what is queued or under way; it is reported as purged by the next `poll` or `flush`."""
        self._check_usable()
        purging = self._purge(in_queue, in_flight)
        if blocking:
            self._thread.run(purging)
        else:
            purging.close()
            self._thread.call_soon(lambda: self._engine.purge(in_queue=in_queue, in_flight=in_flight))

    async def _purge(self, in_queue: bool, in_flight: bool) -> None:
        self._engine.purge(in_queue=in_queue, in_flight=in_flight)

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        """The cluster's brokers and topics, or one topic alone."""
        self._check_usable()
        names, limit_s = named(topic), timeout_s(timeout)
        found = self._thread.run(self._engine.brokers.refresh(names), limit_s)
        return cluster_metadata(found, topic)

    # --- saved, and resumed

    def pin(self, *topics: str) -> None:
        """Say which topics the saved producer is for, before the first record: their partition counts and an identity
        are fixed. Save it then, before producing."""
        self._check_usable()
        check_pinned(topics)
        self._thread.run(self._engine.saving.pin(topics))

    def saved(self) -> "SavedProducer":
        """Wait until every record produced so far is stored, and return the state behind them. The application stores
        it beside its input position, before it produces the next record."""
        self._check_usable()
        return self._thread.run(self._engine.saving.save())

    # --- its end

    def close(self, timeout: float | None = None) -> int:
        """Flush for at most `timeout` seconds, and end. Records not delivered by then are reported as purged; returns
        their number."""
        if self._unusable is not None:
            return 0
        left = self._flush(timeout)
        with self._ending:
            if self._unusable is None:  # nor has another thread closed it meanwhile
                self._unusable, self._topics = CLOSED, {}
                self._end()
        self._outbox.end()
        return left

    def _end(self) -> None:
        """A signal that comes meanwhile leaves no thread behind: nobody calls this twice."""
        try:
            if self._finalizer.alive:
                self._thread.run(self._engine.close())
        finally:
            self._finalizer()
            self._outbox.notify()

    def __enter__(self) -> Self:
        self._check_usable()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An exception, Ctrl-C above all, must get out though no broker answers: records not sent soon are purged."""
        self.close(None if kind is None else FAILED_FLUSH_S)

    def _forked(self) -> None:
        super()._forked()
        self._topics = {}
        self._finalizer.detach()


WAIT_S: Final = 1.0


def _wait(outbox: Outbox, seen: int, end_s: float | None) -> bool:
    """Wait until something has changed; False when the time is over."""
    if end_s is None:
        outbox.wait(seen, WAIT_S)
        return True
    left_s = end_s - monotonic_s()
    if left_s <= 0:
        return False
    outbox.wait(seen, min(left_s, WAIT_S))
    return True


def _abandon(engine: Engine, thread: LoopThread) -> None:
    """Nobody refers to the producer any more: end its thread; what it had not sent is gone, as with confluent-kafka."""
    engine.abandon()
    thread.stop()
