"""A holder's engine in a history: it does what its cell asks for, a step at a time, badly at times."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow import Holder
from oncelog.flow.formats import Tenancy
from oncelog.flow.journal import Journal
from oncelog.flow.messages import (
    AppendClaim,
    Ended,
    Fetch,
    LifeEnd,
    NeedPids,
    Outputs,
    ReadBack,
    ReadJournal,
    Recall,
)
from oncelog.flow.states import State
from oncelog.records.build import build_batch
from oncelog.slots import Place
from oncelog.slots.messages import BatchAnswer, LookUp, NeedMetadata, Produce
from tests.flow.cluster import ASKED, JOURNAL, NODES, OUTPUTS, TOLD, Breach, Cluster, Counting, Folded
from tests.model.partition import Wire

FIRST_TENANCY: Final = Tenancy(0, 0)
MOST_FETCHED: Final = 4


@dataclass(slots=True)
class Conn:
    is_open: bool = False
    queue: deque[tuple[int, Wire]] = field(default_factory=deque)


class Process:
    """A holder's engine: a step at a time, and a new life when one has ended."""

    def __init__(
        self,
        world: Cluster,
        *,
        is_last: bool = False,
        tenancy: Tenancy = FIRST_TENANCY,
        code: str = "7",
        yields_until_ms: int = 0,
    ) -> None:
        self.world = world
        self.is_last = is_last
        self.machine = world.random.randrange(3)
        self.tenancy, self.code, self.yields_until_ms = tenancy, code, yields_until_ms
        self.end: Ended | None = None
        self.is_over = False
        self.sleeps = 0
        self.conns = {node: Conn() for node in NODES.values()}
        self.begin(world.copies.get(self.machine))

    def begin(self, copy: Journal | None) -> None:
        world = self.world
        world.lives += 1
        holder = Holder(
            nonce=f"n{world.lives}", tenancy=self.tenancy, code=self.code, yields_until_ms=self.yields_until_ms
        )
        self.cell = world.rules.makes(
            world.stage,
            Counting(world.service),
            holder,
            world.limits,
            world.now,
            random=world.random.random,
            copy=copy,
            encode=self.encode,
        )
        self.to_do: deque[Any] = deque()
        self.inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.reading: tuple[ReadJournal, int] | None = None  # and until when it waits
        self.is_restored = False
        self.quiet_since_ms = -1
        self.cell.begin()

    def encode(self, outputs: Outputs, timestamp_ms: int) -> bytearray:
        """Only the header is looked at here."""
        return build_batch([(None, None, (), timestamp_ms)])

    def turn(self) -> None:
        if self.is_over or self.sleeps > 0:
            return
        self.read_journal()
        if self.inbox:
            what, about = self.inbox.popleft()
            what(*about, now=self.world.now)
            self.quiet_since_ms = -1
        elif self.to_do:
            self.do(self.to_do.popleft())
        elif not self.is_quiet:
            self.to_do.extend(self.cell.actions(self.world.now))
            self.quiet_since_ms = -1 if self.to_do else self.world.now_ms
            self.look()

    def read_journal(self) -> None:
        """Some time after it was asked; where nothing is there, when the wait is over."""
        if self.reading is None:
            return
        asked, until_ms = self.reading
        batches = self.world.journal(asked.from_offset)
        if batches or self.world.now_ms >= until_ms:
            self.reading = None
            self.inbox.append((self.cell.journal_read, (batches,)))

    @property
    def is_quiet(self) -> bool:
        """It has nothing to do before something arrives or the time passes."""
        return not (self.inbox or self.to_do) and self.quiet_since_ms == self.world.now_ms

    def look(self) -> None:
        """What was restored is the fold of a prefix."""
        cell, world = self.cell, self.world
        if not cell.sources:
            return
        if not self.is_restored:
            self.is_restored = True
            world.seen["restores"] += 1
            taken = sum(each.next_offset for each in cell.journal.commit.inputs) if cell.journal.commit else 0
            expected = Folded(world.order[:taken])
            filled = {place: len(each) for place, each in expected.outputs.items()}
            stands = cell.journal.commit.outputs if cell.journal.commit else ()
            committed = dict.fromkeys(OUTPUTS, 0) | {Place(e.topic, e.partition): e.filled for e in stands}
            committed.pop(TOLD, None)
            asked = committed.pop(ASKED, 0) + sum(len(each.values) for each in cell.journal.held)
            if asked != (filled[OUTPUTS[2]] if world.rules.asks else 0):
                raise Breach(f"restored {asked} answers at {taken}")
            if cell.journal.state != expected.state or committed != filled:
                raise Breach(
                    f"restored {cell.journal.state} and {committed} at {taken} instead of {expected.state} and {filled}"
                )
        if cell.state is State.WORKING and cell.copy is not None and world.random.random() < 0.1:
            world.copies[self.machine] = cell.copy.copy()
        done = cell.journal.commit
        if self.is_last and done is not None and sum(each.next_offset for each in done.inputs) == world.total:
            cell.leave(world.now)

    # --- what it asks for

    def do(self, action: Any) -> None:
        cell, world = self.cell, self.world
        match action:
            case Produce():
                self.produce(action)
            case LookUp():
                self.connect(action.place)
                self.inbox.append((cell.looked_up, (action.place, world.look_up(action))))
            case NeedMetadata():
                self.inbox.append((cell.leaders, (NODES,)))
            case ReadJournal():
                self.connect(JOURNAL)
                self.reading = action, world.now_ms + action.waits_ms
            case Recall():
                self.connect(*action.places)
                self.inbox.append((cell.recalled, (world.recalled(action),)))
            case NeedPids():
                pids = range(world.pids, world.pids + action.how_many)
                world.pids += action.how_many
                self.inbox.append((cell.pids, (pids,)))
            case AppendClaim():
                self.claim(action)
            case Fetch():
                most = action.from_offset + world.random.randint(1, MOST_FETCHED)
                there = world.inputs[action.input].part(action.from_offset, min(most, world.shown[action.input]))
                self.inbox.append((cell.fetched, (action.input, there, action.from_offset + len(there.offsets))))
            case ReadBack():
                self.inbox.append((cell.read_back, (action.place, world.slots(action))))
            case Ended():
                self.ended(action)

    def claim(self, action: AppendClaim) -> None:
        if self.world.random.random() < 0.9:
            record = (action.key, action.value)
            self.world.append(Wire(JOURNAL, -1, -1, -1, (record,), action.timestamp_ms))
        self.inbox.append((self.cell.claimed, ()))

    def connect(self, *places: Place) -> None:
        for place in places:
            self.conns[NODES[place]].is_open = True

    def ended(self, ended: Ended) -> None:
        world = self.world
        self.end = ended
        world.seen[ended.how.name] += 1
        for node in self.conns:
            self.cut(node, is_ghost=True)
        if ended.how is LifeEnd.STOPPED:
            raise Breach(ended.why)
        if ended.how is LifeEnd.LEFT:
            self.is_over = True
        else:
            self.sleeps = 0 if self.is_last else 3
            self.begin(self.cell.copy)

    def produce(self, action: Produce) -> None:
        cell, world, rules = self.cell, self.world, self.world.rules
        (batch,) = action.batches
        if batch.place != JOURNAL and cell.holder.nonce in world.gone:
            raise Breach(f"{cell.holder.nonce} sends behind its goodbye")
        conn = self.conns[NODES[batch.place]]
        is_late = world.now_ms >= action.until_ms
        if rules.connects_and_checks and (is_late or (action.is_checked and not conn.is_open)):
            self.inbox.append((cell.unchecked, (action.request_id,)))
            return
        conn.is_open = True
        timestamp_ms = batch.max_timestamp_ms - (rules.output_age_ms if batch.place != JOURNAL else 0)
        outputs = batch.payload
        assert isinstance(outputs, Outputs)
        is_journal = batch.place == JOURNAL
        records = tuple(zip(outputs.keys, outputs.values, strict=True) if is_journal else outputs.each())
        conn.queue.append(
            (
                action.request_id,
                Wire(batch.place, batch.pid, batch.generation, batch.first_sequence, records, timestamp_ms),
            )
        )

    def deliver(self, node: int, loses: float) -> None:
        conn, world, cell = self.conns[node], self.world, self.cell
        request_id, wire = conn.queue.popleft()
        if world.random.random() < loses / 3:
            code, offset = Code.NOT_ENOUGH_REPLICAS, -1
        else:
            code, offset = world.append(wire)
        if world.random.random() < loses:
            self.inbox.append((cell.lost, (request_id,)))
            self.cut(node, is_ghost=True)
            world.seen["lost"] += 1
        else:
            self.inbox.append((cell.answered, (request_id, [BatchAnswer(*wire.place, code, offset)])))

    def cut(self, node: int, *, is_ghost: bool) -> None:
        """What is queued arrives later or never."""
        conn = self.conns[node]
        conn.is_open = False
        if conn.queue and is_ghost:
            self.world.ghosts.append(deque(wire for _, wire in conn.queue))
        self.inbox.extend((self.cell.lost, (request_id,)) for request_id, _ in conn.queue)
        conn.queue.clear()

    def kill(self) -> None:
        self.is_over = True
        for node in self.conns:
            self.cut(node, is_ghost=True)
