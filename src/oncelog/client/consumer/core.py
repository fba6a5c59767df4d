"""The core of both faces of a consumer: everything that happens on the event loop.

A face gives it the application's wishes, one coroutine each, and is told through `notify` when there is something to
take: fetched records (`engine.next_event`) or calls that belong into the application's thread (`calls`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from oncelog.client.consumer.calls import Call
from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.consumer.engine import Engine
from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of, is_retriable
from oncelog.client.fetching.values import OffsetFound
from oncelog.client.groups import commits
from oncelog.client.groups.commits import Committed, ToCommit
from oncelog.client.groups.coordinator import CONSUMER, Group
from oncelog.client.groups.membership_steps import Member
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.offsets import offsets_at
from oncelog.client.net.retry import Patience, ask
from oncelog.client.net.tasks import Tasks
from oncelog.client.properties import ConsumerSettings
from oncelog.client.statistics.statistics import Statistics
from oncelog.slots import AnyPlace

T = TypeVar("T")

_log = logging.getLogger("oncelog.client")

PATIENCE_MS = 60_000  # for an answer of the coordinator or the leaders, where the caller sets no time

# A member of KIP-848 has another epoch by now, which its next heartbeat tells it.
_STALE = frozenset({KafkaError.STALE_MEMBER_EPOCH})
_COMMIT_AGAIN = _STALE | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
# Or it is none any more, and may read what was committed as anybody may.
_FETCH_AGAIN = _STALE | {KafkaError.UNKNOWN_MEMBER_ID}


class Read(Protocol):
    """The positions behind what the application was given; of what it surely has done with, if it did not ask."""

    def __call__(self, *, is_explicit: bool) -> Mapping[AnyPlace, Position]: ...


class Core:
    def __init__(
        self,
        settings: ConsumerSettings,
        read: Read,
        notify: Callable[[], None],
        wake: Callable[[Callable[[], None]], object],
    ) -> None:
        self.settings = settings
        self.brokers = Brokers(settings)
        self.engine = Engine(settings, self.brokers, self._find_committed, notify, wake)
        self.engine.on_trouble = self._tell_trouble
        self.calls: deque[Call] = deque()
        self.group: Group | None = None
        self.stored: dict[AnyPlace, ToCommit] = {}  # by store_offsets()
        self._read = read
        self._notify = notify
        self._committed: dict[AnyPlace, ToCommit] = {}  # what this consumer has committed last
        self.tasks = Tasks()
        self._commit_turn = asyncio.Lock()
        self._has_statistics = False  # that the application has not been told
        self.statistics: Statistics | None = None

    async def start(self) -> None:
        await self.brokers.start()
        if self.settings.group_id and self.settings.enable_auto_commit and self.settings.auto_commit_interval_ms:
            self.tasks.begin(self._commit_now_and_then())
        if self.statistics is not None:
            self.statistics.start()

    async def close(self) -> None:
        if self.statistics is not None:
            self.statistics.stop()
        await self.tasks.close()
        await self.engine.close()
        await self.brokers.close()

    def _tell_trouble(self, error: KafkaError) -> None:
        """The error goes to `error_cb`. Where there is none, what does not pass by itself is handed out; `net/reach.py`
        logs the rest."""
        error_cb = self.settings.error_cb
        if error_cb is not None:
            self.call(Call(lambda: error_cb(error)))
        elif not error.retriable():
            self.engine.tell(error)

    def tell_statistics(self, text: str) -> None:
        """An application that does not poll is told once when it does."""
        stats_cb = self.settings.stats_cb
        if stats_cb is None or self._has_statistics:
            return
        self._has_statistics = True

        def tell() -> object:
            self._has_statistics = False
            return stats_cb(text)

        self.call(Call(tell))

    def call(self, call: Call) -> None:
        """Have it done in the application's thread, when that polls next."""
        self.calls.append(call)
        self._notify()

    # --- what is read

    async def assign(self, places: Iterable[tuple[AnyPlace, int, int]]) -> None:
        """Read these partitions and no others, each from an offset and its epoch."""
        fetcher = self.engine.fetcher
        for partition in list(fetcher.cursors):
            fetcher.unassign(partition)
        self._committed.clear()
        self.stored.clear()
        await self.assign_more(places)

    async def assign_more(self, places: Iterable[tuple[AnyPlace, int, int]]) -> None:
        for partition, offset, epoch in places:
            self.engine.fetcher.assign(partition, offset, epoch)
        self.engine.pump()

    async def unassign(self, partitions: Iterable[AnyPlace]) -> None:
        for partition in partitions:
            self.engine.fetcher.unassign(partition)
            self._committed.pop(partition, None)
            self.stored.pop(partition, None)
        self.engine.pump()

    async def seek(self, partition: AnyPlace, offset: int, epoch: int) -> None:
        self.engine.fetcher.seek(partition, offset, epoch)
        self._committed.pop(partition, None)
        self.engine.pump()

    async def pause(self, places: Iterable[tuple[AnyPlace, Position | None]]) -> None:
        """Pause partitions. What was fetched ahead is let go, so that it does not take the others' room; a resumed
        partition goes on where the application stands."""
        fetcher = self.engine.fetcher
        for partition, position in places:
            if not fetcher.cursors[partition].is_paused:
                fetcher.pause(partition)
                fetcher.rewind(partition, position)
        self.engine.pump()

    async def resume(self, partitions: Iterable[AnyPlace]) -> None:
        for partition in partitions:
            self.engine.fetcher.resume(partition)
        self.engine.pump()

    # --- committed offsets

    def group_id(self) -> str:
        if not self.settings.group_id:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_GROUP, "Local: Unknown group: `group.id` is not set"))
        return self.settings.group_id

    @property
    def member(self) -> Member:
        """This consumer's membership in its group now."""
        return Member() if self.group is None else self.group.member

    def handed(self) -> Mapping[AnyPlace, Position]:
        """The positions behind what the application was given."""
        return self._read(is_explicit=True)

    def to_store(self) -> Mapping[AnyPlace, Position | ToCommit]:
        """The positions that a commit by the clock would store."""
        return self._read(is_explicit=False) if self.settings.enable_auto_offset_store else self.stored

    @property
    def last_committed(self) -> Mapping[AnyPlace, ToCommit]:
        return self._committed

    def to_commit(self, *, is_explicit: bool) -> dict[AnyPlace, ToCommit]:
        """The offsets that were stored or handed out and are not committed yet. When nobody asks for the commit, it
        is only what the application has surely done with, and never before what it has committed itself."""
        wanted = dict(self.stored)
        if self.settings.enable_auto_offset_store:
            read = self._read(is_explicit=is_explicit)
            wanted = {each: ToCommit(*position) for each, position in read.items()}
        committed = self._committed
        if is_explicit:
            return {each: offset for each, offset in wanted.items() if committed.get(each) != offset}
        return {each: to for each, to in wanted.items() if each not in committed or committed[each].offset < to.offset}

    async def commit(self, offsets: Mapping[AnyPlace, ToCommit], patience_ms: int | None = None) -> dict[AnyPlace, int]:
        """An error code for each partition; raises where there is no answer at all in PATIENCE_MS."""
        group_id = self.group_id()
        self._refuse_if_thrown_out()
        asked_in = self.member.generation

        async def attempt(node_id: int) -> tuple[int, dict[AnyPlace, int]]:
            self._refuse_if_thrown_out()
            member = self.member
            mine = offsets
            if member.generation != asked_in:
                # Another member may have what was given back meanwhile, and be further already.
                mine = {each: offset for each, offset in offsets.items() if each in self.engine.fetcher.cursors}
            codes = dict.fromkeys(offsets.keys() - mine.keys(), KafkaError.ILLEGAL_GENERATION)
            if mine:
                codes |= await commits.commit_offsets(self.brokers, node_id, group_id, mine, member)
            if self.group is not None:
                for code in {codes[each] for each in mine if each in codes} - {0}:
                    self.group.refused(code, member.generation)
            return next((code for code in codes.values() if code in _COMMIT_AGAIN), 0), codes

        async with self._commit_turn:
            codes = await self._of_coordinator(attempt, PATIENCE_MS if patience_ms is None else patience_ms)
        self._committed.update({each: offsets[each] for each, code in codes.items() if code == 0 and each in offsets})
        return codes

    def _refuse_if_thrown_out(self) -> None:
        """Outside of any generation the coordinator would take it as anyone's, over what the new owner committed."""
        error = None if self.group is None else self.group.thrown_out
        if error is not None:
            raise KafkaException(error)

    async def committed(self, partitions: Iterable[AnyPlace], patience_ms: int) -> dict[AnyPlace, Committed]:
        wanted = list(partitions)
        group_id = self.group_id()

        async def attempt(node_id: int) -> tuple[int, dict[AnyPlace, Committed]]:
            member = self.member if self.settings.group_protocol == CONSUMER else commits.ANYBODY
            code, found = await commits.fetch_committed(
                self.brokers,
                node_id,
                group_id,
                wanted,
                require_stable=self.settings.isolation_level == "read_committed",
                member=member,
            )
            if self.group is not None and code in _FETCH_AGAIN:
                self.group.refused(code, member.generation)
            unstable = (each.error_code for each in found.values() if each.error_code and is_retriable(each.error_code))
            return code or next(unstable, 0), found

        return await self._of_coordinator(attempt, patience_ms)

    async def _of_coordinator(self, attempt: Callable[[int], Awaitable[tuple[int, T]]], patience_ms: int) -> T:
        """Ask until the coordinator answers without an error that passes by itself."""

        async def question() -> T:
            async with self.brokers.coordinators.at(self.group_id()) as node_id:
                code, answer = await attempt(node_id)
                if code:
                    passes = is_retriable(code) or code in _FETCH_AGAIN
                    raise KafkaException(KafkaError(code, error_of(code).str(), retriable=passes))
                return answer

        def gave_up(trouble: KafkaError | None) -> KafkaException:
            reason = "" if trouble is None else f"; the last attempt: {trouble.str()}"
            words = f"the group's coordinator gave no answer in {patience_ms} ms{reason}"
            return KafkaException(KafkaError(KafkaError._TIMED_OUT, words))

        return await ask(question, self._patience(patience_ms), gave_up=gave_up)

    def _patience(self, total_ms: int) -> Patience:
        return Patience(total_ms / 1000, self.settings.retry_backoff_ms / 1000)

    async def _find_committed(self, partitions: list[AnyPlace]) -> dict[AnyPlace, tuple[int, int]]:
        if not self.settings.group_id:
            return {}
        found = await self.committed(partitions, PATIENCE_MS)
        failed = next((each.error_code for each in found.values() if each.error_code), 0)
        if failed:
            raise exception_of(failed)
        return {each: (committed.offset, committed.leader_epoch) for each, committed in found.items()}

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.settings.auto_commit_interval_ms / 1000)
            await self.commit_in_background(self.to_commit(is_explicit=False))

    async def commit_in_background(self, offsets: dict[AnyPlace, ToCommit]) -> None:
        """The application hears of the outcome by `on_commit`; a failure is logged where there is none."""
        if not offsets:
            return
        failure: KafkaError | None = None
        codes: dict[AnyPlace, int] = {}
        try:
            codes = await self.commit(offsets)
            failure = next((error_of(code) for code in codes.values() if code), None)
        except KafkaException as error:
            failure = error.error
        except Exception as unexpected:
            _log.exception("a commit failed unexpectedly")
            failure = KafkaError(KafkaError._FAIL, f"the commit failed: {unexpected!r}")
        on_commit = self.settings.on_commit
        if on_commit is None and failure is not None:
            _log.warning("group %s: a commit failed: %s", self.settings.group_id, failure.str())
        elif on_commit is not None:
            self.call(Call(lambda: on_commit(failure, commits.topic_partitions(offsets, codes))))

    # --- what the cluster says

    async def offsets_at(self, asked: Mapping[AnyPlace, int], patience_ms: int) -> dict[AnyPlace, OffsetFound]:
        """The offset of a time, or of EARLIEST or LATEST; asked of each partition's leader, again while there is
        none."""
        return await offsets_at(
            self.brokers,
            asked,
            self._patience(patience_ms),
            read_committed=self.settings.isolation_level == "read_committed",
            no_partition=KafkaError._UNKNOWN_PARTITION,
        )
