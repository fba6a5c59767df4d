"""The end of a lease. Pure.

One convention: an identity carries its end in wall-clock milliseconds (`Identity.expires_at_ms`), wherever it is kept,
saved or passed on, because other processes read it. The machine counts on a clock that never jumps, and turns the end
into its own time here, once, when the identity is taken up. Nothing else converts between the two.
"""

from typing import Final

from oncelog.slots.identity import NEVER, Identity

FOREVER_MS: Final = 1 << 62
PERIODS: Final = 24  # a lease is renewed when 23 of these have passed


def end_ms(identity: Identity, wall_ahead_ms: int) -> int:
    """The end of the lease, on the machine's clock. Where it is not known, the server says so when it has come."""
    return FOREVER_MS if identity.expires_at_ms == NEVER else identity.expires_at_ms - wall_ahead_ms


def renewal_ms(now_ms: int, end_ms: int) -> int:
    """The time at which another lease is asked for, of one that is taken up now; on the clock of both."""
    return end_ms if end_ms >= FOREVER_MS else end_ms - max(1, end_ms - now_ms) // PERIODS


def may_end_unsaved(identity: Identity, wall_ms: int, since_save_ms: int) -> bool:
    """Whether it may end before the next save, which comes within twice the time since the last one: a lease changes
    only where it is saved."""
    return ends_by(identity, wall_ms + 2 * since_save_ms)


def ends_by(identity: Identity, wall_ms: int) -> bool:
    """Whether it has ended by then: nothing may be sent under it from that time on."""
    return identity.expires_at_ms != NEVER and identity.expires_at_ms <= wall_ms
