"""The fate of records: the report of a batch, and the message that a callback gets.

A message is a place in its batch's report. It is made when its callback is called and reads everything else when it is
asked, since most callbacks look only at the error.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import repeat
from sys import getrefcount
from threading import Condition, get_ident
from typing import Any, Final, NamedTuple, cast

from oncelog.client.errors import KafkaError
from oncelog.client.producer.accumulator import Budget, time_ms
from oncelog.client.types import OFFSET_INVALID, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.slots.batch import Batch, split_batch

NO_NUMBER: Final = -1
GIVEN: Final = -1.0  # as the accumulator says it of a time that the user gave
Callback = Callable[[KafkaError | None, "ProducedMessage"], object]


class AllGiven(Sequence[float]):
    """The times of records that have one of their own, all of them; what it is stands in the batch."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return AllGiven(len(range(*at.indices(self._count)))) if isinstance(at, slice) else GIVEN


class Rows(NamedTuple):
    """The rows of a table that are a batch's records."""

    first_row: int  # of the piece of the table that was encoded at once
    parts: Any  # for each row of that piece its partition; None where all go to one
    part: int
    first: int  # the batch's first record among those of its partition

    def row(self, index: int) -> int:
        found = self.first + index
        return self.first_row + (found if self.parts is None else int((self.parts == self.part).nonzero()[0][found]))

    def behind(self, count: int) -> "Rows":
        return self._replace(first=self.first + count)


@dataclass(slots=True, eq=False)
class Records:
    """The application's side of a batch; the columns are there only where somebody is to be told."""

    topic: str
    partition: int
    count: int
    size_bytes: int
    keys: Sequence[bytes | None] | None = None  # None, too, where no record has one
    values: Sequence[bytes | None] | None = None
    headers: Sequence[Any] | None = None
    times: Sequence[float] = ()
    callbacks: Sequence[Any] | None = None
    wall_offset_s: float = 0.0  # what makes wall time of the monotonic clock
    handle: Any = None  # of a bulk send
    rows: Rows | None = None  # of its table

    def give_back(self, budget: Budget) -> None:
        """Give their room back: they are done."""
        budget.give_back(self.size_bytes, self.count, is_bulk=self.handle is not None)

    def cut(self, count: int) -> "tuple[Records, Records]":
        """The first `count` and the others."""
        size_bytes = self.size_bytes * count // self.count
        first = self._piece(slice(None, count), count, size_bytes)
        return first, self._piece(slice(count, None), self.count - count, self.size_bytes - size_bytes)

    def _piece(self, rows: slice, count: int, size_bytes: int) -> "Records":
        def of(column: Any) -> Any:
            return None if column is None else column[rows]

        return replace(
            self,
            count=count,
            size_bytes=size_bytes,
            keys=of(self.keys),
            values=of(self.values),
            headers=of(self.headers),
            times=of(self.times),
            callbacks=of(self.callbacks),
            rows=None if self.rows is None else self.rows.behind(rows.start or 0),
        )


def records_of(batch: Batch) -> Records:
    """The application's side of a batch of the engine's, which makes none without."""
    return cast(Records, batch.payload)


def split(batch: Batch, records: int) -> tuple[Batch, Batch]:
    """The two halves of a batch as the Sender wants them, with the application's side cut along."""
    first, second = split_batch(batch, records)
    if isinstance(batch.payload, Records):
        first.payload, second.payload = batch.payload.cut(records)
    return first, second


@dataclass(slots=True, eq=False)
class Report:
    """The fate of all records of one batch."""

    records: Records
    _: KW_ONLY
    error: KafkaError | None = None
    base_offset: int = OFFSET_INVALID
    append_time_ms: int = NO_NUMBER
    pid: int = NO_NUMBER
    generation: int = NO_NUMBER
    first_sequence: int = NO_NUMBER
    done_s: float = 0.0

    def messages(self) -> "Iterator[tuple[Any, ProducedMessage]]":
        """Every callback with its message, in the order of the records; those without one are left out."""
        callbacks = self.records.callbacks or ()
        every = zip(callbacks, map(ProducedMessage, repeat(self), range(len(callbacks))), strict=True)
        return (pair for pair in every if pair[0] is not None) if None in callbacks else every


class ProducedMessage:
    """A record that was produced, with confluent-kafka's methods and the three numbers that say who produced it."""

    __slots__ = ("_at", "_report")

    def __init__(self, report: Report, at: int) -> None:
        self._report = report
        self._at = at

    def error(self) -> KafkaError | None:
        return self._report.error

    def topic(self) -> str:
        return self._report.records.topic

    def partition(self) -> int:
        return self._report.records.partition

    def offset(self) -> int:
        """The record's offset, or OFFSET_INVALID where that is not known."""
        base = self._report.base_offset
        return base + self._at if base >= 0 else OFFSET_INVALID

    def key(self) -> bytes | None:
        keys = self._report.records.keys
        return None if keys is None else keys[self._at]

    def value(self) -> bytes | None:
        values = self._report.records.values
        return None if values is None else values[self._at]

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        column = self._report.records.headers
        headers = None if column is None else column[self._at]
        return [(name.decode(errors="replace"), value) for name, value in headers] if headers else None

    def timestamp(self) -> tuple[int, int]:
        """The kind of time, and milliseconds since 1970."""
        report = self._report
        if report.append_time_ms >= 0:
            return TIMESTAMP_LOG_APPEND_TIME, report.append_time_ms
        records = report.records
        return TIMESTAMP_CREATE_TIME, time_ms(records.times[self._at], records.wall_offset_s)

    def latency(self) -> float | None:
        """Seconds from `produce` to the answer; None where the user gave the record a time of its own."""
        time = self._report.records.times[self._at]
        return max(0.0, self._report.done_s - time) if time >= 0 else None

    def leader_epoch(self) -> None:
        """Always None: an answer to Produce does not say it."""

    def pid(self) -> int:
        """The producer id that it was sent under, -1 where it was not sent, or without idempotence."""
        return self._report.pid

    def generation(self) -> int:
        return self._report.generation

    def sequence(self) -> int:
        first = self._report.first_sequence
        return (first + self._at) & SEQUENCE_MASK if first >= 0 else NO_NUMBER

    def __len__(self) -> int:
        value = self.value()
        return 0 if value is None else len(value)

    def __bool__(self) -> bool:
        """A record without a value is a record all the same."""
        return True

    def __repr__(self) -> str:
        return f"<Message {self.topic()} [{self.partition()}] @ {self.offset()}, {len(self)} bytes>"


