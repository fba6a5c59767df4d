"""The copying from one other broker that leads: two connections, with one Fetch at a time on each.

The supervisor says which partitions are followed there; each has a `Replica`, which knows what to ask and what to do
with an answer.

A fetch costs both brokers some microseconds for each partition that it names. So those that had records a moment ago
are asked for by a connection of their own, again and again, and all the quiet ones by the other, where a fetch waits
until one of them has some, for two seconds at most. A connection takes a partition over by naming it, so that there is
always a fetch that waits for it; for a moment there are two, and of their answers the second is no longer what is asked
for.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from oncelog.cluster.links import Links
from oncelog.cluster.peer import Peer, PeerGone
from oncelog.log.config import Flush
from oncelog.log.errors import LogError
from oncelog.records.header import headers
from oncelog.replication.following import Answer, Diverging, NextFetch, Records, TooEarly
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
QUIET_TIMES = 4  # as long, where nothing is expected: it is answered as soon as there is something
LEAST_LAG_MS = 8_000  # of replica.lag.time.max.ms: who waits must say in time that it is there
MAX_BYTES = 10 * 2**20  # replica.fetch.response.max.bytes
# Four times Kafka's replica.fetch.max.bytes: of batches of 1 MB several come by one fetch, a fifth more in a second.
PARTITION_BYTES = 4 * 2**20
CONNECT_S = 2.0
ANSWER_S = 3.0  # of silence beyond the wait: then the leader counts as gone
FIRST_BACKOFF_S, MOST_BACKOFF_S = 0.05, 1.0
REFUSED_TWICE_S, NEVER_S = 0.2, float("-inf")
AGAIN_S = 0.1  # after an answer that the two do not agree who leads
LATER_S = 1.0  # after one that the supervisor has nothing to do with
EARLY_S = 0.05  # a leader that answers nothing sooner lets nobody wait: too many do
BUSY_S = 1.0  # a partition without records for so long is quiet
HURRY_S = 0.01  # a partition that is new waits so long for others, and not for the end of a fetch without it
LARGE_BYTES = 64 * 1024
BATCHES_IN_A_STEP = 200  # some two milliseconds
NO_START = 0  # in what is taken at once: who takes it does not delete then

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

    def __init__(self, partition: Partition, replica: Replica, asked: NextFetch) -> None:
        self.partition = partition
        self.replica = replica
        self.asked = asked


class _Line:
    """A connection to the leader, and what is asked for by it."""

    def __init__(self, times: int = 1) -> None:
        self._times = times
        self.followed: dict[Partition, float] = {}  # until when each has to wait
        self.peer: Peer | None = None
        self.in_fetch: dict[tuple[bytes, int], _Asked] | None = None
        self.hurry: asyncio.TimerHandle | None = None
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.correlation_id = 0
        self.refused_s = NEVER_S
        self.backoff_s = 0.0
        self.is_interrupted = False

    def interrupt(self) -> None:
        """The leader takes nothing more by this connection before it answers, so go on by another one."""
        self.hurry = None
        if self.in_fetch is not None and self.peer is not None:
            self.is_interrupted, self.backoff_s = True, 0.0
            self.peer.close()

    def end_fetch(self) -> None:
        self.in_fetch = None
        if self.hurry is not None:
            self.hurry.cancel()
            self.hurry = None

    @property
    def most_wait_ms(self) -> int:
        return self._times * MAX_WAIT_MS

    def wait_ms(self) -> int:
        """The time that a fetch may wait: no longer than until one of its partitions is asked for again."""
        now_s = asyncio.get_running_loop().time()
        left_s = (until_s - now_s for until_s in self.followed.values() if until_s > now_s)
        return min([self.most_wait_ms, *(int(each * 1000) + 1 for each in left_s)])


class Fetcher:
    """Everything belongs to the broker's loop.

    `address` is asked before each connection, and answers None while nobody knows. `suspected` is called with the
    leader's id when it has refused two connections within 200 ms: its process is gone; `missed`, as soon as it has
    ended one by which it had answered. `epoch` is this broker's own.
    """

    def __init__(
        self,
        broker: Broker,
        leader_id: int,
        address: Callable[[], tuple[str, int] | None],
        suspected: Callable[[int], None],
        missed: Callable[[int], None],
        epoch: Callable[[], int],
        links: Links,
    ) -> None:
        self._broker = broker
        self._links = links
        self._leader_id = leader_id
        self._address = address
        self._suspected = suspected
        self._missed = missed
        self._epoch = epoch
        has_time = broker.settings.replica_lag_time_max_ms >= LEAST_LAG_MS
        self._quiet, self._busy = _Line(QUIET_TIMES if has_time else 1), _Line()
        self._news_s: dict[Partition, float] = {}  # when those of the busy line had records
        self._woken: dict[Partition, None] = {}  # quiet ones that have had some since
        self._unsafe: set[Partition] = set()  # what has come of them is still being taken in
        self._told: dict[Partition, str] = {}  # what is wrong, which is logged once

    # What the supervisor says

    def follow(self, partition: Partition) -> None:
        """Follow the partition from now on; or anew, after something has changed about it."""
        line = self._line_of(partition) or self._quiet
        line.followed[partition] = 0.0
        self._told.pop(partition, None)
        line.changed.set()
        fetch = line.in_fetch
        if fetch is None or line.hurry is not None:
            return
        one = fetch.get((partition.topic.id.bytes, partition.index))
        if one is None or not self._is_asked(one):
            line.hurry = asyncio.get_running_loop().call_later(HURRY_S, line.interrupt)

    def leave(self, partition: Partition) -> None:
        for line in (self._quiet, self._busy):
            line.followed.pop(partition, None)
        self._news_s.pop(partition, None)
        self._woken.pop(partition, None)
        self._told.pop(partition, None)

    def start(self) -> None:
        for line in (self._quiet, self._busy):
            line.task = asyncio.get_running_loop().create_task(self._run(line))

    async def stop(self) -> None:
        tasks = [line.task for line in (self._quiet, self._busy) if line.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # The connections

    async def _run(self, line: _Line) -> None:
        while True:
            try:
                await self._fetch_on(line, self._address())
            except ConnectionRefusedError:
                self._note_refusal(line)
            except (OSError, MalformedFrame) as error:  # TimeoutError too
                logger.info("broker %d cannot be fetched from: %s", self._leader_id, error or type(error).__name__)
            except Exception:
                logger.exception("fetching from broker %d failed unexpectedly; it is tried again", self._leader_id)
            finally:
                line.end_fetch()
                if line.peer is not None:
                    line.peer.close()
            await asyncio.sleep(line.backoff_s)
            line.backoff_s = min(max(line.backoff_s * 2, FIRST_BACKOFF_S), MOST_BACKOFF_S)

    async def _fetch_on(self, line: _Line, address: tuple[str, int] | None) -> None:
        if address is None:
            await asyncio.sleep(AGAIN_S)  # it is not up: nothing to be said about
            return
        peer = line.peer = await self._links.connect(address, CONNECT_S)
        line.refused_s = NEVER_S
        line.is_interrupted = False
        while not line.is_interrupted:
            await self._fetch(line, peer)

    def _miss(self) -> None:
        self._missed(self._leader_id)

    def _note_refusal(self, line: _Line) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - line.refused_s <= REFUSED_TWICE_S:
            asyncio.get_running_loop().call_soon(self._suspected, self._leader_id)
        line.refused_s = now_s

    # Fetches

    async def _fetch(self, line: _Line, peer: Peer) -> None:
        line.changed.clear()
        self._take_over(line)
        await self._bring_to_disk(line)
        wanted = self._wanted(line)
        if not wanted:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if line.followed else None):
                    await line.changed.wait()
            return
        line.in_fetch = wanted
        line.correlation_id = (line.correlation_id + 1) & 0x7FFFFFFF
        request = pack_follower_fetch(
            line.correlation_id, f"broker-{self._broker.node_id}", self._request(line, wanted)
        )
        began_s = asyncio.get_running_loop().time()
        try:
            frame = await peer.ask(request, line.most_wait_ms / 1000 + ANSWER_S)
        except PeerGone:
            if line.is_interrupted:
                return
            raise
        line.end_fetch()
        line.backoff_s = 0.0
        peer.on_lost = self._miss
        answer = read_fetch_answer(VERSION, frame)
        if answer.error_code:
            raise ConnectionError(f"it answers {answer.error_code}")
        for found in answer.partitions:
            one = wanted.get((found.topic, found.partition))
            if one is not None:
                await self._take(one, found)
        if not answer.partitions:
            await asyncio.sleep(began_s + EARLY_S - asyncio.get_running_loop().time())

    def _take_over(self, line: _Line) -> None:
        """Take over from the other line what this one is for."""
        if line is self._busy:
            other, self._woken, taken = self._quiet, {}, list(self._woken)
        else:
            quiet_s = asyncio.get_running_loop().time() - BUSY_S
            other = self._busy
            taken = [each for each in other.followed if self._news_s.get(each, NEVER_S) < quiet_s]
        for partition in taken:
            if partition in other.followed:
                line.followed[partition] = other.followed.pop(partition)

    async def _bring_to_disk(self, line: _Line) -> None:
        """Bring to the disk where that is asked for: what came under another leader, or could not be flushed as it
        came."""
        for partition in [each for each in self._due(line) if not _is_at_disk(each)]:
            if partition.is_open:
                try:
                    await self._broker.at_disk.run(partition.log.flush)
                except LogError as error:
                    self._pause(partition, LATER_S)
                    self._tell(partition, str(error))

    def _wanted(self, line: _Line) -> dict[tuple[bytes, int], _Asked]:
        wanted = {}
        for partition in self._due(line):
            replica = partition.replica
            asked = None if replica is None else replica.fetch()
            if replica is not None and asked is not None and _is_at_disk(partition):
                wanted[partition.topic.id.bytes, partition.index] = _Asked(partition, replica, asked)
        return wanted

    def _due(self, line: _Line) -> Iterator[Partition]:
        now_s = asyncio.get_running_loop().time()
        for partition, waits_until_s in line.followed.items():
            is_free = waits_until_s <= now_s and partition not in self._unsafe
            if is_free and partition.is_open and partition.log.offline is None:
                yield partition

    def _request(self, line: _Line, wanted: dict[tuple[bytes, int], _Asked]) -> FollowerFetch:
        topics: dict[bytes, list[FollowedPartition]] = {}
        for (topic_id, index), one in wanted.items():
            (epoch, offset, last_epoch), log = one.asked, one.partition.log
            topics.setdefault(topic_id, []).append(
                FollowedPartition(
                    index, epoch, offset, last_epoch, log.log_start_offset, PARTITION_BYTES, log.high_watermark
                )
            )
        me = self._broker.node_id
        return FollowerFetch(me, self._epoch(), line.wait_ms(), 1, MAX_BYTES, -1, list(topics.items()))

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
        partition = one.partition
        if partition in self._unsafe:
            return  # this comes second
        if not found.records:
            self._take_one(one, Records(found.records, found.high_watermark, NO_START))
            await self._follow_start(one, found.log_start_offset)
            return
        self._unsafe.add(partition)
        try:
            await self._append_all(one, found)
        finally:
            self._unsafe.discard(partition)
        self._note_news(partition)
        await self._follow_start(one, found.log_start_offset)

    async def _append_all(self, one: _Asked, found: FetchedPartition) -> None:
        housekeeping, turns, size_bytes = self._broker.housekeeping, self._broker.turns, len(found.records)
        while size_bytes >= LARGE_BYTES and not housekeeping.has_room(size_bytes):
            await called(housekeeping.wait_for_room)
        for batches in _parts(found.records):
            if turns.is_over():
                await turns.next()
            if not self._take_one(one, Records(batches, found.high_watermark, NO_START)):
                return
            housekeeping.checkpoint_if_due()
        if self._broker.flush is Flush.EVERY:  # what is asked for next says that this is here
            await self._broker.at_disk.run(one.partition.log.flush)

    async def _follow_start(self, one: _Asked, start: int) -> None:
        """Delete what the leader has deleted. That waits for the disk several times, and others do not."""
        log = one.partition.log
        if start == NO_START or not self._is_asked(one):
            return
        before = min(start, log.high_watermark)
        if before > log.log_start_offset:
            await self._broker.turns.run(log.deleting_before(before, self._broker.clock.now()))

    def _note_news(self, partition: Partition) -> None:
        line = self._line_of(partition)
        if line is None:
            return
        line.followed[partition] = line.followed.pop(partition)  # the others come first in the next one
        self._news_s[partition] = asyncio.get_running_loop().time()
        if line is self._quiet:
            self._woken[partition] = None
            self._busy.changed.set()

    def _line_of(self, partition: Partition) -> _Line | None:
        return next((line for line in (self._quiet, self._busy) if partition in line.followed), None)

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
            self._line_of(partition) is not None
            and partition.is_open
            and partition.replica is one.replica
            and one.replica.fetch() == one.asked
        )

    def _pause(self, partition: Partition, pause_s: float) -> None:
        line = self._line_of(partition)
        if line is not None:
            line.followed[partition] = asyncio.get_running_loop().time() + pause_s

    def _tell(self, partition: Partition, what: str) -> None:
        if self._told.get(partition) != what:
            self._told[partition] = what
            logger.warning("%s-%d is not followed for now: %s", partition.topic.name, partition.index, what)


def _is_at_disk(partition: Partition) -> bool:
    return partition.log.safe_offset >= partition.log.next_offset


def _parts(records: memoryview) -> Iterator[memoryview]:
    """Whole batches, some at a time; also where there are none."""
    start = stop = count = 0
    for at, header in headers(records):
        if count == BATCHES_IN_A_STEP:
            yield records[start:at]
            start, count = at, 0
        stop, count = at + header.size_bytes, count + 1
    yield records[start:stop]
