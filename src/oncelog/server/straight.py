"""Large answers, sent from a segment's file straight to the socket: the records need not pass through this process.

Only what leaves at once goes this way, within the turn of the loop in which it was found, and only while the transport
has nothing left to send. The rest is read and given to the transport, which knows how to wait for a slow client. So
nothing refers to a segment later on, and the order of answers and the bounds on memory stay the transport's.

It is not always the faster way. The kernel hands the records over in pieces of 64 KB and wakes the client at each. A
client on a core of its own is served in three quarters of the time; one that shares the core interrupts the server at
each piece, and an answer takes twice the time (docs/benchmarks.md). So each connection finds out which way is its own.
"""

import socket
from asyncio import Transport
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from oncelog.log.slices import Slice

Answer = bytes | bytearray | memoryview

STRAIGHT_BYTES = 64 * 1024  # less than this is copied sooner than arranged for
TRIAL_ANSWERS = 8  # of which the first does not count
LONG_RUN_ANSWERS = 256
FIRST_RUN_ANSWERS = 48  # straight; fewer would tell more about a young connection's small window than about the way
LONGEST_S = 0.02  # a client that asks again later than this was busy with other things

_NOW = socket.MSG_DONTWAIT
_MORE_FOLLOWS = _NOW | getattr(socket, "MSG_MORE", 0)  # so that the head does not leave as a packet of its own


class Pace:
    """Whether to send straight, from how soon the client asked again after the last answers of either kind.

    Answers go in runs: a long one the way that was faster, then a short one the other way, to see what has changed.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._s_per_byte: dict[bool, float] = {}  # by way: straight or not
        self._is_straight = True
        self._is_long = True
        self._left = FIRST_RUN_ANSWERS
        self._run_s = 0.0
        self._run_bytes = 0
        self._since_s = 0.0
        self._size_bytes = 0  # of the last answer; 0 where it does not count

    def is_straight(self, size_bytes: int) -> bool:
        """The way for an answer of this size, which is about to be sent."""
        now_s = self._clock()
        took_s = now_s - self._since_s
        if self._size_bytes and took_s <= LONGEST_S:
            self._run_s += took_s
            self._run_bytes += self._size_bytes
        self._since_s, self._size_bytes = now_s, size_bytes
        if self._left == 0:
            self._begin_run()
            self._size_bytes = 0  # the first of a run still feels the way before
        self._left -= 1
        return self._is_straight

    def _begin_run(self) -> None:
        known = self._s_per_byte
        if self._run_bytes:
            known[self._is_straight] = self._run_s / self._run_bytes
        self._run_s, self._run_bytes = 0.0, 0
        self._is_long = not self._is_long and len(known) == 2
        self._is_straight = known[True] < known[False] if self._is_long else not self._is_straight
        self._left = LONG_RUN_ANSWERS if self._is_long else TRIAL_ANSWERS


class Straight:
    """One connection's way past its transport. The transport's write buffer must be empty whenever it is used."""

    def __init__(self, fileno: int, family: int, kind: int, protocol: int) -> None:
        # The transport's own descriptor: it is never closed here, only let go.
        self._socket = socket.socket(family, kind, protocol, fileno)
        self.pace = Pace()

    @classmethod
    def past(cls, transport: Transport) -> "Straight | None":
        """None where bytes may not go past the transport, because it changes them on their way (TLS)."""
        sock = transport.get_extra_info("socket")
        if sock is None or transport.get_extra_info("sslcontext") is not None:
            return None
        return cls(sock.fileno(), sock.family, sock.type, sock.proto)

    def let_go(self) -> None:
        self._socket.detach()

    def send(self, buffers: Sequence[Answer | Slice]) -> tuple[int, list[Answer]]:
        """The number of bytes that the socket took at once, and the rest, read."""
        sent_bytes = 0
        last = len(buffers) - 1
        for number, each in enumerate(buffers):
            if isinstance(each, Slice):
                taken = each.send_to(self._socket.fileno())
            else:
                taken = self._send(each, _NOW if number == last else _MORE_FOLLOWS)
            sent_bytes += taken
            if taken < len(each):
                return sent_bytes, [_rest(each, taken), *read_all(buffers[number + 1 :])]
        return sent_bytes, []

    def _send(self, data: Answer, flags: int) -> int:
        try:
            return self._socket.send(data, flags)
        except OSError:  # no room; or the client is gone, which the transport finds out by itself
            return 0


def read_all(buffers: Iterable[Answer | Slice]) -> list[Answer]:
    return [_rest(each, 0) for each in buffers]


def _rest(each: Answer | Slice, sent_bytes: int) -> Answer:
    if isinstance(each, Slice):
        return each.rest(sent_bytes)
    return memoryview(each)[sent_bytes:] if sent_bytes else each
