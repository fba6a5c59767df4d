"""Objects that a Python worker keeps from one task to the next: connections, producers, registers of sinks.

Spark uses its workers again, so the next batch's task finds them warm. Nothing that is kept is believed for what it
says of the log: topics are read on from where they were read to, and a producer goes on as the lane that it is given.
"""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.client import SavedProducer
from oncelog.client.door import (
    Brokers,
    LoopThread,
    ProducerSettings,
    Transaction,
    TransactionName,
    begin_transaction,
    producer_settings,
)
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.state_topic import StateTopic, state_topic

if TYPE_CHECKING:
    from oncelog.spark.sink.lane_producer import LaneProducer

T = TypeVar("T")

MOST_CLUSTERS: Final = 8
MOST_IDLE: Final = 2  # producers of one cluster; each is a thread, its connections and some megabytes
MOST_REGISTERS: Final = 16
FOREVER_MS: Final = (1 << 31) - 1


class Cluster:
    """Connections to one cluster, and the producers that write there. The queries of a driver's process share it, each
    in a thread of its own. It ends with its last user."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = producer_settings(properties)
        self.patience_ms = settings.delivery_timeout_ms or FOREVER_MS
        # Asking for a topic must not make it: a topic that was removed would come back, and empty.
        self._properties = {**properties, "allow.auto.create.topics": "false"}
        self._thread = LoopThread("oncelog-sink")
        try:
            self._brokers: Brokers = self._thread.run(_started(producer_settings(self._properties)))
        except BaseException:
            self._thread.stop()
            raise
        self._lock = threading.Lock()
        self._idle: list[LaneProducer] = []
        self._registers: OrderedDict[str, SinkRegister] = OrderedDict()
        self.destination = Destination(self._brokers, settings)
        weakref.finalize(self, _close, self._thread, self._brokers, self._idle).atexit = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(coroutine)

    def log(self, sink: str) -> StateTopic:
        return state_topic(self._brokers, sink, self.patience_ms)

    # --- transactions

    def begin(self, transactional_id: str, timeout_ms: int) -> TransactionName:
        """All who began before with this id are over."""
        return self.run(begin_transaction(self._brokers, transactional_id, timeout_ms, self.patience_ms / 1000))

    def transaction(self, name: TransactionName) -> Transaction:
        return Transaction(self._brokers, name, self.patience_ms / 1000)

    # --- producers

    def producer(self, saved: SavedProducer) -> "LaneProducer":
        """A producer that goes on as this value, and places records as the value says."""
        from oncelog.spark.sink.lane_producer import LaneProducer  # which drivers do without

        keyless_run = saved.keyless_run
        with self._lock:
            for at, idle in enumerate(self._idle):
                if idle.keyless_run == keyless_run:
                    return self._idle.pop(at)
        return LaneProducer(self._properties, keyless_run)

    def release(self, producer: "LaneProducer") -> None:
        """Everything that it was given is in the log: another task may have it."""
        with self._lock:
            self._idle.append(producer)
            surplus = [self._idle.pop(0) for _ in range(len(self._idle) - MOST_IDLE)]
        for each in surplus:
            each.close()

    # --- sinks

    def register(self, sink: str) -> SinkRegister | None:
        """The register as the sink's topic was read before, to be read on from."""
        return self._registers.get(sink)

    def remember(self, sink: str, register: SinkRegister) -> None:
        with self._lock:
            self._registers[sink] = register
            self._registers.move_to_end(sink)
            while len(self._registers) > MOST_REGISTERS:
                self._registers.popitem(last=False)

    def forget(self, sink: str) -> None:
        with self._lock:
            self._registers.pop(sink, None)


def read_on(
    connected: Cluster,
    sink: str,
    *,
    batch: int | None = None,
    back: int = 0,
    to_end: bool = False,
    is_expected: bool = False,
) -> SinkRegister | None:
    """The register in the sink's topic now; None where there is no such topic. `batch`: the one that is to be run.
    `to_end`: for a caller that appends nothing before it believes it. `is_expected`: for one that would take a missing
    topic for lost."""
    topic, known = connected.log(sink), connected.register(sink)
    if known is None and not connected.run(topic.exists(is_expected=is_expected)):
        return None
    # A register is changed while it is read: if that fails half-way, it is to be read anew.
    connected.forget(sink)
    register = connected.run(topic.read(known, back=back))
    if known is not None and batch is not None and batch > (register.next_batch or 0):
        # Somebody has saved more. A leader that has just become one shows less than there is to who reads on; to who
        # begins at the end it does not tell an end that it cannot vouch for.
        register = connected.run(topic.read(None, back=back))
    if to_end:
        register = connected.run(topic.read_to_end(register))
    connected.remember(sink, register)
    return register


async def _started(settings: ProducerSettings) -> Brokers:
    brokers = Brokers(settings)
    await brokers.start()
    return brokers


def _close(thread: LoopThread, brokers: Brokers, idle: "list[LaneProducer]") -> None:
    for producer in idle:
        producer.close()
    thread.run(brokers.close())
    thread.stop()


kept: "OrderedDict[frozenset[tuple[str, str]], Cluster]" = OrderedDict()
_lock = threading.Lock()
_of_the_parent: Final[list[Cluster]] = []


def cluster(properties: Mapping[str, str]) -> Cluster:
    """The one that this process has for these properties."""
    key = frozenset(properties.items())
    surplus: list[Cluster] = []  # ended outside of the lock, unless somebody uses them still
    with _lock:
        found = kept.get(key)
        if found is None:
            found = kept[key] = Cluster(properties)
        kept.move_to_end(key)
        while len(kept) > MOST_CLUSTERS:
            surplus.append(kept.popitem(last=False)[1])
    return found


def _after_fork() -> None:
    """The child makes its own. The lock may have been held by a thread that is not there; and to end a cluster would
    close what is the parent's."""
    global _lock
    _lock = threading.Lock()
    _of_the_parent.extend(kept.values())
    kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