class Outbox:
    """Reports and errors on their way to the application's thread, which is the one that callbacks run in.

    Several threads may poll, flush and wait for room at once. Each notes `changes` before it looks and waits for the
    number to be another one: an event that is set and cleared would be cleared by one thread under another's nose.
    """

    __slots__ = ("_budget", "_condition", "_events", "_is_ended", "_serving", "_waiting", "changes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._events: deque[_Calls | _Callbacks] = deque()
        self._serving: set[int] = set()  # threads
        self.changes = 0  # how often something was put in, or given back to the budget
        self._condition = Condition()
        self._waiting = 0
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, error: Any, call: Callable[[Any, Any], object], about: Any) -> None:
        """Queue a callback, which is to get the error (or None) and the message."""
        self._events.append(_Calls(error, call, about))
        self._has_come()

    def put_report(self, report: Report) -> None:
        """The callbacks of a batch's records; then the records are done."""
        self._events.append(_Callbacks(report))
        self._has_come()

    def _has_come(self) -> None:
        self.notify()
        if self._is_ended:
            self._serve_all()

    def end(self) -> None:
        """Nobody polls any more: what comes late is served by the thread that brings it."""
        self._is_ended = True
        self._has_come()

    def _serve_all(self) -> None:
        """There is no next time: where callbacks raise, the others are called before the first exception is raised."""
        first: Exception | None = None
        while self._events:
            try:
                self.serve()
            except Exception as failure:
                first = first or failure
        if first is not None:
            raise first

    def notify(self) -> None:
        self.changes += 1
        if self._waiting:  # who begins to wait now sees the new number
            with self._condition:
                self._condition.notify_all()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until `changes` is not `seen` any more; False when the time is over."""
        with self._condition:
            self._waiting += 1
            try:
                return self._condition.wait_for(lambda: self.changes != seen, timeout_s)
            finally:
                self._waiting -= 1

    def is_serving(self) -> bool:
        """Whether the calling thread is in a callback just now."""
        return get_ident() in self._serving

    def serve(self) -> int:
        """Call all callbacks that are due, and say how many they were. What a callback raises is the caller's to see;
        those after it are due the next time."""
        if not self._events:
            return 0
        thread = get_ident()
        is_outermost = thread not in self._serving
        self._serving.add(thread)
        try:
            return self._serve()
        finally:
            if is_outermost:
                self._serving.discard(thread)

    def _serve(self) -> int:
        served = 0
        events = self._events
        while events:
            try:
                calls = events.popleft()
            except IndexError:  # another thread serves too
                break
            if calls.records is not None:
                # Before the calls, so that a callback finds room to produce the next record.
                calls.records.give_back(self._budget)
                calls.records = None
                self.notify()
            try:
                served += calls.run()
            except BaseException:
                events.appendleft(calls)
                raise
        return served


class _Calls:
    """One callback that is due."""

    __slots__ = ("_about", "_call", "_error", "records")

    def __init__(self, error: Any, call: Callable[[Any, Any], object], about: Any) -> None:
        self._error = error
        self._call: Callable[[Any, Any], object] | None = call
        self._about = about
        self.records: Records | None = None

    def run(self) -> int:
        call, self._call = self._call, None
        if call is None:
            return 0
        call(self._error, self._about)
        return 1


class _Callbacks:
    """The callbacks of a batch's records that are due, in the order of the records."""

    __slots__ = ("_at", "_report", "records")

    def __init__(self, report: Report) -> None:
        self._report = report
        self._at = 0
        self.records: Records | None = report.records

    def run(self) -> int:
        """Call all that were not called yet. A message that its callback has not kept is the next one's, too: to make
        one takes as long as all the rest."""
        report, error, served = self._report, self._report.error, 0
        callbacks = report.records.callbacks or ()
        message = ProducedMessage(report, 0)
        at = first = self._at
        try:
            for at in range(first, len(callbacks)):
                call = callbacks[at]
                if call is None:
                    continue
                if getrefcount(message) <= _NOBODY_ELSE:
                    message._at = at
                else:
                    message = ProducedMessage(report, at)
                call(error, message)
                served += 1
        finally:
            self._at = at + 1  # one that raises was called
        return served


def _count_references() -> int:
    """The references that this interpreter counts to an object that only a local variable has."""
    alone = object()
    return getrefcount(alone)


_NOBODY_ELSE: Final = _count_references()
