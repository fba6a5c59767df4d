"""The question of a partition about leases: whether a pid that it does not know may be a new one."""

from typing import Protocol

from oncelog.clock import Now


class Grants(Protocol):
    def may_be_new(self, pid: int, now: Now) -> bool:
        """Whether this leased pid was granted within the last two lifetimes. When in doubt, no."""
        ...


class AnyGrant:
    """Takes every pid for a new one: for logs that stand alone, in tools and tests."""

    def may_be_new(self, pid: int, now: Now) -> bool:
        return True
