"""Every connection, and what they share."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from oncelog.clock import Clock
from oncelog.printable import printable
from oncelog.security.brokers import is_broker
from oncelog.server.api import apis
from oncelog.server.broker import Broker
from oncelog.server.guard import Guard
from oncelog.server.places import Places
from oncelog.server.process import open_files_limit
from oncelog.server.produce import Producing
from oncelog.server.sleepers import Sleepers
from oncelog.server.strangers import Stranger

logger = logging.getLogger(__name__)

RECEIVE_BUFFER_BYTES = 256 * 1024
LINES_PER_SECOND = 10
LET_IN_S = 0.01  # while frames wait for memory: how often one of them is let in over the limit,
CUT_AT_ONCE = 16  # and how many stalled ones lose their connections each time
ROOM_EVERY_MS = 100
MOST_HARMLESS = 100  # a host that has no more than this part of the connections loses none to others
STALLED_MS = 1000  # a large frame that got on so long ago has stalled
STALLED_READER_MS = 30_000  # so has a client that took none of its answers: consumers pause for a while
STALLED_LOOK_S = 0.25
RESERVED_FILES = 512 + 64  # what the logs keep open, and some for everything else
FEWEST_CONNECTIONS = 16


class Open(Protocol):
    """One connection, as the others' bounds see it."""

    client_host: str
    principal: str
    active_ms: int

    @property
    def is_waiting(self) -> bool: ...

    @property
    def is_reading(self) -> bool: ...

    @property
    def kept_bytes(self) -> int: ...

    @property
    def write_buffer_bytes(self) -> int: ...

    @property
    def unread_since_ms(self) -> int | None: ...

    def stalled_since_ms(self, now_ms: int) -> int | None: ...

    def rights_changed(self) -> None: ...

    def quotas_changed(self) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None: ...


