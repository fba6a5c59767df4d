"""What a Python worker keeps from one task to the next: connections, and producers of lanes.

Spark uses its workers again, so the next batch's task often finds them warm. Nothing that is kept is believed for what
it says of the log. A producer goes on only where the driver has saved exactly what it said at its last end, and nobody
else has marked the lane's next batch.
"""

import threading
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from oncelog.client.net.brokers import Brokers
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.properties import ProducerSettings, producer_settings
from oncelog.client.saving.saved import SavedProducer
from oncelog.spark.sink.checking import lane_properties as lane_properties
from oncelog.spark.sink.destination import Destination, KafkaDestination
from oncelog.spark.sink.lane import Json
from oncelog.spark.sink.lane_producer import KafkaLaneProducer, LaneProducer
from oncelog.spark.sink.state import SinkTopic

T = TypeVar("T")

MOST_CLUSTERS: Final = 8
MOST_PRODUCERS: Final = 4  # of one cluster; each is a thread, its connections and some megabytes
FOREVER_MS: Final = (1 << 31) - 1


class Cluster:
    """Connections to one cluster, and the producers that write there."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = producer_settings(properties)
        self.patience_ms = settings.delivery_timeout_ms or FOREVER_MS
        # Asking for a topic must not make it: a topic that was removed would come back, and empty.
        self._properties = {**properties, "allow.auto.create.topics": "false"}
        self._thread = LoopThread("oncelog-sink")
        self._brokers: Brokers = self._thread.run(_started(producer_settings(self._properties)))
        self._producers: OrderedDict[tuple[str, int], tuple[LaneProducer, Json]] = OrderedDict()
        self.destination: Destination = KafkaDestination(self._brokers, settings)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(coroutine)

    def log(self, sink: str) -> SinkTopic:
        return SinkTopic(self._brokers, sink, self.patience_ms)

    # --- producers

    def producer(self, saved: Json) -> LaneProducer:
        """A new one, which is to go on as this value, in the way that the value places records."""
        return KafkaLaneProducer(self._properties, SavedProducer.from_json(saved).keyless_run)

    def keep(self, sink: str, lane: int, producer: LaneProducer, saved: Json) -> None:
        """For the lane's next task, should it come here."""
        kept = self._producers.pop((sink, lane), None)
        if kept is not None:
            kept[0].close()
        self._producers[sink, lane] = producer, saved
        while len(self._producers) > MOST_PRODUCERS:
            self._producers.popitem(last=False)[1][0].close()

    def take(self, sink: str, lane: int, saved: Json) -> LaneProducer | None:
        """The one that was kept, if it stands exactly there."""
        kept = self._producers.pop((sink, lane), None)
        if kept is None or kept[1] == saved:
            return None if kept is None else kept[0]
        kept[0].close()
        return None

    def close(self) -> None:
        for producer, _ in self._producers.values():
            producer.close()
        self._thread.run(self._brokers.close())
        self._thread.stop()


async def _started(settings: ProducerSettings) -> Brokers:
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
