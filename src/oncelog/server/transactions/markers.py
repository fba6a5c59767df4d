"""Markers: the ends of transactions in the partitions that they wrote to, here and at other brokers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from oncelog.clock import Clock
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate
from oncelog.log.work_steps import Pauses
from oncelog.producers import Decision
from oncelog.replication.leadership import NOBODY
from oncelog.server.alarms import InTurns
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.high_watermark import when_settled
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.ports import Peers
from oncelog.server.topics import Partition, Topics
from oncelog.server.transactions.memory import Entry
from oncelog.transactions.machine import RAISES, TopicPartition, Transaction
from oncelog.wire.frames import MalformedFrame

logger = logging.getLogger(__name__)

VERSION = 2  # of WriteTxnMarkers
_REFUSALS = {
    Decision.UNKNOWN_PRODUCER: ErrorCode.unknown_producer_id,
    Decision.FENCED: ErrorCode.invalid_producer_epoch,
    Decision.COORDINATOR_FENCED: ErrorCode.transaction_coordinator_fenced,
}
_FENCED = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)


class Marking(NamedTuple):
    """The content of one marker."""

    pid: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool
    raises: bool


class Appended(NamedTuple):
    """A marker that may not be safe yet."""

    partition: Partition
    end: End
    marking: Marking


class Markers:
    def __init__(
        self,
        topics: Topics,
        groups: GroupCoordinator,
        peers: Callable[[], Peers],
        clock: Clock,
        request_flush: Callable[[Partition], None],
        pause: Callable[[], Awaitable[None]],
        in_turns: InTurns,
    ) -> None:
        """`pause` is called between any two partitions: a transaction may have thousands."""
        self._topics = topics
        self._groups = groups
        self._peers = peers
        self._clock = clock
        self._request_flush = request_flush
        self._pause = pause
        self._in_turns = in_turns

    async def write(self, entry: Entry, decided: Transaction) -> bool:
        """Write markers to every partition that has none yet, once. Returns whether another coordinator or producer has
        taken its place, so that it is not for this one to go on.

        Those that are appended here are not waited for: that may take for ever, where there are no followers, and the
        others are tried again meanwhile."""
        version = decided.version >= RAISES
        marking = Marking(decided.pid, decided.epoch, entry.epoch, decided.is_commit, version)
        here: dict[TopicPartition, Appended | ErrorCode] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for at in sorted(entry.missing - entry.waiting):
            await self._pause()
            partition = self._partition(at)
            if partition is None:
                entry.missing.discard(at)  # its topic is gone, and what was written with it
            elif partition.leads or partition.leadership is None:
                here[at] = self.append(at, marking)
            elif partition.leadership.leader != NOBODY:
                elsewhere.setdefault(partition.leadership.leader, []).append(at)
        is_fenced = await self._settle(entry, here)
        if elsewhere:
            # Together: a broker that is down takes its time. No TaskGroup: this may be begun outside of the task that
            # goes on with it (see `eagerly.py`).
            told = (self._tell(entry, *each, marking) for each in elsewhere.items())
            is_fenced = any(await asyncio.gather(*told)) or is_fenced
        return is_fenced

    async def _settle(self, entry: Entry, here: dict[TopicPartition, Appended | ErrorCode]) -> bool:
        is_fenced = False
        for at, appended in here.items():
            await self._pause()
            if isinstance(appended, Appended):
                self._wait(entry, at, appended)
            else:
                is_fenced = self._note(entry, at, appended) or is_fenced
        return is_fenced

    def _wait(self, entry: Entry, at: TopicPartition, appended: Appended) -> None:
        """It is noted once it is safe; where it is lost, it is written again."""
        entry.waiting.add(at)

        def settled(code: ErrorCode) -> None:
            entry.waiting.discard(at)
            self._note(entry, at, code)

        self._when_settled(appended, settled)

    async def _tell(self, entry: Entry, node_id: int, places: list[TopicPartition], marking: Marking) -> bool:
        is_fenced = False
        for at, code in (await self._ask(node_id, places, marking)).items():
            is_fenced = self._note(entry, at, code) or is_fenced
        return is_fenced

    def _note(self, entry: Entry, at: TopicPartition, code: ErrorCode) -> bool:
        if code is ErrorCode.none:
            entry.missing.discard(at)
            if not entry.missing and entry.told is not None:
                entry.told()
        elif code in _FENCED:
            name = entry.transactional_id
            logger.info("the end of the transaction of %r was refused by %s-%d: %s", name, *at, code.name)
        return code in _FENCED

    def _partition(self, at: TopicPartition) -> Partition | None:
        topic = self._topics.get(at[0])
        return topic.partitions[at[1]] if topic is not None and 0 <= at[1] < len(topic.partitions) else None

    def append(self, at: TopicPartition, marking: Marking) -> Appended | ErrorCode:
        """Append a marker to that partition, if it is here."""
        partition = self._partition(at)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        is_for_groups = at[0] == OFFSETS_TOPIC
        if not partition.leads or (is_for_groups and not self._groups.in_transactions.serves(partition)):
            return ErrorCode.not_leader_or_follower
        if not partition.has_enough_in_sync:
            return ErrorCode.not_enough_replicas
        try:
            marked = partition.log.end_transaction(
                marking.pid,
                marking.epoch,
                marking.coordinator_epoch,
                self._clock.now(),
                is_commit=marking.is_commit,
                raises_epoch=marking.raises,
            )
        except LogStorageError:
            return ErrorCode.kafka_storage_error
        if marked.decision is not Decision.APPEND:
            return _REFUSALS[marked.decision]
        partition.appended()
        if partition.fate(marked.end) is Fate.WAITS:
            self._request_flush(partition)
        return Appended(partition, marked.end, marking)

    def settling(self, appended: Appended | ErrorCode) -> "asyncio.Future[ErrorCode]":
        """The outcome, once it is safe. What it ends has ended by then, whether or not anybody waits for it."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def settled(code: ErrorCode) -> None:
            if not future.done():
                future.set_result(code)

        if isinstance(appended, Appended):
            self._when_settled(appended, settled)
        else:
            settled(appended)
        return future

    def _when_settled(self, appended: Appended, settled: Callable[[ErrorCode], None]) -> None:
        def found(fate: Fate) -> None:
            if fate is Fate.SAFE:
                self._in_turns(self._safe(appended, settled))
            else:
                settled(ErrorCode.not_leader_or_follower)

        when_settled(appended.partition, appended.end, found)

    def _safe(self, appended: Appended, settled: Callable[[ErrorCode], None]) -> Pauses:
        """The offsets that were committed in the transaction count from here on, or never."""
        partition, _, marking = appended
        if partition.topic.name == OFFSETS_TOPIC:
            yield from self._groups.in_transactions.ending(partition, marking.pid, is_commit=marking.is_commit)
        settled(ErrorCode.none)

    async def _ask(
        self, node_id: int, places: Iterable[TopicPartition], marking: Marking
    ) -> dict[TopicPartition, ErrorCode]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)

        def request(new: Callable[..., Any]) -> Any:
            topics = tuple(
                new("WritableTxnMarkerTopic", name=name, partition_indexes=tuple(indexes))
                for name, indexes in by_topic.items()
            )
            marker = new(
                "WritableTxnMarker",
                producer_id=marking.pid,
                producer_epoch=marking.epoch,
                transaction_result=marking.is_commit,
                topics=topics,
                coordinator_epoch=marking.coordinator_epoch,
                transaction_version=RAISES if marking.raises else 0,
            )
            return new("WriteTxnMarkersRequest", markers=(marker,))

        try:
            answer = await self._peers().ask(node_id, "write_txn_markers", VERSION, request)
        except (OSError, MalformedFrame) as error:
            logger.debug("broker %d was not told of the end of a transaction: %s", node_id, error)
            return {}
        return {
            (topic.name, each.partition_index): ErrorCode(each.error_code)
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }
