"""One connection under quotas: what its requests take, and how long it then stands still.

As Kafka since 2.0 (KIP-219): who took too much is answered at once, the answer says how long to wait, and until then
nothing more is read from the connection. It is closed, and counted as idle, like any other meanwhile.
"""

import asyncio
from collections.abc import Coroutine, Generator
from dataclasses import replace
from datetime import timedelta
from inspect import iscoroutine
from struct import Struct
from typing import Any, Protocol, TypeVar

from oncelog.clock import Clock, Now, monotonic_ns
from oncelog.log.slices import Slice
from oncelog.server.call import Call, Encoded
from oncelog.server.produced import Commit
from oncelog.server.quotas import Quotas
from oncelog.wire.frames import REQUEST_HEAD_BYTES, read_client_id
from oncelog.wire.hot import encode_fetched

FETCH = "fetch"
OF_WHO_SIGNS_IN = frozenset(("sasl_handshake", "sasl_authenticate"))  # as in Kafka, nobody waits for these

Result = TypeVar("Result")
Buffer = bytes | bytearray | memoryview | Slice

_int32 = Struct(">i")


class Muted(Protocol):
    """The connection."""

    principal: str

    def mute(self) -> None:
        """Serve and read nothing more."""

    def unmute(self) -> None: ...


class Come(Muted, Protocol):
    """One that has just been opened."""

    client_host: str
    active_ms: int

    def abort(self) -> None: ...


class Throttle:
    def __init__(self, quotas: Quotas, clock: Clock, connection: Muted) -> None:
        self._quotas = quotas
        self._clock = clock
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None  # while the connection is muted
        self._lap_ns = 0
        self._owed_ns = 0  # spent on its last requests after they were judged
        self._wait_ms = 0  # of the produce request that was staged last

    @property
    def user(self) -> str:
        return self._connection.principal.partition(":")[2]

    def free(self) -> None:
        """Quotas have changed, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._over()

    def _over(self) -> None:
        self._timer = None
        self._connection.unmute()

    def mute(self, kind: str, wait_ms: int) -> None:
        if not self._quotas.is_on:
            return  # the last quota went while this was answered
        self._quotas.note(kind, wait_ms)
        if self._timer is not None:
            self._timer.cancel()
        self._connection.mute()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._over)

    # Produce: what arrived together is staged one by one, and ends with the first that is too much

    def begin(self) -> None:
        """Begin: from now on, time is spent on this connection's requests."""
        self._lap_ns = monotonic_ns()

    def _lap(self) -> int:
        before_ns, self._lap_ns = self._lap_ns, monotonic_ns()
        return self._lap_ns - before_ns

    def produced(self, buffer: bytearray, at: int, end: int, now: Now) -> None:
        """The request whose client id begins at `at` is staged."""
        client_id, _ = read_client_id(buffer, at, end)
        who = self.user, client_id or ""
        spent_ns, self._owed_ns = self._owed_ns + self._lap(), 0
        by_bytes_ms = self._quotas.produced_ms(*who, end - at + REQUEST_HEAD_BYTES, now.monotonic_ms)
        by_time_ms = self._quotas.spent_ms(*who, spent_ns, now.monotonic_ms)
        self._wait_ms = max(by_bytes_ms, by_time_ms)
        if self._wait_ms:
            self.mute("produce" if by_bytes_ms >= by_time_ms else "request", self._wait_ms)

    def committed(self, commit: Commit) -> Commit:
        self._owed_ns += self._lap()
        wait_ms, self._wait_ms = self._wait_ms, 0
        return commit._replace(throttle_ms=wait_ms) if wait_ms else commit

    def timed(self, work: Any) -> Any:
        """Work that is done in turns for its next request."""
        return Timed(work, self) if iscoroutine(work) else work

    def spend(self, spent_ns: int) -> None:
        self._owed_ns += spent_ns

    # The others: a Spending for each

    def spending(self, api: str, client_id: str | None) -> "Spending | None":
        if api in OF_WHO_SIGNS_IN:
            return None
        spent_ns, self._owed_ns = self._owed_ns, 0
        return Spending(self, self._quotas, self._clock, (self.user, client_id or ""), spent_ns)


