"""A follower's fetch: what is asked, what its leader answers, and what the follower does with that.

A fetch says in which epoch the follower's last record was appended. Where the leader's log says otherwise of that
offset, the follower has records that another leader took in and nobody may count on; the answer is where the epoch that
both know ended in the leader's log, and the fetch acknowledges nothing (KIP-101, 279, 320, 595).
"""

from typing import NamedTuple

from oncelog.clock import Now
from oncelog.replication.ports import Log

MAX_BYTES = 1 << 20

Batches = bytes | bytearray | memoryview


class NextFetch(NamedTuple):
    leader_epoch: int
    offset: int  # the end of the follower's log
    last_epoch: int  # of what ends there; -1 where nothing does


class Diverging(NamedTuple):
    """The follower's records are others than the leader's from here on."""

    epoch: int
    end: int


class TooEarly(NamedTuple):
    """The leader's log begins behind the follower's end. All that the follower has is deleted; it begins anew where its
    leader does, with the producers as they were there."""

    beginning: bytes


class Records(NamedTuple):
    batches: Batches
    high_watermark: int
    log_start_offset: int


class OtherEpoch(NamedTuple):
    """One of the two does not know yet who leads."""

    epoch: int


Refusal = Diverging | TooEarly | OtherEpoch
Answer = Records | Refusal


def ask(log: Log) -> NextFetch:
    offset = log.next_offset
    return NextFetch(log.leader_epoch, offset, log.epochs.last_before(offset))


def refusal(log: Log, asked: NextFetch) -> Refusal | None:
    """The leader's word why the follower gets no records, and acknowledges nothing."""
    if asked.leader_epoch != log.leader_epoch:
        return OtherEpoch(log.leader_epoch)
    if asked.offset < log.first_offset:
        return TooEarly(log.beginning())
    if asked.last_epoch >= 0:
        epoch, end = log.end_of_epoch(asked.last_epoch)
        if epoch < asked.last_epoch or end < asked.offset:
            return Diverging(epoch, end)
    if asked.offset > log.next_offset:
        return Diverging(-1, log.first_offset)
    return None


def answer(log: Log, asked: NextFetch) -> Answer:
    refused = refusal(log, asked)
    if refused is not None:
        return refused
    batches = log.read(asked.offset, MAX_BYTES, limit_offset=log.next_offset)
    return Records(batches, log.high_watermark, log.log_start_offset)


def take(log: Log, asked: NextFetch, answered: Answer, now: Now) -> None:
    """The follower takes an answer; one to what it would not ask any more is passed over."""
    if asked != ask(log):
        return
    match answered:
        case Diverging(epoch, end):
            _, own_end = log.end_of_epoch(epoch)
            known = min(end, own_end) if own_end >= 0 else end
            if known < log.first_offset:  # its leader came back from a copy, perhaps
                log.begin_anew(b"", now)
            else:
                log.truncate_to(known)
        case Records(batches, high_watermark, log_start_offset):
            if batches:
                log.append_replicated(batches, now)
            log.advance_high_watermark(high_watermark)
            if log_start_offset > log.log_start_offset:
                log.delete_before(min(log_start_offset, log.high_watermark), now)
        case TooEarly(beginning):
            log.begin_anew(beginning, now)
        case OtherEpoch():
            pass
