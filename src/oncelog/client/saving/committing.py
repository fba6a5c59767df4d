"""`consumer.commit(offsets, producer=producer)`: input positions and producer in one OffsetCommit.

The producer waits until every record before is stored, and says where that is; the consumer's side stores it. The two
may live on two clusters and on two threads. What was committed is committed again once a day for as long as both live,
since brokers forget the offsets of a group in which nothing happens for a week.
"""

import asyncio
import concurrent.futures
import logging
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from oncelog.client.errors import KafkaError, KafkaException, invalid_argument
from oncelog.client.register.entry import Entry
from oncelog.client.saving.committed import DEFAULT_LIMIT_BYTES
from oncelog.client.saving.ownership import Ownership
from oncelog.client.saving.saved import SavedProducer
from oncelog.clock import wall_s

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.types import TopicPartition

_log: Final = logging.getLogger("oncelog.client")

_Done = concurrent.futures.Future[None]

AGAIN_S: Final = 24 * 60 * 60
LEAVE_S: Final = 2.0  # who ends waits for no more


class ProducerSide(Protocol):
    """The producer's side, on its own loop."""

    started_from: SavedProducer | None

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    async def begin_commit(self) -> SavedProducer: ...

    async def end_commit(self, *, is_stored: bool) -> None: ...

    def stop(self, failure: KafkaException) -> None: ...


@runtime_checkable
class HasSaving(Protocol):
    @property
    def saving(self) -> ProducerSide: ...


class Committer:
    """One producer's commits to one group, on the loop of the consumer's brokers."""

    def __init__(self, brokers: "Brokers", group: str, saving: ProducerSide, limit_bytes: int) -> None:
        self._brokers = brokers
        self.saving = saving
        self._ownership = Ownership(
            brokers, group, saving.started_from, SavedProducer.from_json, limit_bytes=limit_bytes
        )
        self.again: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._held: dict[tuple[str, int], Entry] = {}  # what was committed last
        self.last: SavedProducer | None = None
        self.turn = asyncio.Lock()

    async def commit(self, positions: Sequence[Entry], again_s: float) -> SavedProducer:
        async with self.turn:
            value = await self._begin()
            is_stored = False
            try:
                await self.store(positions, value)
                is_stored = True
            finally:
                if not is_stored:  # it may stand there: the daily commit is not to put what was before over it
                    self.last = None
                await self._end(is_stored=is_stored)
        self._plan(value, again_s)
        return value

    async def _begin(self) -> SavedProducer:
        """The producer's turn. It is taken on the producer's thread, perhaps just when the commit is cancelled on ours:
        then whichever thread comes second gives it back."""
        if asyncio.get_running_loop() is self.saving.loop:
            return await self.saving.begin_commit()  # at once: what is produced from here on is not part of it
        outcome: concurrent.futures.Future[SavedProducer] = concurrent.futures.Future()
        taking = asyncio.run_coroutine_threadsafe(self._take_turn(outcome), self.saving.loop)
        taking.add_done_callback(partial(_closed_meanwhile, outcome))
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            if outcome.cancel():
                taking.cancel()
            elif outcome.exception() is None:
                self._give_turn_back(is_stored=False)
            raise

    async def _take_turn(self, outcome: concurrent.futures.Future[SavedProducer]) -> None:
        """The value is taken on the producer's loop."""
        try:
            value = await self.saving.begin_commit()
        except Exception as failure:
            if outcome.set_running_or_notify_cancel():
                outcome.set_exception(failure)
            return
        if outcome.set_running_or_notify_cancel():
            outcome.set_result(value)
        else:
            await self.saving.end_commit(is_stored=False)

    def _give_turn_back(self, *, is_stored: bool) -> "concurrent.futures.Future[None]":
        return asyncio.run_coroutine_threadsafe(self.saving.end_commit(is_stored=is_stored), self.saving.loop)

    async def _end(self, *, is_stored: bool) -> None:
        await asyncio.shield(asyncio.wrap_future(self._give_turn_back(is_stored=is_stored)))

    async def store(self, positions: Sequence[Entry], value: SavedProducer) -> None:
        metadata = self._brokers.metadata
        if metadata.cluster_id is None:
            metadata = await self._brokers.refresh(())
        try:
            await self._ownership.commit(positions, value, may_add=metadata.cluster_id == value.cluster_id)
        except KafkaException as failure:
            if failure.error.fatal():
                self._stop(failure)
            raise
        self.saving.started_from = self.last = value
        for each in positions:
            self._held[each.topic, each.partition] = each

    def _stop(self, failure: KafkaException) -> None:
        try:
            self.saving.loop.call_soon_threadsafe(self.saving.stop, failure)
        except RuntimeError:
            if not self.saving.loop.is_closed():  # else the producer was closed before
                raise

    def _plan(self, value: SavedProducer, again_s: float) -> None:
        if self.again is not None:
            self.again.cancel()
        loop = asyncio.get_running_loop()
        this = weakref.ref(self)

        def again() -> None:
            found = this()
            if found is not None:
                found._task = loop.create_task(found.commit_again(value, again_s))

        self.again = loop.call_later(again_s, again)

    async def commit_again(self, value: SavedProducer, again_s: float) -> None:
        """The same boundary, made anew: it lives as long as its owner."""
        async with self.turn:
            if self.last is not value:
                return  # a newer boundary was committed while this waited: its positions are held by now
            fresh = replace(value, made_at_ms=int(wall_s() * 1000))
            try:
                await self.store(list(self._held.values()), fresh)
                value = fresh
            except KafkaException as failure:
                if failure.error.fatal() or failure.error.code() == KafkaError._DESTROY:
                    return  # taken over, or the consumer was closed
                _log.warning("the daily commit of a saved producer failed: %s", failure.error.str())
            except Exception:
                _log.exception("the daily commit of a saved producer failed unexpectedly")
        self._plan(value, again_s)

    async def leave(self) -> None:
        if self.again is not None:
            self.again.cancel()
        try:
            async with asyncio.timeout(LEAVE_S), self.turn:
                await self._ownership.leave()
        except (KafkaException, TimeoutError) as failure:
            _log.debug("the group of a saved producer was not left: %s", failure)


