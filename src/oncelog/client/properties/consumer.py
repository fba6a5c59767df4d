"""Properties of a consumer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.client.properties.common import ClientSettings
from oncelog.clock import DAY_MS, HOUR_MS
from oncelog.settings import INT_MAX
from oncelog.settings.declaring import boolean, callback, choice, integer, text

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
        None, "The group to read with. librdkafka wants one always; here only subscribe() and commit() do."
    )
    group_instance_id: str | None = text(
        None, "A name that survives restarts: the member that bears it keeps its partitions meanwhile."
    )
    group_protocol: str = choice(
        "classic",
        "How members agree: `classic`, where one of them shares out, or `consumer` (KIP-848), where the broker does; "
        "then it also says how often a member is heard of, and for how long it may not be.",
        ("classic", "consumer"),
    )
    group_remote_assignor: str | None = text(
        None, "With `consumer`: how the broker shares, `uniform` or `range`; its own choice when not given."
    )
    group_protocol_type: str = text("consumer", "With `classic`: the kind of group.")
    partition_assignment_strategy: tuple[str, ...] = text(
        ("range", "roundrobin"),
        "With `classic`: how partitions are shared, the most wanted first: range, roundrobin, sticky, "
        "cooperative-sticky. The last one takes partitions away one by one and cannot stand beside the others.",
        convert=parse_assignors,
    )
    session_timeout_ms: int = integer(
        45_000, "With `classic`: a member that was not heard of for this long is out of the group.", 1, HOUR_MS
    )
    heartbeat_interval_ms: int = integer(3000, "With `classic`: how often a member is heard of.", 1, HOUR_MS)
    max_poll_interval_ms: int = integer(
        300_000, "An application that did not poll for this long leaves the group.", 1, DAY_MS
    )

    # Positions
    enable_auto_commit: bool = boolean(True, "Whether positions are committed by themselves.")
    auto_commit_interval_ms: int = integer(5000, "How often.", 0, DAY_MS)
    enable_auto_offset_store: bool = boolean(
        True, "Whether a record counts as done when it is handed out; otherwise store_offsets() says so."
    )
    auto_offset_reset: str = choice(
        "latest",
        "Where to begin without a position, or with one that is not in the log: earliest, latest, or with an error.",
        OFFSET_RESETS,
    )
    isolation_level: str = choice(
        "read_committed",
        "Whether records of transactions that are open or were aborted are handed out.",
        ("read_uncommitted", "read_committed"),
    )

    # Fetching
    fetch_min_bytes: int = integer(1, "The broker answers when it has this much, 1 to 100,000,000 bytes.", 0, INT_MAX)
    fetch_wait_max_ms: int = integer(500, "It answers with less after this time.", 0, 300_000)
    fetch_max_bytes: int = integer(
        52_428_800,
        "Size of an answer; brought between message.max.bytes and queued.max.messages.kbytes when not given.",
        0,
        INT_MAX - 512,
    )
    max_partition_fetch_bytes: int = integer(
        1_048_576,
        "The share of one partition in it.",
        1,
        1_000_000_000,
        name="fetch.message.max.bytes",
        aliases=("max.partition.fetch.bytes",),
    )
    fetch_error_backoff_ms: int = integer(500, "How long a partition is left alone after an error.", 0, 300_000)
    queued_min_messages: int = integer(100_000, "Records of a partition that are fetched ahead.", 1, 10_000_000)
    queued_max_messages_kbytes: int = integer(
        65_536, "Memory for what is fetched ahead, of all partitions together.", 1, 2_097_151
    )
    enable_partition_eof: bool = boolean(False, "Whether reaching the end of a partition is told as a _PARTITION_EOF.")
    check_crcs: bool = boolean(
        True, "Whether batches are checked for damage. librdkafka's default is false; here it costs next to nothing."
    )

    oncelog_offset_metadata_max_bytes: int = integer(
        4096, "The brokers' offset.metadata.max.bytes, which bounds a saved producer in committed offsets.", 64, INT_MAX
    )

    # What is told to the application
    on_commit: Callable[..., Any] | None = callback("Called with (error, partitions) after a commit.")
