"""A server with something to look at: what tests and screenshots of the page put there, all of it over the wire."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from oncelog.client.saving import SavedPartition, SavedProducer, SavedTopic
from oncelog.slots import Identity, Span
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    STATE,
    Content,
    LaneClaim,
    LaneState,
    Mark,
    SinkClaim,
    SinkState,
    encode,
    key_of,
    topic_of,
)
from tests.raw import RawConnection, Rec, batch
from tests.raw.batches import squeeze

MB = 1 << 20
SCRIPT = "<script>document.title = 'taken over'</script>"
MARKUP = "<img src=x onerror=\"document.title='taken over'\"><a href='javascript:alert(1)'>x</a>"
TURNED = "abc\u202egpj.exe"
INVALID = b"\xff\xfe caf\xe9 \x00\x1b[31m"
WORLD = ("Ada", "Grace", "Edsger", "Barbara", "Alan", "Leslie", "Donald", "Radia")


class Stage:
    def __init__(self, servers: str | int, seed: int = 7) -> None:
        self.raw = RawConnection(servers)
        self._random = Random(seed)

    def close(self) -> None:
        self.raw.close()

    # --- topics

    def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        error = self.raw.create_topic(name, partitions, settings, wait=False)
        assert error == 0, error
        return name

    def topics(self, names: Sequence[str]) -> None:
        about = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        topics = [{"name": name, **about} for name in names]
        answer = self.raw.call("create_topics", 5, topics=topics, timeout=20_000, validate_only=False)
        assert {each.error_code for each in answer.topics} == {0}

    def send(self, topic: str, records: Sequence[Rec | bytes | None], partition: int = 0, **header: Any) -> Any:
        answer = self.raw.produce(topic, partition, batch(records, **header))
        assert answer.error_code == 0, answer.error_code
        return answer.base_offset

    def orders(self, topic: str = "orders", partitions: int = 6, each: int = 40) -> None:
        """Leased producers that write what could be orders."""
        self.topic(topic, partitions)
        for partition in range(partitions):
            pid, generation = self.lease(topic, partition)
            records = [self.order(number) for number in range(each)]
            self.send(topic, records, partition, pid=pid, epoch=generation, sequence=0)

    def order(self, number: int) -> Rec:
        customer = self._random.choice(WORLD)
        order = {"order": number, "customer": customer, "cents": self._random.randrange(100, 90_000), "paid": True}
        return Rec(json.dumps(order).encode(), customer.encode())

    def hostile(self, topic: str = "hostile") -> str:
        """Everything that a message could try on whoever looks at it."""
        self.topic(topic, max_message_bytes=str(4 * MB))
        self.send(topic, [Rec(SCRIPT.encode(), MARKUP.encode(), ((SCRIPT, MARKUP.encode()),))])
        self.send(topic, [INVALID, TURNED.encode(), b"", None])
        self.send(topic, [b"A" * MB])
        self.send(topic, [Rec(b"{}", b"k" * 5000, tuple((f"h{number}", b"v" * 300) for number in range(200)))])
        return topic

    def a_billion_rows(self, topic: str = "billion", batches: int = 1000) -> str:
        """Of a million records each, in some bytes, for a server with `oncelog.records.check=off`."""
        self.topic(topic)
        record = b"\x0c\x00\x00\x00\x01\x01\x00"  # of 6 bytes: no key, no value, and the offset delta 0
        rows = batch([], codec=4, payload=squeeze(4, record * 10**6), record_count=10**6, last_offset_delta=10**6 - 1)
        for _ in range(batches):
            assert self.raw.produce(topic, 0, rows).error_code == 0
        self.send(topic, [b"the last one"])
        return topic

    # --- producers

    def lease(self, topic: str, partition: int = 0) -> tuple[int, int]:
        asked = [{"name": topic, "partitions": [partition]}]
        answer = self.raw.call("lease_pid", 0, topics=asked).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.producer_id, answer.generation

    def resume(self, pid: int, generation: int, topic: str, partition: int = 0) -> None:
        """Fences whoever goes on under an earlier generation."""
        producer = {
            "producer_id": pid,
            "generation": generation,
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        answer = self.raw.call("resume_pid", 0, timeout=5000, producers=[producer])
        assert answer.producers[0].topics[0].partitions[0].error_code == 0

    def quarrel(self, topic: str = "payments", producers: int = 40) -> None:
        """Batches sent twice, one that overlaps, and a producer that was resumed elsewhere and goes on regardless."""
        self.topic(topic)
        for number in range(producers):
            pid, generation = self.payment(number, topic)
        self.send(topic, [b'{"payment": 400}'] * 8, pid=pid, epoch=generation, sequence=6)
        newer = (generation + 1) % 2**15
        self.resume(pid, newer, topic)
        stale = batch([b"from a zombie"], pid=pid, epoch=generation, sequence=14)
        assert self.raw.produce(topic, 0, stale).error_code != 0
        self.send(topic, [b'{"payment": 408}'], pid=pid, epoch=newer, sequence=14)

    def payment(self, number: int, topic: str = "payments") -> tuple[int, int]:
        """Ten of a new producer, every third time sent twice."""
        pid, generation = self.lease(topic)
        records = [Rec(b'{"payment": %d}' % (number * 10 + at)) for at in range(10)]
        for _ in range(1 + (number % 3 == 0)):
            self.send(topic, records, pid=pid, epoch=generation, sequence=0)
        return pid, generation

    # --- groups

    def group(self, name: str, topic: str, offsets: dict[int, int]) -> None:
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for partition, offset in offsets.items()
        ]
        answer = self.raw.call(
            "offset_commit",
            7,
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": topic, "partitions": partitions}],
        )
        assert {each.error_code for each in answer.topics[0].partitions} == {0}

    # --- Spark

    def sink(
        self, name: str = "orders-by-customer", lanes: int = 4, batches: int = 12, out: str = "totals", marks: int = 0
    ) -> str:
        """What a streaming query leaves in its sink's topic; it is just writing the next batch."""
        topic = self.topic(topic_of(name), cleanup_policy="compact")
        claim = SinkClaim(name, "0b9f2c1e-6d0a-4d6e-9a55-4b1f2f6f1c07", 0, "owner")
        self.send(topic, [_record(SINK, 0, claim)])
        for lane in range(lanes):
            self.send(topic, [_record(LANE, 0, LaneClaim(0, lane, self._lane(lane, 0, out), "n"), lane)])
        previous = 0
        for number in range(batches):
            for lane in range(marks):
                self.send(topic, [_record(MARK, number, Mark(number, lane, "m"), lane)])
            written = {lane: LaneState(self._lane(lane, (number + 1) * 500, out), 500, "5f1d") for lane in range(lanes)}
            state = SinkState(claim, number, lanes, written, {out: lanes}, previous, made_at_ms=self.now_ms - 4000)
            previous = self.send(topic, [_record(STATE, number, state)])
        self.send(topic, [_record(MARK, batches, Mark(batches, 1, "m"), 1)])
        return topic

    now_ms = 1_700_000_000_000

    def _lane(self, lane: int, sequence: int, out: str) -> dict[str, Any]:
        place = SavedPartition(next_offset=sequence, spans=(Span(Identity(2**32 + 40 + lane, 0), sequence),))
        topic = SavedTopic(
            topic_id="7f0c2f6e-0000-0000-0000-00000000abcd",
            partition_count=16,
            keyless_counter=0,
            partitions={lane: place},
        )
        return SavedProducer(
            cluster_id="c", made_at_ms=self.now_ms, partitioner="murmur2_random", topics={out: topic}
        ).to_value()


def _record(kind: str, number: int, content: Content, *rest: object) -> Rec:
    return Rec(encode(kind, content), key_of(kind, number, *rest, "nonce"))
