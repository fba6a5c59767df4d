"""A producer by hand: batches under numbers of the test's own choice, so that every case can be made."""

from dataclasses import dataclass, field

from oncelog.client.net.brokers import Brokers
from oncelog.client.saving import SavedPartition, SavedProducer, SavedTopic
from oncelog.client.saving.fencing import kafka_pid, lease
from oncelog.slots import Identity, Place, Span
from tests.raw import RawConnection, Rec, batch

WALL_MS = 1_700_000_000_000  # long before any lease ends


@dataclass
class Written:
    """One identity's records in one topic."""

    raw: RawConnection
    topic: str
    identity: Identity
    cluster_id: str
    topic_id: str
    partition_count: int
    next_sequences: dict[int, int] = field(default_factory=dict)
    next_offsets: dict[int, int] = field(default_factory=dict)

    def write(self, count: int, partition: int = 0, *, timestamp_ms: int | None = None, codec: int = 0) -> None:
        """So many records in one batch; each value is its own sequence."""
        first = self.next_sequences.get(partition, 0)
        values = [Rec(b"%d" % number, b"k", (("h", b"x"),)) for number in range(first, first + count)]
        pid, generation, _ = self.identity
        data = batch(values, pid=pid, epoch=generation, sequence=first, timestamp_ms=timestamp_ms, codec=codec)
        answer = self.raw.produce(self.topic, partition, data)
        assert answer.error_code == 0, answer
        self.next_sequences[partition] = first + count
        self.next_offsets[partition] = answer.base_offset + count

    def others_write(self, count: int, partition: int = 0) -> None:
        """Somebody else's records between ours."""
        answer = self.raw.produce(self.topic, partition, batch([b"other"] * count))
        assert answer.error_code == 0, answer

    def saved(self) -> SavedProducer:
        partitions = {
            at: SavedPartition(
                next_offset=self.next_offsets.get(at, 0), spans=(Span(self.identity, self.next_sequences.get(at, 0)),)
            )
            for at in range(self.partition_count)
        }
        topic = SavedTopic(
            topic_id=self.topic_id, partition_count=self.partition_count, keyless_counter=0, partitions=partitions
        )
        return SavedProducer(
            cluster_id=self.cluster_id,
            made_at_ms=WALL_MS,
            partitioner="consistent_random",
            topics={self.topic: topic},
        )

    def end(self, partition: int = 0) -> int:
        offset: int = self.raw.offset_at(self.topic, partition, -1).offset
        return offset


async def new_writer(
    brokers: Brokers, raw: RawConnection, topic: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> Written:
    assert raw.create_topic(topic, partitions, configs) == 0
    metadata = await brokers.refresh([topic])
    is_oncelog = (await brokers.connection(None)).is_oncelog
    place = Place(topic, 0)
    identity = await lease(brokers, [place], WALL_MS) if is_oncelog else await kafka_pid(brokers)
    topic_id = metadata.topics[topic].topic_id
    return Written(raw, topic, identity, metadata.cluster_id or "", str(topic_id), partitions)
