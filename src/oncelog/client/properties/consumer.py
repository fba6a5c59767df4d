"""What a consumer takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.client.properties.common import DAY_MS, HOUR_MS, ClientSettings
from oncelog.client.properties.property import CONSUMER, INT_MAX, boolean, callback, choice, converted, integer, text

OFFSET_RESETS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
    "error": "error",
}


def parse_assignors(written: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in written.split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    # The group
    group_id: str | None = text(
        None,
        "The group to read with. librdkafka wants one always; here only subscribe() and commit() do.",
        scope=CONSUMER,
    )
    group_instance_id: str | None = text(
        None, "A name that survives restarts: the member that bears it keeps its partitions meanwhile.", scope=CONSUMER
    )
    group_protocol_type: str = text("consumer", "The kind of group.", scope=CONSUMER)
    partition_assignment_strategy: tuple[str, ...] = converted(
        ("range", "roundrobin"),
        parse_assignors,
        "How partitions are shared, the most wanted first: range, roundrobin, sticky, cooperative-sticky. The last one "
        "takes partitions away one by one and cannot stand beside the others.",
        scope=CONSUMER,
    )
    session_timeout_ms: int = integer(
        45_000, 1, HOUR_MS, "A member that was not heard of for this long is out of the group.", scope=CONSUMER
    )
    heartbeat_interval_ms: int = integer(3000, 1, HOUR_MS, "How often a member is heard of.", scope=CONSUMER)
    max_poll_interval_ms: int = integer(
        300_000, 1, DAY_MS, "An application that did not poll for this long leaves the group.", scope=CONSUMER
    )

    # Positions
    enable_auto_commit: bool = boolean(True, "Whether positions are committed by themselves.", scope=CONSUMER)
    auto_commit_interval_ms: int = integer(5000, 0, DAY_MS, "How often.", scope=CONSUMER)
    enable_auto_offset_store: bool = boolean(
        True,
        "Whether a record counts as done when it is handed out; otherwise store_offsets() says so.",
        scope=CONSUMER,
    )
    auto_offset_reset: str = choice(
        "latest",
        OFFSET_RESETS,
        "Where to begin without a position, or with one that is not in the log: earliest, latest, or with an error.",
        scope=CONSUMER,
    )
    isolation_level: str = choice(
        "read_committed",
        ("read_uncommitted", "read_committed"),
        "Whether records of transactions that are open or were aborted are handed out.",
        scope=CONSUMER,
    )

    # Fetching
    fetch_min_bytes: int = integer(
        1, 0, INT_MAX, "The broker answers when it has this much, 1 to 100,000,000 bytes.", scope=CONSUMER
    )
    fetch_wait_max_ms: int = integer(500, 0, 300_000, "It answers with less after this time.", scope=CONSUMER)
    fetch_max_bytes: int = integer(
        52_428_800,
        0,
        INT_MAX - 512,
        "Size of an answer; brought between message.max.bytes and queued.max.messages.kbytes when not given.",
        scope=CONSUMER,
    )
    max_partition_fetch_bytes: int = integer(
        1_048_576,
        1,
        1_000_000_000,
        "The share of one partition in it.",
        scope=CONSUMER,
        name="fetch.message.max.bytes",
        aliases=("max.partition.fetch.bytes",),
    )
    fetch_error_backoff_ms: int = integer(
        500, 0, 300_000, "How long a partition is left alone after an error.", scope=CONSUMER
    )
    queued_min_messages: int = integer(
        100_000, 1, 10_000_000, "Records of a partition that are fetched ahead.", scope=CONSUMER
    )
    queued_max_messages_kbytes: int = integer(
        65_536, 1, 2_097_151, "Memory for what is fetched ahead, of all partitions together.", scope=CONSUMER
    )
    enable_partition_eof: bool = boolean(
        False, "Whether reaching the end of a partition is told as a _PARTITION_EOF.", scope=CONSUMER
    )
    check_crcs: bool = boolean(
        True,
        "Whether batches are checked for damage. librdkafka's default is false; here it costs next to nothing.",
        scope=CONSUMER,
    )

    oncelog_offset_metadata_max_bytes: int = integer(
        4096,
        64,
        INT_MAX,
        "The brokers' offset.metadata.max.bytes, which bounds a saved producer in committed offsets.",
        scope=CONSUMER,
    )

    # What is told to the application
    on_commit: Callable[..., Any] | None = callback(  # noqa: RUF009
        "Called with (error, partitions) after a commit.", scope=CONSUMER
    )
