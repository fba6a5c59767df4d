"""A register that a topic keeps: one partition, compacted.

It is read from its end, as little as its plan needs. What is appended is read back, so that afterwards the register
holds whatever stands before it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.net.retry import CLOCK, UNKNOWN, Clock, NoAnswer, Patience, ask
from oncelog.client.net.transaction import Transaction
from oncelog.client.register.partition import MOST_VALUE_BYTES, Log, OutOfRange, TopicLog
from oncelog.clock import wall_s
from oncelog.records.build import build_batch
from oncelog.records.codecs import GZIP, NONE
from oncelog.records.header import mark_transactional, stamp_producer
from oncelog.slots import Place
from oncelog.slots.register import Gap, ReadingBack, Record, Register, key_of_attempt

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

R = TypeVar("R", bound=Register)
T = TypeVar("T")
Pairs = Sequence[tuple[bytes, bytes | None]]

RECORD_BYTES: Final = 32  # that a record takes beside its key and value, at most
MOST_BATCH_BYTES: Final = 8 << 20  # as it is stored
COMPRESS_FROM_BYTES: Final = 1024
CONFIG: Final = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MOST_BATCH_BYTES),
    "min.cleanable.dirty.ratio": "0.1",
}
PAUSE_S: Final = 0.1
UNKNOWN_S: Final = 3.0  # so long a broker may lag behind that does not know a topic yet


class RegisterKind(NamedTuple):
    """The constants of all registers of one plan."""

    what: str  # is kept, in words: "the sink's state"
    refused: type[Exception]
    missing: type[Exception]  # the topic is not there any more, as far as the brokers know
    config: Mapping[str, str]  # of a topic that is made, beside what every one has
    too_large: str  # what to do about a batch that is
    cut: str  # what to do where records were removed that count

    @property
    def topic_config(self) -> dict[str, str]:
        return {**CONFIG, **self.config}


class TopicKeeper(Generic[R]):
    """One register's topic. `make` gives the register with nothing read."""

    def __init__(
        self, log: Log, kind: RegisterKind, make: Callable[[], R], patience: Patience, *, clock: Clock = CLOCK
    ) -> None:
        self._log = log
        self._kind = kind
        self._make = make
        self._patience = patience
        self._clock = clock

    @property
    def topic(self) -> str:
        return self._log.topic

    async def exists(self, *, is_expected: bool = False) -> bool:
        """`is_expected`: a broker that knows of no such topic may lag behind, and is not believed at once."""

        async def counted() -> int:
            found = await self._log.partition_count()
            if is_expected and not found:
                raise exception_of(KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic {self.topic}")
            return found

        try:
            count = await self.patiently(counted)
        except self._kind.missing:
            return False
        if count > 1:
            raise self._kind.refused(f"topic {self.topic}, for {self._kind.what}, has {count} partitions, not one")
        return count == 1

    async def create(self) -> None:
        """One that somebody else has made meanwhile is as good."""
        failure = await self._log.create(self._kind.topic_config)
        if failure is not None and failure.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise self._kind.refused(f"topic {self.topic}, for {self._kind.what}, cannot be made: {failure.str()}")
        await self.patiently(self._log.bounds, lag_s=inf)  # which waits until it is known everywhere, and led

    async def check_config(self) -> None:
        """Check that the topic keeps what is written, as far as we may know: somebody else may have made it."""
        policy = await self._log.cleanup_policy()
        if policy not in (None, "compact"):
            raise self._kind.refused(
                f"topic {self.topic} has cleanup.policy={policy}, and would lose {self._kind.what}: set it to compact, "
                "or remove the topic so that it is made as it should be"
            )

    # --- reading

    async def read(self, known: R | None = None, *, back: int = 0) -> R:
        """The register as it stands now. `known`, which may be changed, is an earlier reading. `back`: how many more
        terms are looked at, so that what lies between is known by its keys."""
        if known is None:
            return await self._read_anew(back)
        try:
            await self.patiently(lambda: self._go_on(known))
        except (Gap, OutOfRange):
            known.become(await self._read_anew(back))
        return known

    async def read_to_end(self, known: R) -> R:
        """`known`, with all that was acknowledged up to now: a new leader, which may show less, is not believed."""
        _, end = await self.patiently(self._log.bounds)
        return await self.read_to(known, end - 1) if end > known.next_offset else known

    async def read_to(self, known: R, offset: int) -> R:
        """`known`, with what was appended up to this offset."""

        async def once() -> R:
            try:
                await self._go_on(known)
            except Gap:
                known.become(await self._read_end(0))
            except OutOfRange:
                words = f"topic {self.topic}: what was read or acknowledged up to offset {offset} is not there"
                raise KafkaException(KafkaError(KafkaError._LOG_TRUNCATION, words)) from None
            if known.next_offset <= offset:
                raise _passing(f"offset {offset}, which was acknowledged, is not below the high watermark")
            return known

        return await self.patiently(once)

    async def _go_on(self, known: R) -> None:
        while True:
            fetched = await self._log.fetch(known.next_offset)
            known.read(fetched.records)
            known.next_offset = max(known.next_offset, fetched.next_offset)
            if known.next_offset >= fetched.end_offset:
                return

    async def _read_anew(self, back: int) -> R:
        return await self.patiently(lambda: self._read_end(back))

    async def _read_end(self, back: int) -> R:
        register = self._make()
        first, end = await self._log.bounds()
        reading = ReadingBack(register.start_of, first, end, back)
        try:
            while (wanted := reading.wanted) is not None:
                reading.got(await self._between(*wanted))
            register.read(reading.records, from_offset=register.start_of(reading.records) or 0)
        except (Gap, OutOfRange):
            raise _passing("the topic was compacted or cut while it was read") from None
        if reading.is_cut:
            raise self._kind.refused(
                f"topic {self.topic} begins at offset {first}: somebody removed records of {self._kind.what} "
                f"(retention where cleanup.policy is not compact, or DeleteRecords). {self._kind.cut}"
            )
        register.next_offset = max(register.next_offset, end)
        return register

    async def _between(self, at: int, end: int) -> list[Record]:
        records: list[Record] = []
        while at < end:
            fetched = await self._log.fetch(at)
            records += [each for each in fetched.records if each.offset < end]
            if fetched.next_offset <= at:
                # A new leader may not know yet how far the old one got. What it does not show is there, and may be the
                # very claim that decides: passed over, it would never be read, so it is waited for.
                raise _passing("a fetch brought nothing")
            at = fetched.next_offset
        return records

    # --- appending

    async def append(self, known: R, pairs: Iterable[tuple[bytes, bytes | None]]) -> R:
        """Append these records, again until that is acknowledged. Afterwards `known` holds everything up to the first
        of them at least."""
        given = list(pairs)
        attempt = 0

        async def once() -> tuple[int, Pairs]:
            nonlocal attempt
            attempt += 1
            stored = [(key if value is None else key_of_attempt(key, attempt), value) for key, value in given]
            return await self._log.produce(self._batch(stored)), stored

        offset, stored = await self.patiently(once)
        if offset != known.next_offset:
            return await self.read_to(known, offset)
        # Nothing stands between what was read and these.
        known.read([Record(offset + at, key, value) for at, (key, value) in enumerate(stored)])
        return known

    async def append_in(self, transaction: Transaction, pairs: Pairs) -> None:
        """Append to a transaction: these records count if it is committed, and are the first that it writes here. They
        are sent again, in the same slots, until that is acknowledged."""
        batch = self._batch(pairs)
        mark_transactional(batch)
        stamp_producer(batch, 0, *transaction.name.identity[:2], 0)
        await transaction.add([Place(self.topic, 0)])
        await self.patiently(lambda: self._log.produce(batch, transaction.name.transactional_id))

    def _batch(self, pairs: Pairs) -> bytearray:
        plain_bytes = sum(RECORD_BYTES + len(key) + len(value or b"") for key, value in pairs)
        if plain_bytes > MOST_VALUE_BYTES:  # it would be stored, and nobody could read it again
            raise self._too_large(f"{plain_bytes} bytes, and may be {MOST_VALUE_BYTES}")
        codec = GZIP if plain_bytes >= COMPRESS_FROM_BYTES else NONE
        records = [(key, value, (), None) for key, value in pairs]
        batch = build_batch(records, codec=codec, timestamp_ms=int(wall_s() * 1000))
        if len(batch) > MOST_BATCH_BYTES:
            raise self._too_large(f"{len(batch)} bytes, compressed, and may be {MOST_BATCH_BYTES}")
        return batch

    def _too_large(self, what: str) -> Exception:
        return self._kind.refused(f"the state of {self.topic} is {what}: {self._kind.too_large}")

    # --- patience

    async def patiently(self, question: Callable[[], Awaitable[T]], *, lag_s: float | None = None) -> T:
        """Asked again while the failure is a passing one. `lag_s`: so long a broker may know nothing of the topic,
        where that is not what it usually may."""
        patience = self._patience if lag_s is None else replace(self._patience, lag_s=lag_s)
        try:
            return await ask(
                question,
                patience,
                refresh=self._log.partition_count,
                gave_up=self._no_answer,
                clock=self._clock,
            )
        except KafkaException as failure:
            if failure.error.code() not in UNKNOWN:
                raise
            words = f"topic {self.topic}, which holds {self._kind.what}, is not there any more"
            raise self._kind.missing(words) from None

    def _no_answer(self, trouble: KafkaError | None) -> NoAnswer:
        why = f"nobody answers at {self._log.servers}" if trouble is None else trouble.str()
        words = f"topic {self.topic} could not be asked for {self._patience.total_s:g} s: {why}"
        return NoAnswer(KafkaError(KafkaError._TIMED_OUT, words))


def topic_keeper(
    brokers: "Brokers", topic: str, kind: RegisterKind, make: Callable[[], R], patience_ms: int
) -> TopicKeeper[R]:
    patience = Patience(patience_ms / 1000, PAUSE_S, lag_s=UNKNOWN_S)
    return TopicKeeper(TopicLog(brokers, topic, patience), kind, make, patience)


def _passing(words: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))
