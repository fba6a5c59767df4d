"""The inputs and outputs of the fetching machine: requests, answers, and events for the application."""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.records.header import Buffer
from oncelog.slots import AnyPlace

# Offsets that stand for a place, as ListOffsets and the application name them.
LATEST = -1
EARLIEST = -2
STORED = -1000

NO_EPOCH = -1
NO_NODE = -1

RESET_BY = {"earliest": EARLIEST, "latest": LATEST, "error": None}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    min_bytes: int = 1
    wait_ms: int = 500
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    queued_bytes: int = 64 << 20  # of all partitions together, in flight included; one answer may go over it
    queued_records: int = 100_000  # of one partition
    read_committed: bool = True
    reset: str = "latest"  # a key of RESET_BY
    reports_end: bool = False
    retry_backoff_ms: int = 100
    error_backoff_ms: int = 500
    replica_lifetime_ms: int = 300_000


class Leader(NamedTuple):
    node_id: int
    epoch: int
    topic_id: object = None


class AskedPartition(NamedTuple):
    """One partition of a fetch."""

    partition: AnyPlace
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Fetch:
    node_id: int
    request_id: int
    asked: list[AskedPartition]
    wait_ms: int
    min_bytes: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """ListOffsets: partition, its leader's epoch, EARLIEST or LATEST."""

    node_id: int
    request_id: int
    asked: list[tuple[AnyPlace, int, int]]


@dataclass(frozen=True, slots=True)
class FindEpochEnds:
    """OffsetForLeaderEpoch: partition, its leader's epoch, the epoch of the record before the position."""

    node_id: int
    request_id: int
    asked: list[tuple[AnyPlace, int, int]]


@dataclass(frozen=True, slots=True)
class NeedCommitted:
    request_id: int
    partitions: list[AnyPlace]


@dataclass(frozen=True, slots=True)
class NeedMetadata:
    topics: list[str]


Action = Fetch | FindOffsets | FindEpochEnds | NeedCommitted | NeedMetadata


class Fetched(NamedTuple):
    """One partition of a fetch's answer."""

    partition: AnyPlace
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]  # producer id, first offset
    preferred_replica: int
    records: Buffer
    leader: "Leader | None" = None  # whom a broker that does not lead has named (KIP-951)


class OffsetFound(NamedTuple):
    partition: AnyPlace
    error_code: int
    offset: int
    leader_epoch: int
    timestamp_ms: int = -1


class EpochEndFound(NamedTuple):
    partition: AnyPlace
    error_code: int
    epoch: int
    end_offset: int