class LineLimit:
    """A bound of a few lines a second about bad connections, so that no client can fill the disk with the server's
    log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._written = 0
        self._left_out = 0

    def log(self, level: int, message: str, *values: object, error: BaseException | None = None) -> None:
        second = self._clock.now().monotonic_ms // 1000
        if second != self._second:
            if self._left_out:
                logger.warning("%d more lines like the last ones were left out", self._left_out)
            self._second, self._written, self._left_out = second, 0, 0
        if self._written < LINES_PER_SECOND:
            self._written += 1
            said = (printable(each) if isinstance(each, str) else each for each in values)
            logger.log(level, message, *said, exc_info=error)
        else:
            self._left_out += 1


class Connections:
    """Every connection, and what they share: the receive buffer, the bounds on memory, the staging of produce."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.apis = apis()
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        broker.bodies.lie_in(self.receive_buffer)
        self._memory = broker.memory
        self._memory.watch(self._watch_stalled)
        self.producing = Producing(broker)
        self.sleepers = Sleepers()
        self.shaking_hands: set[Stranger] = set()  # whose TLS is not agreed on yet
        self.encrypted_view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._open: set[Open] = set()
        self._places: Places[Open] = Places()  # of those that are open, but for some that are about to close
        broker.access.tell_changes(self._rights_changed)
        broker.quotas.tell_changes(self._quotas_changed)
        self.lines = LineLimit(broker.clock)
        self._accidents = LineLimit(broker.clock)  # apart, so that garbage cannot hide them
        self.guard = Guard(broker, self.lines.log)
        self._next_room_ms = 0
        self._all_gone = asyncio.Event()
        self._stalled_timer: asyncio.TimerHandle | None = None
        self._let_in_timer: asyncio.TimerHandle | None = None
        self._stalled: list[Open] = []  # with a large frame, those that stalled last come first
        self._most = max(open_files_limit() - RESERVED_FILES, FEWEST_CONNECTIONS)
        if self._most < broker.settings.max_connections:
            logger.info(
                "at most %d connections, since the limit of open files (ulimit -n) is %d",
                self._most,
                open_files_limit(),
            )

    def __len__(self) -> int:
        return len(self._open)

    def each(self) -> list[Open]:
        return list(self._open)

    def may_begin(self, client_host: str) -> bool:
        """Whether there is room for another one."""
        limit = min(self.broker.settings.max_connections, self._most)
        if len(self._open) + len(self.shaking_hands) < limit or self.guard.strangers.make_room():
            return True
        if self._make_room(client_host, limit):
            return True
        self.broker.metrics.connections_refused += 1
        why = "the limit of open files allows" if limit == self._most else "max.connections is"
        self.lines.log(logging.WARNING, "refused %s: %s %d", client_host, why, limit)
        return False

    def _make_room(self, client_host: str, limit: int) -> bool:
        """The host that has most connections loses one to a host that has fewer, so that nobody shuts all others out:
        the one that was silent for longest, of those that wait for nothing. Brokers keep theirs, and so does a host
        that has a hundredth of all. It comes ten times a second at most: to look for it takes up to a millisecond, and
        a newcomer has not said yet who it is."""
        most = self._places.most()
        if len(most) <= max(self._places.count(client_host) + 1, limit // MOST_HARMLESS):
            return False  # first: who has most and comes again and again takes the turn of nobody
        now_ms = self.broker.clock.now().monotonic_ms
        if now_ms < self._next_room_ms:
            return False
        self._next_room_ms = now_ms + ROOM_EVERY_MS
        silent = min(
            (each for each in most if not is_broker(each.principal)),
            key=lambda each: (each.is_waiting, each.active_ms),
            default=None,
        )
        if silent is None:
            return False
        self._places.discard(silent)
        self.log_refused(silent.client_host, "others want to come in, and its host has most connections")
        silent.abort()
        return True

    def add(self, connection: Open) -> bool:
        if not self.may_begin(connection.client_host):
            return False
        self.broker.metrics.connections_accepted += 1
        self._open.add(connection)
        self._places.add(connection)
        self.broker.metrics.connections_open = len(self._open)
        return True

    def remove(self, connection: Open) -> None:
        self._open.discard(connection)
        self._places.discard(connection)
        self.broker.metrics.connections_open = len(self._open)
        if not self._open:
            self._all_gone.set()

    def _rights_changed(self) -> None:
        for connection in self._open:
            connection.rights_changed()

    def _quotas_changed(self) -> None:
        for connection in self._open:
            connection.quotas_changed()

    def _watch_stalled(self) -> None:
        loop = asyncio.get_running_loop()
        if self._stalled_timer is None:
            self._stalled_timer = loop.call_later(STALLED_LOOK_S, self._look_for_stalled)
        if self._let_in_timer is None:
            self._let_in_timer = loop.call_later(LET_IN_S, self._let_in)

    def _let_in(self) -> None:
        """Let in what waits for memory: a frame that is ready to come in whole waits for no holder of memory, which may
        get on or not."""
        self._let_in_timer = None
        self._memory.unserved.let_in()
        now_ms = self.broker.clock.now().monotonic_ms
        for connection in self._stalled[-CUT_AT_ONCE:]:
            since_ms = connection.stalled_since_ms(now_ms)  # None where the connection is gone by now
            if since_ms is not None and since_ms <= now_ms - STALLED_MS and self._memory.unserved.waiting:
                self._cut(connection, "a frame that stalled half-way")
        del self._stalled[-CUT_AT_ONCE:]
        if self._open and self._memory.unserved.waiting:
            self._watch_stalled()

    def _look_for_stalled(self) -> None:
        self._stalled_timer = None
        now_ms = self.broker.clock.now().monotonic_ms
        if self._memory.unserved.waiting:
            self._stalled = _oldest_last(
                ((each.stalled_since_ms(now_ms), each) for each in self._open), now_ms - STALLED_MS
            )
        if not self._memory.unsent.left_bytes:
            readers = ((each.unread_since_ms, each) for each in self._open)
            for connection in _oldest_last(readers, now_ms - STALLED_READER_MS)[-1:]:
                self._cut(connection, "it does not take its answers")
        if self._open and (self._memory.unserved.waiting or not self._memory.unsent.left_bytes):
            self._watch_stalled()

    def _cut(self, connection: Open, reason: str) -> None:
        self.log_refused(connection.client_host, f"{reason}, while others wait for memory")
        connection.abort()

    def close_idle(self) -> None:
        """Close idle connections, in one pass over all; a frame that stopped half-way is no activity."""
        limit_ms = self.broker.settings.connections_max_idle_ms
        before_ms = self.broker.clock.now().monotonic_ms - limit_ms
        for connection in [each for each in self._open if each.active_ms < before_ms and not each.is_waiting]:
            connection.abort()

    async def close_all(self, grace_s: float) -> None:
        """Close every connection; those that do not take their last answers in time are cut."""
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
            self._stalled_timer = None
        if self._let_in_timer is not None:
            self._let_in_timer.cancel()
            self._let_in_timer = None
        for stranger in list(self.shaking_hands):
            stranger.turn_away("the server stops")
        self._all_gone.clear()
        for connection in list(self._open):
            connection.finish()
        if self._open:
            try:
                await asyncio.wait_for(self._all_gone.wait(), grace_s)
            except TimeoutError:
                for connection in list(self._open):
                    connection.abort()
        self.sleepers.close()

    def log_refused(self, client_host: str, reason: str) -> None:
        self.broker.metrics.connections_refused += 1
        self.lines.log(logging.WARNING, "closed the connection of %s: %s", client_host, reason)

    def log_failed(self, client_host: str, what: str, future: "asyncio.Future[Any]") -> None:
        """Nothing, where it was only given up."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, Exception):
            self.log_unexpected(client_host, what, error)

    def log_unexpected(self, client_host: str, what: str, error: BaseException) -> None:
        self._accidents.log(logging.ERROR, "%s of %s failed unexpectedly", what, client_host, error=error)


def _oldest_last(since: Iterable[tuple[int | None, Open]], before_ms: int) -> list[Open]:
    """The connections that have been so since then at the latest."""
    found = [(at_ms, each) for at_ms, each in since if at_ms is not None and at_ms <= before_ms]
    return [each for _, each in sorted(found, key=lambda each: each[0], reverse=True)]
