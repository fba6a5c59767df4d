"""The work of a task: each of its partitions is resumed, and then its batches pass from one cluster to the other.

Bytes are fetched, put right in their headers and handed to a saved producer, which fills the lane's slots in order. The
lane's record says which records those are before the first of them is sent, and now and then how far the
acknowledgements got, so that the next run has little to read back.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.client import Producer, SavedProducer
from oncelog.client.door import Buffers, DataLost, Range, SavedTopic, read_batches
from oncelog.clock import monotonic_s, wall_s
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.records.passing_columns import Passing, pass_on
from oncelog.slots import Span
from oncelog.slots.chain import SavedPartition
from oncelog.spark.copying.job import Copied, CopyRefused, Job, Order, Task
from oncelog.spark.copying.lane import CopyRegister, Lane
from oncelog.spark.copying.lane_resuming import Resumed, check_written, resume
from oncelog.spark.copying.log import CopyLog
from oncelog.spark.sink.milestones import ACKNOWLEDGED, BEGUN, FIRST_SEND, RESUMED, RETURNING, SENT, STATE_READ, reached

if TYPE_CHECKING:
    from oncelog.client.door import BulkSend

# All that is under way fits into memory that is used again and again, and mostly into the processor's caches: twice as
# much took half as long again.
FETCHED_KBYTES: Final = "8192"
UNDER_WAY_KBYTES: Final = "16384"
NOTE_BYTES: Final = 64 << 20
NOTE_S: Final = 5.0
RESULT_S: Final = 3600.0  # the producer gives up long before
MOST_MADE_BYTES: Final = 1_000_000  # of a batch that is made anew
REQUEST_BYTES: Final = 1_000_000
PARTITIONER: Final = "consistent_random"  # of no importance: every record names its partition


class UnderWay(NamedTuple):
    handle: "BulkSend"
    end_slot: int
    end_offset: int  # of the source


def run(task: Task, attempt: str) -> list[Copied]:
    """`attempt` names who writes the lanes' records: no two attempts, of whatever run, are called the same."""
    job = task.job
    reached(BEGUN, partitions=[order.partition for order in task.orders])
    with ExitStack() as stack:
        log = stack.enter_context(CopyLog(job.destination, job.name))
        register = deepcopy(task.register)
        log.read_on(register)
        register.taken()
        reached(STATE_READ)
        resumed = {order.partition: resume(job, _lane(register, order)) for order in task.orders}
        reached(RESUMED)
        producer = stack.enter_context(Producer(_properties(job), saved=_saved(job, resumed.values())))
        notes = Notes(log, register, attempt)
        buffers = Buffers()
        copied = [Mover(job, order, resumed[order.partition], producer, notes, buffers).run() for order in task.orders]
        reached(RETURNING)
        return copied


def _lane(register: CopyRegister, order: Order) -> Lane:
    lane = register.lanes.get(order.partition)
    if lane is None:
        raise CopyRefused(f"nobody has claimed partition {order.partition}: the copy's topic was deleted meanwhile")
    return lane


def _properties(job: Job) -> dict[str, str]:
    """The properties that a copy needs go before the user's; a large batch is a request of its own."""
    own = {"enable.idempotence": "true", "request.required.acks": "all", "partitioner": PARTITIONER}
    own["message.max.bytes"] = str(max(job.most_batch_bytes, REQUEST_BYTES))
    return {"queue.buffering.max.kbytes": UNDER_WAY_KBYTES} | dict(job.destination.writing) | own


def _saved(job: Job, resumed: Iterable[Resumed]) -> SavedProducer:
    """The producer as it would have been saved at these slots."""
    partitions = {
        each.lane.partition: SavedPartition(
            next_offset=each.next_offset,
            spans=(Span(each.lane.identity, each.filled & SEQUENCE_MASK),),
        )
        for each in resumed
    }
    side = job.destination_side
    topic = SavedTopic(
        topic_id=side.topic_id, partition_count=job.destination_partitions, keyless_counter=0, partitions=partitions
    )
    return SavedProducer(
        cluster_id=side.cluster_id,
        made_at_ms=int(wall_s() * 1000),
        partitioner=PARTITIONER,
        topics={side.topic: topic},
    )


class Notes:
    """Lanes' records, written under the name of this attempt. Each has a key of its own, and removes the one before:
    who removes a record knows what it says, and never takes a younger one along."""

    def __init__(self, log: CopyLog, register: CopyRegister, attempt: str) -> None:
        self._log = log
        self._register = register
        self._attempt = attempt
        self._count = 0
        self._before: dict[int, bytes] = {}
        self._others: dict[int, list[Lane]] = defaultdict(list)

    def write(self, lane: Lane) -> None:
        self._count += 1
        key = lane.key(f"{self._attempt}.{self._count}")
        before = self._before.get(lane.partition)
        removed: list[tuple[bytes, None]] = [] if before is None else [(before, None)]
        self._log.append(self._register, [(key, lane.to_json()), *removed])
        self._before[lane.partition] = key

    def others(self, partition: int) -> list[Lane]:
        """The notes of other attempts about a lane since the last look, up to the last note of this one."""
        for note in self._register.taken():
            if note.author.partition(".")[0] != self._attempt:
                self._others[note.lane.partition].append(note.lane)
        return self._others.pop(partition, [])


