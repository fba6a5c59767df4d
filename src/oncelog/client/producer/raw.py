"""Batches that are encoded already on their way to a partition (extra `[columns]`).

`records/passing_columns.py` makes what a fetch brought into batches that a client may send. Nothing more of them is
unfolded here, except in the replay of a resumed producer: what stands in the log already is compared record by record,
and the batch that the replay's end cuts is trimmed. Who sends them, and as which sequences, the Sender stamps.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.accumulator import Topic, Unbatched, given_time
from oncelog.client.producer.bulk import BulkSend
from oncelog.client.producer.closing import BulkRows
from oncelog.client.producer.delivery import AllGiven, Records
from oncelog.clock import monotonic_s
from oncelog.records.header import NO_PRODUCER_ID, NO_SEQUENCE, Buffer, stamp, stamp_producer
from oncelog.records.passing_columns import Passed, pass_on
from oncelog.records.read import records_of
from oncelog.records.trim import trim
from oncelog.slots.batch import Batch

if TYPE_CHECKING:
    from oncelog.client.producer.engine import Engine

REPLAY_PAUSE_S: Final = 0.005  # between two looks whether a replay is over
NO_EPOCH: Final = -1


class RawWriter:
    """One call's batches: `parts` gives them one by one as they may be handed over, which `put` does; None in between
    asks to wait until the replay of this partition is over."""

    def __init__(self, engine: "Engine", topic: str, data: Buffer | Sequence[Passed]) -> None:
        self.handle = BulkSend(topic)
        self._engine = engine
        self._handed_over = 0
        most_bytes = engine.settings.message_max_bytes
        if isinstance(data, bytes | bytearray | memoryview):
            data = pass_on(data, most_bytes=most_bytes).batches
        self._batches = list(data)
        self.handle.record_count = sum(each.record_count for each in self._batches)

    def know(self, topic: Topic, partition: int) -> None:
        if not 0 <= partition < len(topic.partitions):
            words = f"{topic.name} has the partitions 0 to {len(topic.partitions) - 1}, not {partition}"
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, words))
        self._place: Unbatched = topic.partitions[partition]
        self._engine.saving.check_is_open(self._place.place)

    def parts(self) -> Iterator[Passed | None]:
        """The parts in order; the next one is to be asked for when this one was put."""
        for each in self._batches:
            rest: Passed | None = each
            while rest is not None and self._place.replay is not None:
                compared = self._compare(rest)
                if compared:
                    rest = _behind(rest, compared)
                else:  # the replay has all its records; what follows goes out when they were all equal
                    yield None
            if rest is not None:
                yield rest

    def has_room(self, part: Passed) -> bool:
        return self._engine.budget.has_room_for_bytes(len(part.data))

    def put(self, part: Passed) -> None:
        """Hand it over; its room was made."""
        place, data = self._place, part.data
        if not self._engine.settings.enable_idempotence:
            stamp_producer(data, 0, NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
        records = Records(place.topic, place.partition, part.record_count, len(data))
        records.handle = self.handle
        self._count(len(data), part.record_count)
        if self._engine.saving.is_on:
            records.times = AllGiven(part.record_count)
        made: Any = data
        batch = Batch(place.topic, place.partition, made, part.record_count, int(monotonic_s() * 1000), records)
        self._engine.closing.put(place, [batch])

    def finish(self) -> None:
        """No batch follows, be it because one failed."""
        self.handle.finish(self._handed_over)

    def _compare(self, part: Passed) -> int:
        """Offer as many of its records as the replay still takes; how many those were."""
        replay = self._place.replay
        count = min(part.record_count, replay.outputs_to_come) if replay is not None else 0
        if not count:
            return 0
        rows = BulkRows()
        rows.handle = self.handle
        for record in records_of(part.data)[:count]:
            # Before 1970 no time can be told from one that the producer gave; such a one is not compared.
            time = given_time(record.timestamp_ms) if record.timestamp_ms >= 0 else monotonic_s()
            rows += (record.key, record.value, list(record.headers) or None, time, None)
        self._count(self._engine.closing.records(self._place, rows).size_bytes, count)
        self._engine.closing.put_rows(self._place, rows)
        return count

    def _count(self, size_bytes: int, record_count: int) -> None:
        self._engine.budget.take_bulk(size_bytes, record_count)
        self._handed_over += record_count


def _behind(part: Passed, count: int) -> Passed | None:
    if count >= part.record_count:
        return None
    trimmed = trim(part.data, count)
    stamp(trimmed, 0, 0, NO_EPOCH)  # its offset had moved on by as much
    return Passed(trimmed, part.record_count - count)
