"""The loop of `consume`: from a consumer to stdout, until there has been enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from oncelog.cli.parts import columns
from oncelog.cli.parts.columns import ColumnRenderer
from oncelog.cli.parts.endings import failure, words_of
from oncelog.cli.parts.rules import Given, on_group, on_topic
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError
from oncelog.client.types import TopicPartition
from oncelog.slots import Place

if TYPE_CHECKING:
    from oncelog.cli.parts.records import Form, Renderer
    from oncelog.client.consumer.consumer import Consumer


# Records are taken in bulk, as many as make about this number of bytes, so that large ones do not fill the memory.
TARGET_BYTES = 8 << 20
FIRST_RECORDS = 256
MOST_RECORDS = 20_000
MANY_RECORDS = 100_000  # behind this many it is worth loading what writes columns
# Callbacks of the group come while the consumer is polled; what they change is looked at so often.
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of reading, and the way of writing."""

    most_records: int | None = None
    ends_at_end: bool = False  # of every partition
    stops: Mapping[Place, int] = field(default_factory=dict)  # the first offset that is not wanted any more
    is_unbuffered: bool = False
    is_quiet: bool = False


class ConsumeLoop:
    """`form` is what `render` prints, where that is a matter of columns too."""

    def __init__(
        self, consumer: "Consumer", render: "Renderer", out: BinaryIO, limits: Limits, form: "Form | None" = None
    ) -> None:
        self._consumer = consumer
        self._render = render
        self._out = out
        self._limits = limits
        self._form = None if limits.is_unbuffered else form
        self._render_columns: ColumnRenderer | None = None
        self._written = 0
        self._left = limits.most_records
        self._places: set[Place] = set()
        self._done: set[Place] = set()  # partitions of which no more is wanted
        self._is_shared = False
        self._takes: Given | None = None
        self._has_share = False  # which may be nothing, where there are more members than partitions
        self._told: str | None = None

    def assign(self, starts: Mapping[Place, int]) -> None:
        self._places = set(starts)
        self._has_share = True
        for place, start in starts.items():
            if place in self._limits.stops and start >= self._limits.stops[place]:
                self._done.add(place)
        wanted = [TopicPartition(*place, start) for place, start in starts.items() if place not in self._done]
        self._consumer.assign(wanted)

    def share(self, group: str, topics: list[str]) -> None:
        """Read as a member of the group. What was written counts as done, and nothing else."""

        def assigned(consumer: "Consumer", partitions: list[TopicPartition]) -> None:
            self._places |= {Place(each.topic, each.partition) for each in partitions}
            self._has_share = True

        def revoked(consumer: "Consumer", partitions: list[TopicPartition]) -> None:
            gone = {Place(each.topic, each.partition) for each in partitions}
            self._places -= gone
            self._has_share = False
            self._done -= gone

        self._is_shared, self._takes = True, on_group("Read", group)
        self._consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def run(self) -> None:
        bulk = 1 if self._limits.is_unbuffered else FIRST_RECORDS
        while not self._is_over():
            most = bulk if self._left is None else min(bulk, self._left)
            if self._render_columns is not None and self._write_columns(self._consumer.consume_batches(most, 0)):
                continue
            first = self._consumer.poll(POLL_S)
            if first is None:
                continue
            messages = [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]
            size_bytes = self._write(messages)
            if not self._limits.is_unbuffered:
                bulk = min(MOST_RECORDS, max(1, TARGET_BYTES * len(messages) // max(1, size_bytes)))
            self._written += len(messages)
            if self._form is not None and self._written >= MANY_RECORDS:
                self._begin_columns(self._form)

    def _begin_columns(self, form: "Form") -> None:
        self._form = None  # whatever comes of it, it is tried once
        if columns.are_there():
            self._render_columns = columns.renderer(form)

    def _write_columns(self, found: list[Any]) -> bool:
        """RecordBatches, and messages that are errors; False where there was nothing."""
        for each in found:
            if isinstance(each, Message):
                self._write([each])
            else:
                self._write_batch(each)
        self._out.flush()
        return bool(found)

    def _write_batch(self, batch: Any) -> None:
        place = Place(batch["topic"][0].as_py(), batch["partition"][0].as_py())
        stop = self._limits.stops.get(place)
        if stop is not None:
            offsets = batch["offset"].to_numpy()
            if offsets[-1] + 1 >= stop:
                self._leave(place)
            batch = batch.slice(0, int(offsets.searchsorted(stop)))
        if batch.num_rows and self._render_columns is not None:
            self._out.write(self._render_columns(batch))
            if self._left is not None:
                self._left -= batch.num_rows
            if self._is_shared and place in self._places:
                behind = batch["offset"][batch.num_rows - 1].as_py() + 1
                self._consumer.store_offsets(offsets=[TopicPartition(*place, behind)])

    def _is_over(self) -> bool:
        if self._left == 0:
            return True
        is_at_end = self._has_share and self._places <= self._done
        return is_at_end and (self._limits.ends_at_end or not self._is_shared)

    def _write(self, messages: list[Message]) -> int:
        records = [each for each in messages if type(each) is Message]
        if self._limits.stops:
            records = [each for each in records if self._is_wanted(each)]
        data = self._render(records) if records else b""
        self._out.write(data)
        self._out.flush()
        if self._left is not None:
            self._left -= len(records)
        if self._is_shared:
            self._store(records)
        if len(records) < len(messages):
            for each in messages:
                error = each.error()
                if error is not None:
                    self._hear(error, each)
        return len(data)

    def _is_wanted(self, record: Message) -> bool:
        place = Place(record.topic(), record.partition())
        stop = self._limits.stops.get(place)
        if stop is None or record.offset() + 1 < stop:
            return True
        self._leave(place)
        return record.offset() < stop

    def _leave(self, place: Place) -> None:
        """No more of it is wanted."""
        if place not in self._done:
            self._done.add(place)
            self._consumer.pause([TopicPartition(*place)])

    def _store(self, records: Sequence[Message]) -> None:
        behind = {(each.topic(), each.partition()): each.offset() + 1 for each in records}
        mine = [TopicPartition(*place, offset) for place, offset in behind.items() if place in self._places]
        if mine:
            self._consumer.store_offsets(offsets=mine)

    def _hear(self, error: KafkaError, at: Message) -> None:
        place = Place(at.topic(), at.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            self._say(f"% Reached end of topic {place.topic} [{place.partition}] at offset {at.offset()}")
            if self._limits.ends_at_end or at.offset() >= self._limits.stops.get(place, at.offset() + 1):
                self._done.add(place)
        elif error in (KafkaError._BAD_MSG, KafkaError.INVALID_MSG) and at.offset() >= 0:
            if place not in self._done:
                raise failure(self._damage(error))
        elif error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._say(f"% {words_of(error)}")
        else:
            is_of_topic = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and place.topic is not None
            raise failure(words_of(error, on_topic("Read", place.topic) if is_of_topic else self._takes))

    def _damage(self, error: KafkaError) -> str:
        """The words for damage, behind which nothing is written: records would be missing without a word."""
        words = error.str()
        if error.code() == KafkaError.INVALID_MSG:
            words += ": it is damaged, as its broker says"
        on = "`oncelog groups reset` takes the group" if self._is_shared else "-o goes on"
        return f"{words}. Nothing behind it was written: restore the topic from a backup, or {on} behind it"

    def _say(self, words: str) -> None:
        """A line about what goes on; what repeats itself is said once."""
        if not self._limits.is_quiet and words != self._told:
            click.echo(words, err=True)
        self._told = words
