"""What one run of the experiment is: how much is sent, by whom, to whom, and what goes wrong on the way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.chaos.faults import Fault, Kind, seeded_schedule

ONCELOG: Final = "oncelog"
KAFKA: Final = "kafka"
SERVERS: Final = (ONCELOG, KAFKA)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

PRODUCE: Final = "produce"  # Producer.produce, one by one, with a report for each
BULK: Final = "bulk"  # Producer.send, tables
ASYNC: Final = "async"  # AsyncProducer.produce, one by one, with a future for each
WAYS: Final = (PRODUCE, BULK, ASYNC)

VALUE_BYTES: Final = 32
RECORD_BYTES: Final = VALUE_BYTES + 12  # as the producer counts it
PATIENCE_S: Final = 240.0

# REFUSE ends the connection that it hits; CUT has sides and directions of its own.
WEIGHTS: Final[Mapping[Kind, int]] = {Kind.CUT: 5, Kind.SWALLOW: 5, Kind.DELAY: 2, Kind.STALL: 1, Kind.REFUSE: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    server: str = ONCELOG
    way: str = PRODUCE
    codec: str = "none"
    in_flight: int = 5
    partitions: int = 1
    is_idempotent: bool = True
    records: int = 1_000_000
    batch_records: int = 100  # small, so that there are many requests to hit
    answers_between_faults: int = 12
    least_hits: int = 20  # a run in which fewer faults met work in flight has shown nothing
    socket_timeout_ms: int = 400
    stall_ms: int = 600  # the longest: some stalls are waited out and others time out
    seed: int = 1

    def properties(self, servers: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": servers,
            "enable.idempotence": self.is_idempotent,
            "acks": "all",
            "max.in.flight": self.in_flight,
            "compression.type": self.codec,
            "linger.ms": 2,
            "batch.num.messages": self.batch_records,
            "batch.size": self.batch_records * RECORD_BYTES,
            "oncelog.queue.full": "block",
            "queue.buffering.max.messages": 50_000,
            "socket.timeout.ms": self.socket_timeout_ms,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 20,
        }

    def faults(self) -> list[Fault]:
        """Two plans of one seed: what hits Produce, and cuts at a byte of the stream, whatever request that is in."""
        most_answers = 4 * self.records // self.batch_records
        on_produce = seeded_schedule(
            self.seed,
            every=self.answers_between_faults,
            until=most_answers,
            weights=WEIGHTS,
            stall_ms=self.stall_ms,
        )
        bytes_between = 3 * self.answers_between_faults * self.batch_records * RECORD_BYTES
        anywhere = seeded_schedule(
            f"{self.seed} bytes",
            every=bytes_between,
            until=4 * self.records * RECORD_BYTES,
            counter="up bytes",
            api=None,
            weights={Kind.CUT: 1},
        )
        return on_produce + anywhere

    def __str__(self) -> str:
        idempotence = "" if self.is_idempotent else ", idempotence off"
        return (
            f"{self.server}, {self.way}, {self.codec}, {self.in_flight} in flight, {self.partitions} partitions"
            f"{idempotence}, {self.records} records, seed {self.seed}"
        )
