"""Saved producers to test with."""

from oncelog.client.saving import SavedPartition, SavedProducer, SavedTopic
from oncelog.slots import Identity, Span

TOPIC_ID = "7f0c2f6e-0000-0000-0000-00000000abcd"
IDENTITY = Identity(4711, 7)


def saved_producer(partitions: int = 3, *, identity: Identity = IDENTITY) -> SavedProducer:
    return SavedProducer(
        cluster_id="b25jZWxvZw",
        made_at_ms=1_700_000_000_000,
        partitioner="consistent_random",
        topics={
            "out": SavedTopic(
                topic_id=TOPIC_ID,
                partition_count=partitions,
                keyless_counter=5,
                partitions={
                    at: SavedPartition(next_offset=10**9 + at * 7919, spans=(Span(identity, 100_003 * at),))
                    for at in range(partitions)
                },
            )
        },
    )
