"""The nodes of a tree on the disk: a compacted log of its own, replayed at the start.

    key     path
    value   format (1 byte), version (8), session or 0 (8), value; null: removed

A change is one batch, so a start finds all of it or nothing. It counts, and is seen, when it is on the disk: what a
broker has seen of a change it acts upon, and no power failure may take it back. Changes that come in while the disk is
waited for share the next flush.

Nodes of sessions are kept like the others. A start finds them as they were, and gives their brokers the timeout to come
back: they may be sure of their sessions all that time.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, Self

from oncelog.clock import Clock
from oncelog.cluster.tree import Change, Node, TreeError, Unsure
from oncelog.cluster.tree_nodes import NOBODY, Nodes, Stored, Writes
from oncelog.log.config import Flush, LogConfig
from oncelog.log.disk import Disk
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import read_header
from oncelog.server.topic_replay import records_in

logger = logging.getLogger(__name__)

CONFIG = LogConfig(segment_bytes=4 * 2**20, cleanup_policy=("compact",), delete_retention_ms=0, flush=Flush.EVERY)
POINT_BYTES = 2**20  # a start looks at no more than about that
AGAIN_S = 0.1  # after a flush that could not even begin, for want of file descriptors

_FORMAT = 1
_STORED = struct.Struct(">BqQ")

Judge = Callable[[Nodes], Writes]


class DamagedTree(Exception):
    """The log is not what was written."""


class _Asked(NamedTuple):
    judge: Judge
    answer: "asyncio.Future[None]"


class Kept(Protocol):
    """The nodes on the disk. Nothing is asked of it while it flushes."""

    @property
    def failure(self) -> str:
        """The reason why nothing can be written any more."""
        ...

    def load(self) -> Iterable[tuple[str, Stored | None]]:
        """The writes so far, in order. Raises `DamagedTree`."""
        ...

    def stage(self, writes: Writes) -> None:
        """Stage what the next `flush` is to write. Raises `TreeError` for what it cannot keep."""
        ...

    async def flush(self) -> None:
        """Returns when the disk has it. Raises LogStorageError and OSError."""
        ...

    async def close(self) -> None: ...


class TreeStore:
    """Used on one event loop."""

    def __init__(self, kept: Kept) -> None:
        self.nodes = Nodes()  # as far as the disk has them
        self.failure = ""  # why nothing is changed any more
        self.on_written: Callable[[Writes], None] = lambda writes: None
        self._kept = kept
        self._newest = Nodes()  # with what is on its way there
        self._asked: list[_Asked] = []
        self._work: asyncio.Task[None] | None = None
        for path, stored in kept.load():
            for nodes in self.nodes, self._newest:
                nodes.write({path: stored})

    @classmethod
    def open(cls, disk: Disk, folder: str, clock: Clock, *, stayed_up: bool = False) -> Self:
        """Open a log of its own; `stayed_up` as for a log. Raises `DamagedTree`."""
        log = PartitionLog.open(disk, folder, CONFIG, ProducerMap(), clock.now(), stayed_up=stayed_up)
        return cls(_LogOfNodes(log, clock))

    @property
    def sessions(self) -> set[int]:
        """The sessions that have nodes."""
        return {stored.owner for _, stored in self.nodes.items()} - {NOBODY}

    def change(
        self, changes: Sequence[Change], session: int, may_be_done: Callable[[], bool]
    ) -> "asyncio.Future[None]":
        """`may_be_done` is asked when its turn comes. Done when the disk has it, or fails with what `Tree.change`
        raises."""

        def judge(nodes: Nodes) -> Writes:
            if not may_be_done():
                raise Unsure("it came too late, and was not done")
            return nodes.judge(changes, session)

        return self._ask(judge)

    def end(self, session: int) -> "asyncio.Future[None]":
        """Removes what is the session's."""
        return self._ask(lambda nodes: nodes.without(session))

    def _ask(self, judge: Judge) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        self._asked.append(_Asked(judge, answer))
        if self._work is None:
            self._work = loop.create_task(self._run())
        return answer

    async def _run(self) -> None:
        try:
            while self._asked:
                group, self._asked = self._asked, []
                try:
                    await self._change_all(group)
                except (LogStorageError, OSError) as error:
                    logger.error("what brokers agree on cannot be changed: %s", error)
                    _fail(group, Unsure(f"the tree cannot be stored: {error}"))
                except BaseException as error:  # nobody waits for ever, and nothing builds on what is half done
                    self.failure = repr(error)
                    _fail(group, error)
                    raise
        finally:
            self._work = None

    async def _change_all(self, group: list[_Asked]) -> None:
        if self.failure:
            raise LogStorageError(self.failure)
        writes: dict[str, Stored | None] = {}
        try:
            answers = [(asked, self._stage(asked, writes)) for asked in group]
            if writes:
                await self._kept.flush()
        except (LogStorageError, OSError):
            self._newest.write({path: self.nodes.get(path) for path in writes})
            self.failure = self._kept.failure
            raise
        self.nodes.write(writes)
        self.on_written(writes)
        for asked, failure in answers:
            _answer(asked, failure)

    def _stage(self, asked: _Asked, writes: dict[str, Stored | None]) -> TreeError | None:
        try:
            some = asked.judge(self._newest)
            if some:
                self._kept.stage(some)
        except TreeError as failure:
            return failure
        self._newest.write(some)
        writes.update(some)
        return None

    async def close(self) -> None:
        """End, after all work that was asked for."""
        while (task := self._work) is not None:
            await task
        await self._kept.close()


