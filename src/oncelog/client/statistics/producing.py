"""Statistics of a producer: its queue, its identity, and each partition that it has written to."""

from collections import defaultdict
from typing import Any

from oncelog.client.producer.engine import Engine
from oncelog.client.statistics.statistics import Statistics
from oncelog.client.statistics.traffic import Carried, Window
from oncelog.clock import monotonic_s
from oncelog.slots import Place
from oncelog.slots.messages import Produce


def count(engine: Engine) -> None:
    """Have the producer's statistics told, where the application wants them."""
    settings = engine.settings
    if settings.statistics_interval_ms and settings.stats_cb is not None and engine.tell_statistics is not None:
        producing = Producing(engine)
        engine.on_produce = producing.produced
        engine.statistics = Statistics(
            "producer", engine.brokers, producing.fields, engine.tell_statistics, settings.statistics_interval_ms
        )


class Producing:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sent: defaultdict[Place, Carried] = defaultdict(Carried)
        self._batch_bytes: defaultdict[str, Window] = defaultdict(Window)
        self._batch_records: defaultdict[str, Window] = defaultdict(Window)

    def produced(self, request: Produce) -> None:
        """A request is on its way."""
        now_ms = int(monotonic_s() * 1000)
        traffic = self._engine.brokers.traffic(request.node_id)
        for batch in request.batches:
            self._sent[batch.place].add(batch.record_count, len(batch.data))
            self._batch_bytes[batch.topic].add(len(batch.data))
            self._batch_records[batch.topic].add(batch.record_count)
            if traffic is not None:
                traffic.retries += batch.attempts > 0
                traffic.queued_us.add(1000 * max(0, now_ms - batch.created_ms))

    def fields(self) -> dict[str, Any]:
        engine = self._engine
        settings, budget = engine.settings, engine.budget
        topics = {
            name: {
                "topic": name,
                "age": int((monotonic_s() - topic.opened_s) * 1000),
                "batchsize": self._batch_bytes[name].take(),
                "batchcnt": self._batch_records[name].take(),
                "partitions": {
                    str(place.partition): self._partition(place.place, place.record_count, place.size_bytes)
                    for place in topic.partitions
                },
            }
            for name, topic in tuple(engine.topics.items())
        }
        return {
            "replyq": engine.reports_waiting(),
            "msg_cnt": budget.messages,
            "msg_size": budget.size_bytes,
            "msg_max": settings.queue_buffering_max_messages,
            "msg_size_max": settings.queue_buffering_max_kbytes * 1024,
            "topics": topics,
            "eos": self._identity(),
        }

    def _partition(self, place: Place, queued_records: int, queued_bytes: int) -> dict[str, Any]:
        leader, epoch = self._engine.brokers.metadata.leader(*place)
        statistics, sent = self._engine.sender.statistics(place), self._sent[place]
        return {
            "partition": place.partition,
            "broker": leader,
            "leader": leader,
            "leader_epoch": epoch,
            "unknown": leader < 0,
            "msgq_cnt": queued_records,
            "msgq_bytes": queued_bytes,
            "xmit_msgq_cnt": statistics.waiting_records,
            "xmit_msgq_bytes": statistics.waiting_bytes,
            "msgs_inflight": statistics.flying_records,
            "next_ack_seq": statistics.acknowledged,
            "producer_id": statistics.identity.pid,
            "producer_epoch": statistics.identity.generation,
            "txmsgs": sent.records,
            "txbytes": sent.size_bytes,
            "msgs": sent.records + statistics.waiting_records + queued_records,
        }

    def _identity(self) -> dict[str, Any]:
        """The identity of InitProducerId, which is one for all partitions; leases stand with each of these."""
        identity = self._engine.sender.identity
        return {
            "idemp_state": "Assigned" if identity.pid >= 0 else "Init",
            "producer_id": identity.pid,
            "producer_epoch": identity.generation,
            "epoch_cnt": self._engine.sender.counters.identities,
        }
