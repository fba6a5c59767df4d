"""The batches of one partition, from the moment they are added until they are reported.

`open` holds, in order, the batches that have been sent and are not done with; `waiting` those that never were, or whose
stamp was taken back. While the state is SENDING the batches in flight are the first of `open`: whatever fails lets all
that is in flight come back first (DRAINING), and then all is sent again, in order, in the same slots.

A batch that had to be reported while it may still come to be stored stays in `open` as a ghost that holds its slots.

What happens to all this is the table's to say (`table.py`); here are facts, and questions that are answered by them.
"""

from collections import deque

from oncelog.error_codes import TEXTS
from oncelog.slots.batch import Batch
from oncelog.slots.context import SenderContext
from oncelog.slots.identity import Place
from oncelog.slots.lease import FOREVER_MS
from oncelog.slots.messages import BatchAnswer
from oncelog.slots.states import SENDING, SETTLING, STOPPED, State
from oncelog.slots.tenure import Tenure

NO_LEADER = -1


class Partition:
    __slots__ = (
        "context",
        "cuts",
        "failed_leader",
        "failures",
        "flying",
        "from_offset",
        "has_gap",
        "is_asked",
        "is_idempotent",
        "is_late",
        "is_pinned",
        "is_ready",
        "is_refused",
        "leader",
        "looked_at_ms",
        "lost_at_ms",
        "max_in_flight",
        "next_offset",
        "not_before_ms",
        "open",
        "place",
        "renewed",
        "settle_at_ms",
        "spent_pid",
        "state",
        "stopped_by",
        "tenure",
        "trouble",
        "waiting",
    )

    def __init__(self, place: Place, context: SenderContext) -> None:
        self.place = place
        self.context = context
        self.max_in_flight = context.limits.max_in_flight
        self.is_idempotent = context.limits.is_idempotent
        self.waiting: deque[Batch] = deque()
        self.open: deque[Batch] = deque()
        self.flying = 0
        self.state: State = SENDING
        self.stopped_by: tuple[int, str | None] = (0, None)
        self.tenure: Tenure | None = None
        self.renewed: Tenure | None = None  # to follow when the old one has finished what it began
        self.is_asked = False  # for an identity
        self.spent_pid = -1  # whose epochs are used up
        self.is_pinned = False  # the identity changes only where its user saves it
        self.cuts = True  # a batch may be sent as two
        self.has_gap = False  # slots were given up and stay empty
        self.is_refused = False  # the first open batch's sequence was refused though nothing lay before it
        self.is_late = False  # an acknowledgement proved nothing: the broker may have forgotten who filled the slots
        self.leader = NO_LEADER
        self.failed_leader = NO_LEADER
        self.failures = 0  # since the last success
        self.trouble: str | None = None  # what the last of them was
        self.not_before_ms = 0
        self.lost_at_ms = 0
        self.looked_at_ms = 0
        self.settle_at_ms = 0
        self.next_offset = -1  # behind the last record that was acknowledged
        self.from_offset = -1  # nothing that is open lies below
        self.is_ready = False

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.open

    @property
    def has_unsent(self) -> bool:
        return bool(self.waiting) or self.flying < len(self.open)

    @property
    def has_doubts(self) -> bool:
        return any(batch.in_doubt for batch in self.open)

    @property
    def has_ghosts(self) -> bool:
        return any(batch.is_reported for batch in self.open)

    def is_contiguous(self, tenure: Tenure) -> bool:
        """Whether what is open goes on, slot by slot, behind what is surely stored."""
        due = tenure.acknowledged
        for batch in self.open:
            if batch.is_reported or batch.first_sequence != due:
                return False
            due = batch.end_sequence
        return True

    # --- what brokers may have forgotten

    def may_be_passed(self, tenure: Tenure, now_ms: int) -> bool:
        """Whether another process may have filled the slots that are next here, so long ago that the broker has
        forgotten it and would take them again. Only where slots are shared, and only after a silence: with old
        timestamps a broker may forget at any time, but a producer that never stops notices by the sequences."""
        is_recent = now_ms - tenure.known_at_ms < self.context.surely_known_ms
        return not is_recent and now_ms >= self.known_until_ms(tenure, now_ms)

    def known_until_ms(self, tenure: Tenure, now_ms: int) -> int:
        context = self.context
        is_proven = tenure.proven_timestamp_ms > context.remembered_since_ms(now_ms)
        return tenure.known_at_ms + (context.remembered_ms if is_proven else context.surely_known_ms)

    def is_forgettable(self, now_ms: int) -> bool:
        """Whether the broker may have stored what is in doubt and forgotten who wrote it: sent again, it would be there
        twice. Stock Kafka goes by the records' timestamps."""
        tenure = self.tenure
        if tenure is None or tenure.is_leased:
            return False
        forgotten_at_ms = self.context.forgotten_at_ms
        return any(batch.in_doubt and now_ms >= forgotten_at_ms(batch.max_timestamp_ms) for batch in self.open)

    def sent_until_ms(self, batch: Batch, now_ms: int) -> int:
        """The time until which the batch may leave: what was known when it was stamped does not hold for longer."""
        tenure = self.tenure
        if tenure is None:
            return FOREVER_MS
        if tenure.is_leased:
            return tenure.expires_at_ms
        until_ms = self.known_until_ms(tenure, now_ms) if tenure.is_shared else FOREVER_MS
        if batch.in_doubt:
            until_ms = min(until_ms, self.context.forgotten_at_ms(batch.max_timestamp_ms))
        return until_ms

    # --- when something is due

    def due_ms(self, now_ms: int, soonest_ms: int) -> int:
        """The time at which something must be done here though nothing happens; at most `soonest_ms`."""
        limits = self.context.limits
        if self.waiting:
            soonest_ms = min(soonest_ms, self.waiting[0].created_ms + limits.patience_ms)
        for batch in self.open:
            if not batch.is_reported:
                soonest_ms = min(soonest_ms, batch.created_ms + limits.patience_ms)
                break  # those behind it are younger
        if now_ms < self.not_before_ms and self.has_unsent:
            soonest_ms = min(soonest_ms, self.not_before_ms)
        if self.state is SETTLING:
            soonest_ms = min(soonest_ms, self.settle_at_ms)
        tenure = self.tenure
        if tenure is not None and tenure.is_leased:
            if self.wants_renewal:
                soonest_ms = min(soonest_ms, max(now_ms, tenure.renew_at_ms))
            elif self.open and not tenure.is_over(now_ms):
                soonest_ms = min(soonest_ms, tenure.expires_at_ms)
        return soonest_ms

    @property
    def wants_renewal(self) -> bool:
        """A lease is renewed once 23/24 of it are gone. One that was never used is not: it is asked for when it is
        needed."""
        tenure = self.tenure
        return (
            tenure is not None
            and tenure.is_leased
            and self.renewed is None
            and not self.is_asked
            and (self.is_pinned or tenure.next_sequence > 0)
            and self.state is not STOPPED
        )

    def is_due_for_renewal(self, now_ms: int) -> bool:
        return self.tenure is not None and now_ms >= self.tenure.renew_at_ms and self.wants_renewal

    # --- small changes that several of the table's actions make

    def landed(self, batch: Batch) -> None:
        batch.is_flying = False
        self.flying -= 1

    def back_off(self, now_ms: int, answer: BatchAnswer) -> None:
        """Failures of requests that were in flight together count as one."""
        self.trouble = answer.message or TEXTS.get(answer.error_code)
        if self.not_before_ms <= now_ms:
            self.failures += 1
            self.not_before_ms = now_ms + self.context.backoff_ms(self.failures)
        self.context.wake_at(self.not_before_ms)

    def adopt_renewed(self) -> Tenure | None:
        if self.renewed is not None and not self.open:
            if self.tenure is not None:
                self.context.counters.leases_changed += 1
            self.tenure, self.renewed = self.renewed, None
        return self.tenure
