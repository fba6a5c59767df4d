"""Group commit: answers that wait for the disk share a flush, which runs in a thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.server.topics import Partition

THREADS = 4
AGAIN_S = 0.1  # after a flush that could not even begin, for want of file descriptors


class Flusher:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="oncelog-flush")
        self._running: dict[Partition, asyncio.Future[bool]] = {}
        self._again: set[Partition] = set()
        self._is_closed = False

    def request(self, partition: Partition) -> None:
        """Flush what is in the partition's log by now; who waits for its high watermark is called when that is done.

        A flush that runs already may have begun too early, so another one follows it, for all who asked meanwhile.
        """
        if not partition.is_open or partition.log.high_watermark >= partition.log.next_offset:
            return
        if partition in self._running:
            self._again.add(partition)
            return
        # Its log is taken here: until a thread comes to it, the partition may be closed, or be another log's.
        future = asyncio.get_running_loop().run_in_executor(self._threads, _flush, partition.log)
        self._running[partition] = future
        future.add_done_callback(lambda _: self._finished(partition))

    def _finished(self, partition: Partition) -> None:
        has_flushed = self._running.pop(partition).result()
        partition.appended()
        if partition in self._again:
            self._again.discard(partition)
            self.request(partition)
        elif not has_flushed and self._may_try_again(partition):
            asyncio.get_running_loop().call_later(AGAIN_S, self._try_again, partition)

    def _may_try_again(self, partition: Partition) -> bool:
        return not self._is_closed and partition.is_open and partition.log.offline is None

    def _try_again(self, partition: Partition) -> None:
        if self._may_try_again(partition):
            self.request(partition)

    async def close(self) -> None:
        self._is_closed = True
        while self._running:
            await asyncio.wait(list(self._running.values()))
        self._threads.shutdown()


def _flush(log: PartitionLog) -> bool:
    """Whether it was done. Where not, the log is offline from here on, or the flush is to be tried again."""
    try:
        log.flush()
    except LogStorageError:
        return False
    return True
