"""Produce: from a frame to staged batches, one commit for all that arrived together, and the answers.

Everything happens within one callback of the event loop, so nothing else touches the logs between stage and commit,
and the batches may lie in the receive buffer until they are written.
"""

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from oncelog.clock import Now
from oncelog.log.config import Flush
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog, Staged
from oncelog.producers.decision import Decision
from oncelog.records.errors import BadBatch, BadBatchKind
from oncelog.records.header import check_produced
from oncelog.server.errors import ErrorCode
from oncelog.wire.hot import (
    NO_RECORDS,
    PRODUCE_TOPIC_IDS,
    Produced,
    ProduceTopic,
    encode_produced,
    encode_produced_one,
    read_produce,
)

if TYPE_CHECKING:
    from oncelog.server.broker import Broker

ALL_REPLICAS = -1
ALREADY_THERE = "already in the log"
NO_TRANSACTIONS = "transactions are not supported"

_OF_DECISION = {
    Decision.OUT_OF_ORDER: (ErrorCode.out_of_order_sequence_number, None),
    Decision.UNKNOWN_PRODUCER: (
        ErrorCode.unknown_producer_id,
        "the lease expired, never wrote to this partition, or was never granted",
    ),
    Decision.FENCED: (ErrorCode.invalid_producer_epoch, None),
    # Kafka has no word for this; the clients' meaning of it is right: nothing was appended, try again.
    Decision.FULL: (ErrorCode.not_enough_replicas, "no room for another live producer in this partition"),
    Decision.DUPLICATE_FORGOTTEN: (ErrorCode.duplicate_sequence_number, None),
}
_OF_BAD_BATCH = {
    BadBatchKind.CORRUPT: ErrorCode.corrupt_message,
    BadBatchKind.INVALID: ErrorCode.invalid_record,
    BadBatchKind.OLD_FORMAT: ErrorCode.invalid_record,
    BadBatchKind.UNKNOWN_CODEC: ErrorCode.unsupported_compression_type,
    BadBatchKind.TIMESTAMP_TYPE: ErrorCode.invalid_timestamp,
    BadBatchKind.TRANSACTIONAL: ErrorCode.invalid_txn_state,
}
_NONE = int(ErrorCode.none)
_STORAGE_ERROR = int(ErrorCode.kafka_storage_error)


class Outcome:
    """One partition of one request: what the log said, or why it was not asked."""

    __slots__ = ("error_code", "index", "message", "partition", "staged")

    def __init__(
        self, index: int, partition: Any, staged: Staged | None, error_code: int = _NONE, message: str | None = None
    ) -> None:
        self.index = index
        self.partition = partition
        self.staged = staged
        self.error_code = error_code
        self.message = message

    def fail(self, message: str) -> None:
        """What was judged well could not be stored."""
        self.staged = None
        self.error_code = _STORAGE_ERROR
        self.message = message


class Answered(NamedTuple):
    version: int
    correlation_id: int
    acks: int
    topics: list[tuple[bytes, list[Outcome]]]


class Commit(NamedTuple):
    """What became of the requests of one chunk. The answers are true once every partition has reached its offset."""

    requests: list[Answered]
    awaited: dict[Any, int]  # partition: the high watermark that it must reach
    must_close: bool  # an acks=0 request failed, and closing is the only way to say so

    def is_settled(self) -> bool:
        for partition, offset in self.awaited.items():
            log = partition.log
            if log.high_watermark < offset and log.offline is None:
                return False
        return True

    def frames(self) -> list[bytes]:
        for partition in self.awaited:
            if partition.log.offline is not None:
                self._fail(partition, partition.log.offline)
        return [_frame(request) for request in self.requests if request.acks != 0]

    def _fail(self, partition: Any, reason: str) -> None:
        offset = partition.log.high_watermark
        for request in self.requests:
            for _, outcomes in request.topics:
                for outcome in outcomes:
                    if outcome.partition is partition and outcome.staged and outcome.staged.end_offset > offset:
                        outcome.fail(reason)


