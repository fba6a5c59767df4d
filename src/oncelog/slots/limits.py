"""The limits that the settings give the Sender."""

from dataclasses import dataclass

from oncelog.clock import DAY_MS
from oncelog.slots.lease import FOREVER_MS

SETTLE_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLimits:
    is_idempotent: bool = True
    acks: int = -1
    max_in_flight: int = 5  # requests for one partition
    max_request_bytes: int = 1_000_000  # of all batches in one request, unless one alone is larger
    max_request_batches: int = 10_000
    delivery_timeout_ms: int = 300_000  # 0 for ever, as in librdkafka
    retries: int = 2_147_483_647
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # Without leases nothing can keep out a request that was lost on its way, so before the log is believed to lack
    # a batch, so much time must have passed since it was lost. Longer than any broker lets a request lie.
    settle_ms: int = SETTLE_MS
    # Stock Kafka forgets a producer by its records' timestamps (producer.id.expiration.ms). Until the broker's own
    # value is known, or where it may not be known.
    forget_after_ms: int = DAY_MS

    @property
    def patience_ms(self) -> int:
        """The time that a batch may take from its first record to its report."""
        return self.delivery_timeout_ms or FOREVER_MS


def remembered_ms(forget_after_ms: int, settle_ms: int = SETTLE_MS) -> int:
    """The time for which a broker surely remembers a producer: a batch that is sent now may arrive as late as
    `settle_ms` from now, and must still be remembered then; and its clock is another one."""
    return forget_after_ms - max(forget_after_ms // 24, min(settle_ms, forget_after_ms // 2))
