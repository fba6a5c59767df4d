"""A process that holds a cell: it does what its cell asks for, a step at a time, and begins anew when a life has ended.

It can be stopped between any two steps. What it has sent lies on the wire until the world delivers it.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

from oncelog.clock import Now
from oncelog.flow.cell import Cell
from oncelog.flow.description import Holder
from oncelog.flow.formats import Tenancy
from oncelog.flow.messages import (
    AppendClaim,
    Ended,
    Expect,
    Fetch,
    FinishFiles,
    LifeEnd,
    NeedPids,
    Outputs,
    ReadBack,
    ReadJournal,
    Recall,
    WriteRows,
)
from oncelog.flow.part_running import PartWork
from oncelog.flow.planning import Source
from oncelog.flow.simulation.duties import LIMITS, Duty
from oncelog.flow.simulation.topics import NOBODYS, Files, Topics, Wire, wire_of
from oncelog.records.build import build_batch
from oncelog.slots import Place
from oncelog.slots.messages import BatchAnswer, LookUp, NeedMetadata, Produce

MOST_LIVES: Final = 12  # of one process, before it leaves the cell to others


class Stopped(AssertionError):
    """A cell stopped, or came to something else than it would have undisturbed. The text says what, and where."""


@lru_cache(16)
def _header(timestamp_ms: int) -> bytes:
    return bytes(build_batch([(None, None, (), timestamp_ms)]))


def header_only(outputs: Outputs, timestamp_ms: int) -> bytearray:
    """Nobody reads more of a batch here: its records travel beside it."""
    return bytearray(_header(timestamp_ms))


class Surroundings(Protocol):
    """The world, as an engine sees it."""

    topics: Topics
    files: Files
    now: Now
    has_gone: bool  # an engine

    @property
    def present_ms(self) -> int: ...
    @property
    def at_present(self) -> Now: ...

    def passes(self) -> Now: ...
    def new_pids(self, how_many: int) -> range: ...
    def fetched_at_once(self) -> int: ...
    def shown(self, place: Place) -> int: ...
    def shown_at_first(self, place: Place) -> int: ...
    def heard(self, place: Place) -> tuple[int, int]: ...
    def append(self, engine: "Engine | None", wire: Wire) -> tuple[int, int]: ...
    def sent(self) -> None: ...
    def strand(self, wires: list[Wire]) -> None: ...
    def ended(self, engine: "Engine", ended: Ended) -> None: ...
    def is_done(self, engine: "Engine") -> bool: ...
    def tell(self, engine: "Engine | None", what: str) -> None: ...


class Engine:
    def __init__(
        self, world: Surroundings, duty: Duty, number: int, tenancy: Tenancy, yields_until_ms: int = 0
    ) -> None:
        self.world, self.duty, self.number, self.tenancy = world, duty, number, tenancy
        self.yields_until_ms = yields_until_ms
        self.leaves = False  # though there may be more to do
        self.sleeps_until = -1  # a turn of the world
        self.is_over = False
        self.lives = 0
        self.wires: dict[Place, deque[tuple[int, Wire]]] = {}
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        duty = self.duty
        holder = Holder(f"{self.number}.{self.lives}", self.tenancy, duty.code, self.yields_until_ms)
        self.work = PartWork(duty.part, duty.stage.cell)
        self.cell = Cell(duty.stage, self.work, holder, LIMITS, self.world.now, random=lambda: 0.5, encode=header_only)
        self.inbox: deque[Callable[[], None]] = deque()
        self.to_do: deque[Any] = deque()
        self.connected: set[Place] = set()
        self.parked: dict[int, Fetch] = {}  # inputs that were found at their end
        self.heard: dict[int, tuple[int, int]] = {}
        self.follows: tuple[int, int] | None = None  # its journal, from an offset on and until when
        self.is_quiet = False
        self.rows: dict[str, list[dict[str, Any]]] = {}  # of files that are not finished
        self.cell.begin()

    def __str__(self) -> str:
        return f"holder {self.number}" + (f" in its life {self.lives}" if self.lives > 1 else "")

    # --- a step

    def can_turn(self) -> bool:
        if self.parked:
            self._look_for_more()
        if self.follows is not None:
            self._follow(*self.follows)
        return bool(self.inbox or self.to_do) or not self.is_quiet

    def turn(self) -> None:
        if self.inbox:
            self.is_quiet = False
            self.inbox.popleft()()
        elif self.to_do:
            action = self.to_do.popleft()
            _DO[type(action)](self, action)
        else:
            cell, world = self.cell, self.world
            if cell.sources and (cell.stage.has_plan or cell.stage.tells_time):
                self._look_at_the_time()
            if not cell.wants_to_leave and (self.leaves or world.is_done(self)):
                cell.leave(world.now)
            self.to_do.extend(cell.actions(world.passes()))
            self.is_quiet = not self.to_do and (cell.wants_to_leave or not world.is_done(self))

    def _look_for_more(self) -> None:
        for fetch in list(self.parked.values()):
            if fetch.from_offset < self.world.shown(self.duty.inputs[fetch.input]):
                self.to_do.append(self.parked.pop(fetch.input))

    def _look_at_the_time(self) -> None:
        """Look at the time of inputs that are at their end, and at what the cells say that write them."""
        world, cell = self.world, self.cell
        for index, (place, source) in enumerate(zip(self.duty.inputs, cell.sources, strict=True)):
            if not source.input.is_derived:
                if index in self.parked and source.end_seen_ms < world.present_ms:
                    cell.at_its_end(index, world.at_present)
            elif (heard := world.heard(place)) != self.heard.get(index):
                self.heard[index] = heard
                cell.heard(index, *heard, world.now)

    @property
    def is_in_time(self) -> bool:
        """Nothing is left to do by the time that it is."""
        found = zip(self.duty.inputs, self.cell.sources, self.work.marks, strict=True)
        return not self.cell.is_due_at(max(mark_ms, self._mark_ms(place, source)) for place, source, mark_ms in found)

    def _mark_ms(self, place: Place, source: Source) -> int:
        world = self.world
        return world.heard(place)[1] if source.input.is_derived else world.present_ms - source.input.wait_ms

    # --- what it asks for

    def _then(self, answer: Callable[..., None], *about: Any, now: Now | None = None) -> None:
        def arrives() -> None:
            answer(*about, now=now or self.world.now)

        self.inbox.append(arrives)

    def _produce(self, action: Produce) -> None:
        (batch,) = action.batches
        place = batch.place
        is_late = self.world.now.monotonic_ms >= action.until_ms
        if is_late or (action.is_checked and place not in self.connected):
            self._then(self.cell.unchecked, action.request_id)
            return
        self.connected.add(place)
        self.wires.setdefault(place, deque()).append((action.request_id, wire_of(batch)))
        self.world.sent()

    def _look_up(self, action: LookUp) -> None:
        self.connected.add(action.place)
        self._then(self.cell.looked_up, action.place, self.world.topics[action.place].found(action))

    def _leaders(self, _: NeedMetadata) -> None:
        self._then(self.cell.leaders, self.duty.leaders)

    def _read_journal(self, action: ReadJournal) -> None:
        self.connected.add(self.duty.stage.journal)
        self._follow(action.from_offset, self.world.now.monotonic_ms + action.waits_ms)

    def _follow(self, from_offset: int, until_ms: int) -> None:
        batches = self.world.topics[self.duty.stage.journal].journal(from_offset)
        is_due = bool(batches) or self.world.now.monotonic_ms >= until_ms
        self.follows = None if is_due else (from_offset, until_ms)
        if is_due:
            self._then(self.cell.journal_read, batches)

    def _recall(self, action: Recall) -> None:
        self.connected.update(action.places)
        known = [place for place in action.places if self.world.topics[place].remembers(action.pid)]
        self._then(self.cell.recalled, dict.fromkeys(known, self.world.now.wall_ms))

    def _pids(self, action: NeedPids) -> None:
        self._then(self.cell.pids, self.world.new_pids(action.how_many))

    def _claim(self, action: AppendClaim) -> None:
        claim = Outputs([action.key], [action.value])
        self.world.append(self, Wire(self.duty.stage.journal, NOBODYS, -1, claim, action.timestamp_ms))
        self._then(self.cell.claimed)

    def _expect(self, _: Expect) -> None:
        """Everything is at hand here."""

    def _fetch(self, action: Fetch) -> None:
        world, place = self.world, self.duty.inputs[action.input]
        end = min(action.from_offset + world.fetched_at_once(), world.shown(place))
        source = self.cell.sources[action.input]
        is_table = self.duty.stage.inputs[action.input].is_table
        self.cell.seen(action.input, world.shown_at_first(place) if is_table else world.shown(place), world.now)
        if end <= action.from_offset and source.empty_since_ms is not None:
            self.parked[action.input] = action
            return
        there = world.topics[place].records(action.from_offset, end)
        if there.offsets:
            world.tell(self, f"reads {place.topic}-{place.partition} from offset {there.offsets[0]} to {end - 1}")
        self._then(self.cell.fetched, action.input, there, max(end, action.from_offset), now=world.at_present)

    def _read_back(self, action: ReadBack) -> None:
        slots = self.world.topics[action.place].slots(action)
        self._then(self.cell.read_back, action.place, slots)

    def _write_rows(self, action: WriteRows) -> None:
        self.rows.setdefault(action.name, []).extend(action.rows.to_pylist())
        self._then(self.cell.rows_written, action.rows.nbytes)

    def _finish_files(self, _: FinishFiles) -> None:
        sink, world = self.duty.part.files, self.world
        assert sink is not None
        for name, rows in self.rows.items():
            world.tell(self, f"finishes {name} with {len(rows)} rows")
            if world.files.setdefault((sink.url, name), rows) != rows:
                raise Stopped(f"{self.duty.stage.title}: {name} would have other rows than stand there")
        self.rows.clear()
        world.sent()
        self._then(self.cell.files_finished)

    def _ended(self, ended: Ended) -> None:
        for place in list(self.wires):
            self.world.strand(self.cut(place))
        if ended.how is LifeEnd.STOPPED:
            raise Stopped(ended.why)
        self.world.ended(self, ended)
        if ended.how is LifeEnd.AGAIN and self.lives < MOST_LIVES:
            self._begin()
        else:
            self.is_over = self.world.has_gone = True

    # --- what happens to it

    def deliver(self, place: Place, *, is_answered: bool = True) -> None:
        request_id, wire = self.wires[place].popleft()
        if not self.wires[place]:
            del self.wires[place]
        code, offset = self.world.append(self, wire)
        if is_answered:
            self._then(self.cell.answered, request_id, [BatchAnswer(*place, code, offset)])
        else:
            self._then(self.cell.lost, request_id)

    def cut(self, place: Place) -> list[Wire]:
        """The connection is lost. The answer is what was on the wire: it arrives later, or never."""
        self.connected.discard(place)
        queued = self.wires.pop(place, deque())
        for request_id, _ in queued:
            self._then(self.cell.lost, request_id)
        return [wire for _, wire in queued]

    def kill(self) -> list[Wire]:
        self.is_over = True
        return [wire for place in list(self.wires) for wire in self.cut(place)]


_DO: Final[dict[type, Callable[[Engine, Any], None]]] = {
    Produce: Engine._produce,
    LookUp: Engine._look_up,
    NeedMetadata: Engine._leaders,
    ReadJournal: Engine._read_journal,
    NeedPids: Engine._pids,
    AppendClaim: Engine._claim,
    Recall: Engine._recall,
    Expect: Engine._expect,
    Fetch: Engine._fetch,
    ReadBack: Engine._read_back,
    WriteRows: Engine._write_rows,
    FinishFiles: Engine._finish_files,
    Ended: Engine._ended,
}
