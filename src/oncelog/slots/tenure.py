"""The progress of one identity in one partition."""

from typing import Final

from oncelog.slots.identity import Identity
from oncelog.slots.lease import FOREVER_MS, end_ms, renewal_ms

LAST_EPOCH: Final = 32_766  # Kafka's clients stop one short of the largest 16-bit number


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
        now_ms: int,
        wall_ahead_ms: int = 0,
        *,
        is_leased: bool = False,
        is_shared: bool = False,
    ) -> None:
        self.identity = identity
        self.next_sequence = next_sequence  # the slot for the next record that gets one
        self.acknowledged = next_sequence  # the slot behind the last record that is surely stored
        self.is_shared = is_shared  # other processes may fill the same slots with the same records
        self.known_at_ms = now_ms  # nobody else had filled the next slot then, or the broker knew who did
        self.is_leased = is_leased
        self.expires_at_ms = self.renew_at_ms = FOREVER_MS
        if is_leased:
            self.expires_at_ms = end_ms(identity, wall_ahead_ms)
            self.renew_at_ms = renewal_ms(now_ms, self.expires_at_ms)
        # A broker takes any first sequence of a Kafka pid that it does not know, or has forgotten. It knows this one
        # for as long as it remembers records with this timestamp. A lease has to begin with 0, so nothing is unclear.
        self.proven_timestamp_ms = FOREVER_MS if is_leased else -FOREVER_MS

    def is_over(self, now_ms: int) -> bool:
        """Whether its lease has ended: nothing may be sent under it from then on."""
        return now_ms >= self.expires_at_ms

    def bumped(self, now_ms: int) -> "Tenure | None":
        """The next epoch of the same pid, as Java's client takes it without asking; None when there is none left."""
        pid, epoch, _ = self.identity
        return Tenure(Identity(pid, epoch + 1), 0, now_ms) if epoch < LAST_EPOCH else None
