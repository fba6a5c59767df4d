"""The sharing out of partitions among the members, by a group's leader. Pure: the same question has the same answer."""

from collections.abc import Mapping
from typing import Final

from oncelog.client.groups.assignors.assignor import Assignor, Candidate, Counts, Shares
from oncelog.client.groups.assignors.range import RangeAssignor
from oncelog.client.groups.assignors.roundrobin import RoundRobinAssignor
from oncelog.client.groups.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}

__all__ = ["ASSIGNORS", "Assignor", "Candidate", "Counts", "Shares"]
