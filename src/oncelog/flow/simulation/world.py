"""All cells of a flow, their holders and topics. Everybody takes turns.

Without dice the one that comes first in the flow goes first, as long as there is something to do, so a stage has read
all that there is before the next one begins. With dice a cell runs for some turns and another one goes on, inputs grow
bit by bit, and later stages read while earlier ones still write.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.clock import Now
from oncelog.flow.formats import Tenancy
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Ended, LifeEnd
from oncelog.flow.simulation.chance import Dice, Fault, Kind
from oncelog.flow.simulation.duties import Duty
from oncelog.flow.simulation.engine import Engine, Stopped
from oncelog.flow.simulation.returning import Returning
from oncelog.flow.simulation.story import told
from oncelog.flow.simulation.topics import Files, Topics, Wire, forked
from oncelog.producers import FIRST_KAFKA_PID
from oncelog.slots import Place

BEGIN_MS: Final = 1 << 40  # on both clocks
FETCHED_AT_ONCE: Final = 3  # so that a little input comes in several steps
LEAST_BOUND: Final = 20_000  # turns, and that many more for each record and cell
TURNS_A_RECORD: Final = 100
LONGEST_RUN: Final = 40  # turns of one holder in a row
LONGEST_WAIT_MS: Final = 5_000
SLOW: Final = 12  # once in that many turns it arrives
GROWS: Final = 12  # once in that many turns a record arrives

Ghosts = list[tuple[int, list[Wire]]]  # when they arrive


class World:
    def __init__(
        self,
        duties: Sequence[Duty],
        topics: Topics,
        *,
        end_ms: int | None = None,
        faults: Sequence[Fault] = (),
        dice: Dice | None = None,
    ) -> None:
        self.duties, self.topics, self.end_ms, self.dice = duties, topics, end_ms, dice
        self.all_duties = duties
        self.files: Files = {}
        self.tells_time = any(duty.stage.tells_time for duty in duties)
        self.faults = list(reversed(faults))
        self.finished: set[Duty] = set()
        self.pids = FIRST_KAFKA_PID
        self.holders = self.turns = self.changes = 0
        self.now_ms = BEGIN_MS
        self.now = Now(self.now_ms, self.now_ms)
        self.most_turns = LEAST_BOUND + TURNS_A_RECORD * len(duties) * sum(log.end for log in topics.values())
        self.story: list[str] | None = None
        self.ghosts: Ghosts = []
        sources = [] if dice is None else [place for place, log in topics.items() if log.end]
        self._hidden = dict.fromkeys(sources, 0)  # so much of each input is there so far
        self._slow = None if dice is None else dice.one_of((None, True, False))
        self._run_left = 0
        self._journals: dict[Place, Journal] = {}
        self.engines: list[Engine] = []
        self.has_gone = True  # who held something, and nobody follows yet
        self._replace()
        self.current = self.engines[0]

    def without_holders(self, duties: Sequence[Duty]) -> "World":
        """The world after the holders of these cells are killed: all that is left is in the topics."""
        other = World.__new__(World)
        vars(other).update(vars(self))
        other.duties = duties
        other.topics, other.files = forked(self.topics), dict(self.files)
        other.dice = None if self.dice is None else self.dice.copy()
        other.finished, other.ghosts, other._hidden = set(self.finished), list(self.ghosts), dict(self._hidden)
        other._journals, other.engines, other.faults, other._run_left = {}, [], [], 0
        other.has_gone = True
        return other

    # --- what holders need

    def passes(self) -> Now:
        """Let time pass: to work takes some."""
        self.now_ms += 1
        self.now = Now(self.now_ms, self.now_ms)
        return self.now

    def new_pids(self, how_many: int) -> range:
        self.pids += how_many
        return range(self.pids - how_many, self.pids)

    def fetched_at_once(self) -> int:
        return FETCHED_AT_ONCE if self.dice is None else 1 + self.dice.below(2 * FETCHED_AT_ONCE)

    def shown(self, place: Place) -> int:
        """The offset up to which it can be read."""
        return self._hidden.get(place, self.topics[place].end)

    def shown_at_first(self, place: Place) -> int:
        """The offset up to which a table is read before the streams are: without dice, the rows that are no younger
        than all records of these."""
        if self.dice is not None:
            return self.shown(place)
        tables = {place for duty in self.all_duties for place in duty.tables}
        times = [log.records(0, 1).times for each, log in self.topics.items() if each not in tables]
        first_ms = min((times[0] for times in times if times), default=None)
        rows = self.topics[place].records(0, self.topics[place].end)
        later = (at for at, ms in zip(rows.offsets, rows.times, strict=True) if first_ms is not None and ms > first_ms)
        return next(later, self.topics[place].end)

    @property
    def present_ms(self) -> int:
        """The present in the time of events: that of the end, where all inputs have come to theirs. Before, records say
        it."""
        return -1 if self._hidden or self.end_ms is None else self.end_ms

    @property
    def at_present(self) -> Now:
        return Now(self.present_ms, self.now_ms)

    def heard(self, place: Place) -> tuple[int, int]:
        """The offset and the time that the last commits of this place's writers name: behind that offset no record is
        older than that time."""
        commits = [journal.commit for journal in self._journals_behind(place)]
        positions = [
            each for commit in commits if commit for each in commit.outputs if (each.topic, each.partition) == place
        ]
        offset = max((each.next_offset for each in positions), default=-1)
        return offset, min((commit.watermark_ms if commit else -1 for commit in commits), default=-1)

    def _journals_behind(self, place: Place) -> Iterator[Journal]:
        for duty in self.all_duties:
            if place in duty.leaders:
                journal = self._journals.setdefault(duty.stage.journal, Journal())
                journal.read(self.topics[duty.stage.journal].journal(journal.next_offset))
                yield journal

    def append(self, engine: Engine | None, wire: Wire) -> tuple[int, int]:
        self.changes += 1
        code, offset = self.topics[wire.place].append(wire)
        if self.story is not None:
            self.tell(engine, told(wire, code, offset))
        if self.tells_time:
            self._wake()
        return code, offset

    def sent(self) -> None:
        self.changes += 1

    def strand(self, wires: list[Wire], turns: int = 0) -> None:
        """Let batches arrive later, behind a connection that is gone."""
        if wires:
            self.ghosts.append((self.turns + turns, wires))
            self.ghosts.sort(key=lambda ghost: ghost[0])

    def ended(self, engine: Engine, ended: Ended) -> None:
        if ended.how is LifeEnd.LEFT and self.is_done(engine):
            self.finished.add(engine.duty)
            self._wake()
        self.tell(engine, f"ends: {ended.how.value}" + (f" ({ended.why})" if ended.why else ""))

    def is_done(self, engine: Engine) -> bool:
        """The engine has committed all of its input, and nobody writes more."""
        duty = engine.duty
        if any(each.part.name in duty.before and each not in self.finished for each in self.duties):
            return False
        commit = engine.cell.journal.commit
        reached = [each.next_offset for each in commit.inputs] if commit else [0] * len(duty.inputs)
        if not engine.cell.sources or reached != [self.topics[place].end for place in duty.inputs]:
            return False
        return not (duty.stage.has_plan or duty.stage.tells_time) or engine.is_in_time

    def tell(self, engine: Engine | None, what: str) -> None:
        if self.story is not None:
            stage = "" if engine is None else f"{engine.duty.stage.name} {engine.duty.stage.cell}, {engine}: "
            self.story.append(f"{self.turns:5}  {stage}{what}")

    # --- turns

    def run(self, back: Mapping[Duty, Returning] | None = None) -> bool:
        """Run to the end, or to where it is as if nothing had happened; returns whether it came to that."""
        seen = None
        while self.turn():
            engine = self.current
            if not back or self.ghosts or (commit := engine.cell.journal.commit) is seen:
                continue
            seen = commit
            if engine.cell.sources and back[engine.duty].is_back(engine.cell.journal, self.topics):
                return True
        return False

    def turn(self) -> bool:
        """Whether there may be another one."""
        self.turns += 1
        while self.faults and self.faults[-1].turn <= self.turns:
            self._strike(self.faults.pop(), self.current)
        if self.has_gone:
            self._replace()
        while self.ghosts and self.ghosts[0][0] <= self.turns:
            self._late_arrive()
        if self._hidden and self.dice is not None and self.dice.below(GROWS) == 0:
            self._grow(self.dice)
        engine = self._next()
        if engine is None:
            return self._nothing_to_do()
        self.current = engine
        place = self._place_to_deliver(engine, self.dice)
        if place is None:
            engine.turn()
        else:
            engine.deliver(place)
        return True

    def _place_to_deliver(self, engine: Engine, dice: Dice | None) -> Place | None:
        """The place whose batch arrives next. With dice, in some worlds batches of journals are slow, in others those
        of outputs."""
        places = list(engine.wires)
        if dice is None or not places:
            return places[0] if places else None
        place = dice.one_of(places)
        is_slow = self._slow == (place == engine.duty.stage.journal)
        if engine.can_turn() and dice.below(SLOW if is_slow else 2):
            return None
        if not is_slow or len(places) == 1:
            return place
        return dice.one_of(places)

    def _next(self) -> Engine | None:
        if self.dice is None:
            return next(filter(self._is_able, self.engines), None)
        if self._run_left > 0 and self._is_able(self.current):
            self._run_left -= 1
            return self.current
        self._run_left = self.dice.below(LONGEST_RUN)
        choices = [each for each in self.engines if self._is_able(each)]
        return self.dice.one_of(choices) if choices else None

    def _is_able(self, engine: Engine) -> bool:
        if engine.is_over or engine.sleeps_until >= self.turns:
            return False
        return bool(engine.wires) or engine.can_turn()

    def _nothing_to_do(self) -> bool:
        """More input is there, or time passes. When all is done, those that slept and what was late have the last
        word."""
        alive = [each for each in self.engines if not each.is_over]
        if self._hidden and self.dice is not None:
            self._grow(self.dice)
            return True
        if self.finished.issuperset(self.duties):
            if not alive and not self.ghosts:
                return False
            self.ghosts = [(0, wires) for _, wires in self.ghosts]
            for each in alive:
                each.sleeps_until, each.is_quiet = -1, False
        if self.turns > self.most_turns:
            self._is_stuck(alive)
        awake = [each for each in alive if each.sleeps_until < self.turns]
        due = {each: ms for each in awake if (ms := each.cell.next_due_ms()) is not None}
        soonest_ms = min(due.values(), default=0)
        if soonest_ms - self.now_ms < LONGEST_WAIT_MS:  # else it is the deadline of a holder, or a timer
            self.now_ms = max(self.now_ms, soonest_ms - 1)
        self.passes()
        for each, due_ms in due.items():
            if due_ms <= self.now_ms:
                each.is_quiet = False
        return True

    def _is_stuck(self, alive: Sequence[Engine]) -> None:
        engine = next((each for each in alive if each.duty not in self.finished), self.current)
        raise Stopped(
            f"{engine.duty.stage.title}: it comes to no end: {engine} is {engine.cell.state.name}"
            + (f" ({engine.cell.why})" if engine.cell.why else "")
        )

    def _grow(self, dice: Dice) -> None:
        place = dice.one_of(list(self._hidden))
        self._hidden[place] += 1
        if self._hidden[place] >= self.topics[place].end:
            del self._hidden[place]
            self._wake()

    def _wake(self) -> None:
        """The batches that they waited for may be there."""
        for each in self.engines:
            each.is_quiet = False

    def _late_arrive(self) -> None:
        _, wires = self.ghosts.pop(0)
        for wire in wires:
            self.append(None, wire)

    # --- holders

    def begin(self, duty: Duty, tenancy: Tenancy | None = None, waits_ms: int = 0) -> None:
        """`waits_ms`: for the goodbye of who holds it now."""
        self.holders += 1
        for place in duty.tables if self.turns else ():  # who follows finds less than who came first
            self.topics[place].compact(self.shown(place))
        engine = Engine(self, duty, self.holders, tenancy or Tenancy(0, self.holders), self.now_ms + waits_ms)
        self.engines.append(engine)
        self.tell(engine, "begins")

    def _replace(self) -> None:
        """Give each engine that is no more a successor, where something is left to do."""
        self.engines = [each for each in self.engines if not each.is_over]
        held = {each.duty for each in self.engines}
        for duty in self.duties:
            if duty not in held and duty not in self.finished:
                self.begin(duty)
        self.has_gone = False

    def _strike(self, fault: Fault, engine: Engine) -> None:
        if engine.is_over:
            return
        self.tell(engine, fault.kind.value.upper())
        match fault.kind:
            case Kind.KILL_ALL | Kind.KILL_ALL_LATE:
                for each in self.engines:
                    wires = [] if each.is_over else each.kill()
                    if fault.kind is Kind.KILL_ALL_LATE:
                        self.strand(wires, fault.turns)
                self.has_gone = True
            case Kind.KILL | Kind.KILL_LATE:
                wires = engine.kill()
                self.has_gone = True
                if fault.kind is Kind.KILL_LATE:
                    self.strand(wires, fault.turns)
            case Kind.SLEEP:
                engine.sleeps_until = self.turns + fault.turns
                self.begin(engine.duty)
            case Kind.RIVAL:
                self.begin(engine.duty, engine.tenancy)
            case Kind.HAND_OVER:
                self.begin(engine.duty, waits_ms=LONGEST_WAIT_MS)
                engine.leaves = True
            case Kind.NO_ANSWER | Kind.CUT if engine.wires:
                place = list(engine.wires)[fault.turns % len(engine.wires)]
                if fault.kind is Kind.NO_ANSWER:
                    engine.deliver(place, is_answered=False)
                self.strand(engine.cut(place), fault.turns)
