"""One broker's connection: requests go out at once, answers come back in their order.

A broker answers the requests of a connection in the order in which they came, so an answer belongs to the oldest
request that waits. One that says otherwise cannot be trusted any more and is closed. So is one whose answer is late:
what became of the requests that wait is then unknown, and every one of them is told so.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ssl import SSLError
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, cast

from oncelog.client.errors import KafkaError, KafkaException, invalid_argument
from oncelog.client.net.tls import tls_failure
from oncelog.client.statistics.traffic import Traffic
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.own import LEASE_PID_KEY, RESUME_PID_KEY
from oncelog.wire.requests import RequestSchema, api_key, known_versions, request_schema

Buffer = bytes | bytearray | memoryview
# the frame is the receiver's to keep; exactly one of the two is there
OnAnswer = Callable[[memoryview | None, KafkaError | None], None]
Build = Callable[[RequestSchema], Any]

_correlation_id = Struct(">i")
_CORRELATION_IDS = 2**31


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker. A bootstrap address has no node id: the broker that listens there is not known."""

    host: str
    port: int
    node_id: int | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{'bootstrap' if self.node_id is None else self.node_id}"


@dataclass(slots=True)
class _Waiting:
    correlation_id: int
    on_answer: OnAnswer
    sent_s: float  # on the loop's clock
    due_s: float


class _Held(NamedTuple):
    buffers: Sequence[Buffer]
    correlation_id: int
    on_answer: OnAnswer | None
    timeout_ms: int | None


