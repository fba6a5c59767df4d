"""`AsyncConsumer`: the consumer on the caller's event loop. Callbacks may be coroutine functions.

Records are decoded on the loop, a block of them at a time; `consume` and `consume_arrow` take as many as they are asked
for, which is how long they hold the loop up. `consumer.py` is made from this text: `python -m tests.repo.faces`.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Self

from oncelog.client.consumer import arguments
from oncelog.client.consumer.asked import MOST_ROWS, arrow_tables, count_of, give_up_at_s, is_error, raise_for
from oncelog.client.consumer.calls import NOT_OPEN, Call
from oncelog.client.consumer.cluster_metadata import ClusterMetadata
from oncelog.client.consumer.delivery import Delivery
from oncelog.client.consumer.message import Message
from oncelog.client.consumer.on_loop import COMMITS_LATER, OnLoop
from oncelog.client.consumer.operations import ConsumerGroupMetadata, Operations
from oncelog.client.consumer.subscription import Callbacks
from oncelog.client.properties import NOTHING_GIVEN, consumer_settings
from oncelog.client.types import TopicPartition

OnRebalance = Callable[[Any, list[TopicPartition]], Any]


class AsyncConsumer:
    """A consumer for one task, on the event loop that it is started on (`async with`, or `await start()`)."""

    def __init__(self, properties: Mapping[str, Any] = NOTHING_GIVEN, /, **more: Any) -> None:
        self._calls: deque[Call] = NOT_OPEN
        self._delivery: Delivery
        self._driver = OnLoop(consumer_settings(properties, more), self._open)

    def _open(self, operations: Operations) -> None:
        self._delivery = operations.delivery
        self._calls = operations.core.calls

    async def start(self) -> Self:
        await self._driver.start()
        return self

    # --- records

    async def poll(self, timeout: float | None = -1) -> Message | None:
        """The next record, or an error in its place; None when none has come within the timeout in seconds."""
        if not self._calls:
            for message in self._delivery.rows:
                return message
        return await self._next(arguments.timeout_s(timeout))

    async def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """The messages that there are, up to `num_messages`; fewer only when the timeout is over, or where the group
        wants partitions back: then the records collected so far come first."""
        most = count_of(num_messages)
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        delivery = self._driver.operations.delivery
        messages: list[Message] = []
        with self._driver.operations.collecting(messages):
            while len(messages) < most and not (messages and self._calls):
                await self._driver.serve_calls()
                messages.extend(islice(delivery.rows, most - len(messages)))
                if len(messages) < most and not delivery.advance() and not await self._driver.wait(give_up_s):
                    break
        return messages

    async def consume_arrow(self, num_messages: int = 10_000, timeout: float | None = -1) -> Any:
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
                await self._driver.serve_calls()
                found = delivery.take_arrow(most - rows)
                if found is None:
                    if not await self._driver.wait(give_up_s):
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

    async def consume_batches(self, num_messages: int = 10_000, timeout: float | None = -1) -> list[Any]:
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
                await self._driver.serve_calls()
                each = delivery.take_arrow(most - rows)
                if each is not None:
                    found.append(each)
                    rows += 0 if isinstance(each, Message) else each.num_rows
                elif not await self._driver.wait(give_up_s):
                    break
        return found

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every record from now on; errors are raised. The end of a partition ends nothing."""
        while not self._driver.is_closed:
            calls = self._calls
            if not calls:
                for message in self._delivery.rows:
                    yield message
                    if calls:
                        break
            found = await self._next(None)
            if found is not None and found.error() is None:
                yield found
            elif found is not None:
                raise_for(found)

    async def _next(self, timeout_s: float | None) -> Message | None:
        """`poll`, where nothing lies ready."""
        give_up_s = give_up_at_s(timeout_s)
        delivery = self._driver.operations.delivery
        while True:
            await self._driver.serve_calls()
            for message in delivery.rows:
                return message
            delivery.end_bulk()
            if not delivery.advance() and not await self._driver.wait(give_up_s):
                return None

    # --- the group

    async def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Share these topics with the others of the group; a name that begins with ^ is a regular expression.

        The callbacks get (consumer, partitions) in the task that polls. They may assign other offsets. Partitions
        that they do not assign or give back themselves are assigned and given back after them.
        """
        callbacks = Callbacks(self._bound(on_assign), self._bound(on_revoke), self._bound(on_lost))
        await self._driver.run(self._driver.operations.subscribe(topics, callbacks))

    def _bound(self, callback: OnRebalance | None) -> Any:
        if callback is None:
            return None
        if not callable(callback):
            raise TypeError(f"a callback must be callable, not {callback!r}")
        return lambda partitions: callback(self, partitions)

    async def unsubscribe(self) -> None:
        """Give everything back; the callbacks come when the application polls."""
        await self._driver.run(self._driver.operations.unsubscribe())

    def subscription(self) -> list[str]:
        return self._driver.operations.subscription()

    # --- what is read

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions and no others, from their offsets, or else from the committed ones."""
        await self._driver.run(self._driver.operations.assign(partitions))

    async def unassign(self) -> None:
        await self._driver.run(self._driver.operations.assign([]))

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        await self._driver.run(self._driver.operations.incremental_assign(partitions))

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        await self._driver.run(self._driver.operations.incremental_unassign(partitions))

    def assignment(self) -> list[TopicPartition]:
        return self._driver.operations.assignment()

    async def seek(self, partition: TopicPartition) -> None:
        """Go on from its offset; records fetched from other offsets are forgotten."""
        await self._driver.run(self._driver.operations.seek(partition))

    async def pause(self, partitions: list[TopicPartition]) -> None:
        await self._driver.run(self._driver.operations.pause(partitions))

    async def resume(self, partitions: list[TopicPartition]) -> None:
        await self._driver.run(self._driver.operations.resume(partitions))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset of the next record."""
        return self._driver.operations.position(partitions)

    # --- committed offsets

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = COMMITS_LATER,
        producer: Any = None,
    ) -> list[TopicPartition] | None:
        """Commit the offset behind a record, these offsets, or those behind all records that were handed out.

        It is waited for, and 60 seconds without an answer are a failure, unless `asynchronous` is given: then the
        outcome is told to `on_commit` when the application polls. With a `producer` its saved state goes into the same
        commit, and it is always waited for: for all of its records before, too.
        """
        committing = self._driver.operations.commit_any(message, offsets, is_later=asynchronous, producer=producer)
        return await self._driver.run(committing)

    async def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark records as done, for the next commit; with `enable.auto.offset.store` false nothing else does."""
        await self._driver.run(self._driver.operations.store_offsets(message, offsets))

    async def committed(self, partitions: list[TopicPartition], timeout: float | None = -1) -> list[TopicPartition]:
        timeout_s = arguments.timeout_s(timeout)
        return await self._driver.run(self._driver.operations.committed(partitions, timeout_s), timeout_s)

    # --- what the cluster says

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        """The first offset at or after a time, which is given in milliseconds as the offset; OFFSET_END for none."""
        timeout_s = arguments.timeout_s(timeout)
        return await self._driver.run(self._driver.operations.offsets_for_times(partitions, timeout_s), timeout_s)

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """The first offset and the one behind the last; `cached`: as the last fetch said, None before that."""
        timeout_s = arguments.timeout_s(timeout)
        asked = self._driver.operations.get_watermark_offsets(partition, timeout_s, cached=cached)
        return await self._driver.run(asked, timeout_s)

    async def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        timeout_s = arguments.timeout_s(timeout)
        return await self._driver.run(self._driver.operations.list_topics(topic), timeout_s)

    def memberid(self) -> str | None:
        """The id of this consumer in its group; None outside of any group."""
        return self._driver.operations.core.member.member_id or None

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        return self._driver.operations.group_metadata()

    # --- the end

    async def close(self) -> None:
        """Commit the records handed out, where commits go by themselves; leave the group; end every task and socket."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
