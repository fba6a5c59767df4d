"""Resuming: who else may still write is kept out, and how far the producer got is found, before anything is sent.

On oncelog `resume_pid` does both in one request for all partitions of a leader. On stock Kafka nobody is kept out, and
need not be: a slot is filled once, and who races for it brings the same record. H(P) is what `DescribeProducers` says,
as far as it lies below the high watermark; where the broker has forgotten the producer, the log says it. Where neither
can, `CannotResume` says what to do.

A lease that has ended is not sent on again. Its span is closed, with H(P) as its end, and the work goes on under a new
lease; then the new chain must be saved before the first record is sent, or a second crash would not find that record.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.offsets import end_offsets
from oncelog.client.saving.errors import BadSavedProducer, CannotResume, TopicGone
from oncelog.client.saving.fencing import fence, lease
from oncelog.client.saving.read_back import last_sequence
from oncelog.client.saving.remembered import remembered
from oncelog.client.saving.saved import SavedProducer
from oncelog.producers.sequences import (
    NO_SEQUENCE,
    is_newer_generation,
    records_behind,
    sequence_after,
)
from oncelog.slots import NEVER, HighWater, Identity, Place, Span, is_lease
from oncelog.slots.chain import SavedPartition, closed
from oncelog.slots.lease import ends_by
from oncelog.slots.standing import filled_since

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.net.metadata import Metadata

READ_AT_ONCE: Final = 4  # partitions that are read back at the same time; each takes a few megabytes


@dataclass(frozen=True, slots=True)
class ResumedPartition:
    place: Place
    drops: tuple[Span, ...]  # these outputs stand in the log already; the replay drops and compares them
    from_offset: int  # where to read them back from
    identity: Identity  # what is sent goes under this
    next_sequence: int
    next_offset: int  # nothing that is still open lies below; C's `Sender.resume` wants it
    partition: SavedPartition  # what is to be saved, as long as nothing of the replay has come

    @property
    def records_to_drop(self) -> int:
        return sum(span.records or 0 for span in self.drops)


@dataclass(frozen=True, slots=True)
class Resumed:
    partitions: Mapping[Place, ResumedPartition]
    is_leased: bool
    must_be_saved: bool  # an identity changed: nothing may be sent before the new chain is stored


@dataclass(frozen=True, slots=True)
class _Standing:
    """How far the open span of one partition got."""

    identity: Identity  # with the generation that is ours now
    records: int
    is_spent: bool  # the lease has ended; go on under another one


async def resume(brokers: "Brokers", saved: SavedProducer, wall_ms: int) -> Resumed:
    """Everything that must be known before the first record; nothing is written but fences."""
    await check_place(brokers, saved)
    partitions = {
        Place(name, at): partition for name, topic in saved.topics.items() for at, partition in topic.partitions.items()
    }
    return await resume_partitions(brokers, partitions, wall_ms)


async def unchanged(brokers: "Brokers", saved: SavedProducer) -> Resumed:
    """As `resume`, for somebody who knows that nothing was written since. The place is looked at as it is known here;
    brokers are asked only where it is not, or does not fit: what is known may be older than the saved value."""
    try:
        check_metadata(brokers.metadata, saved)
    except BadSavedProducer:
        await check_place(brokers, saved)
    resumed = {}
    for name, topic in saved.topics.items():
        for at, each in topic.partitions.items():
            place, last = Place(name, at), each.last
            assert len(each.spans) == 1 and last.identity.expires_at_ms == NEVER, "leases are asked about"
            sequence, offset = last.next_sequence, each.next_offset
            resumed[place] = ResumedPartition(place, (), offset, last.identity, sequence, offset, each)
    return Resumed(resumed, is_leased=False, must_be_saved=False)


async def resume_partitions(brokers: "Brokers", partitions: Mapping[Place, SavedPartition], wall_ms: int) -> Resumed:
    has_leases = (await brokers.connection(None)).is_oncelog
    leased = {place: each for place, each in partitions.items() if has_leases and is_lease(each.last.identity)}
    others = {place: each for place, each in partitions.items() if place not in leased}
    standing = await _leased(brokers, leased, wall_ms) | await _unleased(brokers, others)
    spent = sorted(place for place, each in standing.items() if each.is_spent)
    fresh = await lease(brokers, spent, wall_ms) if spent else None
    resumed = {place: _resumed(place, partitions[place], each, fresh) for place, each in standing.items()}
    return Resumed(resumed, is_leased=bool(leased), must_be_saved=bool(spent))


async def check_place(brokers: "Brokers", saved: SavedProducer) -> None:
    """This is the cluster, and these are the topics, that the producer was saved on."""
    may_create = brokers.settings.allow_auto_create_topics  # then naming one could, so all that there are are asked for
    check_metadata(await brokers.refresh(None if may_create else saved.topics), saved)


def check_metadata(metadata: "Metadata", saved: SavedProducer) -> None:
    """`check_place`, where metadata was asked for already."""
    saved.check_cluster(metadata.cluster_id or "")
    for name in saved.topics:
        topic = metadata.topics.get(name)
        if topic is None or not topic.partitions:
            raise TopicGone(
                f"topic {name!r} is not there any more"
                + (f" (error {topic.error_code})" if topic is not None and topic.error_code else "")
                + ": what was written to it is gone",
                "Start without a saved producer, from the input position that you want",
            )
        saved.check_topic(name, str(topic.topic_id or ""), len(topic.partitions))


def _resumed(place: Place, saved: SavedPartition, standing: _Standing, fresh: Identity | None) -> ResumedPartition:
    start = saved.last.next_sequence
    drops = closed(saved.spans, standing.identity, standing.records)
    opened = Span(standing.identity, sequence_after(start, standing.records))
    if standing.is_spent:
        assert fresh is not None
        opened = Span(fresh, 0)
    return ResumedPartition(
        place,
        drops,
        saved.next_offset,
        opened.identity,
        opened.next_sequence,
        saved.next_offset,
        replace(saved, spans=(*drops, opened)),
    )


async def _leased(
    brokers: "Brokers", partitions: Mapping[Place, SavedPartition], wall_ms: int
) -> dict[Place, _Standing]:
    if not partitions:
        return {}
    fenced = await fence(brokers, {place: each.last.identity for place, each in partitions.items()})
    standing: dict[Place, _Standing] = {}
    unknown: dict[Place, SavedPartition] = {}
    for place, saved in partitions.items():
        high_water, last = fenced[place], saved.last
        if high_water is None or (high_water.last_sequence == NO_SEQUENCE and last.next_sequence):
            unknown[place] = saved
            continue
        identity = last.identity._replace(generation=high_water.generation)
        standing[place] = _Standing(identity, _records_since(place, last, high_water), ends_by(last.identity, wall_ms))
    for place, records in (await _from_log(brokers, unknown, any_generation=True)).items():
        standing[place] = _Standing(partitions[place].last.identity, records, is_spent=True)
    return standing


async def _unleased(brokers: "Brokers", partitions: Mapping[Place, SavedPartition]) -> dict[Place, _Standing]:
    if not partitions:
        return {}
    known = await remembered_or_none(brokers, {place: each.last.identity.pid for place, each in partitions.items()})
    to_read: dict[Place, SavedPartition] = {}
    standing: dict[Place, _Standing] = {}
    for place, saved in partitions.items():
        high_water = known[place]
        if high_water is not None and high_water.generation != saved.last.identity.generation:
            _refuse_epoch(place, saved.last.identity, high_water)
        if high_water is not None and not _records_since(place, saved.last, high_water):
            standing[place] = _Standing(saved.last.identity, 0, is_spent=False)
        else:
            to_read[place] = saved
    for place, records in (await _from_log(brokers, to_read, any_generation=False)).items():
        standing[place] = _Standing(partitions[place].last.identity, records, is_spent=False)
    return standing


async def remembered_or_none(brokers: "Brokers", pids: Mapping[Place, int]) -> dict[Place, HighWater | None]:
    """As `remembered`; of brokers that cannot tell (before Kafka 2.8), nothing, so that the log is asked."""
    try:
        return await remembered(brokers, pids)
    except KafkaException as failure:
        if failure.error.code() == KafkaError._UNSUPPORTED_FEATURE:
            return dict.fromkeys(pids)
        raise


def _refuse_epoch(place: Place, identity: Identity, high_water: HighWater) -> None:
    word = "newer" if is_newer_generation(identity.generation, high_water.generation) else "other"
    raise CannotResume(
        f"{place.topic}-{place.partition}: producer {identity.pid} was saved with epoch {identity.generation}, and the "
        f"broker knows the {word} epoch {high_water.generation}: somebody called InitProducerId for it, and its "
        "sequences began anew",
        "Find out who shares this producer id, and start without a saved producer from an input position of which you "
        "know what was written",
    )


def _records_since(place: Place, span: Span, high_water: HighWater) -> int:
    """How many slots were filled since the save."""
    filled = filled_since(high_water.last_sequence, span.next_sequence)
    if filled is not None:
        return filled
    raise CannotResume(
        f"{place.topic}-{place.partition}: the saved producer {span.identity.pid} goes on at sequence "
        f"{span.next_sequence}, and the broker knows it only up to {high_water.last_sequence}: records that were "
        "acknowledged before the save are missing (an unclean leader election, a restored disk, or the saved value "
        "is not of this log)",
        "Start without a saved producer, from an input position whose outputs are all there",
    )


async def _from_log(
    brokers: "Brokers", partitions: Mapping[Place, SavedPartition], *, any_generation: bool
) -> dict[Place, int]:
    """How many slots were filled since the save, as far as the high watermark."""
    if not partitions:
        return {}
    ends = await end_offsets(brokers, partitions)
    at_once = asyncio.Semaphore(READ_AT_ONCE)

    async def read(place: Place, saved: SavedPartition) -> int:
        if saved.next_offset > ends[place]:
            raise CannotResume(
                f"{place.topic}-{place.partition} ends at offset {ends[place]}, and the producer was saved at "
                f"{saved.next_offset}: what was acknowledged is missing (an unclean leader election, a restored disk)",
                "Start without a saved producer, from an input position whose outputs are all there",
            )
        async with at_once:
            span = saved.last
            from_offset, sequence = saved.next_offset, span.next_sequence
            found = await last_sequence(
                brokers,
                *place,
                span.identity,
                from_offset,
                next_sequence=sequence,
                any_generation=any_generation,
                up_to=ends[place],
            )
            return found.records

    answers = await asyncio.gather(*(read(place, each) for place, each in partitions.items()))
    return dict(zip(partitions, answers, strict=True))


async def high_waters(
    brokers: "Brokers", partitions: Mapping[Place, SavedPartition], places: Iterable[Place]
) -> dict[Place, int]:
    """Offsets that may be saved as the places' next ones, for those of which it can be told.

    The high watermark is asked for first, the producer after that: when its last slot is then still the one before the
    due one, whatever fills the due one lands above that high watermark.
    """
    wanted = sorted(places)
    if not wanted:
        return {}
    ends = await end_offsets(brokers, wanted)
    known = await remembered_or_none(brokers, {place: partitions[place].last.identity.pid for place in wanted})
    found: dict[Place, int] = {}
    for place in wanted:
        high_water, span = known[place], partitions[place].last
        if (
            high_water is not None
            and high_water.generation == span.identity.generation
            and records_behind(high_water.last_sequence, span.next_sequence) == 0
        ):
            found[place] = ends[place]
    return found
