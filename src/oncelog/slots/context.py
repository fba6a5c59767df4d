"""The part that all partitions of one Sender share."""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.slots.batch import Batch, Split
from oncelog.slots.lease import FOREVER_MS
from oncelog.slots.limits import SenderLimits, remembered_ms
from oncelog.slots.messages import Action, Failed


@dataclass(slots=True)
class Counters:
    """Counts since the start, for statistics and tests."""

    requests: int = 0
    batches_sent: int = 0
    batches_delivered: int = 0
    batches_failed: int = 0
    batches_maybe_stored: int = 0
    retries: int = 0
    requests_lost: int = 0
    splits: int = 0
    look_ups: int = 0
    restamps: int = 0
    epoch_bumps: int = 0
    leases_changed: int = 0
    identities: int = 0  # that were granted


class SenderContext:
    __slots__ = (
        "actions",
        "counters",
        "due_ms",
        "limits",
        "random",
        "remembered_ms",
        "split",
        "surely_known_ms",
        "wall_ahead_ms",
    )

    def __init__(self, limits: SenderLimits, random: Callable[[], float], split: Split) -> None:
        self.limits = limits
        self.random = random
        self.split = split
        self.counters = Counters()
        self.actions: list[Action] = []
        self.due_ms = FOREVER_MS  # nothing is due before, though something that was due may have been dealt with
        self.wall_ahead_ms = 0
        self.remembered_ms = self.surely_known_ms = 0
        self.forgotten_after(limits.forget_after_ms)

    def forgotten_after(self, forget_after_ms: int) -> None:
        self.remembered_ms = remembered_ms(forget_after_ms, self.limits.settle_ms)
        self.surely_known_ms = min(self.remembered_ms, self.limits.settle_ms)  # whatever the records' timestamps are

    def wake_at(self, at_ms: int) -> None:
        if at_ms < self.due_ms:
            self.due_ms = at_ms

    def fail(self, batch: Batch, code: int, message: str | None, maybe_stored: bool) -> None:
        self.counters.batches_failed += 1
        self.counters.batches_maybe_stored += maybe_stored
        self.actions.append(Failed(batch, code, message, maybe_stored))

    def backoff_ms(self, failures: int) -> int:
        limits = self.limits
        longest = min(limits.retry_backoff_max_ms, limits.retry_backoff_ms << min(failures - 1, 20))
        return int(longest * (0.8 + 0.4 * self.random()))

    def remembered_since_ms(self, now_ms: int) -> int:
        """Records with a timestamp above this one keep their producer in stock Kafka's memory."""
        return now_ms + self.wall_ahead_ms - self.remembered_ms

    def forgotten_at_ms(self, timestamp_ms: int) -> int:
        """The time until which records with this timestamp do so."""
        return timestamp_ms - self.wall_ahead_ms + self.remembered_ms
