"""The point where a run behind a crash has come back to the undisturbed one: the same was committed of the same input,
and the same stands in the outputs. What follows from there is what followed then, and need not be run again.
"""

from typing import Any

from oncelog.flow.formats import Commit
from oncelog.flow.journal import Journal
from oncelog.flow.simulation.duties import Duty
from oncelog.flow.simulation.topics import Topics
from oncelog.slots import Place

Seen = tuple[Any, ...]


class Returning:
    def __init__(self, duty: Duty, undisturbed: Topics) -> None:
        self._topics, self._duty = undisturbed, duty
        self._commits: dict[Seen, dict[bytes, bytes]] = {}  # the state behind each
        journal, seen = Journal(), None
        for batch in undisturbed[duty.stage.journal].journal(0):
            journal.read([batch])
            if journal.commit is not None and journal.commit is not seen:
                seen = journal.commit
                self._commits[_what(seen)] = dict(journal.state)

    def is_back(self, journal: Journal, topics: Topics) -> bool:
        commit = journal.commit
        if commit is None or self._commits.get(_what(commit)) != journal.state:
            return False
        return all(self._is_same(output.place, topics) for output in self._duty.stage.outputs)

    def _is_same(self, place: Place, topics: Topics) -> bool:
        end = topics[place].end
        return topics[place].records(0, end) == self._topics[place].records(0, end)


def _what(commit: Commit) -> Seen:
    """All of it that makes a difference; when it was made, and by whom, makes none."""
    ranges = commit.plan.ranges if commit.plan else []
    positions = [(each.next_offset, each.mark_ms) for each in commit.inputs]
    filled = [each.filled for each in commit.outputs]
    return tuple(positions), tuple(filled), tuple((r.input, r.first, r.end, r.mark_ms) for r in ranges)
