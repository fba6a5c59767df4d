"""Connections that outlive what they were opened for: a process that reads a little now and then need not connect anew.

They belong to the process and to one set of properties. There are few of them, the least used goes first, and idle
connections close by themselves. After a fork the child makes its own; the parent's are left alone.
"""

import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.net.retry import Patience, ask
from oncelog.client.properties import ConsumerSettings, consumer_settings

T = TypeVar("T")

MOST: Final = 4
IDLE_MS: Final = (
    240_000  # brokers close what has been idle for ten minutes; a connection that is half closed fails late
)

Key = tuple[tuple[str, str], ...]


# A cluster that was never reached is more likely a wrong address than one that is away for a moment.
FIRST_CONTACT_S: Final = 20.0


class Warm:
    """One cluster, by one set of properties."""

    def __init__(self, settings: ConsumerSettings, thread: LoopThread) -> None:
        self.settings = settings
        self.thread = thread
        self.users = 0
        self.brokers = Brokers(settings, on_error=self._note)
        self._trouble: KafkaError | None = None  # what kept it from being reached last
        self._has_answered = False

    @property
    def servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)

    def ask(self, question: Callable[[], Coroutine[Any, Any, T]], patience: Patience) -> T:
        """The answer, for a thread that waits for it. Until the cluster has answered once, patience is short."""
        if not self._has_answered:
            patience = replace(patience, total_s=min(FIRST_CONTACT_S, patience.total_s))

        async def asked() -> T:
            try:
                answer = await ask(question, patience, failed=self._note, gave_up=lambda _: self._too_late(patience))
            except KafkaException as failure:
                self._has_answered = self._has_answered or failure.error.code() >= 0
                raise
            self._has_answered = True
            return answer

        return self.thread.run(asked())

    def _too_late(self, patience: Patience) -> KafkaException:
        why = "" if self._trouble is None else f": {self._trouble.str()}"
        words = f"{self.servers} did not answer within {patience.total_s:g} s{why}"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))

    def _note(self, error: KafkaError) -> None:
        self._trouble = error


_lock = threading.Lock()
kept: OrderedDict[Key, Warm] = OrderedDict()
_thread: LoopThread | None = None


def warm(properties: Mapping[str, str]) -> Warm:
    """The connections for these properties, which the caller gives back with `cool`."""
    with _lock:
        thread = _running_thread()
        key = tuple(sorted(properties.items()))
        found = kept.get(key)
        if found is None:
            found = Warm(consumer_settings({"connections.max.idle.ms": str(IDLE_MS)} | dict(properties)), thread)
            thread.run(found.brokers.start())
            kept[key] = found
        kept.move_to_end(key)
        found.users += 1
        _close(_surplus())
        return found


def cool(used: Warm) -> None:
    with _lock:
        used.users -= 1


def _surplus() -> list[Warm]:
    """The connections that are too many, the least used first; one that is in use stays."""
    gone = [key for key, each in kept.items() if each.users == 0][: max(0, len(kept) - MOST)]
    return [kept.pop(key) for key in gone]


def _running_thread() -> LoopThread:
    global _thread
    if _thread is None or _thread.is_forked:
        kept.clear()
        _thread = LoopThread("oncelog-reading")
    return _thread


def _close(gone: list[Warm]) -> None:
    for each in gone:
        each.thread.run(each.brokers.close())


def _close_all() -> None:
    global _thread
    with _lock:
        thread, _thread = _thread, None
        gone = list(kept.values())
        kept.clear()
    if thread is not None and not thread.is_forked:
        _close(gone)
        thread.stop()


def _forget_the_parents() -> None:
    """The lock may have been held by a thread that is not there in the child."""
    global _lock
    _lock = threading.Lock()


atexit.register(_close_all)


def _watch_forks() -> None:
    import os

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_the_parents)


_watch_forks()
