"""Produce: from a frame to staged batches, one commit for all that arrived together, and the answers.

Everything happens within one callback of the event loop, so nothing else touches the logs between stage and commit,
and the batches may lie in the receive buffer until they are written.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from oncelog.clock import Now
from oncelog.log.config import Flush
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate, PartitionLog, Staged
from oncelog.producers import FIRST_BOUND_PID, of_transactional_id
from oncelog.records.errors import BadBatch, InvalidRecord
from oncelog.records.header import HEADER_BYTES, BatchHeader, check_in_transaction, check_produced, read_header
from oncelog.security.operations import Operation, Resource
from oncelog.server.access import ANONYMOUS, EVERY_RIGHT, Rights
from oncelog.server.bodies import (
    FEW_RECORDS_BYTES,
    Batch,
    Look,
    LookFirst,
    TrimFirst,
    Trimmed,
    Verdict,
    Verdicts,
    is_cut,
    may_be_trimmed_at_once,
    trim_at_once,
)
from oncelog.server.broker import Broker
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.partitions import INTERNAL, NOT_HERE, why_unwritable
from oncelog.server.produce_pattern import Pattern, pattern_of
from oncelog.server.produce_refusals import OF_ANOTHERS_PID, OF_BAD_BATCH, OF_DECISION
from oncelog.server.produce_transactions import ADDS, InTransaction, Verification, VerifyFirst, wanted_in
from oncelog.server.produce_turns import InTurns, TurnsFirst, is_much
from oncelog.server.produced import Commit, Many, One, Outcome, Request, damaged, fail
from oncelog.server.record_rules import NO_KEY
from oncelog.server.topics import Partition, Topic
from oncelog.wire.hot import (
    NO_RECORDS,
    PRODUCE_TOPIC_IDS,
    ProduceRequest,
    ProduceTopic,
    read_produce,
)

logger = logging.getLogger(__name__)

ALL_REPLICAS = -1
CLOCK_REQUESTS = 64  # of a chunk: who makes each of them cost much is noticed
CLOCK_RECORDS = 1_000  # a batch of fewer is looked into in no time
TURN_MS = 20  # once looking into batches has taken so long, the other connections are due
MOST_TURN_MS = 500  # after so long the rest of one request has to be sent again
TOO_MUCH = "the batches before it in this request took too long to look into; send it again"
OVERLAP = "the first records came by another way while this batch was looked into; send it again"
OUT_OF_TIME = "records are refused for their timestamps, which are too far behind or ahead of the clock"
FROM_THE_FUTURE = "the max timestamp of the batch is further ahead of the clock than message.timestamp.after.max.ms"

Bound = tuple[PartitionLog, int, int]  # for which log a batch is, and where it begins and ends
_STORAGE_ERROR = int(ErrorCode.kafka_storage_error)


class Producing:
    """Collects the Produce requests of one chunk of received bytes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics = broker.topics
        self._bodies = broker.bodies
        self._waits_for_disk = broker.flush is Flush.EVERY
        self._checkpoint_if_due = broker.housekeeping.checkpoint_if_due
        self.rights: Rights = EVERY_RIGHT  # of who has sent the chunk
        self.principal = ANONYMOUS  # who that is
        self._acks = 0  # of the request that is staged
        self._transaction: InTransaction | None = None  # of the request that is staged
        self._requests: list[Request] = []
        self._touched: dict[Partition, None] = {}
        self._is_quiet = False  # one of them has acks=0
        self._is_done_in_turns = False  # one of them was committed before
        self.is_turn_over = False  # batches had to be looked into, and that took long: commit, and let others go on

    def __bool__(self) -> bool:
        return bool(self._requests or self._touched)

    def add(
        self,
        buffer: bytearray,
        header_at: int,
        at: int,
        end: int,
        version: int,
        correlation_id: int,
        now: Now,
        verdicts: Verdicts,
        done: InTurns | None = None,
        verification: Verification | None = None,
    ) -> Pattern | None:
        """Judge and stage everything in the request whose body begins at `at`. Raises MalformedFrame,
        LookFirst where a thread has to look into it before, VerifyFirst where the coordinator of a transaction has to
        be asked, and TurnsFirst where it is staged in turns: then the same call is made again, with the verdicts, or
        with what was done.

        The answer is by what the connection can recognise its next request, when that is for the same partition.
        """
        request = read_produce(buffer, at, end, version) if done is None else done.request
        refusal: tuple[ErrorCode, str] | None = None
        if request.acks not in (-1, 0, 1):
            refusal = ErrorCode.invalid_required_acks, f"acks is {request.acks}; it may be -1, 0 or 1"
        elif request.transactional_id is not None:
            refusal = self._begin_transaction(buffer, request, version, done, verification)
        if done is None and refusal is None:
            self._bodies.look_first(buffer, header_at, self._batches(request.topics, version), now.wall_ms, verdicts)
            self._trim_first(buffer, header_at, self._bound(request.topics, version), now, verdicts)
            if is_much(request.topics, end - at):
                part = Producing(self._broker)
                part.rights, part.principal = self.rights, self.principal
                part.take_transaction(request, version, verification)
                raise TurnsFirst(InTurns(self._broker, part, buffer, request, version, verdicts))
        if refusal is None and request.transactional_id is not None:  # only now: before, others may have their turn
            self.take_transaction(request, version, verification)
        self._acks = request.acks
        self._is_quiet = self._is_quiet or request.acks == 0
        self._is_done_in_turns = self._is_done_in_turns or done is not None
        try:
            topics = done.topics if done is not None else []
            for named in request.topics if done is None else ():
                outcomes = (
                    self._stage_topic(named, buffer, version, now, verdicts)
                    if refusal is None
                    else [Outcome(index, None, None, *refusal) for index, _, _ in named[1]]
                )
                topics.append((named[0], outcomes))
        finally:
            self._transaction = None  # whatever happens: nothing that others send is a part of it
        self._requests.append(Many(version, correlation_id, request.acks, topics))
        if len(self._requests) % CLOCK_REQUESTS == 0:
            self._look_at_the_clock(now)
        if refusal is None and request.transactional_id is None and len(topics) == 1 and len(topics[0][1]) == 1:
            partition = topics[0][1][0].partition
            if partition is not None:
                return pattern_of(buffer, header_at, end, version, request, partition)
        return None

    def _begin_transaction(
        self,
        buffer: bytearray,
        request: ProduceRequest,
        version: int,
        done: InTurns | None,
        verification: Verification | None,
    ) -> tuple[ErrorCode, str] | None:
        """Raises VerifyFirst."""
        name = request.transactional_id or ""
        if not self.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name):
            return ErrorCode.transactional_id_authorization_failed, "Transactional Id authorization failed."
        if done is None and verification is None:
            wanted = list(wanted_in(buffer, self._placed(request.topics, version)))
            if wanted:
                raise VerifyFirst(Verification(self._broker, buffer, name, version, wanted))
        return None

    def take_transaction(self, request: ProduceRequest, version: int, verification: Verification | None) -> None:
        """Batches that are staged next belong to this transaction."""
        if request.transactional_id is not None:
            owner = of_transactional_id(request.transactional_id)
            self._transaction = InTransaction(verification.refused if verification else {}, version >= ADDS, owner)

    def _placed(self, topics: Sequence[ProduceTopic], version: int) -> Iterator[tuple[Partition, int, int]]:
        for name, partitions in topics:
            topic = self._topic(name, version)
            if topic is not None and not topic.is_internal and self._may_write(topic.name):
                for index, start, stop in partitions:
                    if 0 <= index < len(topic.partitions) and topic.partitions[index].leads and stop != NO_RECORDS:
                        yield topic.partitions[index], start, stop

    def add_again(
        self,
        pattern: Pattern,
        buffer: bytearray,
        header_at: int,
        start: int,
        stop: int,
        correlation_id: int,
        now: Now,
        verdicts: Verdicts,
    ) -> bool:
        """The same for a request that is recognised; False where the topic is no longer the same."""
        partition = pattern.partition
        if partition.is_deleted:
            return False
        self._acks = pattern.acks
        try:
            outcome = self._stage(partition, pattern.index, buffer, start, stop, now, verdicts, header_at)
        except TrimFirst as first:
            known, dropped = verdicts.get(start), first.dropped_records
            if not is_cut(known, dropped):
                partition.log.producers.trimmed -= 1  # it is judged once more
                batches = ((start, stop, partition.log.config),)
                look = Look(self._bodies, buffer, header_at, batches, now.wall_ms, verdicts, {start: dropped})
                raise LookFirst(look) from None
            outcome = self._stage_rest(partition, pattern.index, dropped, known, now)
        if pattern.acks == 0:
            self._is_quiet = True
        self._requests.append(One(pattern, correlation_id, outcome))
        if len(self._requests) % CLOCK_REQUESTS == 0:
            self._look_at_the_clock(now)
        return True

    def _topic(self, name: bytes, version: int) -> Topic | None:
        if version >= PRODUCE_TOPIC_IDS:
            return self._topics.by_id(UUID(bytes=name))
        return self._topics.get(name.decode(errors="replace"))

    def _may_write(self, name: str) -> bool:
        return self.rights.may(Operation.WRITE, Resource.TOPIC, name)

    def _trim_first(self, buffer: bytearray, begin: int, bound: Iterable[Bound], now: Now, verdicts: Verdicts) -> None:
        """Raises LookFirst where batches are partly in the log, and to cut that off is better left to a thread."""
        batches, dropped_records = [], {}
        for log, start, stop in bound:
            if not may_be_trimmed_at_once(buffer, start, stop):
                header = read_header(buffer, start)
                dropped = log.producers.overlap(*header[9:13], now) if header.producer_id > 0 else 0
                if dropped and not is_cut(verdicts.get(start), dropped):
                    batches.append((start, stop, log.config))
                    dropped_records[start] = dropped
        if batches:
            raise LookFirst(Look(self._bodies, buffer, begin, batches, now.wall_ms, verdicts, dropped_records))

    def _bound(self, topics: Sequence[ProduceTopic], version: int) -> Iterator[Bound]:
        for name, partitions in topics:
            topic = self._topic(name, version)
            if topic is not None and not topic.is_internal and self._may_write(topic.name):
                for index, start, stop in partitions:
                    is_there = 0 <= index < len(topic.partitions) and topic.partitions[index].leads
                    if is_there and stop != NO_RECORDS and stop - start > HEADER_BYTES:
                        yield topic.partitions[index].log, start, stop

    def _batches(self, topics: Sequence[ProduceTopic], version: int) -> Iterator[Batch]:
        """The batches that are looked into."""
        for name, partitions in topics:
            topic = self._topic(name, version)
            if topic is None or topic.is_internal or not self._may_write(topic.name):
                continue
            config = topic.log_config
            if config.must_be_looked_into or not self._bodies.is_off:
                for _, start, stop in partitions:
                    if stop != NO_RECORDS and HEADER_BYTES < stop - start <= config.max_message_bytes:
                        yield start, stop, config

    def _stage_topic(
        self, named: ProduceTopic, buffer: bytearray, version: int, now: Now, verdicts: Verdicts
    ) -> list[Outcome]:
        name, partitions = named
        topic, is_by_id = self._topic(name, version), version >= PRODUCE_TOPIC_IDS
        told = topic.name if topic is not None else "" if is_by_id else name.decode(errors="replace")
        if told and not self._may_write(told):
            return [Outcome(index, None, None, ErrorCode.topic_authorization_failed) for index, _, _ in partitions]
        if topic is None:
            unknown = ErrorCode.unknown_topic_id if is_by_id else ErrorCode.unknown_topic_or_partition
            return [Outcome(index, None, None, unknown) for index, _, _ in partitions]
        if topic.is_internal:
            return [
                Outcome(index, None, None, ErrorCode.invalid_topic_exception, INTERNAL) for index, _, _ in partitions
            ]
        outcomes = []
        count = len(topic.partitions)
        for index, start, stop in partitions:
            if not 0 <= index < count:
                outcomes.append(Outcome(index, None, None, ErrorCode.unknown_topic_or_partition))
                continue
            partition = topic.partitions[index]
            try:
                outcome = self._stage(partition, index, buffer, start, stop, now, verdicts)
            except TrimFirst as first:
                outcome = self._stage_rest(partition, index, first.dropped_records, verdicts.get(start), now)
            outcomes.append(outcome)
        return outcomes

    def _stage(
        self,
        partition: Partition,
        index: int,
        buffer: bytearray,
        start: int,
        stop: int,
        now: Now,
        verdicts: Verdicts,
        begin: int = -1,
    ) -> Outcome:
        """Raises TrimFirst where that was not done before; with `begin`, where the request begins that has this batch
        only, also LookFirst."""
        if (
            not partition.leads
            or partition.replica is not None
            or not 0 <= stop - start <= partition.log.config.max_message_bytes
            or self.is_turn_over
        ):
            unfit = self._unfit(partition, stop - start, now)
            if unfit is not None:
                return Outcome(index, partition, None, *unfit)
        if self._transaction is not None:
            return self._stage_in_transaction(self._transaction, partition, index, buffer, start, stop, now, verdicts)
        log: PartitionLog = partition.log
        config = log.config
        batch = memoryview(buffer)[start:stop]
        damage_code = ErrorCode.invalid_record
        try:
            header = check_produced(batch)
            if (pid := header.producer_id) >= FIRST_BOUND_PID and not self._broker.may_use_pid(pid, self.principal):
                return Outcome(index, partition, None, *OF_ANOTHERS_PID)
            if not self._bodies.is_good_at_once(buffer, start, stop, header, config, now.wall_ms):
                if begin >= 0 and (header.codec or stop - start > FEW_RECORDS_BYTES):
                    self._bodies.look_first(buffer, begin, ((start, stop, config),), now.wall_ms, verdicts)
                refused = self._look_into(partition, index, batch, header, now, verdicts.get(start))
                if refused is not None:
                    return refused
            damage_code = ErrorCode.corrupt_message  # only what must be cut is looked into there
            staged = log.stage(batch, header, now, trim_at_once)
        except BadBatch as bad:
            return Outcome(index, partition, None, OF_BAD_BATCH[bad.kind], bad.message)
        except InvalidRecord as damage:
            self._look_at_the_clock(now)
            return damaged(index, partition, damage, damage_code)
        except LogStorageError as failure:
            return Outcome(index, partition, None, _STORAGE_ERROR, str(failure))
        if staged[0] and (refused := self._refusal(partition, index, staged, now)) is not None:
            return refused
        self._touched[partition] = None
        return Outcome(index, partition, staged)

    def _refusal(self, partition: Partition, index: int, staged: Staged, now: Now) -> Outcome | None:
        """The refusal of a batch that was judged and is not simply appended."""
        self._look_at_the_clock(now)
        refusal = OF_DECISION.get(staged[0])
        if refusal is not None and not self._broker.is_sure(partition, now):
            refusal = ErrorCode.not_leader_or_follower, NOT_HERE
        return None if refusal is None else Outcome(index, partition, None, *refusal)

    def _stage_in_transaction(
        self,
        transaction: InTransaction,
        partition: Partition,
        index: int,
        buffer: bytearray,
        start: int,
        stop: int,
        now: Now,
        verdicts: Verdicts,
    ) -> Outcome:
        """The same of a request that names a transaction, to which not every batch need belong."""
        log = partition.log
        batch = memoryview(buffer)[start:stop]
        try:
            header = check_in_transaction(batch)
            if not self._broker.may_use_pid(header.producer_id, transaction.owner):
                return Outcome(index, partition, None, ErrorCode.invalid_producer_id_mapping)
            if not self._bodies.is_good_at_once(buffer, start, stop, header, log.config, now.wall_ms):
                refused = self._look_into(partition, index, batch, header, now, verdicts.get(start))
                if refused is not None:
                    return refused
            if header.is_transactional:
                staged = transaction.stage(partition, batch, header, now)
            else:
                staged = log.stage(batch, header, now, trim_at_once)
        except BadBatch as bad:
            return Outcome(index, partition, None, OF_BAD_BATCH[bad.kind], bad.message)
        except InvalidRecord as damage:
            return damaged(index, partition, damage, ErrorCode.invalid_record)
        except LogStorageError as failure:
            return Outcome(index, partition, None, _STORAGE_ERROR, str(failure))
        except KafkaError as refusal:
            return Outcome(index, partition, None, refusal.code, refusal.message)
        if staged[0] and (refused := self._refusal(partition, index, staged, now)) is not None:
            return refused
        self._touched[partition] = None
        return Outcome(index, partition, staged)

    def _unfit(self, partition: Partition, size_bytes: int, now: Now) -> tuple[ErrorCode, str] | None:
        needs_all = self._acks == ALL_REPLICAS
        unfit = why_unwritable(partition, size_bytes, needs_all=needs_all, is_sure=self._broker.is_sure(partition, now))
        if unfit is None and self.is_turn_over and self._took_ms(now) >= MOST_TURN_MS:
            unfit = ErrorCode.not_enough_replicas, TOO_MUCH
        return unfit

    def _stage_rest(
        self, partition: Partition, index: int, dropped_records: int, known: Verdict | None, now: Now
    ) -> Outcome:
        """Stage the rest that a thread has left of a batch, unless the log has changed meanwhile."""
        if isinstance(known, InvalidRecord):
            return Outcome(index, partition, None, ErrorCode.corrupt_message, str(known))
        if not isinstance(known, Trimmed) or known.dropped_records != dropped_records:
            return Outcome(index, partition, None, ErrorCode.not_enough_replicas, OVERLAP)
        self._touched[partition] = None
        return Outcome(index, partition, partition.log.stage_rest(known.rest, dropped_records, now))

    def _look_into(
        self,
        partition: Partition,
        index: int,
        batch: memoryview,
        header: BatchHeader,
        now: Now,
        refused: Verdict | None,
    ) -> Outcome | None:
        """Check a batch beyond its header: that its body is records, and what the topic asks of each."""
        log: PartitionLog = partition.log
        if isinstance(refused, Trimmed):
            refused = refused.refused
        if refused is None:
            refused = self._bodies.refused(batch, header, log.config, now.wall_ms)
            if header.record_count >= CLOCK_RECORDS or header.codec or log.config.must_be_looked_into:
                self._look_at_the_clock(now)
        if isinstance(refused, InvalidRecord):  # raised again, it would hold this frame, and this frame it
            self._look_at_the_clock(now)
            return damaged(index, partition, refused, ErrorCode.invalid_record)
        if refused.records and not refused.times:
            return Outcome(index, partition, None, ErrorCode.invalid_record, NO_KEY, refused.records)
        is_of_the_future = header.max_timestamp - now.wall_ms > log.config.ahead_max_ms
        is_in_time = not refused.times and not is_of_the_future
        if is_in_time or log.producers.has(*header[9:13], now):  # what is there already came in time
            return None
        message = OUT_OF_TIME if refused.times else FROM_THE_FUTURE
        return Outcome(index, partition, None, ErrorCode.invalid_timestamp, message, refused.records)

    def _look_at_the_clock(self, now: Now) -> None:
        """A batch whose kilobytes unfold to megabytes may have taken long. `now` is when the chunk came."""
        self.is_turn_over = self.is_turn_over or self._took_ms(now) >= TURN_MS

    def _took_ms(self, now: Now) -> int:
        return self._broker.clock.now().monotonic_ms - now.monotonic_ms

    def commit_part(
        self, part: ProduceTopic, buffer: bytearray, request: ProduceRequest, version: int, verdicts: Verdicts
    ) -> list[Outcome]:
        """A part of a request that is answered when all of it is committed."""
        self._acks = request.acks
        try:
            outcomes = self._stage_topic(part, buffer, version, self._broker.clock.now(), verdicts)
            self._requests.append(Many(version, 0, 0, [(part[0], outcomes)]))
            return outcomes
        finally:
            self.commit()  # whatever happens: nothing may stay staged

    def commit(self) -> Commit:
        """Commit: one write for every partition that was touched. Nothing of the buffers is needed afterwards."""
        requests, self._requests = self._requests, []
        touched, self._touched = self._touched, {}
        is_quiet, self._is_quiet = self._is_quiet, False
        self.is_turn_over = False
        lags, self._is_done_in_turns = self._is_done_in_turns, False
        for partition in touched:
            log = partition.log
            try:
                log.commit()
            except LogStorageError as failure:
                self._broker.metrics.storage_errors += 1
                fail(requests, partition, str(failure), -1)
            except Exception as accident:
                # Staged batches lie in a buffer that will be used again, so they must not be written later.
                logger.exception("a commit failed unexpectedly")
                log.go_offline(f"{log.folder}: a commit failed unexpectedly: {accident!r}")
                fail(requests, partition, "the commit failed unexpectedly", -1)
            if partition.replica is not None:
                partition.replica.move_high_watermark()
            lags = lags or log.extent.high_watermark < log.extent.next_offset
            if self._waits_for_disk:
                self._broker.flusher.request(partition)
        for partition in touched:  # only now: what is woken may stage and commit, too
            if partition.waiters or partition.polls.waiting:
                partition.wake()
        self._checkpoint_if_due()
        return Commit(
            requests,
            self._awaited(requests) if lags else {},
            is_quiet
            and any(
                outcome.staged is None for request in requests if not request.acks for outcome in request.outcomes()
            ),
        )

    def _awaited(self, requests: list[Request]) -> dict[Partition, End]:
        awaited: dict[Partition, End] = {}
        for request in requests:
            if request.acks == ALL_REPLICAS or (self._waits_for_disk and request.acks):
                for outcome in request.outcomes():
                    staged, partition = outcome.staged, outcome.partition
                    if staged and partition and partition.fate(staged.end) is not Fate.SAFE:
                        # Where a leader's time ended between two parts of one request, all of it counts as lost.
                        offset, epoch = awaited.get(partition, staged.end)
                        awaited[partition] = End(max(staged.end_offset, offset), min(staged.epoch, epoch))
        return awaited