class Connection:
    """`opening.open_connection` makes one that is ready to be used."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        client_id: str | None,
        timeout_ms: int,
        on_lost: Callable[["Connection"], None] | None = None,
    ) -> None:
        self.is_closed = False
        self.endpoint = endpoint
        self.client_id = client_id
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.lost_by: KafkaError | None = None
        self.answered_count = 0
        self.traffic: Traffic | None = None  # where it is counted
        self.hint = ""  # what it may mean when the broker closes this connection without one answer
        self.is_refused = False  # that has happened
        self.on_first_answer: Callable[[], None] | None = None
        self._timeout_ms = timeout_ms
        self._on_lost = on_lost
        self._waiting: deque[_Waiting] = deque()
        self._last_correlation_id = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.gone: asyncio.Future[None] = self._loop.create_future()  # done when the transport is gone, too
        self.active_s = self._loop.time()
        self._held: list[_Held] | None = None  # what waits while nothing may be sent
        self._kept: list[asyncio.TimerHandle | asyncio.Task[None]] = []

    # --- what it is

    @property
    def node_id(self) -> int | None:
        return self.endpoint.node_id

    @property
    def is_oncelog(self) -> bool:
        """Whether it grants leases; otherwise it is some other Kafka, or one that binds pids and is used like these."""
        return LEASE_PID_KEY in self.versions

    @property
    def knows_leases(self) -> bool:
        """Whether it fences them, though it may grant none any more."""
        return RESUME_PID_KEY in self.versions

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        """Requests that wait for `release`."""
        return len(self._held or ())

    def version(self, key: int, low: int, high: int) -> int:
        """The newest version of an API that both sides speak, within low ... high."""
        theirs = self.versions.get(key)
        if theirs is not None:
            newest = min(high, theirs[1])
            if newest >= max(low, theirs[0]):
                return newest
        raise KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE, self._unsupported(key, low, high, theirs)))

    def _unsupported(self, key: int, low: int, high: int, theirs: tuple[int, int] | None) -> str:
        if theirs is None:
            return f"{self.endpoint}: the broker has no API {key}; a newer broker may have it"
        side = "broker" if theirs[1] < low else "client"
        return (
            f"{self.endpoint}: the broker speaks API {key} in versions {theirs[0]} to {theirs[1]}, "
            f"wanted is {low} to {high}: a newer {side} is needed"
        )

    # --- requests

    def next_correlation_id(self) -> int:
        self._last_correlation_id = (self._last_correlation_id + 1) % _CORRELATION_IDS
        return self._last_correlation_id

    def send(
        self,
        buffers: Sequence[Buffer],
        correlation_id: int,
        on_answer: OnAnswer | None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send one whole frame. The buffers must not be changed before it is answered; no `on_answer`, no answer."""
        if self.is_closed:
            if on_answer is not None:
                self._loop.call_soon(on_answer, None, self.lost_by)
            return
        if self._held is not None:
            self._held.append(_Held(buffers, correlation_id, on_answer, timeout_ms))
        else:
            self._send(buffers, correlation_id, on_answer, timeout_ms)

    def _send(
        self, buffers: Sequence[Buffer], correlation_id: int, on_answer: OnAnswer | None, timeout_ms: int | None
    ) -> None:
        now_s = self.active_s = self._loop.time()
        if on_answer is not None:
            due_s = now_s + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
            if self._waiting:
                # It cannot be answered before those that were sent before it.
                due_s = max(due_s, self._waiting[-1].due_s)
            self._waiting.append(_Waiting(correlation_id, on_answer, now_s, due_s))
            if self._timer is None or due_s < self._timer.when():
                self._look_at_clock_at(due_s)
        if self.traffic is not None:
            self.traffic.sent(buffers, now_s)
        if self.transport.is_closing():
            return  # a write has failed, and `lost` is to tell it; asyncio warns of all writes in between
        if len(buffers) == 1:
            self.transport.write(buffers[0])
        else:
            self.transport.writelines(buffers)

    def hold(self) -> None:
        """Send nothing until `release`, but what is `is_ahead`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for each in held or ():
            self.send(*each)

    async def request(
        self,
        name: str,
        build: Build,
        *,
        versions: tuple[int, int] | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Ask and wait: `build` makes the request with the schema of the version that both sides speak."""
        low, high = versions or known_versions(name)
        spoken = request_schema(name, self.version(api_key(name), low, high))
        return await self.ask(spoken, build(spoken), timeout_ms)

    async def ask(self, spoken: RequestSchema, request: Any, timeout_ms: int | None = None) -> Any:
        frame = await self.ask_frame(
            lambda correlation_id: spoken.encode(request, correlation_id, self.client_id), timeout_ms
        )
        return self.understood(spoken, frame)

    async def ask_frame(
        self, encode: Callable[[int], bytes], timeout_ms: int | None = None, *, is_ahead: bool = False
    ) -> memoryview:
        answered: asyncio.Future[memoryview] = self._loop.create_future()

        def on_answer(frame: memoryview | None, error: KafkaError | None) -> None:
            if answered.done():
                return
            if frame is not None:
                answered.set_result(frame)
            else:
                assert error is not None
                answered.set_exception(KafkaException(error))

        correlation_id = self.next_correlation_id()
        send = self._send if is_ahead and not self.is_closed else self.send
        send((_encoded(encode, correlation_id),), correlation_id, on_answer, timeout_ms)
        return await answered

    def understood(self, spoken: RequestSchema, frame: memoryview) -> Any:
        """The answer as an entity; a broker that answers rubbish loses its connection."""
        try:
            return spoken.read(frame)
        except MalformedFrame as error:
            raise KafkaException(self.rubbish(str(error))) from None

    # --- answers

    def frame(self, frame: memoryview) -> None:
        if not self._waiting:
            self.rubbish("it answers what nobody asked")
            return
        (correlation_id,) = _correlation_id.unpack_from(frame)
        oldest = self._waiting[0]
        if correlation_id != oldest.correlation_id:
            self.rubbish(f"it answers request {correlation_id} where {oldest.correlation_id} is due")
            return
        self._waiting.popleft()
        self.answered_count += 1
        self.active_s = self._loop.time()
        if self.traffic is not None:
            self.traffic.received(len(frame), self.active_s, oldest.sent_s)
        if self.answered_count == 1 and self.on_first_answer is not None:
            self.on_first_answer()
        oldest.on_answer(frame, None)

    def rubbish(self, what: str) -> KafkaError:
        error = KafkaError(KafkaError._BAD_MSG, f"{self.endpoint}: {what}")
        if self.traffic is not None:
            self.traffic.rubbish += 1
        self.close(error)
        return error

    def _look_at_clock_at(self, due_s: float) -> None:
        """One timer serves all requests. It is not moved when one is answered: it looks again when it comes."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        if not self._waiting or self.is_closed:
            return
        due_s = self._waiting[0].due_s
        if due_s > self._loop.time():
            self._look_at_clock_at(due_s)
            return
        count = len(self._waiting)
        if self.traffic is not None:
            self.traffic.timeouts += count
        words = f"{self.endpoint}: {count} request(s) timed out: disconnected, what became of them is unknown"
        self.close(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))

    # --- the end

    def close(self, error: KafkaError | None = None) -> None:
        """Close at once. Requests that wait for an answer get the error; what became of them is unknown."""
        self._end(
            error or KafkaError(KafkaError._DESTROY, f"{self.endpoint}: the connection was closed by this client")
        )

    def call_later(self, pause_s: float, function: Callable[..., None], *arguments: Any) -> None:
        """A timer that ends with the connection."""
        self._keep(self._loop.call_later(pause_s, function, *arguments))

    def keep(self, task: "asyncio.Task[None]") -> None:
        """A task that ends with the connection."""
        self._keep(task)

    def _keep(self, one: "asyncio.TimerHandle | asyncio.Task[None]") -> None:
        self._kept = [each for each in self._kept if not self._is_over(each)]
        if self.is_closed:
            one.cancel()
        else:
            self._kept.append(one)

    def _is_over(self, one: "asyncio.TimerHandle | asyncio.Task[None]") -> bool:
        return one.done() if isinstance(one, asyncio.Task) else one.when() <= self._loop.time()

    def _end(self, error: KafkaError) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.lost_by = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.transport is not None:
            self.transport.abort()
        for one in self._kept:
            if one is not asyncio.current_task():
                one.cancel()
        self._kept = []
        receivers = [each.on_answer for each in (*self._waiting, *(self._held or ())) if each.on_answer is not None]
        self._waiting, self._held = deque(), None
        if self._on_lost is not None:
            self._on_lost(self)
        for receiver in receivers:
            try:
                receiver(None, error)
            except Exception as accident:  # the others must be told all the same
                self._loop.call_exception_handler({"message": "an answer's receiver failed", "exception": accident})

    # --- its transport

    def made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def lost(self, error: Exception | None) -> None:
        self._end(self._why_lost(error))
        if not self.gone.done():
            self.gone.set_result(None)

    def _why_lost(self, exc: Exception | None) -> KafkaError:
        if isinstance(exc, SSLError):
            return tls_failure(self.endpoint, exc).error
        why = "the broker closed the connection" if exc is None else f"the connection broke: {exc}"
        if self._waiting and not self.answered_count:
            why += self.hint
            self.is_refused = bool(self.hint)
        return KafkaError(KafkaError._TRANSPORT, f"{self.endpoint}: {why}", retriable=True)


def _encoded(encode: Callable[[int], bytes], correlation_id: int) -> bytes:
    try:
        return encode(correlation_id)
    except (ValueError, OverflowError, StructError) as error:
        # A number that no field holds, or a text that is no UTF-8: the application's own, whatever way it came.
        raise invalid_argument(f"no request can carry this: {error}") from None
