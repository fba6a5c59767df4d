"""The requests of the Sender to its engine, and the engine's answers."""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.slots.batch import Batch
from oncelog.slots.identity import NOBODY, Identity, Place
from oncelog.slots.lease import FOREVER_MS


class Produce(NamedTuple):
    """One Produce request, at most one batch for a partition. Requests for one node go out in the order of these, over
    one connection at a time."""

    node_id: int
    request_id: int
    batches: Sequence[Batch]
    # The facts of the time when it was stamped do not hold for longer: after that it is not sent, and `unchecked`.
    until_ms: int = FOREVER_MS
    is_checked: bool = False  # and it holds on a connection that was there already: behind a new one it is `unchecked`


class NeedIdentity(NamedTuple):
    """A lease for all these partitions by one lease_pid, or one InitProducerId where the server has no leases. Asked
    once; the engine tries until it can say `granted` or `not_granted`."""

    places: Sequence[Place]


class NeedMetadata(NamedTuple):
    """The leaders of these topics are unknown, or not who we thought. Asked again after a backoff."""

    topics: Sequence[str]


class PartitionStatistics(NamedTuple):
    """The state of one partition, for statistics."""

    waiting_records: int = 0
    waiting_bytes: int = 0
    flying_records: int = 0
    acknowledged: int = 0  # the slot behind the last record that is surely stored
    identity: Identity = NOBODY


class LookUp(NamedTuple):
    """How far has this identity got in the partition? Answered by `looked_up`; the engine tries until it knows.

    With `must_fence` (leases): ask resume_pid with a generation newer than the identity's, which at once keeps out
    everything that may still be under way; on UNKNOWN_PRODUCER_ID read the log. Without it: DescribeProducers, then
    the log from `from_offset` on. Only what is below the high watermark counts, and "not there" only when nothing of
    the identity lies above it, for that may come to be stored yet.
    """

    place: Place
    identity: Identity
    from_offset: int  # nothing of the identity that is still open lies below; -1 when that is not known
    must_fence: bool
    acknowledged: int = -1  # the slot behind the last record that is surely stored; -1 when nobody says


class Delivered(NamedTuple):
    """The batch is stored. Its pid, generation and first sequence are in the batch itself."""

    batch: Batch
    base_offset: int  # -1 where the log did not say
    append_time_ms: int  # -1 unless the topic uses the log's time
    was_in_doubt: bool  # what is stored there may be from an earlier attempt, or another process: worth comparing


class Failed(NamedTuple):
    batch: Batch
    code: int  # Kafka's number, or librdkafka's negative one
    message: str | None
    maybe_stored: bool


Action = Produce | NeedIdentity | NeedMetadata | LookUp | Delivered | Failed


class BatchAnswer(NamedTuple):
    """The part of a Produce response about one partition."""

    topic: str
    partition: int
    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    message: str | None = None


class StoredSpan(NamedTuple):
    """A batch of the identity as it lies in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class Found(NamedTuple):
    """The answer to a LookUp."""

    last_sequence: int  # H, -1 when nothing of the identity is stored
    generation: int  # the identity's own, or the one that the fence raised it to, which is ours from now on
    spans: Sequence[StoredSpan] = ()  # as far as the log was read: they give the offsets to report


class Boundary(NamedTuple):
    """The records of one partition that are surely stored, for saving: the next one gets this sequence and identity."""

    identity: Identity
    next_sequence: int
    next_offset: int  # behind the last record that was acknowledged, -1 before any was
