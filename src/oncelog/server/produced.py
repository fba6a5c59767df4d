"""The outcomes of Produce requests, partition by partition, and their answers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from oncelog.log.partition import End, Fate, Staged
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.produce_pattern import Pattern
from oncelog.server.topics import Partition
from oncelog.wire.hot import Produced, encode_produced, with_produce_throttle

ALREADY_THERE = "already in the log"
MOST_NAMED = 1_000  # of the records that were there already
UNKNOWN = -1
_NONE = int(ErrorCode.none)
_STORAGE_ERROR = int(ErrorCode.kafka_storage_error)
_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
LEADER_IS_OVER = "another broker leads the partition now; send it there"


class Outcome:
    """One partition of one request: what the log said, or why it was not asked."""

    __slots__ = ("_made", "error_code", "index", "message", "partition", "record_errors", "staged")

    def __init__(
        self,
        index: int,
        partition: Partition | None,
        staged: Staged | None,
        error_code: int = _NONE,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        self.index = index
        self.partition = partition
        self.staged = staged
        self.error_code = error_code
        self.message = message
        self.record_errors = record_errors
        self._made: Produced | None = None

    def fail(self, message: str, error_code: int = _STORAGE_ERROR) -> None:
        """A batch that was judged well could not be stored, or nobody here knows whether it is."""
        self._made = None
        self.staged = None
        self.error_code = error_code
        self.message = message

    def produced(self) -> Produced:
        return self._made or self._produced()

    def make(self) -> None:
        """Make the answer ahead, unless it still fails: for thousands of them that takes as long as all the rest."""
        self._made = self._produced()

    def _produced(self) -> Produced:
        staged = self.staged
        if staged is None or self.partition is None:
            return Produced(
                self.index, int(self.error_code), record_errors=self.record_errors, error_message=self.message
            )
        try:
            start = self.partition.log.log_start_offset
        except KafkaError:  # the partition went to another broker while the answers before this one waited
            start = UNKNOWN
        return Produced(
            self.index,
            _NONE,
            staged.base_offset,
            staged.append_time_ms,
            start,
            [(index, ALREADY_THERE) for index in range(min(staged.dropped_records, MOST_NAMED))],
        )


class Many:
    """A request of any shape."""

    __slots__ = ("acks", "correlation_id", "topics", "version")

    def __init__(self, version: int, correlation_id: int, acks: int, topics: list[tuple[bytes, list[Outcome]]]) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.topics = topics

    def outcomes(self) -> Iterator[Outcome]:
        return (outcome for _, outcomes in self.topics for outcome in outcomes)

    def frame(self) -> bytes:
        topics = [(name, [outcome.produced() for outcome in outcomes]) for name, outcomes in self.topics]
        return encode_produced(self.version, self.correlation_id, topics)


class One:
    """A request for the one partition that the connection's last one was for."""

    __slots__ = ("acks", "correlation_id", "outcome", "pattern")

    def __init__(self, pattern: Pattern, correlation_id: int, outcome: Outcome) -> None:
        self.pattern = pattern
        self.correlation_id = correlation_id
        self.acks = pattern.acks
        self.outcome = outcome

    @property
    def version(self) -> int:
        return self.pattern.version

    def outcomes(self) -> Iterable[Outcome]:
        return (self.outcome,)

    def frame(self) -> bytes:
        staged = self.outcome.staged
        pattern = self.pattern
        if staged is not None:
            _, base_offset, append_time_ms, dropped_records, _, _ = staged
            if not dropped_records:
                try:
                    return pattern.answer(self.correlation_id, base_offset, append_time_ms)
                except KafkaError:
                    pass  # the partition is not here any more
        return encode_produced(pattern.version, self.correlation_id, ((pattern.name, (self.outcome.produced(),)),))


Request = Many | One


class Commit(NamedTuple):
    """The outcome of the requests of one chunk. The answers are true once every partition has reached its offset."""

    requests: list[Request]
    awaited: dict[Partition, End]  # what must be safe
    must_close: bool  # an acks=0 request failed, and closing is the only way to say so
    throttle_ms: int = 0  # what the last request of the chunk is told

    def is_settled(self) -> bool:
        return all(partition.fate(end) is not Fate.WAITS for partition, end in self.awaited.items())

    def frames(self) -> list[bytes]:
        for partition, end in self.awaited.items():
            if not partition.is_open or partition.log.leader_epoch != end.epoch:
                fail(self.requests, partition, LEADER_IS_OVER, -1, _NOT_LEADER)
            elif partition.fate(end) is Fate.LOST:
                log = partition.log
                fail(self.requests, partition, log.offline or "the topic was deleted", log.high_watermark)
        frames = [request.frame() for request in self.requests if request.acks != 0]
        if self.throttle_ms and self.requests[-1].acks != 0:
            frames[-1] = with_produce_throttle(frames[-1], self.requests[-1].version, self.throttle_ms)
        return frames


def damaged(index: int, partition: Partition, damage: InvalidRecord, code: ErrorCode) -> Outcome:
    is_large = isinstance(damage, TooLarge)  # a producer that knows how to makes two of it
    return Outcome(index, partition, None, ErrorCode.message_too_large if is_large else code, str(damage))


def fail(
    requests: list[Request], partition: Partition, reason: str, above_offset: int, error_code: int = _STORAGE_ERROR
) -> None:
    """Fail all batches of the partition that end above the offset: they are not stored, or not known to be."""
    for request in requests:
        for outcome in request.outcomes():
            staged = outcome.staged
            if outcome.partition is partition and staged is not None and staged.end_offset > above_offset:
                outcome.fail(reason, error_code)
