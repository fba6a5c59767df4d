"""Runs of a flow: one that nothing disturbs, one from each point at which a holder can be stopped, and histories in
which much happens at once. What fails is made smaller, and told.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.flow.simulation.chance import Dice, Fault, Kind, faults_of
from oncelog.flow.simulation.duties import Duty
from oncelog.flow.simulation.engine import Stopped
from oncelog.flow.simulation.fold import check
from oncelog.flow.simulation.returning import Returning
from oncelog.flow.simulation.topics import Topics
from oncelog.flow.simulation.world import World
from oncelog.flow.topics import Sent

LATE: Final = 37  # what is late arrives at a turn below it
ONE_IN: Final = 3  # changes, in runs by chance
MOST_TRIES: Final = 400  # runs to make what fails smaller
LONGEST_STORY: Final = 80  # lines


Kinds = tuple[Kind, Kind]  # without and with what was on the wire
ONE: Final[Kinds] = Kind.KILL, Kind.KILL_LATE
NOWHERE: Final[Mapping[Duty, Returning]] = {}
ALL: Final[Kinds] = Kind.KILL_ALL, Kind.KILL_ALL_LATE


class Case(NamedTuple):
    """A run that can be made again."""

    sent: tuple[Sent, ...]
    faults: tuple[Fault, ...] = ()
    seed: int | None = None  # of the turns; None: in order


class Broken(Exception):
    def __init__(self, case: Case, why: str) -> None:
        super().__init__(why)
        self.case, self.why = case, why


class Search:
    def __init__(self, duties: Sequence[Duty], place: Callable[[Sequence[Sent]], Topics], end_ms: int | None) -> None:
        """`place`: how what is sent stands in topics."""
        self._duties, self._place, self._end_ms = duties, place, end_ms
        self.points: list[int] = []  # turns of the last run in which holders were stopped
        self.runs = 0  # in which something was disturbed

    def calm(self, sent: Sequence[Sent]) -> World:
        world = self._world(Case(tuple(sent)))
        world.run()
        return world

    def crashes(self, sent: tuple[Sent, ...], undisturbed: World | None = None) -> None:
        """Run again from each point of the undisturbed run, with the holder gone. Points between which nothing was sent
        or appended are one."""
        topics = (undisturbed or self.calm(sent)).topics
        has_files = any(duty.part.files for duty in self._duties)  # which are looked at in the end
        back = NOWHERE if has_files else {duty: Returning(duty, topics) for duty in self._duties}
        self._crashes(Case(sent), 1, lambda world: ([world.current.duty], ONE), back)

    def restarts(self, sent: tuple[Sent, ...], seeds: Iterable[int]) -> None:
        """The same where everybody takes turns by chance, with all holders gone at once."""
        for seed in seeds:
            self._crashes(Case(sent, (), seed), ONE_IN, lambda world: (self._duties, ALL))

    def _crashes(
        self,
        case: Case,
        one_in: int,
        who: Callable[[World], tuple[Sequence[Duty], Kinds]],
        back: Mapping[Duty, Returning] = NOWHERE,
    ) -> None:
        world, seen, points = self._world(case), -1, list[int]()
        while True:
            if world.changes != seen and world.changes % one_in == (case.seed or 0) % one_in:
                self._crash(world, case, *who(world), back)
                points.append(world.turns + 1)
            seen = world.changes
            try:
                goes_on = world.turn()
                if not goes_on:
                    self._check(world)
                    self.points = points
                    return
            except Stopped as stopped:
                if case.seed is None:
                    raise
                raise Broken(case, str(stopped)) from stopped

    def _crash(
        self, world: World, case: Case, duties: Sequence[Duty], kinds: Kinds, back: Mapping[Duty, Returning]
    ) -> None:
        late = world.changes % LATE
        gone = [each for each in world.engines if each.duty in duties]
        wires = [[wire for _, wire in queued] for each in gone for queued in each.wires.values()]
        for kind in kinds if wires else kinds[:1]:
            self.runs += 1
            again = world.without_holders(duties)
            for each in wires if kind is kinds[1] else ():
                again.strand(each, late + 1)  # a fault strikes in the next turn
            try:
                if not again.run(back):
                    for duty in duties:
                        check(duty, again.topics, again.files)
            except Stopped as stopped:
                fault = Fault(world.turns + 1, kind, late)
                raise Broken(case._replace(faults=(fault,)), str(stopped)) from stopped

    def history(self, case: Case) -> None:
        """Raises Broken."""
        self.runs += 1
        try:
            world = self._world(case)
            world.run()
            self._check(world)
        except Stopped as stopped:
            raise Broken(case, str(stopped)) from stopped

    def histories(self, sent: tuple[Sent, ...], seeds: Iterable[int], horizon: int) -> None:
        for seed in seeds:
            self.history(Case(sent, faults_of(Dice(~seed), horizon), seed))

    def overlaps(self, sent: tuple[Sent, ...], horizon: int) -> None:
        """Let the holder sleep at each of these points, and go on when another one has done everything."""
        for turn in self.points:
            self.history(Case(sent, (Fault(turn, Kind.SLEEP, 10 * horizon),)))

    def _world(self, case: Case) -> World:
        dice = None if case.seed is None else Dice(case.seed)
        return World(self._duties, self._place(case.sent), end_ms=self._end_ms, faults=case.faults, dice=dice)

    def _check(self, world: World) -> None:
        for duty in self._duties:
            check(duty, world.topics, world.files)

    # --- what fails

    def story(self, broken: Broken) -> str:
        """The story of the smallest case that fails as well."""
        broken = self._smaller(broken)
        case = broken.case
        world = self._world(case)
        world.story = []
        try:
            world.run()
            self._check(world)
            end = f"{broken.why} (and not when it was run once more: a function gives something else each time)"
        except Stopped as stopped:
            end = str(stopped)
        lines = [f"       {each.topic.name}: {each.key!r} {each.value!r} at {each.at_ms}" for each in case.sent]
        told = world.story
        if len(told) > LONGEST_STORY:
            told = [*told[: LONGEST_STORY // 2], "       ...", *told[-LONGEST_STORY // 2 :]]
        begin = "" if case.seed is None else f" (with the turns of seed {case.seed})"
        return "\n".join((end, f"What was sent, of all that was tried the least that fails{begin}:", *lines, *told))

    def _smaller(self, broken: Broken) -> Broken:
        left = MOST_TRIES
        improved = True
        while improved and left > 0:
            improved = False
            for case in _less(broken.case):
                left -= 1
                found = self._fails(case)
                if found is not None:
                    broken, improved = found, True
                    break
                if left <= 0:
                    break
        return broken

    def _fails(self, case: Case) -> Broken | None:
        try:
            kinds = {fault.kind for fault in case.faults}
            if kinds <= {*ONE} and case.seed is None:
                self.crashes(case.sent)
            elif kinds and kinds <= {*ALL} and case.seed is not None:
                self.restarts(case.sent, [case.seed])
            else:
                self.history(case)
        except Broken as broken:
            return broken
        except Stopped:
            return None
        return None


def _less(case: Case) -> Iterator[Case]:
    """The cases that are smaller than this one, the smallest first."""
    count = len(case.sent)
    size = count // 2
    while size:
        for first in range(0, count, size):
            yield case._replace(sent=(*case.sent[:first], *case.sent[first + size :]))
        size //= 2
    if case.seed is not None:
        yield Case(case.sent, (Fault(1, Kind.KILL),))  # any crash, everybody in order
        for at in range(len(case.faults)):
            yield case._replace(faults=(*case.faults[:at], *case.faults[at + 1 :]))
        yield case._replace(seed=None)