class _LogOfNodes:
    """A log of their own."""

    def __init__(self, log: PartitionLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._compaction: asyncio.Task[None] | None = None
        self._closed = 0  # segments, when a compaction was last thought of
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="oncelog-tree")

    @property
    def failure(self) -> str:
        return self._log.offline or ""

    def load(self) -> Iterator[tuple[str, Stored | None]]:
        log = self._log
        try:
            if log.offline is not None:
                raise LogStorageError(log.offline)
            for record in records_in(log):
                yield _decode(record.key, record.value)
        except (InvalidRecord, LogStorageError, ValueError, struct.error) as damage:
            raise DamagedTree(
                f"the log of what the brokers agree on cannot be read: {damage}. Restore the files in {log.folder} "
                "from a copy; without them nobody knows who has all of a partition"
            ) from damage

    def stage(self, writes: Writes) -> None:
        now = self._clock.now()
        records = [(path.encode(), _encode(stored), (), now.wall_ms) for path, stored in writes.items()]
        batch = build_batch(records, timestamp_ms=now.wall_ms)
        self._log.stage(batch, read_header(batch), now)

    async def flush(self) -> None:
        """A change behind a flush that failed would build on what may be lost."""
        loop = asyncio.get_running_loop()
        self._log.commit()
        while True:
            try:
                await loop.run_in_executor(self._threads, self._log.flush)
                if self._log.behind.size_bytes > POINT_BYTES:
                    await loop.run_in_executor(self._threads, self._log.begin_checkpoint(self._clock.now()))
                break
            except (LogStorageError, OSError):
                if self._log.offline is not None:
                    raise
                await asyncio.sleep(AGAIN_S)
        self._compact_if_due()

    def _compact_if_due(self) -> None:
        closed = len(self._log.segments.closed)
        if self._compaction is None and closed != self._closed:
            self._closed = closed
            self._compaction = asyncio.get_running_loop().create_task(self._compact())

    async def _compact(self) -> None:
        try:
            job = self._log.begin_compaction(self._clock.now())
            if job is not None:
                await asyncio.get_running_loop().run_in_executor(self._threads, job.run)
                self._log.finish_compaction(job)
        except (LogStorageError, OSError) as error:
            logger.warning("%s is not compacted: %s", self._log.folder, error)
        finally:
            self._compaction = None

    async def close(self) -> None:
        if self._compaction is not None:
            await self._compaction
        self._threads.shutdown()
        self._log.close()


def _fail(group: list[_Asked], failure: BaseException) -> None:
    for asked in group:
        _answer(asked, failure)


def _answer(asked: _Asked, failure: BaseException | None) -> None:
    if asked.answer.done():
        return
    if failure is None:
        asked.answer.set_result(None)
    else:
        asked.answer.set_exception(failure)


def _encode(stored: Stored | None) -> bytes | None:
    if stored is None:
        return None
    return _STORED.pack(_FORMAT, stored.node.version, stored.owner) + stored.node.value


def _decode(key: bytes | None, value: bytes | None) -> tuple[str, Stored | None]:
    path = (key or b"").decode()
    if value is None:
        return path, None
    known, version, owner = _STORED.unpack_from(value)
    if known != _FORMAT:
        raise ValueError(f"format {known} of {path}: only {_FORMAT} is known")
    return path, Stored(Node(value[_STORED.size :], version), owner)
