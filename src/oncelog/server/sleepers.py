"""Connections that sleep: beyond the first thousand, those by which nothing has come for longest.

The loop goes through all connections that are ready before anything else has its turn, and it takes some ten
microseconds for each that asks or ends. So it watches a thousand; the others are watched by the system alone, and some
of those that are ready are woken in each round of the loop. Where there are fewer connections nothing is done.
"""

import asyncio
import select
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final, Protocol

MOST_AWAKE: Final = 1_000
WOKEN_AT_A_TIME: Final = 100


class Sleeper(Protocol):
    @property
    def active_ms(self) -> int:
        """The time at which something last came by it."""

    @property
    def may_sleep(self) -> bool: ...

    def fall_asleep(self) -> int:
        """The number of the socket that is not read any more; -1 where it was not read anyway."""

    def wake_up(self) -> None:
        """Read this connection again."""


class Sleepers:
    def __init__(self) -> None:
        self._awake: OrderedDict[Sleeper, int] = OrderedDict()  # with its time when it was last looked at
        self._asleep: dict[int, Sleeper] = {}
        self._numbers: dict[Sleeper, int] = {}
        self._epoll: Any = None

    def __len__(self) -> int:
        return len(self._asleep)

    def came(self, sleeper: Sleeper) -> None:
        """Begin to read a connection."""
        if len(self._awake) >= MOST_AWAKE and hasattr(select, "epoll"):
            self._put_one_to_sleep()
        self._awake[sleeper] = sleeper.active_ms

    def forget(self, sleeper: Sleeper) -> None:
        """Forget a connection that ends, or is not read any more."""
        self._awake.pop(sleeper, None)
        number = self._numbers.pop(sleeper, None)
        if number is not None:
            del self._asleep[number]
            if self._epoll is not None:
                with suppress(OSError):  # a socket that is closed already has left by itself
                    self._epoll.unregister(number)

    def close(self) -> None:
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _put_one_to_sleep(self) -> None:
        """Put one to sleep of which nothing has come since it was last looked at; the longest ago comes first."""
        for _ in range(2 * MOST_AWAKE):
            sleeper, seen_ms = self._awake.popitem(last=False)
            active_ms = sleeper.active_ms
            if active_ms == seen_ms and sleeper.may_sleep:
                break
            self._awake[sleeper] = active_ms
        else:
            return
        number = sleeper.fall_asleep()
        if number < 0:
            return
        try:
            if self._epoll is None:
                self._epoll = select.epoll()
                asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._wake_some)
            self._epoll.register(number, select.EPOLLIN | select.EPOLLRDHUP)
        except OSError:  # no more can be opened or watched: it stays awake
            sleeper.wake_up()
            self._awake[sleeper] = active_ms
            return
        self._asleep[number], self._numbers[sleeper] = sleeper, number

    def _wake_some(self) -> None:
        for number, _ in self._epoll.poll(0, WOKEN_AT_A_TIME):
            sleeper = self._asleep.get(number)
            if sleeper is not None:
                self.forget(sleeper)
                sleeper.wake_up()
                self.came(sleeper)
