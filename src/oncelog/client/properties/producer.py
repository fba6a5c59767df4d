"""Properties of a producer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.client.properties.common import ClientSettings
from oncelog.settings import INT_MAX
from oncelog.settings.declaring import boolean, callback, choice, integer, number, text

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
    )
    acks: int = integer(
        -1,
        "Who must have a record before it counts as sent: `all` (-1) in-sync replicas, the leader (1), or nobody (0).",
        -1,
        1000,
        name="request.required.acks",
        aliases=("acks",),
        words={"all": -1},
    )
    retries: int = integer(
        INT_MAX,
        "How often a request is sent again; delivery.timeout.ms ends it before.",
        0,
        INT_MAX,
        name="message.send.max.retries",
        aliases=("retries",),
    )
    delivery_timeout_ms: int = integer(
        300_000,
        "How long a record may take from produce() to its report, retries included; 0 for ever.",
        0,
        INT_MAX,
        name="message.timeout.ms",
        aliases=("delivery.timeout.ms",),
    )
    request_timeout_ms: int = integer(30_000, "How long the broker may wait for its replicas.", 1, 900_000)
    oncelog_pid: int | None = integer(None, "Start as this producer, which was saved elsewhere.", 0, PID_MAX)
    oncelog_generation: int | None = integer(None, "Its generation (Kafka: producer epoch).", 0, GENERATION_MAX)
    oncelog_sequence: int | None = integer(None, "Its next sequence, for every partition it writes to.", 0, INT_MAX)

    # Batches
    linger_ms: float = number(
        5.0,
        "How long a record waits for others to share its batch.",
        0.0,
        900_000.0,
        name="queue.buffering.max.ms",
        aliases=("linger.ms",),
    )
    batch_size: int = integer(1_000_000, "Size of a batch in bytes.", 1, INT_MAX)
    batch_num_messages: int = integer(10_000, "Records in a batch.", 1, 1_000_000)
    compression_type: str = choice(
        "none",
        "How batches are compressed.",
        dict(zip(CODECS, CODECS, strict=True)) | {"inherit": "none"},
        name="compression.codec",
        aliases=("compression.type",),
    )
    compression_level: int = integer(
        -1, "How hard: gzip goes up to 9, snappy has no levels; -1 is each codec's default.", -1, 12
    )

    # The queue
    queue_buffering_max_messages: int = integer(
        100_000, "Records that may be waiting or under way; 0 for no bound.", 0, INT_MAX
    )
    queue_buffering_max_kbytes: int = integer(1_048_576, "The same in kilobytes.", 1, INT_MAX)
    oncelog_queue_full: str = choice(
        "raise",
        "What produce() does when the queue is full: BufferError, as in confluent-kafka, or wait.",
        ("raise", "block"),
    )

    # Where records go
    partitioner: str = text(
        "consistent_random",
        "How a key chooses its partition: `consistent` is CRC-32, `murmur2` is Java's, `fnv1a` Sarama's; with "
        "`_random` records without a key are spread.",
        words=PARTITIONERS,
    )
    sticky_partitioning_linger_ms: int = integer(
        10,
        "How long records without a key go to the same partition; twice linger.ms when not given, 0 chooses for each.",
        0,
        900_000,
    )

    oncelog_keyless_run: int = integer(
        1,
        "How many records without a key go to one partition of a pinned topic before the next has its turn; saved with "
        "the producer, and the same wherever it is resumed.",
        1,
        INT_MAX,
    )

    # What is told to the application
    delivery_report_only_error: bool = boolean(False, "Reports of success are left out.")
    on_delivery: Callable[..., Any] | None = callback(
        "Called with (error, message) for every record that has no callback of its own."
    )
