"""What a cell's histories are about: its input, what it does with it, and brokers with the real rules of producers."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from oncelog.clock import Now
from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow import Cell, Input, Limits, OutputPlace, Stage
from oncelog.flow.formats import (
    CLAIM,
    COMMIT,
    GOODBYE,
    HELD,
    STATE,
    TAKE_OVER,
    Claim,
    Commit,
    Goodbye,
    Held,
    TakeOver,
    decoded,
)
from oncelog.flow.journal import Journal
from oncelog.flow.messages import (
    JournalBatch,
    Outputs,
    ReadBack,
    Recall,
    Records,
    Stepped,
    Work,
)
from oncelog.producers.producer_map import FIRST_KAFKA_PID
from oncelog.slots import Identity, Place
from oncelog.slots.messages import Found, LookUp
from oncelog.slots.replay import Slot
from tests.model.events import WALL_MS
from tests.model.partition import Partition, Producers, Stored, Wire

FORGET_MS: Final = 1_000
BEFORE_MS: Final = 400  # the journal's message.timestamp.before.max.ms
IDLE_MS: Final = 50
KEEP_TOMBSTONES_MS: Final = 200
JOURNAL: Final = Place("oncelog.flow.f.s", 0)
OUTPUTS: Final = (Place("one", 0), Place("one", 1), Place("two", 0))
ASKED, TOLD = Place("asked", 0), Place("told", 0)
NODES: Final = {place: node for node, place in enumerate((*OUTPUTS, ASKED, TOLD, JOURNAL))}
KEYS: Final = b"abc"
ENTRIES: Final = (CLAIM, TAKE_OVER, COMMIT, HELD, GOODBYE)


Pair = tuple[bytes, bytes | None]  # a journal's record


def journal_batch(base: int, last: int, identity: Identity, records: Sequence[Pair | None]) -> JournalBatch:
    """None: compaction took it."""
    left = [each for each in records if each is not None]
    return JournalBatch(base, last, identity, [key for key, _ in left], [value for _, value in left])


class Breach(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Rules:
    """What the mutants break outside of the room: the engine's part, and the settings of topics."""

    has_plan: bool = False
    asks: bool = False  # a service, that never answers the same
    looks_into_the_log: bool = True
    connects_and_checks: bool = True
    refuses_old_batches: bool = True
    closes_idle_connections: bool = True
    output_age_ms: int = 0
    makes: Callable[..., Cell] = Cell


class Counting(Work):
    """How often each key came, written to one of two partitions; even ones to a third; a key goes at its third. Where
    there is a service, it is asked about even ones; and commits tell of what they changed."""

    def __init__(self, service: Iterator[int] | None = None) -> None:
        self.service = service

    def begin(self, state: Mapping[bytes, bytes], marks: Sequence[int]) -> None:
        super().begin(state, marks)
        self.state = state

    def run(self, input: int, records: Records, most: int) -> Stepped:
        changes: dict[bytes, bytes | None] = {}
        keys: dict[Place, list[bytes]] = {}
        values: dict[Place, list[bytes]] = {}
        asked: list[tuple[bytes, bytes]] = []
        for offset, key in zip(records.offsets, records.keys, strict=True):
            assert key is not None
            stands = changes[key] if key in changes else self.state.get(key)
            changes[key], written = self.step(stands, input, offset, key)
            for place, value in written:
                keys.setdefault(place, []).append(key)
                values.setdefault(place, []).append(value)
                if place == OUTPUTS[2] and self.service is not None:
                    asked.append((key, b"%b: %d" % (value, next(self.service))))
        held = [(ASKED, Outputs([key for key, _ in asked], [value for _, value in asked]))] if asked else []
        outputs = {place: Outputs(keys[place], values[place]) for place in keys}
        return Stepped(changes, outputs, len(records.offsets), held)

    def undo(self) -> None:
        """It keeps nothing."""

    def told(self, number: int, changes: Mapping[bytes, bytes | None]) -> dict[Place, Outputs]:
        there = {key: value for key, value in changes.items() if value is not None}
        values = [b"%b is %b" % each for each in there.items()]
        return {TOLD: Outputs(list(there), values)} if values and self.service is not None else {}

    def step(
        self, stands: bytes | None, input: int, offset: int, key: bytes
    ) -> tuple[bytes | None, list[tuple[Place, bytes]]]:
        count = int(stands or b"0") + 1
        said = b"%b %d at %d/%d" % (key, count, input, offset)
        outputs = [(OUTPUTS[key[0] % 2], said)]
        if count % 2 == 0:
            outputs.append((OUTPUTS[2], b"even " + said))
        return None if count == 3 else b"%d" % count, outputs


