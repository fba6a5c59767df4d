"""Bounds on what connections may hold together: a budget of bytes, and a small pool of large buffers."""

import asyncio
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable

from oncelog.server.turns import called

UNSENT_BYTES = 256 * 2**20  # answers that clients do not take may hold this much; fetches beyond it answer little
FRESH_BYTES = 8 * 2**20  # in a round of the loop: to fill them with zeros takes some 3 ms
MADE_BYTES = 64 * 2**20  # of answers that are being made, once packed; until then they take some three times as much


class Budget:
    """Bytes that may be held at a time. A caller that finds nothing left is called when something is given back: the
    oldest and the newest in turn, so that no crowd keeps another caller out, whether it came before or comes after.

    What was begun may need more before it can end. One holder at a time may then overdraw: else all might wait for each
    other, and the largest frame might never fit.

    Those who hold it may not get on. So now and then one of those who wait is let in although nothing is left
    (`let_in`), until half as much again is held.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._overdrawer: object = None
        self._waiting: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._waiting_for_more: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._is_newest_next = False
        self._lets_in = False

    @property
    def most_bytes(self) -> int:
        return self.limit_bytes + self.limit_bytes // 2

    @property
    def left_bytes(self) -> int:
        return max(self.limit_bytes - self.held_bytes, 0) if self.limit_bytes >= 0 else 2**63 - 1

    def hold(self, size_bytes: int) -> None:
        """Count bytes that are held already, whether there is room for them or not."""
        self.held_bytes += size_bytes

    def take(self, size_bytes: int) -> bool:
        if self.left_bytes == 0 and not self._lets_in:
            return False
        self._lets_in = False
        self.held_bytes += size_bytes
        return True

    def let_in(self) -> None:
        """Let in one of those that need more, since these did get on, and one of those that wait to begin."""
        for waiting, call in ((self._waiting_for_more, self._call_next_for_more), (self._waiting, self._call_next)):
            if waiting and self.held_bytes < self.most_bytes:
                self._lets_in = True
                call()
                self._lets_in = False

    def take_more(self, size_bytes: int, holder: object) -> bool:
        if self.left_bytes == 0 and not (self._lets_in and self.held_bytes + size_bytes <= self.most_bytes):
            if self._overdrawer not in (None, holder):
                return False
            self._overdrawer = holder
        self._lets_in = False
        self.held_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int, holder: object = None) -> None:
        """Give back the bytes of a holder, always all that it has."""
        self.held_bytes -= size_bytes
        if holder is not None and self._overdrawer is holder:
            self._overdrawer = None
        while self._waiting_for_more and (self.left_bytes or self._overdrawer is None):
            self._call_next_for_more()
        while self._waiting and self.left_bytes:
            self._call_next()

    def _call_next_for_more(self) -> None:
        waiting, _ = self._waiting_for_more.popitem(last=False)
        waiting()

    def _call_next(self) -> None:
        self._is_newest_next = not self._is_newest_next
        waiting, _ = self._waiting.popitem(last=not self._is_newest_next)
        waiting()

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._waiting_for_more)

    def wait(self, callback: Callable[[], None]) -> None:
        self._waiting[callback] = None

    def wait_for_more(self, callback: Callable[[], None]) -> None:
        self._waiting_for_more[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        for waiting in (self._waiting, self._waiting_for_more):
            waiting.pop(callback, None)


class LargeBuffers:
    """Buffers for frames that do not fit the shared receive buffer, kept for the next such frame.

    A fresh bytearray is filled with zeros and its pages are new to the process, which costs as much as receiving
    into it does.
    """

    FIRST_BYTES = 2**20 + 2**17  # the largest batch that is accepted by default, and what is around it
    KEPT_BYTES = 4 * 2**20
    KEPT = 8

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size_bytes: int) -> bytearray:
        """A buffer of at least this size, or of FIRST_BYTES for more: it grows as the frame arrives, so that a client
        cannot make memory be filled by announcing a length."""
        wanted = self.first_bytes(size_bytes)
        return self.kept(wanted) or bytearray(min(-(-wanted // 65536) * 65536, self.FIRST_BYTES))

    def kept(self, size_bytes: int) -> bytearray | None:
        """The largest one that is there, if it suffices: the frame then need not grow, which is a copy each time."""
        return self._kept.pop() if self.has(size_bytes) else None

    def has(self, size_bytes: int) -> bool:
        return bool(self._kept) and len(self._kept[-1]) >= size_bytes

    def first_bytes(self, size_bytes: int) -> int:
        return min(size_bytes, self.FIRST_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        """Kept in order of size; when there are enough, the smallest goes."""
        if len(buffer) <= self.KEPT_BYTES:
            insort(self._kept, buffer, key=len)
            if len(self._kept) > self.KEPT:
                del self._kept[0]


class Fresh:
    """Memory that is new to the process: so much of it in each round of the loop, since others wait while it is filled.
    A caller that finds nothing left waits for another round, behind those who wait already."""

    def __init__(self) -> None:
        self._left_bytes = FRESH_BYTES
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_called = False  # one that waited, and has not taken its part yet
        self._is_counting = False

    def take(self, size_bytes: int) -> bool:
        """One may go beyond what is left."""
        if self._left_bytes <= 0 or (self._waiting and not self._is_called):
            return False
        self._is_called = False
        self._left_bytes -= size_bytes
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_round)
        return True

    def wait(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def _next_round(self) -> None:
        self._left_bytes = FRESH_BYTES
        self._is_counting = False
        while self._waiting and self._left_bytes > 0:
            self._is_called = True
            self._waiting.popleft()()
        self._is_called = False


class Answers:
    """The answers that are made of many objects, while they are made. None goes on while too much waits to be taken."""

    def __init__(self, unsent: Budget, is_wanted: Callable[[], None]) -> None:
        self._made = Budget(MADE_BYTES)
        self._unsent = unsent
        self._is_wanted = is_wanted

    @property
    def held_bytes(self) -> int:
        return self._made.held_bytes

    async def hold(self, size_bytes: int, holder: object) -> None:
        while not self._unsent.left_bytes:
            self._is_wanted()
            await called(self._unsent.wait, self._unsent.forget)
        while not self._made.take_more(size_bytes, holder):
            await called(self._made.wait_for_more, self._made.forget)

    def let_go(self, size_bytes: int, holder: object) -> None:
        self._made.give_back(size_bytes, holder)


class Memory:
    """The memory that all connections together may hold."""

    def __init__(self, unserved_bytes: int) -> None:
        self.unserved = Budget(unserved_bytes)  # of large frames on their way
        self.unsent = Budget(UNSENT_BYTES)
        self.large_buffers = LargeBuffers()
        self.fresh = Fresh()
        self.answers = Answers(self.unsent, self.is_wanted)
        self._on_want: Callable[[], None] = lambda: None

    def watch(self, on_want: Callable[[], None]) -> None:
        self._on_want = on_want

    def is_wanted(self) -> None:
        """Somebody waits for memory: from now on, while that is so, it is looked who holds it and does not get on."""
        self._on_want()
