"""Senders broken on purpose, one promise each: every one must be caught by the histories that it names."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.slots import Identity, actions, arriving, stamping
from oncelog.slots.batch import Batch
from oncelog.slots.context import SenderContext
from oncelog.slots.lease import FOREVER_MS
from oncelog.slots.partition import Partition
from oncelog.slots.sender import Sender
from oncelog.slots.states import Event, State
from oncelog.slots.table import TABLE
from oncelog.slots.tenure import Tenure
from oncelog.slots.verdicts import Verdict


class Mutant(NamedTuple):
    what: str
    histories: str  # the kind that shows it
    caught_by: str  # what the broken promise says
    target: Any
    attribute: Any  # or the row of a table
    make: Callable[[Any], Any]  # from the original

    @contextmanager
    def applied(self) -> Iterator[None]:
        if isinstance(self.target, dict):
            with patch.dict(self.target, {self.attribute: self.make(self.target[self.attribute])}):
                yield
        else:
            with patch.object(self.target, self.attribute, self.make(getattr(self.target, self.attribute))):
                yield


def _new_sequences_on_retry(take: Any) -> Any:
    def broken(self: Partition, now_ms: int) -> Any:
        is_retry = self.flying < len(self.open)
        batch = take(self, now_ms)
        if isinstance(batch, Batch) and is_retry and self.tenure is not None:
            batch.stamp(self.tenure.identity, self.tenure.next_sequence)
            self.tenure.next_sequence = (self.tenure.next_sequence + batch.record_count) & SEQUENCE_MASK
        return batch

    return broken


def _new_lease_before_the_old_one_is_done(tenure_for_new: Any) -> Any:
    def broken(self: Partition, now_ms: int) -> Any:
        if self.renewed is not None:
            self.tenure, self.renewed = self.renewed, None
        return tenure_for_new(self, now_ms)

    return broken


def _twice_as_long(init: Any) -> Any:
    def broken(self: Tenure, identity: Identity, sequence: int, now_ms: int, *given: Any, **named: Any) -> None:
        init(self, identity, sequence, now_ms, *given, **named)
        if self.is_leased:
            self.expires_at_ms = self.renew_at_ms = now_ms + 2 * (self.expires_at_ms - now_ms)

    return broken


def _stamp_anew_what_is_in_doubt(row: Any) -> Any:
    def broken(partition: Partition, now_ms: int) -> Event:
        actions.clear_doubts(partition)
        return Event.SPENT

    return broken, State.DRAINING


def _ask_without_a_fence(row: Any) -> Any:
    def broken(partition: Partition, now_ms: int) -> None:
        row[0](partition, now_ms)
        asked = partition.context.actions
        asked[-1] = asked[-1]._replace(must_fence=False)  # type: ignore[call-arg]

    return broken, row[1]


def _first_batch_in_company(init: Any) -> Any:
    def broken(self: Tenure, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        self.proven_timestamp_ms = FOREVER_MS

    return broken


def _in_doubt_is_not_stored(fail: Any) -> Any:
    def broken(self: SenderContext, batch: Batch, code: int, message: str | None, maybe_stored: bool) -> None:
        fail(self, batch, code, message, False)

    return broken


def _one_more_in_flight(init: Any) -> Any:
    def broken(self: Partition, *given: Any) -> None:
        init(self, *given)
        self.max_in_flight += 1

    return broken


def _no_word_of_failures(fail: Any) -> Any:
    def broken(self: SenderContext, batch: Batch, code: int, message: str | None, maybe_stored: bool) -> None:
        if self.counters.batches_failed:
            fail(self, batch, code, message, maybe_stored)
        self.counters.batches_failed += 1

    return broken


def _every_delivery_twice(deliver: Any) -> Any:
    def broken(self: Partition, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
        deliver(self, batch, base_offset, append_time_ms)
        if batch.in_doubt:
            deliver(self, batch, base_offset, append_time_ms)

    return broken


def _cut_one_too_far(report_found: Any) -> Any:
    def broken(partition: Partition, found: Any) -> Any:
        return report_found(partition, found._replace(last_sequence=found.last_sequence + 1))

    return broken


def _unsure_is_no(verdict_of: Any) -> Any:
    def broken(code: int) -> Verdict:
        verdict: Verdict = verdict_of(code)
        return verdict._replace(event=Event.AGAIN) if verdict.event == Event.UNSURE else verdict

    return broken


def _believe_what_came_late(row: Any) -> Any:
    def broken(partition: Partition, now_ms: int, *about: Any) -> Any:
        assert partition.tenure is not None
        known_at_ms, partition.tenure.known_at_ms = partition.tenure.known_at_ms, now_ms
        found = row[0](partition, now_ms, *about)
        partition.tenure.known_at_ms = known_at_ms
        return found

    return broken, row[1]


def _nothing_twice(stands_twice: Any) -> Any:
    return lambda spans: None


def _refused_for_good(verdict_of: Any) -> Any:
    def broken(code: int) -> Verdict:
        return Verdict(Event.REFUSED) if code == Code.NOT_LEADER_FOR_PARTITION else verdict_of(code)

    return broken


def _lost_means_not_sent(lost: Any) -> Any:
    def broken(self: Sender, request_id: int, now_ms: int, **named: Any) -> None:
        lost(self, request_id, now_ms, was_sent=False)

    return broken


MUTANTS = (
    Mutant("new sequences on a retry", "stock", "duplicate", arriving, "take", _new_sequences_on_retry),
    Mutant(
        "a new lease before the old one is done",
        "short leases",
        "",
        stamping,
        "tenure_for_new",
        _new_lease_before_the_old_one_is_done,
    ),
    Mutant(
        "leases used for twice as long",
        "short leases",
        "sent on a lease that ended",
        Tenure,
        "__init__",
        _twice_as_long,
    ),
    Mutant(
        "what is in doubt is stamped anew",
        "short leases",
        "duplicate",
        TABLE[State.DRAINING],
        Event.DOUBTFUL,
        _stamp_anew_what_is_in_doubt,
    ),
    Mutant(
        "a lease that ended is not fenced",
        "short leases",
        "duplicate",
        TABLE[State.DRAINING],
        Event.DOUBTFUL,
        _ask_without_a_fence,
    ),
    Mutant("a pid's first batch in company", "impatient", "", Tenure, "__init__", _first_batch_in_company),
    Mutant(
        "what stock Kafka forgets is sent again",
        "forgetful",
        "duplicate",
        SenderContext,
        "forgotten_at_ms",
        lambda _: lambda *_: FOREVER_MS,
    ),
    Mutant(
        "old records are sent again unasked",
        "old records",
        "duplicate",
        SenderContext,
        "forgotten_at_ms",
        lambda _: lambda *_: FOREVER_MS,
    ),
    Mutant(
        "in doubt is reported as not stored",
        "impatient",
        "reported not stored",
        SenderContext,
        "fail",
        _in_doubt_is_not_stored,
    ),
    Mutant("a lost request was never sent", "impatient", "reported not stored", Sender, "lost", _lost_means_not_sent),
    Mutant("an error after the append is a no", "impatient", "", arriving, "verdict_of", _unsure_is_no),
    Mutant("not the leader is for good", "leased", "failed without need", arriving, "verdict_of", _refused_for_good),
    Mutant("one more in flight", "leased", "requests in flight", Partition, "__init__", _one_more_in_flight),
    Mutant("a failure is not reported", "stock", "was reported 0 times", SenderContext, "fail", _no_word_of_failures),
    Mutant("a delivery is reported twice", "leased", "was reported 2 times", actions, "deliver", _every_delivery_twice),
    Mutant(
        "who slept goes on without a question",
        "sleeper",
        "duplicate",
        Partition,
        "known_until_ms",
        lambda _: lambda *_: FOREVER_MS,
    ),
    Mutant(
        "a late acknowledgement is believed",
        "dozer",
        "duplicate",
        TABLE[State.SENDING],
        Event.STORED,
        _believe_what_came_late,
    ),
    Mutant(
        "who slept before it sent looks at no clock",
        "dozer",
        "duplicate",
        Partition,
        "sent_until_ms",
        lambda _: lambda *_: FOREVER_MS,
    ),
    Mutant("a slot that stands twice is passed over", "dozer", "duplicate", actions, "stands_twice", _nothing_twice),
    Mutant("what the log holds is cut one too far", "shared", "", actions, "report_found", _cut_one_too_far),
)
