"""Records to a producer, with its failures brought to the one who typed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oncelog.cli.parts import columns
from oncelog.cli.parts.cluster import refuse_unless_there
from oncelog.cli.parts.endings import failure, nearest, words_of
from oncelog.cli.parts.lines import Record
from oncelog.cli.parts.rules import on_topic
from oncelog.client.errors import KafkaError, KafkaException, error_of
from oncelog.client.producer.producer import Producer
from oncelog.client.properties import producer_settings

CHOSEN = -1  # by the key
# Topics that are about to be there, and those whose partitions have no leader for the moment: the producer waits.
_PASSING = frozenset({KafkaError.LEADER_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class Target:
    """The options that say where records go; None where each record may say it."""

    topic: str | None
    partition: int | None


class RecordSender:
    def __init__(self, properties: dict[str, Any], timeout_s: float, target: Target, count: int | None) -> None:
        more = {"on_delivery": self._failed, "delivery.report.only.error": True, "oncelog.queue.full": "block"}
        self.most_bytes = producer_settings(properties).message_max_bytes
        self._producer = Producer(properties | more)
        self._timeout_s = timeout_s
        self._target = target
        self._left = count
        self._counts: dict[str, int] = {}
        self._failure: str | None = None
        self._failures = 0
        try:
            if target.topic is not None:
                self._look_at(target.topic)
        except BaseException:
            self.close()
            raise

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def send_values(self, values: Sequence[bytes]) -> None:
        """Values alone, to the one topic; empty ones are nothing. It is what most inputs are, and the fastest way."""
        found = [each for each in values if each]
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
        produce, topic, partition = self._producer.produce, self._target.topic, self._target.partition
        assert topic is not None
        if partition is None or partition == CHOSEN:
            for value in found:
                produce(topic, value)
        else:
            for value in found:
                produce(topic, value, None, partition)
        self._serve()

    def send_columns(self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> None:
        """The same for many at once."""
        if self._left is not None:
            values = values[: self._left]
            keys = None if keys is None else keys[: self._left]
            self._left -= len(values)
        topic, partition = self._target.topic, self._target.partition
        assert topic is not None
        if not values:
            return
        table = columns.table_of(values, keys, None if partition == CHOSEN else partition)
        try:
            self._producer.send(topic, table, self._sent)
        except KafkaException as refusal:
            if refusal.error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            # Those before it are sent, as they are when they come one by one.
            for number, value in enumerate(values):
                self._producer.produce(
                    topic, value, None if keys is None else keys[number], CHOSEN if partition is None else partition
                )
        self._serve()

    def send(self, records: Iterable[Record]) -> None:
        for record in records:
            if self.is_over:
                break
            self._send(record)
            if self._left is not None:
                self._left -= 1
        self._serve()

    def _send(self, record: Record) -> None:
        topic = self._target.topic or record.topic
        if topic is None:
            raise failure("a record names no topic: -t TOPIC says where to")
        partition = record.partition if self._target.partition is None else self._target.partition
        if partition is None:
            partition = CHOSEN
        elif partition != CHOSEN:
            self._check(topic, partition)
        headers: Any = record.headers  # names as bytes, which need not be UTF-8
        try:
            self._producer.produce(
                topic, record.value, record.key, partition, timestamp=record.timestamp_ms, headers=headers
            )
        except ValueError as refusal:
            raise failure(str(refusal)) from refusal

    def _check(self, topic: str, partition: int) -> None:
        if topic not in self._counts:
            self._look_at(topic)
        count = self._counts[topic]
        if count and partition >= count and self._target.partition is None:
            raise failure(
                f"a record is for partition {partition}, and topic {topic} has {count}: -p -1 lets keys choose instead"
            )

    def _look_at(self, topic: str) -> None:
        """Whether the topic is there, or is made by being asked for, before anything is read."""
        metadata = self._producer.list_topics(topic, self._timeout_s)
        known = metadata.topics[topic]
        code = 0 if known.error is None else known.error.code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            there = self._producer.list_topics(timeout=self._timeout_s).topics
            near = nearest(topic, there)
            raise failure(f"there is no topic {topic}{near}: `oncelog topics create {topic}` makes one")
        if code and code not in _PASSING:
            raise failure(f"{topic}: {words_of(error_of(code), on_topic('Write', topic))}")
        count = self._counts[topic] = len(known.partitions)
        partition = self._target.partition
        if count and partition is not None:
            refuse_unless_there(topic, count, partition)

    # --- what became of it

    def finish(self) -> None:
        """Wait until all is acknowledged."""
        self._producer.flush()
        self._raise_failure()

    def give_up(self, timeout_s: float) -> int:
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        self._producer.close(0)

    def _serve(self) -> None:
        self._producer.poll(0)
        if self._failure is not None:
            # Nothing more is read; what was is on its way.
            self.finish()

    def _failed(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            return
        self._failures += 1
        self._remember(message.topic(), f"{message.topic()} [{message.partition()}]", error)

    def _remember(self, topic: str, where: str, error: KafkaError) -> None:
        if self._failure is None:
            self._failure = f"{where}: {words_of(error, on_topic('Write', topic))}"
            if error.maybe_stored():
                self._failure += " (it may be stored all the same)"

    def _sent(self, error: KafkaError | None, handle: Any) -> None:
        if error is not None:
            self._failures += handle.failed_count
            self._remember(handle.topic, handle.topic, error)

    @property
    def refused(self) -> str:
        """The records that failed so far, in words; empty where none did."""
        return "" if self._failure is None else f"{self._failures:,} records failed, the first one: {self._failure}"

    def _raise_failure(self) -> None:
        if self.refused:
            raise failure(self.refused)