class Mover:
    """The mover of one partition."""

    def __init__(
        self, job: Job, order: Order, resumed: Resumed, producer: Producer, notes: Notes, buffers: Buffers
    ) -> None:
        self._job = job
        self._order = order
        self._producer = producer
        self._notes = notes
        self._buffers = buffers
        self._found = resumed.filled - resumed.lane.done
        self._before = resumed.lane  # as it stood before this attempt
        self._lane = resumed.lane.advanced(resumed.filled, resumed.offset, resumed.next_offset)
        self._slot = resumed.filled  # for the next record
        self._offset = resumed.offset
        self._under_way: deque[UnderWay] = deque()
        self._records = self._size_bytes = 0
        self._noted_bytes, self._noted_s = 0, monotonic_s()
        self._lost: list[str] = []
        self._is_doubtful = False  # what was to fill the next slots is not there any more

    def run(self) -> Copied:
        job, order = self._job, self._order
        asked = Range(
            job.source_topic, order.partition, self._offset, order.end_offset, topic_id=job.source_side.topic_id
        )
        on_loss = self._lost.append if job.skips_lost else None
        try:
            reading = {"queued.max.messages.kbytes": FETCHED_KBYTES} | dict(job.source.reading)
            for start, buffer in read_batches(reading, asked, on_loss=on_loss):
                self._offset = max(self._offset, start)  # what lies between is gone
                self._pass(buffer)
                self._take_answers()
        except DataLost as lost:
            raise CopyRefused(
                f"{lost}: they were not copied. With --skip-lost the copy goes on behind them, and says what is missing"
            ) from None
        self._take_answers(everything=True)
        reached(ACKNOWLEDGED, partition=order.partition, slot=self._slot)
        end_offset = max(self._offset, order.end_offset)
        if self._records or self._found or end_offset != self._before.offset or not self._before.is_at_rest:
            self._notes.write(self._lane.advanced(self._slot, end_offset, self._lane.end_offset).at_rest())
        return Copied(order.partition, self._records, self._size_bytes, self._found, tuple(self._lost))

    def _pass(self, buffer: memoryview) -> None:
        passing = pass_on(
            buffer,
            start_offset=self._offset,
            end_offset=self._order.end_offset,
            most_bytes=self._job.most_batch_bytes,
            made_bytes=MOST_MADE_BYTES,
            allocate=self._buffers.take,
        )
        self._offset = max(self._offset, passing.next_offset)
        if not passing.record_count:
            return
        self._write_down(passing)
        reached(FIRST_SEND if not self._records else SENT, partition=self._order.partition, slot=self._slot)
        handle = self._producer.send_batches(self._job.destination_topic, self._order.partition, passing.batches)
        self._slot += passing.record_count
        self._records += passing.record_count
        self._size_bytes += sum(len(each.data) for each in passing.batches)
        self._under_way.append(UnderWay(handle, self._slot, self._offset))
        if self._is_doubtful:
            lane, self._is_doubtful = self._lane, False
            self._take_answers(everything=True)
            check_written(self._job, lane, self._slot)

    # --- which records fill which slots

    def _write_down(self, passing: Passing) -> None:
        """Write offsets down before they are sent, unless they were written before."""
        mapping = self._lane.mapping
        if mapping.says(self._slot, passing.runs):
            return
        wanted = mapping.with_runs(self._slot, passing.runs, is_open=not self._job.is_compacted)
        self._is_doubtful = not self._records and not mapping.certain(self._slot).agrees(wanted, self._slot)
        self._lane = self._lane.with_mapping(wanted)
        self._notes.write(self._lane)
        mine = wanted.certain(self._slot + passing.record_count)
        for other in self._notes.others(self._order.partition):
            if not other.mapping.certain(other.done).agrees(mine, self._lane.done):
                raise CopyRefused(
                    f"another `oncelog copy --name {self._job.name}` is at work on {self._job.source_topic}-"
                    f"{self._order.partition}, which is being compacted, and saw other records there: end one of them"
                )

    # --- how far it got

    def _take_answers(self, *, everything: bool = False) -> None:
        """Take note of what is acknowledged by now, or wait until all of it is."""
        lane, at = self._lane, None
        while self._under_way and (everything or self._under_way[0].handle.done()):
            at = self._under_way.popleft()
            ranges = at.handle.result(RESULT_S)
            end_offset = max((each.first_offset + each.record_count for each in ranges), default=-1)
            lane = lane.advanced(at.end_slot, at.end_offset, end_offset)
        self._lane = lane
        now_s = monotonic_s()
        is_much = self._size_bytes - self._noted_bytes >= NOTE_BYTES or now_s - self._noted_s >= NOTE_S
        if at is not None and is_much and not everything:
            self._noted_bytes, self._noted_s = self._size_bytes, now_s
            self._notes.write(self._lane)
