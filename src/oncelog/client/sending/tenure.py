"""For how long, and how far, one identity has written to one partition."""

from typing import Final

from oncelog.client.sending.limits import FOREVER_MS
from oncelog.slots import Identity

LAST_EPOCH: Final = 32_766  # Kafka's clients stop one short of the largest 16-bit number
PERIODS: Final = 24  # a lease is renewed when 23 of these have passed


class Tenure:
    """One identity in one partition, from its first slot to its last."""

    __slots__ = (
        "acknowledged",
        "expires_at_ms",
        "identity",
        "is_leased",
        "is_shared",
        "known_at_ms",
        "next_sequence",
        "proven_timestamp_ms",
        "renew_at_ms",
    )

    def __init__(
        self,
        identity: Identity,
        next_sequence: int,
        expires_at_ms: int | None,
        now_ms: int,
        *,
        is_shared: bool = False,
    ) -> None:
        self.identity = identity
        self.next_sequence = next_sequence  # the slot for the next record that gets one
        self.acknowledged = next_sequence  # the slot behind the last record that is surely stored
        self.is_shared = is_shared
        self.known_at_ms = now_ms  # nobody else had filled the next slot then, or the broker knew who did
        self.is_leased = expires_at_ms is not None
        if expires_at_ms is None:
            self.expires_at_ms = self.renew_at_ms = FOREVER_MS
            # A broker takes any first sequence of a pid that it does not know, or has forgotten. It knows this one for
            # as long as it remembers records with this timestamp.
            self.proven_timestamp_ms = -FOREVER_MS
        else:
            self.expires_at_ms = expires_at_ms
            self.renew_at_ms = expires_at_ms - max(1, expires_at_ms - now_ms) // PERIODS
            self.proven_timestamp_ms = FOREVER_MS  # with leases the first sequence of an unknown pid must be 0

    def bumped(self, now_ms: int) -> "Tenure | None":
        """The next epoch of the same pid, as Java's client takes it without asking; None when there is none left."""
        pid, epoch, _ = self.identity
        return Tenure(Identity(pid, epoch + 1), 0, None, now_ms) if epoch < LAST_EPOCH else None
