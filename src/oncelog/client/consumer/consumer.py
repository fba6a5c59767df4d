"""The consumer for programs that know nothing of asyncio, in the shape of confluent-kafka's.

A thread of its own fetches ahead. Records are decoded in the application's thread, a block at a time, and handed out
from there: most calls of `poll` touch neither the other thread nor a lock. Made from `asynchronous.py`, to be changed
there: `python -m tests.repo.faces`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Self

from oncelog.client.consumer import arguments
from oncelog.client.consumer.asked import MOST_ROWS, arrow_tables, count_of, give_up_at_s, is_error, raise_for
from oncelog.client.consumer.calls import NOT_OPEN, Call
from oncelog.client.consumer.cluster_metadata import ClusterMetadata
from oncelog.client.consumer.delivery import Delivery
from oncelog.client.consumer.in_thread import COMMITS_LATER, InThread
from oncelog.client.consumer.message import Message
from oncelog.client.consumer.operations import ConsumerGroupMetadata, Operations
from oncelog.client.consumer.subscription import Callbacks
from oncelog.client.properties import NOTHING_GIVEN, consumer_settings
from oncelog.client.types import TopicPartition

OnRebalance = Callable[[Any, list[TopicPartition]], Any]


class Consumer:
    """A consumer for one thread, which polls. Other calls come from the same thread."""

    def __init__(self, properties: Mapping[str, Any] = NOTHING_GIVEN, /, **more: Any) -> None:
        self._calls: deque[Call] = NOT_OPEN
        self._delivery: Delivery
        self._driver = InThread(consumer_settings(properties, more), self._open)

    def _open(self, operations: Operations) -> None:
        self._delivery = operations.delivery
        self._calls = operations.core.calls

    # --- records

    def poll(self, timeout: float | None = -1) -> Message | None:
        """The next record, or an error in its place; None when none has come within the timeout in seconds."""
        if not self._calls:
            for message in self._delivery.rows:
                return message
        return self._next(arguments.timeout_s(timeout))

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """The messages that there are, up to `num_messages`; fewer only when the timeout is over, or where the group
        wants partitions back: then the records collected so far come first."""
        most = count_of(num_messages)
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        delivery = self._driver.operations.delivery
        messages: list[Message] = []
        with self._driver.operations.collecting(messages):
            while len(messages) < most and not (messages and self._calls):
                self._driver.serve_calls()
                messages.extend(islice(delivery.rows, most - len(messages)))
                if len(messages) < most and not delivery.advance() and not self._driver.wait(give_up_s):
                    break
        return messages

    def consume_arrow(self, num_messages: int = 10_000, timeout: float | None = -1) -> Any:
        """A pyarrow.Table of up to `num_messages` records, fewer where `consume` gives fewer; an error is raised.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType
        (0 the producer's, 1 the log's), headers. Needs the extra `oncelog[columns]`.
        """
        most = count_of(num_messages, MOST_ROWS)
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        delivery = self._driver.operations.delivery
        table_of = arrow_tables()
        batches: list[Any] = []
        rows = 0
        with self._driver.operations.collecting(batches):
            while rows < most and not (rows and self._calls):
                self._driver.serve_calls()
                found = delivery.take_arrow(most - rows)
                if found is None:
                    if not self._driver.wait(give_up_s):
                        break
                elif isinstance(found, Message):
                    if batches and is_error(found):
                        delivery.put_back(found)
                        break
                    raise_for(found)
                else:
                    batches.append(found)
                    rows += found.num_rows
        return table_of(batches)

    def consume_batches(self, num_messages: int = 10_000, timeout: float | None = -1) -> list[Any]:
        """The parts of a `consume_arrow` table: pyarrow.RecordBatches, each of one partition, and among them, where
        they happened, errors and ends of partitions as messages."""
        most = count_of(num_messages, MOST_ROWS)
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        delivery = self._driver.operations.delivery
        arrow_tables()
        found: list[Any] = []
        rows = 0
        with self._driver.operations.collecting(found):
            while rows < most and not (found and self._calls):
                self._driver.serve_calls()
                each = delivery.take_arrow(most - rows)
                if each is not None:
                    found.append(each)
                    rows += 0 if isinstance(each, Message) else each.num_rows
                elif not self._driver.wait(give_up_s):
                    break
        return found

    def __iter__(self) -> Iterator[Message]:
        """Every record from now on; errors are raised. The end of a partition ends nothing."""
        while not self._driver.is_closed:
            calls = self._calls
            if not calls:
                for message in self._delivery.rows:
                    yield message
                    if calls:
                        break
            found = self._next(None)
            if found is not None and found.error() is None:
                yield found
            elif found is not None:
                raise_for(found)

    def _next(self, timeout_s: float | None) -> Message | None:
        """`poll`, where nothing lies ready."""
        give_up_s = give_up_at_s(timeout_s)
        delivery = self._driver.operations.delivery
        while True:
            self._driver.serve_calls()
            for message in delivery.rows:
                return message
            delivery.end_bulk()
            if not delivery.advance() and not self._driver.wait(give_up_s):
                return None

    # --- the group

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Share these topics with the others of the group; a name that begins with ^ is a regular expression.

        The callbacks get (consumer, partitions) in the thread that polls. They may assign other offsets. Partitions
        that they do not assign or give back themselves are assigned and given back after them.
        """
        callbacks = Callbacks(self._bound(on_assign), self._bound(on_revoke), self._bound(on_lost))
        self._driver.run(self._driver.operations.subscribe(topics, callbacks))

    def _bound(self, callback: OnRebalance | None) -> Any:
        if callback is None:
            return None
        if not callable(callback):
            raise TypeError(f"a callback must be callable, not {callback!r}")
        return lambda partitions: callback(self, partitions)

    def unsubscribe(self) -> None:
        """Give everything back; the callbacks come when the application polls."""
        self._driver.run(self._driver.operations.unsubscribe())

    def subscription(self) -> list[str]:
        return self._driver.operations.subscription()

    # --- what is read

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions and no others, from their offsets, or else from the committed ones."""
        self._driver.run(self._driver.operations.assign(partitions))

    def unassign(self) -> None:
        self._driver.run(self._driver.operations.assign([]))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._driver.run(self._driver.operations.incremental_assign(partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._driver.run(self._driver.operations.incremental_unassign(partitions))

    def assignment(self) -> list[TopicPartition]:
        return self._driver.operations.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Go on from its offset; records fetched from other offsets are forgotten."""
        self._driver.run(self._driver.operations.seek(partition))

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._driver.run(self._driver.operations.pause(partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._driver.run(self._driver.operations.resume(partitions))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset of the next record."""
        return self._driver.operations.position(partitions)

    # --- committed offsets

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = COMMITS_LATER,
        producer: Any = None,
    ) -> list[TopicPartition] | None:
        """Commit the offset behind a record, these offsets, or those behind all records that were handed out.

        Asynchronously the outcome is told to `on_commit` when the application polls; otherwise it is returned, and
        60 seconds without an answer are a failure. With a `producer` its saved state goes into the same
        commit, and it is always waited for: for all of its records before, too.
        """
        committing = self._driver.operations.commit_any(message, offsets, is_later=asynchronous, producer=producer)
        return self._driver.run(committing)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark records as done, for the next commit; with `enable.auto.offset.store` false nothing else does."""
        self._driver.run(self._driver.operations.store_offsets(message, offsets))

    def committed(self, partitions: list[TopicPartition], timeout: float | None = -1) -> list[TopicPartition]:
        timeout_s = arguments.timeout_s(timeout)
        return self._driver.run(self._driver.operations.committed(partitions, timeout_s), timeout_s)

    # --- what the cluster says

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = -1) -> list[TopicPartition]:
        """The first offset at or after a time, which is given in milliseconds as the offset; OFFSET_END for none."""
        timeout_s = arguments.timeout_s(timeout)
        return self._driver.run(self._driver.operations.offsets_for_times(partitions, timeout_s), timeout_s)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """The first offset and the one behind the last; `cached`: as the last fetch said, None before that."""
        timeout_s = arguments.timeout_s(timeout)
        asked = self._driver.operations.get_watermark_offsets(partition, timeout_s, cached=cached)
        return self._driver.run(asked, timeout_s)

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        timeout_s = arguments.timeout_s(timeout)
        return self._driver.run(self._driver.operations.list_topics(topic), timeout_s)

    def memberid(self) -> str | None:
        """The id of this consumer in its group; None outside of any group."""
        return self._driver.operations.core.member.member_id or None

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        return self._driver.operations.group_metadata()

    # --- the end

    def close(self) -> None:
        """Commit the records handed out, where commits go by themselves; leave the group; end every task and socket."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
