"""Senders broken on purpose, one promise each: every one must be caught by the histories that it names."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from oncelog.client.error_codes import ErrorCodes as Code
from oncelog.client.sending import Sender, partition, settling
from oncelog.client.sending.batch import Batch
from oncelog.client.sending.context import Context
from oncelog.client.sending.limits import FOREVER_MS
from oncelog.client.sending.partition import Partition
from oncelog.client.sending.tenure import Tenure
from oncelog.client.sending.verdicts import Kind, Verdict
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.slots import Identity


class Mutant(NamedTuple):
    what: str
    histories: str  # the kind that shows it
    caught_by: str  # what the broken promise says
    target: Any
    attribute: str
    make: Callable[[Any], Any]  # from the original

    @contextmanager
    def applied(self) -> Iterator[None]:
        original = getattr(self.target, self.attribute)
        with patch.object(self.target, self.attribute, self.make(original)):
            yield


def _new_sequences_on_retry(take: Any) -> Any:
    def broken(self: Partition, now_ms: int) -> Batch | None:
        is_retry = self.flying < len(self.open)
        batch: Batch | None = take(self, now_ms)
        if batch is not None and is_retry and self.tenure is not None:
            batch.stamp(self.tenure.identity, self.tenure.next_sequence)
            self.tenure.next_sequence = (self.tenure.next_sequence + batch.record_count) & SEQUENCE_MASK
        return batch

    return broken


def _new_lease_before_the_old_one_is_done(tenure_for_new: Any) -> Any:
    def broken(self: Partition, now_ms: int) -> Tenure | None:
        if self.renewed is not None:
            self.tenure, self.renewed = self.renewed, None
        return tenure_for_new(self, now_ms)  # type: ignore[no-any-return]

    return broken


def _twice_as_long(init: Any) -> Any:
    def broken(self: Tenure, identity: Identity, sequence: int, expires_at_ms: int | None, now_ms: int, **named: Any):  # type: ignore[no-untyped-def]
        init(self, identity, sequence, expires_at_ms, now_ms, **named)
        if self.is_leased:
            self.expires_at_ms = self.renew_at_ms = now_ms + 2 * (self.expires_at_ms - now_ms)

    return broken


def _stamp_anew_what_is_in_doubt(look_up: Any) -> Any:
    def broken(lane: Partition, now_ms: int) -> None:
        settling._clear_doubts(lane)
        settling._restamp(lane, now_ms, keeps_identity=False)

    return broken


def _ask_without_a_fence(look_up: Any) -> Any:
    def broken(lane: Partition, now_ms: int) -> None:
        look_up(lane, now_ms)
        actions = lane.context.actions
        actions[-1] = actions[-1]._replace(must_fence=False)  # type: ignore[call-arg]

    return broken


def _first_batch_in_company(init: Any) -> Any:
    def broken(self: Tenure, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        self.proven_timestamp_ms = FOREVER_MS

    return broken


def _in_doubt_is_not_stored(fail: Any) -> Any:
    def broken(self: Context, batch: Batch, code: int, message: str | None, maybe_stored: bool) -> None:
        fail(self, batch, code, message, False)

    return broken


def _one_more_in_flight(init: Any) -> Any:
    def broken(self: Partition, *given: Any) -> None:
        init(self, *given)
        self.max_in_flight += 1

    return broken


def _no_word_of_failures(fail: Any) -> Any:
    def broken(self: Context, batch: Batch, code: int, message: str | None, maybe_stored: bool) -> None:
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
    def broken(lane: Partition, found: Any) -> Any:
        return report_found(lane, found._replace(last_sequence=found.last_sequence + 1))

    return broken


def _sent_counts_as_acknowledged(take: Any) -> Any:
    def broken(self: Partition, now_ms: int) -> Batch | None:
        batch: Batch | None = take(self, now_ms)
        if batch is not None and self.tenure is not None:
            self.tenure.acknowledged = (batch.first_sequence + batch.record_count) & SEQUENCE_MASK
        return batch

    return broken


def _unsure_is_no(verdict_of: Any) -> Any:
    def broken(code: int) -> Verdict:
        verdict: Verdict = verdict_of(code)
        return verdict._replace(kind=Kind.RETRY) if verdict.kind == Kind.UNSURE else verdict

    return broken


def _refused_for_good(verdict_of: Any) -> Any:
    def broken(code: int) -> Verdict:
        return Verdict(Kind.REFUSED) if code == Code.NOT_LEADER_FOR_PARTITION else verdict_of(code)

    return broken


def _lost_means_not_sent(lost: Any) -> Any:
    def broken(self: Sender, request_id: int, now_ms: int, **named: Any) -> None:
        lost(self, request_id, now_ms, was_sent=False)

    return broken


MUTANTS = (
    Mutant("new sequences on a retry", "stock", "duplicate", Partition, "take", _new_sequences_on_retry),
    Mutant(
        "a new lease before the old one is done",
        "short leases",
        "",
        Partition,
        "_tenure_for_new",
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
        settling,
        "look_up",
        _stamp_anew_what_is_in_doubt,
    ),
    Mutant("a lease that ended is not fenced", "short leases", "duplicate", settling, "look_up", _ask_without_a_fence),
    Mutant("a pid's first batch in company", "impatient", "", Tenure, "__init__", _first_batch_in_company),
    Mutant(
        "what stock Kafka forgets is sent again",
        "forgetful",
        "duplicate",
        settling,
        "is_forgettable",
        lambda _: lambda *_: False,
    ),
    Mutant(
        "old records are sent again unasked",
        "old records",
        "duplicate",
        settling,
        "is_forgettable",
        lambda _: lambda *_: False,
    ),
    Mutant(
        "in doubt is reported as not stored",
        "impatient",
        "reported not stored",
        Context,
        "fail",
        _in_doubt_is_not_stored,
    ),
    Mutant("a lost request was never sent", "impatient", "reported not stored", Sender, "lost", _lost_means_not_sent),
    Mutant("an error after the append is a no", "impatient", "", partition, "verdict_of", _unsure_is_no),
    Mutant("not the leader is for good", "leased", "failed without need", partition, "verdict_of", _refused_for_good),
    Mutant("one more in flight", "leased", "requests in flight", Partition, "__init__", _one_more_in_flight),
    Mutant("a failure is not reported", "stock", "was reported 0 times", Context, "fail", _no_word_of_failures),
    Mutant(
        "a delivery is reported twice", "leased", "was reported 2 times", Partition, "deliver", _every_delivery_twice
    ),
    Mutant(
        "who slept goes on without a question",
        "sleeper",
        "duplicate",
        settling,
        "may_be_passed",
        lambda _: lambda *_: False,
    ),
    Mutant("what the log holds is cut one too far", "shared", "", settling, "_report_found", _cut_one_too_far),
)
