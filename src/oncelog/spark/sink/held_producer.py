"""The producer that a task holds: none before its first row, and none once all of its rows are acknowledged."""

from typing import TYPE_CHECKING

from oncelog.client import SavedProducer
from oncelog.spark.sink.lane import Json
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.warm_worker import Cluster

if TYPE_CHECKING:
    from oncelog.client import KafkaError
    from oncelog.client.door import TransactionName


class HeldProducer:
    def __init__(self, connected: Cluster) -> None:
        self._connected = connected
        self.producer: LaneProducer | None = None

    def start(
        self, saved: SavedProducer, *, is_fresh: bool, transaction: "TransactionName | None" = None
    ) -> LaneProducer:
        producer = self.producer = self._connected.producer(saved)  # held, and so closed, also where it cannot start
        producer.start(saved, is_fresh=is_fresh, transaction=transaction)
        return producer

    def refused(self) -> "KafkaError | None":
        return None if self.producer is None else self.producer.refused()

    def finish(self, producer: LaneProducer) -> Json:
        """The value behind all rows. Another task of this process may have the producer then."""
        saved = producer.finish()
        self.producer = None
        self._connected.release(producer)
        return saved

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close()
            self.producer = None
