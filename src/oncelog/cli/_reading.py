"""The loop of `consume`: from a consumer to stdout, until there has been enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import click

from oncelog.cli._endings import failure, words_of
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError
from oncelog.client.types import TopicPartition

if TYPE_CHECKING:
    from oncelog.cli._records import Renderer
    from oncelog.client.consumer.consumer import Consumer

Place = tuple[str, int]

# Records are taken in bulk, as many as make about so many bytes, so that large ones do not fill the memory.
TARGET_BYTES = 8 << 20
FIRST_RECORDS = 256
MOST_RECORDS = 20_000
# Callbacks of the group come while the consumer is polled; what they change is looked at so often.
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When there has been enough."""

    most_records: int | None = None
    ends_at_end: bool = False  # of every partition
    stops: Mapping[Place, int] = field(default_factory=dict)  # the first offset that is not wanted any more
    is_unbuffered: bool = False
    is_quiet: bool = False


class Reading:
    def __init__(self, consumer: "Consumer", render: "Renderer", out: BinaryIO, limits: Limits) -> None:
        self._consumer = consumer
        self._render = render
        self._out = out
        self._limits = limits
        self._left = limits.most_records
        self._places: set[Place] = set()
        self._done: set[Place] = set()  # partitions of which no more is wanted
        self._is_shared = False
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

    def share(self, topics: list[str]) -> None:
        """As a member of the group. What was written counts as done, and nothing else."""

        def assigned(consumer: "Consumer", partitions: list[TopicPartition]) -> None:
            self._places |= {(each.topic, each.partition) for each in partitions}
            self._has_share = True

        def revoked(consumer: "Consumer", partitions: list[TopicPartition]) -> None:
            gone = {(each.topic, each.partition) for each in partitions}
            self._places -= gone
            self._has_share = False
            self._done -= gone

        self._is_shared = True
        self._consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def run(self) -> None:
        bulk = 1 if self._limits.is_unbuffered else FIRST_RECORDS
        while not self._is_over():
            first = self._consumer.poll(POLL_S)
            if first is None:
                continue
            most = bulk if self._left is None else min(bulk, self._left)
            messages = [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]
            size_bytes = self._write(messages)
            if not self._limits.is_unbuffered:
                bulk = min(MOST_RECORDS, max(1, TARGET_BYTES * len(messages) // max(1, size_bytes)))

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
        place = record.topic(), record.partition()
        stop = self._limits.stops.get(place)
        if stop is None or record.offset() + 1 < stop:
            return True
        if place not in self._done:
            self._done.add(place)
            self._consumer.pause([TopicPartition(*place)])
        return record.offset() < stop

    def _store(self, records: Sequence[Message]) -> None:
        behind = {(each.topic(), each.partition()): each.offset() + 1 for each in records}
        mine = [TopicPartition(*place, offset) for place, offset in behind.items() if place in self._places]
        if mine:
            self._consumer.store_offsets(offsets=mine)

    def _hear(self, error: KafkaError, at: Message) -> None:
        place = at.topic(), at.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._say(f"% Reached end of topic {place[0]} [{place[1]}] at offset {at.offset()}")
            if self._limits.ends_at_end or at.offset() >= self._limits.stops.get(place, at.offset() + 1):
                self._done.add(place)
        elif error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._say(f"% {words_of(error)}")
        else:
            raise failure(words_of(error))

    def _say(self, words: str) -> None:
        """A line about what goes on; what repeats itself is said once."""
        if not self._limits.is_quiet and words != self._told:
            click.echo(words, err=True)
        self._told = words
