"""What a Python worker keeps from one task to the next: connections, what it read of sinks, producers of lanes.

Spark uses its workers again, so the next batch's task often finds them warm. Nothing here is believed for what it says
of the log: whoever takes it asks what has changed since.
"""

import threading
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from oncelog.client.net.brokers import Brokers
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.properties import producer_settings
from oncelog.client.properties.table import ALIASES
from oncelog.spark.option import BadOption
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.state import SinkLog

T = TypeVar("T")

MOST_CLUSTERS: Final = 8
# What a lane must have, whatever the user says; and what it has unless he says otherwise: Kafka's own time limit, which
# outlives a broker that restarts, and Kafka's own bound of memory.
_DEFAULTS: Final = {"message.timeout.ms": "120000", "queue.buffering.max.kbytes": "32768"}
_ONCE: Final = {"enable.idempotence": ("true", "1"), "request.required.acks": ("all", "-1")}


def lane_properties(options: SinkOptions) -> dict[str, str]:
    """Of the producer of a lane; refuses what would not be exactly once."""
    given = {ALIASES.get(name, name): value for name, value in options.client.items()}
    for name, allowed in _ONCE.items():
        value = given.get(name)
        if value is not None and value.strip().lower() not in allowed:
            raise BadOption(f"'kafka.{name}' = {value}: this sink writes every row once, and needs {allowed[0]}")
    return _DEFAULTS | given


class Cluster:
    """Connections to one cluster, for the states of sinks and for what tasks ask before they write."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = producer_settings({**properties, "allow.auto.create.topics": "false"})
        self.patience_ms = settings.delivery_timeout_ms or (1 << 31) - 1
        self._thread = LoopThread("oncelog-sink")
        self.brokers: Brokers = self._thread.run(_started(settings))
        self.standings: OrderedDict[str, Standing] = OrderedDict()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(coroutine)

    def log(self, sink: str) -> SinkLog:
        return SinkLog(self.brokers, sink, self.patience_ms)

    def close(self) -> None:
        self._thread.run(self.brokers.close())
        self._thread.stop()


async def _started(settings: Any) -> Brokers:
    brokers = Brokers(settings)
    await brokers.start()
    return brokers


_clusters: "OrderedDict[frozenset[tuple[str, str]], Cluster]" = OrderedDict()
_lock: Final = threading.Lock()


def cluster(properties: Mapping[str, str]) -> Cluster:
    """The one that this process has for these properties."""
    key = frozenset(properties.items())
    with _lock:
        found = _clusters.get(key)
        if found is None:
            found = _clusters[key] = Cluster(properties)
        _clusters.move_to_end(key)
        while len(_clusters) > MOST_CLUSTERS:
            _clusters.popitem(last=False)[1].close()
        return found
