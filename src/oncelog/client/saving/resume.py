"""Resuming: asks what `slots/resuming.py` wants to know, before anything is sent, and does what it says.

A lease that has ended is not sent on again: the work goes on under a new one. Then the new chain must be saved before
the first record is sent, or a second crash would not find that record.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.client.net.offsets import end_offsets
from oncelog.client.saving.errors import BadSavedProducer, TopicMissing, in_words
from oncelog.client.saving.fencing import fence, new_identity
from oncelog.client.saving.memory import remembered_or_none, surely_remembered_ms
from oncelog.client.saving.read_back import filled
from oncelog.client.saving.saved import SavedProducer
from oncelog.slots import NEVER, Place, is_lease
from oncelog.slots.chain import SavedPartition
from oncelog.slots.questions import Ask, End, Says
from oncelog.slots.resuming import Answer, LogRead, Resuming, memory_says

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.net.metadata import Metadata

READ_AT_ONCE: Final = 4  # partitions that are read back at the same time; each takes a few megabytes


@dataclass(frozen=True, slots=True)
class Resumed:
    partitions: Mapping[Place, SavedPartition]  # to be gone on from; and saved, while nothing of the replay has come
    is_leased: bool
    must_be_saved: bool  # an identity changed: nothing may be sent before the new chain is stored


async def resume(brokers: "Brokers", saved: SavedProducer, wall_ms: int) -> Resumed:
    """Everything that must be known before the first record; nothing is written but fences."""
    await check_cluster_and_topics(brokers, saved)
    return await resume_partitions(brokers, saved.partitions, wall_ms)


async def unchanged(brokers: "Brokers", saved: SavedProducer) -> Resumed:
    """A `resume` for a caller that knows that nothing was written since. The place is looked at as it is known
    here; brokers are asked only where it is not, or does not fit: what is known may be older than the saved value."""
    try:
        check_metadata(brokers.metadata, saved)
    except BadSavedProducer:
        await check_cluster_and_topics(brokers, saved)
    partitions = saved.partitions
    for each in partitions.values():
        assert len(each.spans) == 1 and each.last.identity.expires_at_ms == NEVER, "leases are asked about"
    return Resumed(partitions, is_leased=False, must_be_saved=False)


async def resume_partitions(brokers: "Brokers", partitions: Mapping[Place, SavedPartition], wall_ms: int) -> Resumed:
    knows_leases = (await brokers.connection(None)).knows_leases
    leased = {place for place, each in partitions.items() if knows_leases and is_lease(each.last.identity)}
    memory_ms = await surely_remembered_ms(brokers) if len(leased) < len(partitions) else 0
    resuming = {
        place: Resuming(place, each, wall_ms, is_leased=place in leased, remembered_ms=memory_ms)
        for place, each in partitions.items()
    }
    for asked in Ask:  # none of them is followed by an earlier one
        wanted = {place: each.saved for place, each in resuming.items() if each.asks is asked}
        answers = await _answers(brokers, asked, wanted) if wanted else {}
        with in_words():
            for place, answer in answers.items():
                resuming[place].answered(answer)
    spent = sorted(place for place, each in resuming.items() if each.asks is End.ANOTHER_LEASE)
    fresh = await new_identity(brokers, spent, wall_ms) if spent else None
    resumed = {place: each.resumed(fresh) for place, each in resuming.items()}
    return Resumed(resumed, is_leased=bool(leased), must_be_saved=bool(spent))


async def _answers(brokers: "Brokers", asked: Ask, wanted: Mapping[Place, SavedPartition]) -> Mapping[Place, Answer]:
    if asked is Ask.FENCE:
        return await fence(brokers, {place: each.last.identity for place, each in wanted.items()})
    if asked is Ask.MEMORY:
        return await remembered_or_none(brokers, {place: each.last.identity.pid for place, each in wanted.items()})
    return await _from_log(brokers, wanted, any_generation=asked is Ask.LOG_OF_LEASE)


async def check_cluster_and_topics(brokers: "Brokers", saved: SavedProducer) -> None:
    """This is the cluster, and these are the topics, that the producer was saved on."""
    may_create = brokers.settings.allow_auto_create_topics  # then naming one could, so all that there are are asked for
    check_metadata(await brokers.refresh(None if may_create else saved.topics), saved)


def check_metadata(metadata: "Metadata", saved: SavedProducer) -> None:
    """`check_cluster_and_topics`, where metadata was asked for already."""
    saved.check_cluster(metadata.cluster_id or "")
    for name in saved.topics:
        topic = metadata.topics.get(name)
        if topic is None or not topic.partitions:
            raise TopicMissing(
                f"topic {name!r} is not there any more"
                + (f" (error {topic.error_code})" if topic is not None and topic.error_code else "")
                + ": what was written to it is gone",
                "Start without a saved producer, from the input position that you want",
            )
        saved.check_topic(name, str(topic.topic_id or ""), len(topic.partitions))


async def _from_log(
    brokers: "Brokers", partitions: Mapping[Place, SavedPartition], *, any_generation: bool
) -> dict[Place, LogRead]:
    ends = await end_offsets(brokers, partitions)
    at_once = asyncio.Semaphore(READ_AT_ONCE)

    async def read(place: Place, saved: SavedPartition) -> LogRead:
        async with at_once:
            return await filled(brokers, place, saved, ends[place], any_generation=any_generation)

    answers = await asyncio.gather(*(read(place, each) for place, each in partitions.items()))
    return dict(zip(partitions, answers, strict=True))


async def high_waters(
    brokers: "Brokers", partitions: Mapping[Place, SavedPartition], places: Iterable[Place], wall_ms: int
) -> dict[Place, int]:
    """Offsets that may be saved as the places' next ones, for those of which it can be told.

    The high watermark is asked for first, the producer after that: when its last slot is then still the one before the
    due one, whatever fills the due one lands above that high watermark.
    """
    wanted = sorted(places)
    if not wanted:
        return {}
    ends = await end_offsets(brokers, wanted)
    since_ms = wall_ms - await surely_remembered_ms(brokers)
    known = await remembered_or_none(brokers, {place: partitions[place].last.identity.pid for place in wanted})
    return {
        place: ends[place]
        for place in wanted
        if memory_says(partitions[place].last, known[place], since_ms) is Says.LEVEL
    }
