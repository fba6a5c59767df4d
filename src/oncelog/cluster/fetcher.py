"""What this broker copies from one other that leads: a connection, and one Fetch at a time for all of those partitions.

The supervisor says which partitions are followed there; each has a `Replica`, which knows what to ask and what to do
with an answer.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from oncelog.cluster.peer import Peer, PeerGone
from oncelog.log.config import Flush
from oncelog.log.errors import LogError
from oncelog.records.header import headers
from oncelog.replication.following import Answer, Ask, Diverging, Records, TooEarly
from oncelog.replication.replica import Replica
from oncelog.server.broker import Broker
from oncelog.server.errors import ErrorCode
from oncelog.server.topics import Partition
from oncelog.server.turns import called
from oncelog.wire.follower_fetch import VERSION, FollowedPartition, FollowerFetch, pack_follower_fetch
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.hot_client import FetchedPartition, read_fetch_answer

logger = logging.getLogger(__name__)

MAX_WAIT_MS = 500  # replica.fetch.wait.max.ms
MAX_BYTES = 10 * 2**20  # replica.fetch.response.max.bytes
PARTITION_BYTES = 2**20  # replica.fetch.max.bytes
CONNECT_S = 2.0
ANSWER_S = 3.0  # beyond the wait: then the leader counts as gone
FIRST_BACKOFF_S, MOST_BACKOFF_S = 0.05, 1.0
REFUSED_TWICE_S, NEVER_S = 0.2, float("-inf")
AGAIN_S = 0.1  # after an answer that the two do not agree who leads
LATER_S = 1.0  # after one that the supervisor has nothing to do with
HURRY_S = 0.01  # a partition that is new waits so long for others, and not for the end of a fetch without it
LARGE_BYTES = 64 * 1024
BATCHES_IN_A_STEP = 200  # some two milliseconds

_OTHER_LEADER = frozenset(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
    )
)


_NAMES: Final = {int(each): each.name for each in ErrorCode}


class _Asked:
    """A partition in the fetch that is on its way."""

    __slots__ = ("asked", "partition", "replica")

    def __init__(self, partition: Partition, replica: Replica, asked: Ask) -> None:
        self.partition = partition
        self.replica = replica
        self.asked = asked


class Fetcher:
    """Everything belongs to the broker's loop.

    `address` is asked before each connection, and answers None while nobody knows. `suspected` is called with the
    leader's id when it has refused two connections within 200 ms: its process is gone. `epoch` is this broker's own.
    """

    def __init__(
        self,
        broker: Broker,
        leader_id: int,
        address: Callable[[], tuple[str, int] | None],
        suspected: Callable[[int], None],
        epoch: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._leader_id = leader_id
        self._address = address
        self._suspected = suspected
        self._epoch = epoch
        self._followed: dict[Partition, float] = {}  # until when each has to wait
        self._peer: Peer | None = None
        self._in_fetch: dict[tuple[bytes, int], _Asked] | None = None
        self._hurry: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._correlation_id = 0
        self._refused_s = NEVER_S
        self._backoff_s = 0.0
        self._is_interrupted = False
        self._told: dict[Partition, str] = {}  # what is wrong, which is logged once

    # What the supervisor says

    def follow(self, partition: Partition) -> None:
        """From now on; or anew, after something has changed about it."""
        self._followed[partition] = 0.0
        self._told.pop(partition, None)
        self._changed.set()
        fetch = self._in_fetch
        if fetch is None or self._hurry is not None:
            return
        one = fetch.get((partition.topic.id.bytes, partition.index))
        if one is None or not self._is_asked(one):
            self._hurry = asyncio.get_running_loop().call_later(HURRY_S, self._interrupt)

    def leave(self, partition: Partition) -> None:
        self._followed.pop(partition, None)
        self._told.pop(partition, None)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # The connection

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_on(self._address())
            except ConnectionRefusedError:
                self._note_refusal()
            except (OSError, MalformedFrame) as error:  # TimeoutError too
                logger.info("broker %d cannot be fetched from: %s", self._leader_id, error or type(error).__name__)
            except Exception:
                logger.exception("fetching from broker %d failed unexpectedly; it is tried again", self._leader_id)
            finally:
                self._end_fetch()
                if self._peer is not None:
                    self._peer.close()
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(max(self._backoff_s * 2, FIRST_BACKOFF_S), MOST_BACKOFF_S)

    async def _fetch_on(self, address: tuple[str, int] | None) -> None:
        if address is None:
            await asyncio.sleep(AGAIN_S)  # it is not up: nothing to be said about
            return
        peer = self._peer = await Peer.connect(address, CONNECT_S)
        self._refused_s = NEVER_S
        self._is_interrupted = False
        while not self._is_interrupted:
            await self._fetch(peer)

    def _note_refusal(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refused_s <= REFUSED_TWICE_S:
            asyncio.get_running_loop().call_soon(self._suspected, self._leader_id)
        self._refused_s = now_s

    def _interrupt(self) -> None:
        """The leader takes nothing more by this connection before it answers, so go on by another one."""
        self._hurry = None
        if self._in_fetch is not None and self._peer is not None:
            self._is_interrupted, self._backoff_s = True, 0.0
            self._peer.close()

    def _end_fetch(self) -> None:
        self._in_fetch = None
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    # Fetches

    async def _fetch(self, peer: Peer) -> None:
        self._changed.clear()
        wanted = self._wanted()
        if not wanted:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._followed else None):
                    await self._changed.wait()
            return
        self._in_fetch = wanted
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request = pack_follower_fetch(self._correlation_id, None, self._request(wanted))
        try:
            frame = await peer.ask(request, MAX_WAIT_MS / 1000 + ANSWER_S)
        except PeerGone:
            if self._is_interrupted:
                return
            raise
        self._end_fetch()
        self._backoff_s = 0.0
        answer = read_fetch_answer(VERSION, frame)
        if answer.error_code:
            raise ConnectionError(f"it answers {answer.error_code}")
        for found in answer.partitions:
            one = wanted.get((found.topic, found.partition))
            if one is not None:
                await self._take(one, found)

    def _wanted(self) -> dict[tuple[bytes, int], _Asked]:
        now_s = asyncio.get_running_loop().time()
        wanted = {}
        for partition, waits_until_s in self._followed.items():
            replica = partition.replica
            if waits_until_s <= now_s and replica is not None and partition.is_open and partition.log.offline is None:
                asked = replica.fetch()
                if asked is not None:
                    wanted[partition.topic.id.bytes, partition.index] = _Asked(partition, replica, asked)
        return wanted

    def _request(self, wanted: dict[tuple[bytes, int], _Asked]) -> FollowerFetch:
        topics: dict[bytes, list[FollowedPartition]] = {}
        for (topic_id, index), one in wanted.items():
            (epoch, offset, last_epoch), log = one.asked, one.partition.log
            topics.setdefault(topic_id, []).append(
                FollowedPartition(
                    index, epoch, offset, last_epoch, log.log_start_offset, PARTITION_BYTES, log.high_watermark
                )
            )
        me = self._broker.node_id
        return FollowerFetch(me, self._epoch(), self._wait_ms(), 1, MAX_BYTES, -1, list(topics.items()))

    def _wait_ms(self) -> int:
        """Not longer than one of them has to wait before it is asked for again."""
        now_s = asyncio.get_running_loop().time()
        left_s = (until_s - now_s for until_s in self._followed.values() if until_s > now_s)
        return min([MAX_WAIT_MS, *(int(each * 1000) + 1 for each in left_s)])

    # Answers

    async def _take(self, one: _Asked, found: FetchedPartition) -> None:
        code = found.error_code
        try:
            if code in _OTHER_LEADER:
                self._pause(one.partition, AGAIN_S)
            elif code == ErrorCode.offset_out_of_range and found.records:
                self._take_one(one, TooEarly(bytes(found.records)))
            elif code:
                self._pause(one.partition, LATER_S)
                self._tell(one.partition, f"broker {self._leader_id} answers {_NAMES.get(code, code)} to {one.asked}")
            elif found.diverging is not None:
                self._take_one(one, Diverging(*found.diverging))
            else:
                await self._append(one, found)
        except LogError as error:  # of its own log, or the leader's batch is damaged
            self._pause(one.partition, LATER_S)
            self._tell(one.partition, str(error))

    async def _append(self, one: _Asked, found: FetchedPartition) -> None:
        housekeeping, turns, size_bytes = self._broker.housekeeping, self._broker.turns, len(found.records)
        while size_bytes >= LARGE_BYTES and not housekeeping.has_room(size_bytes):
            await called(housekeeping.wait_for_room)
        for batches in _parts(found.records):
            if turns.is_over():
                await turns.next()
            if not self._take_one(one, Records(batches, found.high_watermark, found.log_start_offset)):
                return
            housekeeping.checkpoint_if_due()
        if size_bytes and self._broker.flush is Flush.EVERY:  # what is asked for next says that this is here
            await self._broker.at_disk.run(one.partition.log.flush)
        if size_bytes and one.partition in self._followed:  # the others come first in the next one
            self._followed[one.partition] = self._followed.pop(one.partition)

    def _take_one(self, one: _Asked, answered: Answer) -> bool:
        """Whether it was taken. What is asked next follows from it."""
        if not self._is_asked(one):
            return False
        one.replica.take(one.asked, answered, self._broker.clock.now())
        asked = one.replica.fetch()
        one.asked = one.asked if asked is None else asked
        return asked is not None

    def _is_asked(self, one: _Asked) -> bool:
        """Whether it would still be asked for the same: who leads, and the log itself, may have changed meanwhile."""
        partition = one.partition
        return (
            partition in self._followed
            and partition.is_open
            and partition.replica is one.replica
            and one.replica.fetch() == one.asked
        )

    def _pause(self, partition: Partition, pause_s: float) -> None:
        if partition in self._followed:
            self._followed[partition] = asyncio.get_running_loop().time() + pause_s

    def _tell(self, partition: Partition, what: str) -> None:
        if self._told.get(partition) != what:
            self._told[partition] = what
            logger.warning("%s-%d is not followed for now: %s", partition.topic.name, partition.index, what)


def _parts(records: memoryview) -> Iterator[memoryview]:
    """Whole batches, some at a time; also where there are none."""
    start = stop = count = 0
    for at, header in headers(records):
        if count == BATCHES_IN_A_STEP:
            yield records[start:at]
            start, count = at, 0
        stop, count = at + header.size_bytes, count + 1
    yield records[start:stop]
