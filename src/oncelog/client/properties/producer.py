"""What a producer takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.client.properties.common import ClientSettings
from oncelog.client.properties.property import INT_MAX, PRODUCER, boolean, callback, choice, integer, number, text

PARTITIONERS = ("random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PID_MAX = 2**63 - 1
GENERATION_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    # Once, and in order
    enable_idempotence: bool = boolean(
        True,
        "Records are stored once and in order whatever fails. librdkafka's default is false; this client is for it.",
        scope=PRODUCER,
    )
    acks: int = integer(
        -1,
        -1,
        1000,
        "Who must have a record before it counts as sent: `all` (-1) in-sync replicas, the leader (1), or nobody (0).",
        scope=PRODUCER,
        name="request.required.acks",
        aliases=("acks",),
        words={"all": -1},
    )
    retries: int = integer(
        INT_MAX,
        0,
        INT_MAX,
        "How often a request is sent again; delivery.timeout.ms ends it before.",
        scope=PRODUCER,
        name="message.send.max.retries",
        aliases=("retries",),
    )
    delivery_timeout_ms: int = integer(
        300_000,
        0,
        INT_MAX,
        "How long a record may take from produce() to its report, retries included; 0 for ever.",
        scope=PRODUCER,
        name="message.timeout.ms",
        aliases=("delivery.timeout.ms",),
    )
    request_timeout_ms: int = integer(
        30_000, 1, 900_000, "How long the broker may wait for its replicas.", scope=PRODUCER
    )
    oncelog_pid: int | None = integer(
        None, 0, PID_MAX, "Start as this producer, which was saved elsewhere.", scope=PRODUCER
    )
    oncelog_generation: int | None = integer(
        None, 0, GENERATION_MAX, "Its generation (Kafka: producer epoch).", scope=PRODUCER
    )
    oncelog_sequence: int | None = integer(
        None, 0, INT_MAX, "Its next sequence, for every partition it writes to.", scope=PRODUCER
    )

    # Batches
    linger_ms: float = number(
        5.0,
        0.0,
        900_000.0,
        "How long a record waits for others to share its batch.",
        scope=PRODUCER,
        name="queue.buffering.max.ms",
        aliases=("linger.ms",),
    )
    batch_size: int = integer(1_000_000, 1, INT_MAX, "Size of a batch in bytes.", scope=PRODUCER)
    batch_num_messages: int = integer(10_000, 1, 1_000_000, "Records in a batch.", scope=PRODUCER)
    compression_type: str = choice(
        "none",
        {**{codec: codec for codec in CODECS}, "inherit": "none"},
        "How batches are compressed.",
        scope=PRODUCER,
        name="compression.codec",
        aliases=("compression.type",),
    )
    compression_level: int = integer(
        -1, -1, 12, "How hard: gzip goes up to 9, snappy has no levels; -1 is each codec's default.", scope=PRODUCER
    )

    # The queue
    queue_buffering_max_messages: int = integer(
        100_000, 0, INT_MAX, "Records that may be waiting or under way; 0 for no bound.", scope=PRODUCER
    )
    queue_buffering_max_kbytes: int = integer(1_048_576, 1, INT_MAX, "The same in kilobytes.", scope=PRODUCER)
    oncelog_queue_full: str = choice(
        "raise",
        ("raise", "block"),
        "What produce() does when the queue is full: BufferError, as in confluent-kafka, or wait.",
        scope=PRODUCER,
    )

    # Where records go
    partitioner: str = text(
        "consistent_random",
        "How a key chooses its partition: `consistent` is CRC-32, `murmur2` is Java's, `fnv1a` Sarama's; with "
        "`_random` records without a key are spread.",
        scope=PRODUCER,
        words={name: name for name in PARTITIONERS},
    )
    sticky_partitioning_linger_ms: int = integer(
        10,
        0,
        900_000,
        "How long records without a key go to the same partition; twice linger.ms when not given, 0 chooses for each.",
        scope=PRODUCER,
    )

    oncelog_keyless_run: int = integer(
        1,
        1,
        INT_MAX,
        "How many records without a key go to one partition of a pinned topic before the next has its turn; saved with "
        "the producer, and the same wherever it is resumed.",
        scope=PRODUCER,
    )

    # What is told to the application
    delivery_report_only_error: bool = boolean(False, "Reports of success are left out.", scope=PRODUCER)
    on_delivery: Callable[..., Any] | None = callback(  # noqa: RUF009
        "Called with (error, message) for every record that has no callback of its own.", scope=PRODUCER
    )