def _closed_meanwhile(outcome: concurrent.futures.Future[SavedProducer], taking: _Done) -> None:
    """The producer's loop has ended with the question on it."""
    if taking.cancelled() and not outcome.done() and outcome.set_running_or_notify_cancel():
        outcome.set_exception(KafkaException(KafkaError(KafkaError._DESTROY, "the producer was closed meanwhile")))


class Committers:
    """The committers of one consumer, on the loop of its `brokers`."""

    def __init__(self, brokers: "Brokers") -> None:
        self._brokers = brokers
        self._of: dict[tuple[ProducerSide, str], Committer] = {}

    async def commit(
        self,
        group: str,
        offsets: Sequence["TopicPartition"],
        producer: HasSaving,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        again_s: float = AGAIN_S,
    ) -> SavedProducer:
        """Store these positions and the producer, at the boundary that it has reached, in the group; what was stored.
        `limit_bytes` is the brokers' offset.metadata.max.bytes."""
        if not group:
            raise invalid_argument("a producer is saved in a group: `group.id` must be set")
        positions = [_entry(each) for each in offsets]
        if not positions:
            words = "there are no offsets to commit: a producer is saved together with its input position"
            raise invalid_argument(words)
        saving = producer.saving
        committer = self._of.get((saving, group))
        if committer is None:
            committer = self._of[saving, group] = Committer(self._brokers, group, saving, limit_bytes)
        return await committer.commit(positions, again_s)

    async def close(self) -> None:
        """The groups have no owner any more, where that is said soon; else their sessions end by themselves."""
        committers, self._of = [*self._of.values()], {}
        await asyncio.gather(*(each.leave() for each in committers))


def _entry(each: "TopicPartition") -> Entry:
    if each.offset < 0:
        raise invalid_argument(f"{each!r} names no offset that could be committed")
    epoch = -1 if each.leader_epoch is None else each.leader_epoch
    return Entry(each.topic, each.partition, each.offset, each.metadata or "", epoch)
