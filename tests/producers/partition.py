"""A partition reduced to what producers see of it: values at offsets, and the map that decides about them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.clock import DAY_MS, ManualClock, Now
from oncelog.producers import Ceilings, Decision, Grants, ProducerLimits, ProducerMap


@dataclass
class Granted:
    """Which pids were granted, and when: what a `GrantHistory` knows, written by hand."""

    at_ms: dict[int, int] = field(default_factory=dict)

    def may_be_new(self, pid: int, now: Now) -> bool:
        return pid in self.at_ms and now.monotonic_ms - self.at_ms[pid] < 2 * DAY_MS


class Answer(NamedTuple):
    decision: Decision
    base_offset: int


class Entry(NamedTuple):
    """What was appended: so much that the map can be made from it again."""

    pid: int
    generation: int
    first_sequence: int
    values: tuple[str, ...]  # empty: a fence
    base_offset: int


class Partition:
    def __init__(
        self, grants: Grants | None = None, limits: ProducerLimits | None = None, ceilings: Ceilings | None = None
    ) -> None:
        self.clock = ManualClock()
        self.grants = grants
        self.limits = limits
        self.ceilings = ceilings
        self.map = ProducerMap(grants, limits, ceilings)
        self.entries: list[Entry] = []
        self.next_offset = 0

    @property
    def values(self) -> list[str]:
        return [value for entry in self.entries for value in entry.values]

    def send(self, pid: int, generation: int, first_sequence: int, *values: str) -> Answer:
        """What a leader does with a produced batch."""
        now = self.clock.now()
        decision, detail = self.map.judge(pid, generation, first_sequence, len(values), now)
        if decision is Decision.DUPLICATE:
            return Answer(decision, detail)
        if decision not in (Decision.APPEND, Decision.TRIM):
            return Answer(decision, -1)
        base_offset = self.next_offset
        kept = Entry(pid, generation, (first_sequence + detail) % 2**31, values[detail:], base_offset)
        self._append(self.map, kept, now)
        self.entries.append(kept)
        self.next_offset += len(kept.values)
        return Answer(decision, base_offset - detail)

    def fence(self, pid: int, generation: int) -> tuple[Decision, int | None]:
        """What a leader does with resume_pid: the decision, and H where it went well."""
        now = self.clock.now()
        decision = self.map.judge_fence(pid, generation, now)
        if decision is not Decision.APPEND:
            return decision, None
        fence = Entry(pid, generation, -1, (), self.next_offset)
        self._append(self.map, fence, now)
        self.entries.append(fence)
        self.next_offset += 1
        known = self.map.highwater(pid)
        assert known is not None
        return decision, known[1]

    def replayed(self) -> ProducerMap:
        """The map that a follower makes, or a restart without a snapshot."""
        copy = ProducerMap(self.grants, self.limits, self.ceilings)
        for entry in self.entries:
            self._append(copy, entry, self.clock.now())
        return copy

    def restart(self) -> None:
        """The server comes back with nothing but its log."""
        self.map = self.replayed()

    @staticmethod
    def _append(producers: ProducerMap, entry: Entry, now: Now) -> None:
        if not entry.values:
            producers.fence(entry.pid, entry.generation, now)
            return
        producers.accept(
            entry.pid, entry.generation, entry.first_sequence, len(entry.values), entry.base_offset, now.wall_ms, now
        )