class Producing:
    """Collects the Produce requests of one chunk of received bytes."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._requests: list[Answered] = []
        self._touched: dict[Any, None] = {}

    def __bool__(self) -> bool:
        return bool(self._requests or self._touched)

    def add(self, buffer: bytearray, at: int, end: int, version: int, correlation_id: int, now: Now) -> None:
        """Judge and stage everything in the request whose body begins at `at`. Raises MalformedFrame."""
        request = read_produce(buffer, at, end, version)
        refusal: tuple[ErrorCode, str] | None = None
        if request.acks not in (-1, 0, 1):
            refusal = ErrorCode.invalid_required_acks, f"acks is {request.acks}; it may be -1, 0 or 1"
        elif request.transactional_id is not None:
            refusal = ErrorCode.transactional_id_authorization_failed, NO_TRANSACTIONS
        topics = [
            (
                named[0],
                self._stage_topic(named, buffer, version, now)
                if refusal is None
                else [Outcome(index, None, None, *refusal) for index, _, _ in named[1]],
            )
            for named in request.topics
        ]
        self._requests.append(Answered(version, correlation_id, request.acks, topics))

    def _stage_topic(self, named: ProduceTopic, buffer: bytearray, version: int, now: Now) -> list[Outcome]:
        name, partitions = named
        topics = self._broker.topics
        if version >= PRODUCE_TOPIC_IDS:
            topic = topics.by_id(UUID(bytes=name))
            unknown = ErrorCode.unknown_topic_id
        else:
            topic = topics.get(name.decode(errors="replace"))
            unknown = ErrorCode.unknown_topic_or_partition
        if topic is None:
            return [Outcome(index, None, None, unknown) for index, _, _ in partitions]
        if topic.is_internal:
            message = "clients may not write to an internal topic"
            return [
                Outcome(index, None, None, ErrorCode.invalid_topic_exception, message) for index, _, _ in partitions
            ]
        outcomes = []
        count = len(topic.partitions)
        for index, start, stop in partitions:
            if 0 <= index < count:
                outcomes.append(self._stage(topic.partitions[index], index, buffer, start, stop, now))
            else:
                outcomes.append(Outcome(index, None, None, ErrorCode.unknown_topic_or_partition))
        return outcomes

    def _stage(self, partition: Any, index: int, buffer: bytearray, start: int, stop: int, now: Now) -> Outcome:
        if stop == NO_RECORDS:
            return Outcome(index, partition, None, ErrorCode.invalid_record, "no records")
        log: PartitionLog = partition.log
        if stop - start > log.config.max_message_bytes:
            message = f"{stop - start} bytes are more than max.message.bytes={log.config.max_message_bytes}"
            return Outcome(index, partition, None, ErrorCode.message_too_large, message)
        batch = memoryview(buffer)[start:stop]
        try:
            header = check_produced(batch)
            staged = log.stage(batch, header, now)
        except BadBatch as bad:
            return Outcome(index, partition, None, _OF_BAD_BATCH[bad.kind], bad.message)
        except LogStorageError as failure:
            return Outcome(index, partition, None, _STORAGE_ERROR, str(failure))
        refusal = _OF_DECISION.get(staged[0])
        if refusal is not None:
            return Outcome(index, partition, None, *refusal)
        self._touched[partition] = None
        return Outcome(index, partition, staged)

    def commit(self) -> Commit:
        """One write for every partition that was touched. Nothing of the buffers is needed afterwards."""
        requests, self._requests = self._requests, []
        touched, self._touched = self._touched, {}
        for partition in touched:
            try:
                partition.log.commit()
            except LogStorageError as failure:
                _fail_all(requests, partition, str(failure))
        awaited: dict[Any, int] = {}
        must_close = False
        wait_for_disk = self._broker.flush is Flush.EVERY
        for _, _, acks, topics in requests:
            for _, outcomes in topics:
                for outcome in outcomes:
                    staged = outcome.staged
                    if staged is None:
                        must_close = must_close or acks == 0
                    elif (acks == ALL_REPLICAS or (wait_for_disk and acks)) and (
                        outcome.partition.log.high_watermark < staged.end_offset
                    ):
                        awaited[outcome.partition] = max(staged.end_offset, awaited.get(outcome.partition, 0))
        for partition in touched:
            if wait_for_disk:
                self._broker.flusher.request(partition)
            if partition.waiters:
                partition.wake()
        self._broker.housekeeping.checkpoint_if_due()
        return Commit(requests, awaited, must_close)


def _fail_all(requests: list[Answered], partition: Any, reason: str) -> None:
    for request in requests:
        for _, outcomes in request.topics:
            for outcome in outcomes:
                if outcome.partition is partition and outcome.staged is not None:
                    outcome.fail(reason)


def _frame(request: Answered) -> bytes:
    version, correlation_id, _, topics = request
    if version >= 5 and len(topics) == 1 and len(topics[0][1]) == 1:
        name, (outcome,) = topics[0]
        staged = outcome.staged
        if staged is not None and not staged.dropped_records:
            return encode_produced_one(
                version,
                correlation_id,
                name,
                outcome.index,
                _NONE,
                staged.base_offset,
                staged.append_time_ms,
                outcome.partition.log.log_start_offset,
            )
    return encode_produced(
        version, correlation_id, [(name, [_produced(outcome) for outcome in outcomes]) for name, outcomes in topics]
    )


def _produced(outcome: Outcome) -> Produced:
    staged = outcome.staged
    if staged is None:
        return Produced(outcome.index, int(outcome.error_code), error_message=outcome.message)
    return Produced(
        outcome.index,
        _NONE,
        staged.base_offset,
        staged.append_time_ms,
        outcome.partition.log.log_start_offset,
        [(index, ALREADY_THERE) for index in range(staged.dropped_records)],
    )
