"""One partition's batches, from the moment they are added until they are reported.

`open` holds, in order, the batches that have been sent and are not done with; `waiting` those that never were, or whose
stamp was taken back. While the state is SENDING the batches in flight are the first of `open`: whatever fails lets all
that is in flight come back first (DRAINING), and then all is sent again, in order, in the same slots.

A batch that had to be reported while it may still come to be stored stays in `open` as a ghost that holds its slots.
"""

from collections import deque

from oncelog.client.error_codes import ErrorCodes as Code
from oncelog.client.sending import settling
from oncelog.client.sending.actions import Answer, Delivered
from oncelog.client.sending.batch import Batch
from oncelog.client.sending.context import Context
from oncelog.client.sending.states import State
from oncelog.client.sending.tenure import Tenure
from oncelog.client.sending.verdicts import STORED, Kind, verdict_of
from oncelog.producers.sequences import SEQUENCE_MASK, SEQUENCE_WINDOW
from oncelog.slots import Place

NO_LEADER = -1


class Partition:
    __slots__ = (
        "context",
        "failed_leader",
        "failures",
        "flying",
        "from_offset",
        "has_gap",
        "is_asked",
        "is_idempotent",
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
        "waiting",
    )

    def __init__(self, place: Place, context: Context) -> None:
        self.place = place
        self.context = context
        self.max_in_flight = context.limits.max_in_flight
        self.is_idempotent = context.limits.is_idempotent
        self.waiting: deque[Batch] = deque()
        self.open: deque[Batch] = deque()
        self.flying = 0
        self.state = State.SENDING
        self.stopped_by: tuple[int, str | None] = (0, None)
        self.tenure: Tenure | None = None
        self.renewed: Tenure | None = None  # to follow when the old one has finished what it began
        self.is_asked = False  # for an identity
        self.spent_pid = -1  # whose epochs are used up
        self.is_pinned = False
        self.has_gap = False  # slots were given up that nobody filled
        self.is_refused = False  # the first open batch's sequence was refused though nothing lay before it
        self.leader = NO_LEADER
        self.failed_leader = NO_LEADER
        self.failures = 0  # since the last success
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

    # Sending

    def take(self, now_ms: int) -> Batch | None:
        """The next batch to send, stamped and counted as in flight, if there is one that may go now."""
        flying = self.flying
        if self.state or flying >= self.max_in_flight:
            return None
        if flying < len(self.open):
            batch = self.open[flying]
            if self.is_idempotent and not self._may_go_again(batch, now_ms):
                return None if self.open or self.state else self.take(now_ms)  # or they were stamped anew
            self.context.counters.retries += 1
        elif self.waiting:
            if self.is_idempotent:
                tenure = self._tenure_for_new(now_ms)
                if tenure is None:
                    return None
                if tenure.next_sequence == 0:
                    self.context.wake_at(tenure.renew_at_ms)  # only a lease that is used is renewed
                batch = self._stamp_first(tenure)
            else:
                batch = self.waiting.popleft()
                self.open.append(batch)
        else:
            return None
        batch.is_flying = True
        self.flying = flying + 1
        return batch

    def _stamp_first(self, tenure: Tenure) -> Batch:
        batch = self.waiting.popleft()
        batch.stamp(tenure.identity, tenure.next_sequence)
        tenure.next_sequence = (tenure.next_sequence + batch.record_count) & SEQUENCE_MASK
        self.open.append(batch)
        return batch

    def _stamp_waiting(self, tenure: Tenure) -> None:
        """So that what another process has sent of it is found."""
        while self.waiting:
            self._stamp_first(tenure)

    def _tenure_for_new(self, now_ms: int) -> Tenure | None:
        """Under whom a batch without a stamp may go now. An old identity finishes what it began before a new one
        starts: were both in flight, what fails of the old would land behind what the new one brings."""
        tenure = self.tenure
        if self.renewed is not None and not self.is_pinned:
            if self.open:
                return None
            tenure = self.adopt_renewed()
        if tenure is None:
            return None
        if now_ms >= tenure.expires_at_ms:
            if not self.open:
                settling.leave_expired(self)
            return None
        if tenure.is_shared and settling.may_be_passed(self, tenure, now_ms):
            if not self.open:
                self._stamp_waiting(tenure)
                settling.look_up(self, now_ms)
            return None
        if self.flying and tenure.proven_timestamp_ms <= self.context.remembered_since_ms(now_ms):
            return None  # a pid's first batch travels alone
        return tenure

    def _may_go_again(self, batch: Batch, now_ms: int) -> bool:
        tenure = self.tenure
        assert tenure is not None
        if now_ms >= tenure.expires_at_ms:
            if not self.flying:
                settling.regroup(self, now_ms)
            return False
        if tenure.is_leased:
            return True
        if tenure.is_shared and settling.may_be_passed(self, tenure, now_ms):
            if not self.flying:
                settling.look_up(self, now_ms)
            return False
        since_ms = self.context.remembered_since_ms(now_ms)
        if batch.in_doubt and settling.is_forgettable(self, now_ms):
            if not self.flying:
                settling.look_up(self, now_ms)
            return False
        return not self.flying or tenure.proven_timestamp_ms > since_ms

    def adopt_renewed(self) -> Tenure | None:
        if self.renewed is not None and not self.open:
            if self.tenure is not None:
                self.context.counters.leases_changed += 1
            self.tenure, self.renewed = self.renewed, None
        return self.tenure

    # What became of it

    def answered(self, batch: Batch, answer: Answer, now_ms: int) -> None:
        code = answer.error_code
        if code == 0:
            self.stored(batch, answer.base_offset, answer.append_time_ms)
        else:
            verdict = verdict_of(code)
            if verdict is STORED:
                batch.in_doubt = True
                self.stored(batch, answer.base_offset, answer.append_time_ms)
            else:
                self._landed(batch)
                if verdict.is_leader_stale:
                    self.failed_leader, self.leader = self.leader, NO_LEADER
                self._refused(batch, verdict.kind, code, answer.message, now_ms)
        self._when_landed(now_ms)

    def lost(self, batch: Batch, code: int, was_sent: bool, now_ms: int) -> None:
        """No answer will come. What was sent may be stored, or come to be stored even now."""
        self._landed(batch)
        if was_sent:
            batch.in_doubt = True
            self.lost_at_ms = now_ms
            self._try_again(batch, code, None, now_ms)
        else:
            self._drain()
            self.back_off(now_ms)
        self._when_landed(now_ms)

    def _when_landed(self, now_ms: int) -> None:
        if self.flying or self.state == State.SENDING:
            return
        if self.state == State.DRAINING:
            settling.regroup(self, now_ms)
        elif self.state == State.STOPPED:
            self.open.clear()

    def stored(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        batch.is_flying = False
        self.flying -= 1
        self.failures = 0
        if self.open[0] is batch:
            self.open.popleft()
            if base_offset >= 0:
                self.from_offset = base_offset + batch.record_count
        else:
            self.open.remove(batch)
        tenure = self.tenure
        if tenure is not None:
            # A later batch may be acknowledged first; it could only be stored behind this one.
            behind = (batch.first_sequence + batch.record_count) & SEQUENCE_MASK
            if (behind - tenure.acknowledged) & SEQUENCE_MASK < SEQUENCE_WINDOW:
                tenure.acknowledged = behind
                if not tenure.is_leased:
                    tenure.proven_timestamp_ms = batch.max_timestamp_ms
                    # When it was appended is not known: its answer may have lain unread while this process slept.
                    tenure.known_at_ms = max(tenure.known_at_ms, batch.created_ms)
        if base_offset + batch.record_count > self.next_offset and base_offset >= 0:
            self.next_offset = base_offset + batch.record_count
        if not batch.is_reported:
            self.deliver(batch, base_offset, append_time_ms)

    def deliver(self, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
        context = self.context
        context.counters.batches_delivered += 1
        context.actions.append(Delivered(batch, base_offset, append_time_ms, batch.in_doubt))

    def _landed(self, batch: Batch) -> None:
        batch.is_flying = False
        self.flying -= 1

    def _refused(self, batch: Batch, kind: Kind, code: int, message: str | None, now_ms: int) -> None:
        match kind:
            case Kind.RETRY:
                self._try_again(batch, code, message, now_ms)
            case Kind.UNSURE:
                batch.in_doubt = True
                self._try_again(batch, code, message, now_ms)
            case Kind.SEQUENCE:
                self._out_of_sequence(batch, code, message, now_ms)
            case Kind.FENCED:
                settling.stop(self, code, message)
            case Kind.TOO_LARGE if batch.record_count > 1 and not batch.is_reported:
                self.cut(batch, batch.record_count // 2)
                self._drain()
            case Kind.ODD:
                batch.in_doubt = True
                self.abandon(batch, code, message)
            case _:
                self.abandon(batch, code, message)

    def _out_of_sequence(self, batch: Batch, code: int, message: str | None, now_ms: int) -> None:
        """Behind something that failed it is a consequence, and the same slot may be filled later. Otherwise broker and
        producer disagree about what is stored."""
        if self.state == State.SENDING and self.open[0] is batch:
            self.is_refused = True
            self._try_again(batch, code, message, now_ms)
        else:
            self._drain()

    def _try_again(self, batch: Batch, code: int, message: str | None, now_ms: int) -> None:
        self._drain()
        self.back_off(now_ms)
        batch.attempts += 1
        if batch.attempts > self.context.limits.retries:
            self.abandon(batch, code, message)

    def cut(self, batch: Batch, records: int) -> tuple[Batch, Batch]:
        """Two batches in the place of one, in the same slots, so that nothing behind them has to move."""
        at = self.open.index(batch)
        first, second = self.context.split(batch, records)
        for part in (first, second):
            part.home = self
            part.in_doubt = batch.in_doubt
            part.is_reported = batch.is_reported
            part.attempts = batch.attempts
        if batch.first_sequence >= 0:
            first.stamp(batch.identity, batch.first_sequence)
            second.stamp(batch.identity, (batch.first_sequence + records) & SEQUENCE_MASK)
        self.open[at] = first
        self.open.insert(at + 1, second)
        self.context.counters.splits += 1
        return first, second

    def _drain(self) -> None:
        if self.state == State.SENDING:
            self.state = State.DRAINING

    def back_off(self, now_ms: int) -> None:
        """Failures of requests that were in flight together count as one."""
        if self.not_before_ms <= now_ms:
            self.failures += 1
            self.not_before_ms = now_ms + self.context.backoff_ms(self.failures)
        self.context.wake_at(self.not_before_ms)

    # Giving up

    def abandon(self, batch: Batch, code: int, message: str | None = None) -> None:
        """Reports an open batch as failed. It leaves when it provably is not stored, or else stays as a ghost."""
        maybe_stored = batch.in_doubt or batch.is_flying
        if not batch.is_reported:
            batch.is_reported = True
            self.context.fail(batch, code, message, maybe_stored)
        if not maybe_stored:
            self.open.remove(batch)
            self.has_gap = True
        self._drain()

    def fail_waiting(self, code: int, message: str | None = None) -> None:
        while self.waiting:
            self._fail_first(code, message)

    def _fail_first(self, code: int, message: str | None) -> None:
        """The first waiting batch. Where others fill the same slots, nothing may move up into its place."""
        self.context.fail(self.waiting.popleft(), code, message, False)
        if self.tenure is not None and self.tenure.is_shared and self.state != State.STOPPED:
            settling.stop(self, code, settling.SLOT_LOST)

    def expire(self, now_ms: int) -> None:
        """Reports what is older than delivery.timeout.ms."""
        deadline_ms = now_ms - self.context.limits.patience_ms
        waiting = self.waiting
        while waiting and waiting[0].created_ms <= deadline_ms:
            self._fail_first(Code._MSG_TIMED_OUT, None)
        for batch in [each for each in self.open if each.created_ms <= deadline_ms and not each.is_reported]:
            self.abandon(batch, Code._MSG_TIMED_OUT)
        self._when_landed(now_ms)

    def give_up(self, code: int, in_flight: bool, now_ms: int) -> None:
        self.fail_waiting(code)
        if in_flight:
            for batch in [each for each in self.open if not each.is_reported]:
                self.abandon(batch, code)
            self._when_landed(now_ms)

    def due_ms(self, now_ms: int, soonest_ms: int) -> int:
        """When something must be done here though nothing happens; at most `soonest_ms`."""
        limits = self.context.limits
        if self.waiting:
            soonest_ms = min(soonest_ms, self.waiting[0].created_ms + limits.patience_ms)
        for batch in self.open:
            if not batch.is_reported:
                soonest_ms = min(soonest_ms, batch.created_ms + limits.patience_ms)
                break  # those behind it are younger
        if now_ms < self.not_before_ms and self.has_unsent:
            soonest_ms = min(soonest_ms, self.not_before_ms)
        if self.state == State.SETTLING:
            soonest_ms = min(soonest_ms, self.settle_at_ms)
        tenure = self.tenure
        if tenure is not None and tenure.is_leased:
            if self.wants_renewal:
                soonest_ms = min(soonest_ms, max(now_ms, tenure.renew_at_ms))
            elif self.open and now_ms < tenure.expires_at_ms:
                soonest_ms = min(soonest_ms, tenure.expires_at_ms)
        return soonest_ms

    @property
    def wants_renewal(self) -> bool:
        """Once its lease is 23/24 gone. One that was never used is not renewed, but asked for when it is needed."""
        tenure = self.tenure
        return (
            tenure is not None
            and tenure.is_leased
            and self.renewed is None
            and not self.is_asked
            and (self.is_pinned or tenure.next_sequence > 0)
            and self.state != State.STOPPED
        )

    def is_due_for_renewal(self, now_ms: int) -> bool:
        return self.tenure is not None and now_ms >= self.tenure.renew_at_ms and self.wants_renewal
