"""`AsyncConsumer`: the same on the caller's event loop. Callbacks may be coroutine functions.

Records are decoded on the loop, a block of them at a time; `consume` and `consume_arrow` take as many as they are asked
for, which is how long they hold the loop up.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Self

from oncelog.client.consumer import arguments
from oncelog.client.consumer.asked import (
    MOST_ROWS,
    arrow_tables,
    closed_in_callback,
    count_of,
    give_up_at_s,
    is_error,
    raise_for,
)
from oncelog.client.consumer.cluster_metadata import ClusterMetadata
from oncelog.client.consumer.consumer import OnRebalance
from oncelog.client.consumer.message import Message
from oncelog.client.consumer.operations import ConsumerGroupMetadata, Operations
from oncelog.client.consumer.subscription import Callbacks
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.properties import NOTHING_GIVEN, consumer_settings
from oncelog.client.types import TopicPartition
from oncelog.clock import monotonic_s


class AsyncConsumer:
    """For one event loop, the one that it is started on (`async with`, or `await start()`), and one task that reads."""

    def __init__(self, properties: Mapping[str, Any] = NOTHING_GIVEN, /, **more: Any) -> None:
        self._settings = consumer_settings({**properties, **more})
        self._something_came = asyncio.Event()
        self._started: Operations | None = None
        self._is_closed = False
        self._is_in_callback = False

    async def start(self) -> Self:
        if self._started is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._started = Operations(self._settings, self._something_came.set, loop.call_soon_threadsafe)
            await self._started.start()
        return self

    @property
    def _operations(self) -> Operations:
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        if self._started is None:
            raise RuntimeError("Consumer not started: use `async with`, or await start()")
        return self._started

    # --- records

    async def poll(self, timeout: float | None = -1) -> Message | None:
        """The next record, or an error in its place; None when none has come within the timeout in seconds."""
        operations = self._operations
        if not operations.core.calls:
            for message in operations.delivery.rows:
                return message
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        while True:
            await self._serve_calls()
            delivery = operations.delivery
            for message in delivery.rows:
                return message
            delivery.end_bulk()
            if not delivery.advance() and not await self._wait(give_up_s):
                return None

    async def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """As many as there are, up to `num_messages`; fewer only when the timeout is over."""
        most = count_of(num_messages)
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        delivery = self._operations.delivery
        delivery.begin_bulk()
        messages: list[Message] = []
        while len(messages) < most and not (messages and self._operations.core.calls):
            await self._serve_calls()
            messages.extend(islice(delivery.rows, most - len(messages)))
            if len(messages) < most and not delivery.advance() and not await self._wait(give_up_s):
                break
        return messages

    async def consume_arrow(self, num_messages: int = 10_000, timeout: float | None = -1) -> Any:
        """A pyarrow.Table of up to `num_messages` records, fewer only when the timeout is over; an error is raised."""
        most = count_of(num_messages, MOST_ROWS)
        give_up_s = give_up_at_s(arguments.timeout_s(timeout))
        delivery = self._operations.delivery
        table_of = arrow_tables()
        delivery.begin_bulk()
        batches: list[Any] = []
        rows = 0
        while rows < most and not (rows and self._operations.core.calls):
            await self._serve_calls()
            found = delivery.take_arrow(most - rows)
            if found is None:
                if not await self._wait(give_up_s):
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

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every record from now on; errors are raised. The end of a partition ends nothing."""
        while not self._is_closed:
            message = await self.poll()
            if message is not None:
                raise_for(message)
                if message.error() is None:
                    yield message

    async def _wait(self, give_up_s: float | None) -> bool:
        """Until something has come; False when the time is over."""
        operations = self._operations
        self._something_came.clear()
        if operations.core.calls or operations.core.engine.has_events:
            return True
        left_s = None if give_up_s is None else give_up_s - monotonic_s()
        if left_s is not None and left_s <= 0:
            return False
        operations.is_waiting = True
        try:
            async with asyncio.timeout(left_s):
                await self._something_came.wait()
        except TimeoutError:
            return False
        finally:
            operations.is_waiting = False
        return True

    async def _serve_calls(self) -> None:
        calls = self._operations.core.calls
        while calls:
            call = calls.popleft()
            self._is_in_callback = call.then is not None
            try:
                if call.function is not None:
                    result = call.function()
                    if inspect.isawaitable(result):
                        await result
            finally:
                self._is_in_callback = False
                if call.then is not None:
                    await call.then()

    # --- the group

    async def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Share these topics with the others of the group; what begins with ^ is a regular expression."""
        callbacks = Callbacks(self._bound(on_assign), self._bound(on_revoke), self._bound(on_lost))
        await self._operations.subscribe(topics, callbacks)

    def _bound(self, callback: OnRebalance | None) -> Any:
        if callback is None:
            return None
        if not callable(callback):
            raise TypeError(f"a callback must be callable, not {callback!r}")
        return lambda partitions: callback(self, partitions)

    async def unsubscribe(self) -> None:
        await self._operations.unsubscribe()

    def subscription(self) -> list[str]:
        return self._operations.subscription()

    def memberid(self) -> str | None:
        return self._operations.core.member.member_id or None

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        return self._operations.group_metadata()

    # --- what is read

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these and no others, from their offsets; where none is given, from the committed one."""
        await self._operations.assign(partitions)

    async def unassign(self) -> None:
        await self._operations.assign([])

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        await self._operations.incremental_assign(partitions)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        await self._operations.incremental_unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        return self._operations.assignment()

    async def seek(self, partition: TopicPartition) -> None:
        await self._operations.seek(partition)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        await self._operations.pause(partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        await self._operations.resume(partitions)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return self._operations.position(partitions)

    # --- committed offsets

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = False,
        producer: Any = None,
    ) -> list[TopicPartition] | None:
        """Commit the offset behind a record, these offsets, or behind all that was handed out.

        Unlike the other face's it is waited for, unless `asynchronous` is given; all else is as there.
        """
        if producer is not None:
            return await self._operations.commit_with(producer, message, offsets)
        if asynchronous:
            await self._operations.commit_later(message, offsets)
            return None
        return await self._operations.commit(message, offsets)

    async def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        await self._operations.store_offsets(message, offsets)

    async def committed(self, partitions: list[TopicPartition], timeout: float | None = -1) -> list[TopicPartition]:
        return await self._operations.committed(partitions, arguments.timeout_s(timeout))

    # --- what the cluster says

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = -1
    ) -> list[TopicPartition]:
        return await self._operations.offsets_for_times(partitions, arguments.timeout_s(timeout))

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        return await self._operations.get_watermark_offsets(partition, arguments.timeout_s(timeout), cached=cached)

    async def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> ClusterMetadata:
        try:
            async with asyncio.timeout(arguments.timeout_s(timeout)):
                return await self._operations.list_topics(topic)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no result within {timeout} s")) from None

    # --- the end

    async def close(self) -> None:
        """Commit what was handed out where that goes by itself, leave the group, and end every task and socket."""
        if self._is_closed or self._started is None:
            self._is_closed = True
            return
        if self._is_in_callback:
            raise closed_in_callback()
        operations = self._started
        await operations.begin_leaving(self._something_came.set)
        while not operations.has_left:
            self._something_came.clear()
            await self._serve_calls()
            if not operations.has_left and not operations.core.calls:
                await self._something_came.wait()
        try:
            await operations.close()
            await self._serve_calls()
        finally:
            self._is_closed = True

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
