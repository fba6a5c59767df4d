"""Records into batches: when, by whom, and how many at a time.

A batch is made as soon as there is enough for a full one, by the thread that brought the last record: it may as well
work as wait. What is too little is closed by the engine when it has lingered long enough. But taking the interpreter
over from a thread that produces without a pause costs milliseconds, so such a thread is asked first to do it itself.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.client.errors import KafkaError
from oncelog.client.producer.accumulator import COLUMNS, TIME, Unbatched
from oncelog.client.producer.delivery import Records, Report, records_of
from oncelog.client.producer.encoding import Encoder
from oncelog.clock import monotonic_s, wall_s
from oncelog.records.codecs import CODECS
from oncelog.slots.batch import Batch

if TYPE_CHECKING:
    from oncelog.client.properties import ProducerSettings

# Batches of a partition that are encoded and not acknowledged; records behind them wait as they are, in less memory.
MOST_MADE: Final = 10
# What a request takes beside its batches; message.max.bytes counts it too.
REQUEST_OVERHEAD_BYTES: Final = 1024
# So long before records are due, the producing thread is asked to close the batch.
ASK_S: Final = 0.002
WALL_OFFSET_KEPT_S: Final = 1.0


class Owner(Protocol):
    """The engine, as this module needs it."""

    def report(self, report: Report) -> None: ...

    def wake(self) -> None: ...


class BulkRows(list[Any]):
    """Rows that came from a bulk send, which is told what becomes of them."""

    handle: Any = None


class Replaying(Protocol):
    """Whether anything may be written, and what is compared with what stands in the log already."""

    @property
    def failure(self) -> KafkaError | None: ...

    def failed(self, records: Records, error: KafkaError) -> None: ...

    def offer(self, partition: Unbatched, rows: list[Any], records: Callable[[list[Any]], Records]) -> list[Any]: ...


class Closing:
    saving: Replaying

    def __init__(self, settings: "ProducerSettings", owner: Owner) -> None:
        self.most_batch_records = settings.batch_num_messages
        self.most_batch_bytes = max(1, min(settings.batch_size, settings.message_max_bytes - REQUEST_OVERHEAD_BYTES))
        self.codec = CODECS[settings.compression_type]
        self.level = settings.compression_level
        self.made: deque[Batch] = deque()  # on their way to the Sender
        self.flushes = 0  # how many are flushing: then nothing lingers
        self.is_timed = False  # the engine will look before anything new is due
        self.keeps_times = False
        self.ended: KafkaError | None = None  # what is handed over from then on is reported with it
        self._owner = owner
        self._encoder = Encoder(
            self.codec, self.most_batch_bytes, self.level, is_stamped_later=settings.enable_idempotence
        )
        self._most_entries = self.most_batch_records * COLUMNS
        self._max_in_flight = settings.max_in_flight
        self._linger_s = settings.linger_ms / 1000
        self._ask_s = min(ASK_S, self._linger_s / 2)
        self._noticed: deque[Unbatched] = deque()
        # With records in no batch, and when to look after them; the first is due first.
        self._open: OrderedDict[Unbatched, float] = OrderedDict()
        self._deferred: set[Unbatched] = set()  # due, but with enough batches before them
        self._refused: set[Unbatched] = set()  # with chunks, when another thread had the lock
        self._unmade: deque[tuple[Records, KafkaError]] = deque()  # whose batch failed, until they are reported
        self._engines_thread = 0  # until it has had a turn
        self._wall_offset_s = wall_s() - monotonic_s()
        self._wall_offset_at_s = monotonic_s()

    # --- from any thread

    def notice(self, partition: Unbatched, now_s: float) -> None:
        """The first record after a while has come."""
        partition.opened_s = now_s
        partition.is_noticed = True
        self._noticed.append(partition)
        if self.ended is not None:
            self._give_up(partition, self.ended)
        elif not self.is_timed or self.flushes or not self._linger_s:
            self._owner.wake()

    def is_full(self, partition: Unbatched) -> bool:
        return partition.size_bytes >= self.most_batch_bytes or partition.record_count >= self.most_batch_records

    def close(self, partition: Unbatched, *, everything: bool = False) -> bool:
        """Make batches of what is there, of what is too little for a full one only with `everything`. False: somebody
        else is at it, and wakes the engine when it is done."""
        if self.ended is not None:
            self._give_up(partition, self.ended)
            return True
        if not partition.lock.acquire(blocking=False):
            return False
        try:
            self._take(partition, everything=everything or partition.is_wanted)
            while partition.chunks and partition.batches_under_way < MOST_MADE:
                if not self._encode_next(partition):
                    break
        except BaseException:  # a signal, most likely: the engine does the rest
            if get_ident() != self._engines_thread:
                self._noticed.append(partition)
            raise
        finally:
            partition.lock.release()
            self._owner.wake()
        return True

    def put(self, partition: Unbatched, batches: Sequence[Batch]) -> None:
        """Batches that are made elsewhere, behind all that was produced before. Their room is taken: where this raises,
        be it at a signal, they are reported."""
        left = batches
        try:
            with partition.lock:
                self._take(partition, everything=True)
                while partition.chunks and self._encode_next(partition):
                    pass
                failure = self.saving.failure or self.ended
                if failure is None:
                    partition.made_batches += len(batches)
                    left = ()  # no signal comes between this step and the next
                    self.made.extend(batches)
        except BaseException as raised:
            failure = KafkaError(KafkaError._FAIL, f"it was not handed over: {raised!r}")
            raise
        finally:
            for batch in left:
                self._owner.report(Report(records_of(batch), error=failure))
        self._owner.wake()

    def put_rows(self, partition: Unbatched, rows: BulkRows) -> None:
        """Rows of a bulk send that are not made batches of yet, because they are to be compared first."""
        with partition.lock:
            self._take(partition, everything=True)
            partition.chunks.append(rows)
        self.close(partition)

    def _give_up(self, partition: Unbatched, error: KafkaError) -> None:
        """Report what came after the engine had given up all that it knew of: it looks at nothing more."""
        for records in self.drop(partition):
            self._owner.report(Report(records, error=error, done_s=monotonic_s()))

    def wall_offset_s(self) -> float:
        """The offset from the monotonic clock to wall time."""
        now_s = monotonic_s()
        if now_s - self._wall_offset_at_s > WALL_OFFSET_KEPT_S:
            self._wall_offset_s, self._wall_offset_at_s = wall_s() - now_s, now_s
        return self._wall_offset_s

    def records(self, partition: Unbatched, rows: list[Any], handle: Any = None) -> Records:
        """The records that a report about these rows names."""
        records = self._encoder.records(partition.topic, partition.partition, rows, self.wall_offset_s())
        records.handle = handle
        return records

    def _take(self, partition: Unbatched, *, everything: bool) -> None:
        """Make chunks of what fills whole batches; with `everything` of the rest, too."""
        if everything:
            partition.is_wanted = False
            partition.most_entries = self._most_entries
            partition.is_noticed = False  # before they are taken: what comes from here on is noticed anew
        while partition.rows and (everything or self.is_full(partition)):
            partition.chunks.append(partition.take(self.most_batch_records))

    def _encode_next(self, partition: Unbatched) -> bool:
        """The oldest chunk; False where it must wait."""
        rows = partition.chunks[0]
        handle = rows.handle if isinstance(rows, BulkRows) else None
        failure = self.saving.failure or self.ended
        if failure is None and partition.replay is None:
            self._encode(partition, rows, handle)
            return True
        partition.chunks.popleft()
        if failure is not None:
            self._owner.report(Report(self.records(partition, rows, handle), error=failure, done_s=monotonic_s()))
        else:
            rest = self.saving.offer(partition, rows, partial(self.records, partition, handle=handle))
            if rest:
                if handle is not None:
                    rest = BulkRows(rest)
                    rest.handle = handle
                partition.chunks.appendleft(rest)
                return False
        return True

    def _encode(self, partition: Unbatched, rows: list[Any], handle: Any) -> None:
        """The rows of the oldest chunk, which leave it with their last step: a signal may come at any time before."""
        try:
            batches = self._batches(partition, rows, handle)
        except BaseException as failure:
            if get_ident() == self._engines_thread:
                partition.chunks.popleft()  # they would be in the way at every turn
                error = KafkaError(KafkaError._FAIL, f"no batch could be made of the records: {failure!r}")
                self._unmade.append((self.records(partition, rows, handle), error))
            raise
        count = len(batches)
        try:
            partition.chunks.popleft()
        finally:
            partition.made_batches += count
            self.made.extend(batches)
        remaining = partition.rows[TIME : TIME + 1]
        if remaining and remaining[0] >= 0:
            partition.opened_s = remaining[0]

    def _batches(self, partition: Unbatched, rows: list[Any], handle: Any) -> list[Batch]:
        first_s = rows[TIME] if rows[TIME] >= 0 else partition.opened_s
        if handle is not None:
            first_s = monotonic_s()  # rows of a bulk send that a replay held up; nobody noticed them before
        encoded = self._encoder.encode(
            partition.topic, partition.partition, rows, self.wall_offset_s(), keeps_times=self.keeps_times
        )
        batches: list[Batch] = []
        for data, records in encoded:
            records.handle = handle
            batches.append(
                Batch(partition.topic, partition.partition, data, records.count, int(first_s * 1000), records)
            )
        return batches

    # --- from the engine's thread

    def close_due(self, now_s: float) -> None:
        """Close the chunks that have lingered long enough."""
        self._engines_thread = get_ident()
        self._report_unmade()
        if self._refused:
            refused, self._refused = self._refused, set()
            self._refused.update(each for each in refused if each.chunks and not self.close(each))
        waiting = self._open
        while self._noticed:
            partition = self._noticed.popleft()
            waiting.setdefault(partition, partition.opened_s + self._linger_s - self._ask_s)
        for partition, due_s in tuple(waiting.items()):
            if due_s > now_s and not self.flushes:
                break
            really_due_s = partition.opened_s + self._linger_s
            if self.flushes or not self._ask_s or (partition.is_wanted and really_due_s <= now_s):
                if self._close_now(partition):
                    del waiting[partition]
                continue
            del waiting[partition]
            if really_due_s - self._ask_s <= now_s:
                self._ask(partition, max(really_due_s, now_s + self._ask_s))
            else:
                # Older records have left in a full batch meanwhile.
                waiting[partition] = really_due_s - self._ask_s

    def end(self, error: KafkaError) -> None:
        """Nothing more is sent: what comes from here on is reported with this error."""
        self.ended = error
        self._report_unmade()

    def _report_unmade(self) -> None:
        while self._unmade:
            records, error = self._unmade.popleft()
            self._owner.report(Report(records, error=error, done_s=monotonic_s()))
            self.saving.failed(records, error)

    def _ask(self, partition: Unbatched, until_s: float) -> None:
        """Have it closed by a producing thread, or by the engine when none did until then."""
        partition.is_wanted = True
        partition.most_entries = 0
        self._open[partition] = until_s
        self._open.move_to_end(partition, last=False)

    def next_due_s(self) -> float | None:
        return next(iter(self._open.values()), None)

    def timed(self, wait_s: float) -> None:
        """The engine's next turn comes by itself after this time."""
        self.is_timed = wait_s <= self._linger_s - self._ask_s
        if self._noticed:
            self._owner.wake()

    def done(self, partition: Unbatched) -> None:
        """A batch of the partition is acknowledged, or was given up."""
        if partition in self._deferred and not self._is_backed_up(partition):
            self._deferred.discard(partition)
            self._ask(partition, monotonic_s() + self._ask_s)
        elif partition.chunks and not self.close(partition):
            # The holder of the lock may have found too many batches under way a moment ago, and do no more.
            self._refused.add(partition)

    def pending(self, partition: Unbatched) -> int:
        """Records that were handed over and did not go to the Sender."""
        with partition.lock:  # nobody is making batches of them now
            count = partition.record_count + sum(len(rows) // COLUMNS for rows in partition.chunks)
            mine = (each for each in self.made if (each.topic, each.partition) == partition.place)
            unmade = (each for each, _ in self._unmade if (each.topic, each.partition) == partition.place)
            return count + sum(batch.record_count for batch in mine) + sum(records.count for records in unmade)

    def drop(self, partition: Unbatched) -> list[Records]:
        """Take out what is in no batch yet; what is to be reported of it."""
        with partition.lock:
            self._take(partition, everything=True)
            chunks = list(partition.chunks)
            partition.chunks.clear()
        return [self.records(partition, rows, getattr(rows, "handle", None)) for rows in chunks]

    def _close_now(self, partition: Unbatched) -> bool:
        if self._is_backed_up(partition) and not self.is_full(partition):
            self._deferred.add(partition)  # a small batch behind others would only wait there
            return True
        return self.close(partition, everything=True)

    def _is_backed_up(self, partition: Unbatched) -> bool:
        return partition.batches_under_way >= self._max_in_flight
