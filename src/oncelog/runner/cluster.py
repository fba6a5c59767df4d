"""The cluster, as all cells of a run share it: connections, leaders, requests that are tried again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.arguments import check_kind
from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import (
    ALIASES,
    CONSUMER,
    PRODUCER,
    Brokers,
    Input,
    Inputs,
    NoAnswer,
    Patience,
    Tasks,
    ask,
    consumer_settings,
    for_role,
    producer_settings,
    stored_batches,
)
from oncelog.clock import SystemClock, monotonic_s
from oncelog.flow.errors import FlowRefused
from oncelog.flow.formats import TIME
from oncelog.flow.messages import JournalBatch
from oncelog.flow.parts import Part
from oncelog.runner.turns import Turns
from oncelog.slots import AnyPlace, Place

if TYPE_CHECKING:
    from oncelog.runner.storing.place import FilePlace
    from oncelog.runner.storing.writing import FileWriter

T = TypeVar("T")

_log: Final = logging.getLogger("oncelog.flow")

SAY_EVERY_S: Final = 60.0
FIRST_CONTACT_S: Final = 20.0  # a cluster that was never reached is more likely a wrong address
# Brokers close what was idle for ten minutes; here it is bounded by less, and a fetch is not held for long, so that an
# input that is begun meanwhile is soon asked for. What becomes of topics is seen sooner than in librdkafka's five
# minutes.
_DEFAULTS: Final = {
    "connections.max.idle.ms": "240000",
    "fetch.wait.max.ms": "100",
    "queued.max.messages.kbytes": "8192",
    "topic.metadata.refresh.interval.ms": "30000",
}
# Asking for a topic must not make it: one that was removed would come back, and empty.
_OWN: Final = {"allow.auto.create.topics": "false"}
_ONCE: Final = {"enable.idempotence": ("true", "1"), "request.required.acks": ("all", "-1")}
_NOT_HERE: Final = {
    "group.id": "positions are in the flow's journals",
    "auto.offset.reset": "a flow begins where its inputs begin, or where `read(start=)` says",
    "partitioner": "keys are placed as Java's producer places them (murmur2)",
    "oncelog.pid": "the cells of a flow have producer ids of their own",
}


def check_properties(properties: Mapping[str, Any]) -> None:
    """Refuses what would not be exactly once, or would change nothing."""
    words = 'the properties of a client, such as {"bootstrap.servers": "127.0.0.1:9092"}'
    check_kind("what a flow is run with", properties, Mapping, words)
    for name, value in properties.items():
        known = ALIASES.get(name, name)
        if known in _NOT_HERE:
            raise FlowRefused(f"{name} cannot be set for a flow: {_NOT_HERE[known]}. Leave it out")
        allowed = _ONCE.get(known)
        if allowed is not None and str(value).strip().lower() not in allowed:
            raise FlowRefused(f"{name} = {value}: a flow writes every record once, and needs {allowed[0]}")


async def journal_batches(
    brokers: Brokers, place: Place, from_offset: int, wait: timedelta = timedelta(0)
) -> list[JournalBatch]:
    """All that stand there now, those of holders that are fenced too: which of them count, `Journal` says. Where there
    are none, one is waited for."""
    stored = stored_batches(brokers, place, from_offset, wait)
    return [JournalBatch(*each) async for portion in stored for each in portion]


class Cluster:
    """Made and used on one loop. `learned` is called when somebody else leads, or may."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        wake: Callable[[Callable[[], None]], object],
        learned: Callable[[], None],
    ) -> None:
        given = _DEFAULTS | {ALIASES.get(name, name): value for name, value in properties.items()} | _OWN
        self.reading = consumer_settings(for_role(given, CONSUMER))
        self.writing = producer_settings(for_role(given, PRODUCER))
        self.brokers = Brokers(self.writing, on_error=self.note)
        self.patience = Patience(
            inf, self.writing.retry_backoff_ms / 1000, most_pause_s=self.writing.retry_backoff_max_ms / 1000
        )
        self.trouble: KafkaError | None = None  # what kept a broker from being reached last
        self._said_s: dict[int, float] = {}  # when, by code
        self._wake = wake
        self._learned = learned
        self._inputs: list[Inputs] = []
        self.places: dict[str, FilePlace] = {}  # of files, by URL
        self._tasks = Tasks()
        self.turns = Turns(lambda work: asyncio.get_running_loop().call_soon(work))
        self._wanted: set[str] = set()
        self._is_refreshing = False
        self._seen: object = None

    async def start(self, patience_s: float = FIRST_CONTACT_S) -> None:
        await self.brokers.start()
        patience = Patience(patience_s, self.patience.pause_s)
        try:
            await ask(lambda: self.brokers.refresh(()), patience)
        except KafkaException as failure:
            words = self.trouble.str() if self.trouble is not None else failure.error.str()
            raise FlowRefused(f"no broker answered within {patience_s:g} s: {words}") from failure

    def open_places(self, urls: Iterable[str]) -> None:
        from oncelog.runner.storing.place import FilePlace

        self.places = {url: FilePlace(url).begin() for url in urls}

    def file_writer(self, part: Part, owner: str) -> "FileWriter | None":
        """The writer of the files of one life of a cell, where its part has some."""
        if part.files is None:
            return None
        from oncelog.runner.storing.writing import FileWriter

        return FileWriter(self.places[part.files.url], owner, lambda: SystemClock().now().monotonic_ms)

    def command(self, action: str, words: str) -> str:
        """A command for a message, as a shell takes it: at these brokers."""
        servers = ",".join(f"{host}:{port}" for host, port in self.writing.bootstrap_servers)
        return f"`oncelog {action} -b {servers} {words}`"

    async def close(self) -> None:
        await self._tasks.close()
        for each in self._inputs:
            await each.close()
        await self.brokers.close()

    def note(self, error: KafkaError) -> None:
        self.trouble = error
        now_s = monotonic_s()
        if now_s >= self._said_s.get(error.code(), now_s - SAY_EVERY_S) + SAY_EVERY_S:
            self._said_s[error.code()] = now_s
            _log.warning("%s", error.str())

    async def patiently(
        self, question: Callable[[], Awaitable[T]], refresh: Callable[[], Awaitable[object]] | None = None
    ) -> T:
        """Asked again while the failure passes, without an end."""

        async def once() -> T:
            try:
                return await question()
            except NoAnswer as none:  # whose own patience was counted in; here there is no end of it
                _log.warning("%s", none.error.str())
                raise KafkaException(KafkaError(none.error.code(), none.error.str(), retriable=True)) from None

        return await ask(once, self.patience, refresh=refresh)

    # --- who leads

    def want(self, topics: Sequence[str]) -> None:
        """They are asked about, together with what others want meanwhile; then `learned` is called."""
        self._wanted.update(topics)
        if not self._is_refreshing:
            self._is_refreshing = True
            self._tasks.begin(self._refresh())

    async def _refresh(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, set()
            try:
                await self.brokers.refresh(wanted)
            except KafkaException as failure:
                self.note(failure.error)  # the sender asks again
        self._is_refreshing = False
        self._seen = self.brokers.metadata
        self._learned()

    def look(self) -> None:
        """Leaders are learned by other answers, too."""
        if self._seen is not self.brokers.metadata:
            self._seen = self.brokers.metadata
            self._learned()

    # --- what is read

    def read(
        self,
        partition: AnyPlace,
        offset: int,
        arrived: Callable[[], None],
        failed: Callable[[KafkaError], None],
        stop_at: int | None,
        *,
        keeps_telling: bool = False,
        has_headers: bool = False,
        as_columns: bool = False,
    ) -> Input:
        """Read an input. An input of two stages is fetched twice, over connections of their own."""
        free = next((inputs for inputs in self._inputs if partition not in inputs), None)
        if free is None:
            free = Inputs(self.reading, self.brokers, self._wake, f"flow {len(self._inputs)}", TIME)
            self._inputs.append(free)
        return free.begin(
            partition,
            offset,
            arrived,
            failed,
            stop_at,
            keeps_telling=keeps_telling,
            has_headers=has_headers,
            as_columns=as_columns,
        )