class Folded:
    """What a prefix of the input comes to: the undisturbed run."""

    def __init__(self, records: Sequence[tuple[int, int, bytes]]) -> None:
        self.state: dict[bytes, bytes] = {}
        self.outputs: dict[Place, list[bytes | None]] = {place: [] for place in OUTPUTS}
        for index, offset, key in records:
            value, outputs = Counting().step(self.state.get(key), index, offset, key)
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
            for place, said in outputs:
                self.outputs[place].append(said)


class Cluster:
    """The topics of one flow with one cell."""

    def __init__(self, random: Random, rules: Rules) -> None:
        self.random = random
        self.rules = rules
        self.now_ms = 10_000
        self.logs = {place: Partition(Producers(forget_after_ms=FORGET_MS)) for place in NODES}
        self.pids = FIRST_KAFKA_PID
        self.seen: Counter[str] = Counter()
        most = random.randint(6, 14)
        counts = [most, random.randint(3, 8)] if rules.has_plan else [most]
        self.inputs = [self.records(each) for each in counts]
        self.shown = [1 for _ in self.inputs]  # so many records of each input are there so far
        self.service = count() if rules.asks else None
        self.answers: list[bytes | None] = []  # what the commits hold
        self.told: list[bytes | None] = []  # what follows from them
        self.order = [] if rules.has_plan else self.taken(0, 0, most)
        self.tombstones: dict[tuple[int, int], int] = {}  # since when they are the last of their key
        self.fence = (-1, -1)
        self.chain: list[int] = []
        self.ghosts: list[deque[Wire]] = []
        self.copies: dict[int, Journal] = {}
        self.lives = 0
        self.gone: set[str] = set()  # holders that have said goodbye
        self.limits = Limits(
            commit_every_ms=2,
            wait_ms=3,
            tenure_ms=3_000,
            plan_records=4,
            forget_after_ms=FORGET_MS,
            settle_ms=20,
            last_epoch=3 if self.random.random() < 0.4 else 30_000,
            max_in_flight=3,
            retry_backoff_ms=1,
        )
        inputs = tuple(Input(f"in{index}", "id") for index in range(len(self.inputs)))
        outputs = tuple(OutputPlace(place, "id") for place in (*OUTPUTS, ASKED, TOLD))
        self.stage = Stage(
            flow="f", name="s", cell=0, journal=JOURNAL, inputs=inputs, outputs=outputs, has_plan=rules.has_plan
        )

    @property
    def now(self) -> Now:
        return Now(WALL_MS + self.now_ms, self.now_ms)

    def records(self, count: int) -> Records:
        keys = [bytes([self.random.choice(KEYS)]) for _ in range(count)]
        return Records(range(count), keys, [b""] * count, [self.random.randrange(100) for _ in range(count)])

    def taken(self, input: int, first: int, end: int) -> list[tuple[int, int, bytes]]:
        return [(input, at, self.inputs[input].keys[at] or b"") for at in range(first, end)]

    @property
    def total(self) -> int:
        return sum(len(each.offsets) for each in self.inputs)

    def append(self, wire: Wire) -> tuple[int, int]:
        now, log = self.now, self.logs[wire.place]
        is_old = wire.timestamp_ms < now.wall_ms - BEFORE_MS
        if wire.place == JOURNAL and is_old and self.rules.refuses_old_batches:
            return Code.INVALID_TIMESTAMP, -1
        before = log.end_offset
        code, offset = log.append(wire, now)
        if wire.place == JOURNAL and log.end_offset > before:
            self.appended(log.batches[-1])
        return code, offset

    def appended(self, stored: Stored) -> None:
        """Who looks at every batch as it is appended knows the order of the plans, whatever compaction takes later."""
        wire = stored.wire
        entries = [decoded(*each) for each in wire.records if each[0][:1] in ENTRIES]
        for entry in entries:
            if isinstance(entry, Claim) and not self.chain:
                self.chain = [entry.journal_pid]
        if wire.pid not in self.chain:
            return
        fence = self.chain.index(wire.pid), wire.generation
        if fence < self.fence:
            self.seen["stale"] += 1
            return
        self.fence = fence
        for entry in entries:
            if isinstance(entry, TakeOver) and entry.successor is not None and entry.successor not in self.chain:
                self.chain.append(entry.successor)
            elif isinstance(entry, Held):
                self.answers += entry.values
            elif isinstance(entry, Commit):
                self.committed(entry, wire)
            elif isinstance(entry, Goodbye):
                self.check_goodbye(entry)

    def committed(self, entry: Commit, wire: Wire) -> None:
        self.check_ends(entry)
        if self.rules.asks:
            changes = {each[0][1:]: each[1] for each in wire.records if each[0][:1] == STATE}
            for outputs in Counting(self.service).told(entry.number, changes).values():
                self.told += outputs.values
        if self.rules.has_plan:
            self.seen["commits"] += 1
            done = self.order[: sum(each.next_offset for each in entry.inputs)]
            ranges = entry.plan.ranges if entry.plan else []
            if any(each.first < min(entry.inputs[each.input].next_offset, each.end) for each in ranges):
                raise Breach(f"commit {entry.number} plans what is taken: {entry}")
            planned = [record for each in ranges for record in self.taken(each.input, each.first, each.end)]
            self.order = done + planned

    def check_goodbye(self, said: Goodbye) -> None:
        """Behind it nothing is left to send."""
        self.gone.add(said.nonce)
        self.seen["goodbyes"] += 1
        for place, due in (ASKED, self.answers), (TOLD, self.told):
            if (sent := len(self.logs[place].records())) < len(due):
                raise Breach(f"goodbye is said, and of {len(due)} records for {place} {sent} were sent")

    def check_ends(self, commit: Commit) -> None:
        """Those who read what was written read up to there. Nobody else writes here, so offsets are slots."""
        for each in commit.outputs:
            if each.next_offset != (each.filled or -1):
                raise Breach(f"{each.filled} records stand, and commit {commit.number} says {each}")

    def compact(self) -> None:
        """What has a younger record of its key goes, up to somewhere; and tombstones that stood long enough. The active
        segment, here the last batch, stays, and so does the last batch of a producer, as an empty one."""
        log = self.logs[JOURNAL]
        if not log.batches:
            return
        up_to = len(log.batches) - 1 if self.random.random() < 0.5 else self.random.randrange(len(log.batches))
        newest: dict[bytes, tuple[int, int]] = {}
        lasts: dict[int, int] = {}
        for base, wire in log.batches[:up_to]:
            newest.update({each[0]: (base, at) for at, each in enumerate(wire.records) if each is not None})
        for base, wire in log.batches:
            lasts[wire.pid] = base
        kept = []
        for stored in log.batches[:up_to]:
            base, wire = stored
            left = tuple(
                each if each is not None and self.stays(newest, each, (base, at)) else None
                for at, each in enumerate(wire.records)
            )
            if any(each is not None for each in left) or lasts[wire.pid] == base:
                kept.append(Stored(base, wire._replace(records=left)))
        log.batches[:up_to] = kept

    def stays(self, newest: dict[bytes, tuple[int, int]], each: Pair, at: tuple[int, int]) -> bool:
        if newest[each[0]] != at:
            return False
        return each[1] is not None or self.now_ms - self.tombstones.setdefault(at, self.now_ms) <= KEEP_TOMBSTONES_MS

    def journal(self, from_offset: int) -> list[JournalBatch]:
        return [
            journal_batch(base, base + len(wire.records) - 1, Identity(wire.pid, wire.generation), wire.records)
            for base, wire in self.logs[JOURNAL].batches
            if base + len(wire.records) > from_offset
        ]

    def look_up(self, asked: LookUp) -> Found:
        """DescribeProducers, and the log where that says nothing."""
        log, (pid, generation, _) = self.logs[asked.place], asked.identity
        spans = log.spans(pid, asked.from_offset, generation)
        known = log.highwater(pid, self.now)
        if known is not None and known[0] == generation:
            return Found(known[1], generation, spans if asked.from_offset >= 0 else ())
        if not self.rules.looks_into_the_log:
            return Found(-1, generation)
        return Found(spans[-1].last_sequence if spans else -1, generation, spans)

    def recalled(self, asked: Recall) -> dict[Place, int]:
        found = {place: self.logs[place].last_timestamp_ms(asked.pid, self.now) for place in asked.places}
        return {place: ms for place, ms in found.items() if ms is not None}

    def slots(self, asked: ReadBack) -> list[Slot]:
        return [
            Slot(
                asked.identity,
                wire.first_sequence + at,
                base + at,
                each.key,
                each.value,
                each.headers,
                wire.timestamp_ms,
            )
            for base, wire in self.logs[asked.place].batches
            if wire.pid == asked.identity.pid and base + len(wire.records) > asked.from_offset
            for at, each in enumerate(wire.records)
            if 0 <= wire.first_sequence + at - asked.first_sequence < asked.records
        ]
