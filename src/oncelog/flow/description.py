"""The description that a cell is made from: the stage that it is part of, its holder, its limits."""

from dataclasses import dataclass
from typing import Final

from oncelog.clock import DAY_MS, MINUTE_MS
from oncelog.flow.formats import Tenancy
from oncelog.slots import Place
from oncelog.slots.limits import SETTLE_MS, SenderLimits
from oncelog.slots.tenure import LAST_EPOCH

TENURE_MS: Final = 10 * MINUTE_MS
COMMIT_OVERHEAD_BYTES: Final = 70  # a state entry's share of a batch, beside key and value: five varints and more


@dataclass(frozen=True, slots=True)
class Input:
    topic: str
    topic_id: str
    log_start: int = 0
    wait_ms: int = 0  # for records that are older than what came before them
    is_derived: bool = False  # the flow's own: its marks are those of the cells that write it
    is_table: bool = False  # a plan's rows of it stand in the commit: compaction may take them


@dataclass(frozen=True, slots=True)
class OutputPlace:
    place: Place
    topic_id: str


@dataclass(frozen=True, slots=True)
class Collect:
    """The size of a plan over the only input: all records that came within a time, up to a number of them."""

    every_ms: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One cell of it. All inputs are read in the partition of the cell's number."""

    flow: str
    name: str
    cell: int
    journal: Place
    inputs: tuple[Input, ...]
    outputs: tuple[OutputPlace, ...]
    journal_id: str = ""  # of its topic
    has_plan: bool = False
    tells_time: bool = False  # what reads its outputs asks for the time
    collect: Collect | None = None  # its plans become files, each of them wholly or not at all

    @property
    def title(self) -> str:
        return f"{self.flow}, stage {self.name}, cell {self.cell}"


@dataclass(frozen=True, slots=True)
class Holder:
    """One life of a holder. The life after it has another nonce."""

    nonce: str
    tenancy: Tenancy
    code: str  # the flow's version and the fingerprint of its codecs
    yields_until_ms: int = 0  # wall clock: until then the one before it may commit and say goodbye
    run: str = ""  # that it is part of


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    commit_every_ms: int = 100
    commit_bytes: int = 1_000_000  # what the journal's topic takes in one batch
    wait_ms: int = 1_000  # for an input that is empty, before a plan goes on without it
    tell_time_every_ms: int = 1_000  # where nothing but the time has changed
    tenure_ms: int = TENURE_MS  # until the holder takes over anew
    plan_records: int = 10_000
    run_records: int = 10_000  # that are worked on at a time; less where what they change fits no commit
    batch_bytes: int = 900_000  # of outputs; a topic's max.message.bytes is above it
    waiting_bytes: int = 4 << 20  # of outputs that are not acknowledged, before no more input is taken
    # The shortest producer.id.expiration.ms of the cluster. The journal's message.timestamp.before.max.ms is at most
    # half of it, so what was known when a batch was made still holds when a broker takes it.
    forget_after_ms: int = DAY_MS
    settle_ms: int = SETTLE_MS
    last_epoch: int = LAST_EPOCH
    max_in_flight: int = 5
    retry_backoff_ms: int = 100

    @property
    def fresh_ms(self) -> int:
        """The time for which a look at the log holds, and a record counts as young."""
        return self.forget_after_ms // 2

    @property
    def sender(self) -> SenderLimits:
        return SenderLimits(
            max_in_flight=self.max_in_flight,
            delivery_timeout_ms=0,
            retry_backoff_ms=self.retry_backoff_ms,
            settle_ms=self.settle_ms,
            forget_after_ms=self.forget_after_ms,
        )