class Spending:
    """The cost of one request."""

    __slots__ = ("_clock", "_quotas", "_spent_ns", "_throttle", "_who")

    def __init__(self, throttle: Throttle, quotas: Quotas, clock: Clock, who: tuple[str, str], spent_ns: int) -> None:
        self._throttle = throttle
        self._quotas = quotas
        self._clock = clock
        self._who = who
        self._spent_ns = spent_ns

    def spend(self, spent_ns: int) -> None:
        self._spent_ns += spent_ns

    def timed(self, work: Coroutine[Any, Any, Result]) -> "Timed[Result]":
        return Timed(work, self)

    def most_fetched_bytes(self) -> int:
        return self._quotas.most_fetched_bytes(*self._who)

    def answered(self, answer: Any, call: Call) -> Any:
        """The answer with the time to wait in it; where the client must wait, its connection stands still."""
        now_ms = self._clock.now().monotonic_ms
        by_time_ms = self._quotas.spent_ms(*self._who, self._spent_ns, now_ms)
        by_bytes_ms = 0
        if call.api == FETCH and type(answer) is Encoded:
            by_bytes_ms = self._quotas.fetched_ms(*self._who, sum(map(len, answer.buffers)), now_ms)
            if by_bytes_ms:
                call.broker.fetch_sessions.forget(answer.session_id)
                nothing = encode_fetched(call.version, call.correlation_id, ())
                answer = Encoded(nothing, held_bytes=answer.held_bytes)
        wait_ms = max(by_bytes_ms, by_time_ms)
        if not wait_ms:
            return answer
        self._throttle.mute("fetch" if by_bytes_ms >= by_time_ms else "request", wait_ms)
        return told(answer, call, wait_ms)


def told(answer: Any, call: Call, wait_ms: int) -> Any:
    """The answer with this time in it, where its version has a place for it."""
    if type(answer) is not Encoded:
        has_place = hasattr(answer, "throttle_time")
        return replace(answer, throttle_time=timedelta(milliseconds=wait_ms)) if has_place else answer
    at = call.schema.throttle_at
    if at is None:
        return answer
    buffers: list[Buffer] = list(answer.buffers)
    head = bytearray()
    while len(head) < at + _int32.size:
        first = buffers.pop(0)
        head += first.read() if isinstance(first, Slice) else first
    _int32.pack_into(head, at, wait_ms)
    return Encoded([head, *buffers], has_slices=answer.has_slices, held_bytes=answer.held_bytes)


class Spends(Protocol):
    def spend(self, spent_ns: int) -> None: ...


class Timed(Coroutine[Any, Any, Result]):
    """A coroutine of which every step is timed: what it waits in between is nobody's time."""

    __slots__ = ("_spends", "_work")

    def __init__(self, work: Coroutine[Any, Any, Result], spends: Spends) -> None:
        self._work = work
        self._spends = spends

    def send(self, value: Any) -> Any:
        began_ns = monotonic_ns()
        try:
            return self._work.send(value)
        finally:
            self._spends.spend(monotonic_ns() - began_ns)

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        finally:
            del error  # what comes out of the work refers to this frame

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Result]:
        raise TypeError("what is timed is run in a task of its own")


def throttle_of(quotas: Quotas, clock: Clock, connection: Muted, before: Throttle | None) -> Throttle | None:
    """The throttle after quotas have changed; a connection that stands still is judged anew by the next request. None
    where there are none."""
    if before is not None:
        before.free()
    if not quotas.is_on:
        return None
    return before or Throttle(quotas, clock, connection)


def slow_down(quotas: Quotas, connection: Come) -> None:
    """Slow down a client that comes too often: it is refused, and not at once, so that it does not come again at
    once."""
    wait_ms = quotas.connected_ms(connection.client_host, connection.active_ms)
    if wait_ms:
        connection.mute()
        asyncio.get_running_loop().call_later(wait_ms / 1000, connection.abort)
