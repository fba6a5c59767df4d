"""How far has an identity got? What a running producer asks when answers were lost (`LookUp` of the slots)."""

import asyncio
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.fetching.values import EARLIEST
from oncelog.client.net.offsets import WHOLE_LOG, end_offsets
from oncelog.client.saving.errors import CannotResume
from oncelog.client.saving.fencing import fence
from oncelog.client.saving.memory import remembered_or_none
from oncelog.client.saving.read_back import stored_spans
from oncelog.producers.sequences import NO_SEQUENCE, is_newer_generation, sequence_after
from oncelog.slots import HighWater, Identity, Place
from oncelog.slots.messages import Found, LookUp, StoredSpan
from oncelog.slots.standing import filled_since

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

REPLICATION_PAUSE_S: Final = 0.05
REPLICATION_TRIES: Final = 20  # then it is asked anew: another may lead by now


async def look_up(brokers: "Brokers", asked: LookUp) -> Found:
    """H(P) below the high watermark, and where the batches lie; the caller asks again after a retriable failure."""
    place, identity = asked.place, asked.identity
    if asked.must_fence:
        fenced = (await fence(brokers, {place: identity}))[place]
        if fenced is not None:
            # What precedes a fence that is below the high watermark is below it too.
            spans = await _spans(brokers, asked, place) if fenced.last_sequence != NO_SEQUENCE else []
            return Found(fenced.last_sequence, fenced.generation, spans)
    remembered = None
    if not asked.must_fence:
        leader = brokers.metadata.leader(*place)
        remembered = (await remembered_or_none(brokers, {place: identity.pid}))[place]
        _refuse_other_epoch(place, identity, remembered)
        if remembered is not None and remembered.generation != identity.generation:
            remembered = None  # our epoch has not arrived there; an older one's sequences are not ours
        if remembered is not None and asked.from_offset < 0:
            await _until_it_counts(brokers, place, leader)
            return Found(remembered.last_sequence, identity.generation)
    spans = await _spans(brokers, asked, place)
    last_sequence = spans[-1].last_sequence if spans else NO_SEQUENCE
    if remembered is not None:
        _refuse_what_may_be_stored_yet(place, remembered, last_sequence, asked.acknowledged)
    return Found(last_sequence, identity.generation, spans)


async def _until_it_counts(brokers: "Brokers", place: Place, leader: tuple[int, int]) -> None:
    """The leader remembers what its followers may lack. Where in the log that is nobody knows, so wait until all that
    the leader has by now lies below the high watermark. Only a leader answers that; the rest one that leads no more
    would tell, too, and another's high watermark says nothing about it."""
    end = (await end_offsets(brokers, [place], replica_id=WHOLE_LOG))[place]
    for _ in range(REPLICATION_TRIES):
        high = (await end_offsets(brokers, [place]))[place]
        if brokers.metadata.leader(*place) != leader:
            break
        if high >= end:
            return
        await asyncio.sleep(REPLICATION_PAUSE_S)
    message = f"{place.topic}-{place.partition}: the high watermark is {high}, what is asked about may reach {end}"
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message, retriable=True))


def _refuse_what_may_be_stored_yet(place: Place, known: HighWater, last_sequence: int, acknowledged: int) -> None:
    """The leader knows of more than lies below the high watermark. Were that called "not there", it would be sent under
    another identity, and stored twice when the followers catch up."""
    if last_sequence == NO_SEQUENCE and acknowledged < 0:
        return
    expected = sequence_after(last_sequence) if last_sequence != NO_SEQUENCE else acknowledged
    above = filled_since(known.last_sequence, expected)
    if above:
        message = f"{place.topic}-{place.partition}: {above} records are not below the high watermark yet"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message, retriable=True))


def _refuse_other_epoch(place: Place, identity: Identity, known: HighWater | None) -> None:
    if known is not None and is_newer_generation(identity.generation, known.generation):
        raise CannotResume(
            f"{place.topic}-{place.partition}: somebody called InitProducerId for producer {identity.pid}: the broker "
            f"knows epoch {known.generation}, ours is {identity.generation}"
        )


async def _spans(brokers: "Brokers", asked: LookUp, place: Place) -> list[StoredSpan]:
    """The identity's batches from the last place that is known to be done, in the order of the log."""
    from_offset = asked.from_offset
    if from_offset < 0:
        from_offset = (await end_offsets(brokers, [place], EARLIEST))[place]
    return await stored_spans(brokers, place, asked.identity, from_offset, any_generation=asked.must_fence)
