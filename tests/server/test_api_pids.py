"""lease_pid, resume_pid, describe_leases and DescribeProducers: a producer's identity over the wire."""

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.log.partition import End, Fate
from oncelog.server.errors import ErrorCode
from oncelog.server.high_watermark import wait_until_settled
from tests.raw import RawConnection, Rec, batch
from tests.raw.topics import new_topic
from tests.waiting import until


def lease(raw: RawConnection, *topics: tuple[str, list[int]]) -> Any:
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics]
    return raw.call("lease_pid", 0, topics=asked).topics


def resume(raw: RawConnection, pid: int, generation: int, topic: str, *partitions: int, timeout_ms: int = 5000) -> Any:
    topics = [{"name": topic, "partitions": list(partitions or (0,))}]
    producers = [{"producer_id": pid, "generation": generation, "topics": topics}]
    answer = raw.call("resume_pid", 0, timeout=timeout_ms, producers=producers)
    return answer.producers[0].topics[0].partitions


def send(raw: RawConnection, topic: str, pid: int, generation: int, sequence: int, count: int = 1) -> Any:
    records: list[Rec | bytes | None] = [b"x"] * count
    return raw.produce(topic, 0, batch(records, pid=pid, epoch=generation % 2**15, sequence=sequence))


def newer(generation: int, by: int = 1) -> int:
    return (generation + by) % 2**15


def test_a_lease_is_answered_for_each_partition_with_one_pid(server: Server, raw: RawConnection) -> None:
    first, second = new_topic(raw, 2), new_topic(raw)
    answers = lease(raw, (first, [0, 1, 5]), ("nowhere", [0]), (second, [0]))
    found = [(topic.name, each.partition_index, each.error_code) for topic in answers for each in topic.partitions]
    unknown = ErrorCode.unknown_topic_or_partition
    assert found == [(first, 0, 0), (first, 1, 0), (first, 5, unknown), ("nowhere", 0, unknown), (second, 0, 0)]
    granted = {
        (each.producer_id, each.generation, each.sequence, each.expire_ms)
        for topic in answers
        for each in topic.partitions
        if each.error_code is ErrorCode.none
    }
    ((pid, generation, sequence, expire_ms),) = granted
    assert 1 <= pid < 2**32 and 0 <= generation < 2**15
    assert (sequence, expire_ms) == (0, server.settings.oncelog_lease_lifetime_ms)


def test_leases_differ_from_one_request_to_the_next(raw: RawConnection, topic: str) -> None:
    granted = [lease(raw, (topic, [0]))[0].partitions[0] for _ in range(250)]
    assert len({each.producer_id for each in granted}) == 250
    assert len({each.generation for each in granted}) > 100


def test_a_lease_that_is_for_nothing_takes_no_pid(raw: RawConnection, topic: str) -> None:
    before = lease(raw, (topic, [0]))[0].partitions[0].producer_id
    assert lease(raw, ("nowhere", [0]))[0].partitions[0].producer_id == -1
    assert lease(raw, (topic, [0]))[0].partitions[0].producer_id == before + 1


def test_internal_topics_are_not_leased_for(raw: RawConnection) -> None:
    code = lease(raw, ("__oncelog_metadata", [0]))[0].partitions[0].error_code
    assert code is ErrorCode.unknown_topic_or_partition


def test_a_resumed_producer_learns_what_was_accepted_and_fences_its_zombie(raw: RawConnection, topic: str) -> None:
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    pid, generation = granted.producer_id, granted.generation
    assert send(raw, topic, pid, generation, 0, 42).error_code is ErrorCode.none

    (resumed,) = resume(raw, pid, newer(generation), topic)

    assert (resumed.error_code, resumed.last_sequence, resumed.fence_offset) == (ErrorCode.none, 41, 42)
    assert resumed.generation == newer(generation)
    assert send(raw, topic, pid, generation, 42).error_code is ErrorCode.invalid_producer_epoch
    assert send(raw, topic, pid, newer(generation), 42).base_offset == 43
    assert raw.offset_at(topic, 0, -1).offset == 44


def test_a_generation_that_is_not_newer_is_refused_and_the_known_one_named(raw: RawConnection, topic: str) -> None:
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    pid, generation = granted.producer_id, granted.generation
    send(raw, topic, pid, generation, 0)
    for stale in (generation, newer(generation, -1)):
        (refused,) = resume(raw, pid, stale, topic)
        assert (refused.error_code, refused.generation, refused.last_sequence, refused.fence_offset) == (
            ErrorCode.invalid_producer_epoch,
            generation,
            0,
            -1,
        )
        assert str(generation) in refused.error_message
    assert raw.offset_at(topic, 0, -1).offset == 1


def test_two_that_resume_the_same_producer_cannot_both_go_on(raw: RawConnection, topic: str) -> None:
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    pid, generation = granted.producer_id, granted.generation
    send(raw, topic, pid, generation, 0)
    assert resume(raw, pid, newer(generation), topic)[0].error_code is ErrorCode.none
    assert resume(raw, pid, newer(generation), topic)[0].error_code is ErrorCode.invalid_producer_epoch
    assert resume(raw, pid, newer(generation, 2), topic)[0].error_code is ErrorCode.none
    assert send(raw, topic, pid, newer(generation), 1).error_code is ErrorCode.invalid_producer_epoch


def test_a_lease_that_never_wrote_here_can_be_resumed_with_nothing_accepted(raw: RawConnection) -> None:
    topic = new_topic(raw, 2)
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    pid, generation = granted.producer_id, granted.generation
    answers = resume(raw, pid, newer(generation), topic, 0, 1)
    assert [(each.error_code, each.last_sequence) for each in answers] == [(ErrorCode.none, -1)] * 2
    assert send(raw, topic, pid, newer(generation), 0).error_code is ErrorCode.none


@pytest.mark.parametrize("pid", [0, -1, 2**32, 4_000_000_000])
def test_only_leased_pids_are_resumed(raw: RawConnection, topic: str, pid: int) -> None:
    assert resume(raw, pid, 5, topic)[0].error_code is ErrorCode.unknown_producer_id


def test_what_cannot_be_resumed_is_told_for_itself(raw: RawConnection, topic: str) -> None:
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    pid, generation = granted.producer_id, granted.generation
    answers = resume(raw, pid, newer(generation), topic, 0, 9)
    assert [each.error_code for each in answers] == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert resume(raw, pid, -3, topic)[0].error_code is ErrorCode.invalid_request


def test_the_answer_waits_for_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    with Server(oncelog_flush="every") as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        granted = lease(raw, (topic, [0]))[0].partitions[0]
        pid, generation = granted.producer_id, granted.generation
        send(raw, topic, pid, generation, 0)
        partition = server.broker.topics.partition(topic, 0)
        assert partition is not None
        gate, begun, real = threading.Event(), threading.Event(), partition.log.flush

        def flush() -> None:
            begun.set()
            assert gate.wait(30)
            real()

        with monkeypatch.context() as patch:
            patch.setattr(partition.log, "flush", flush, raising=False)
            (late,) = resume(raw, pid, newer(generation), topic, timeout_ms=50)
            assert late.error_code is ErrorCode.request_timed_out
            until(begun.is_set, "the flush to begin")
            gate.set()
            (safe,) = resume(raw, pid, newer(generation, 2), topic)
        assert (safe.error_code, safe.last_sequence) == (ErrorCode.none, 0)


def test_many_fences_are_waited_for_one_after_the_other(
    raw: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task for each of thousands would hold the others up; they are flushed together all the same."""
    waiting: list[int] = []

    async def watched(partition: Any, end: End, timeout_s: float) -> Fate:
        waiting.append(sum(task is not asyncio.current_task() for task in asyncio.all_tasks()))
        await asyncio.sleep(0)
        return await wait_until_settled(partition, end, timeout_s)

    monkeypatch.setattr(import_module("oncelog.server.api.20301_resume_pid"), "wait_until_settled", watched)
    many = new_topic(raw, 9)
    granted = lease(raw, (many, [0]))[0].partitions[0]
    answers = resume(raw, granted.producer_id, newer(granted.generation), many, *range(9))
    assert [each.error_code for each in answers] == [0] * 9
    assert len(waiting) == 9
    assert max(waiting) - min(waiting) < 4, "of the server's own"


def test_producers_are_described(raw: RawConnection, topic: str) -> None:
    pid, epoch = raw.init_producer_id()
    raw.produce(topic, 0, batch([b"a", b"b", b"c"], pid=pid, epoch=epoch, sequence=0, timestamp_ms=1234))
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    send(raw, topic, granted.producer_id, granted.generation, 0, 7)
    found = {each.producer_id: each for each in raw.describe_producers(topic, 0).active_producers}
    assert found.keys() == {pid, granted.producer_id}
    kafka, leased = found[pid], found[granted.producer_id]
    assert (kafka.producer_epoch, kafka.last_sequence, kafka.last_timestamp) == (epoch, 2, 1234)
    assert (leased.producer_epoch, leased.last_sequence) == (granted.generation, 6)
    assert raw.describe_producers(topic, 3).error_code is ErrorCode.unknown_topic_or_partition


def test_leases_are_described(server: Server, raw: RawConnection, topic: str) -> None:
    pid, epoch = raw.init_producer_id()
    raw.produce(topic, 0, batch([b"a", b"b", b"c"], pid=pid, epoch=epoch, sequence=0, timestamp_ms=1234))
    granted = lease(raw, (topic, [0]))[0].partitions[0]
    send(raw, topic, granted.producer_id, granted.generation, 0, 7)
    asked = [{"name": topic, "partitions": [0, 3, 0]}]
    (answer,) = raw.call("describe_leases", 0, topics=asked).topics
    here, nowhere = answer.partitions
    lifetime_ms = server.settings.oncelog_lease_lifetime_ms
    assert (here.capacity, here.lifetime_ms) == (server.settings.oncelog_producer_ring_entries, lifetime_ms)
    leased, kafka = here.producers
    assert (leased.producer_id, leased.generation) == (granted.producer_id, granted.generation)
    assert (leased.last_sequence, leased.last_offset) == (6, 9)
    assert 0 < leased.lease_left_ms <= lifetime_ms
    assert (kafka.producer_id, kafka.generation, kafka.lease_left_ms) == (pid, epoch, -1)
    assert (kafka.last_sequence, kafka.last_offset, kafka.last_timestamp_ms) == (2, 2, 1234)
    assert (nowhere.error_code, nowhere.capacity) == (ErrorCode.unknown_topic_or_partition, -1)


def test_stock_clients_read_over_a_fence(server: Server, raw: RawConnection, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    granted = lease(raw, (topic, [0]))[0].partitions[0]
    send(raw, topic, granted.producer_id, granted.generation, 0)
    resume(raw, granted.producer_id, newer(granted.generation), topic)
    send(raw, topic, granted.producer_id, newer(granted.generation), 1)
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int | None] = []
    while len(offsets) < 2:
        got = consumer.poll(20)
        assert got is not None and got.error() is None
        offsets.append(got.offset())
    consumer.close()
    assert offsets == [0, 2]


def test_an_older_copy_of_what_says_which_pids_were_granted_grants_none_again_that_wrote(tmp_path: Path) -> None:
    """The second producer's first batch would be taken for the first one's, and acknowledged."""
    with Server(log_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
    copy = (tmp_path / "server.meta").read_bytes()
    for _ in range(2):
        with Server(log_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
            pid, epoch = raw.init_producer_id()
            raw.produce(topic, 0, batch([b"one"], pid=pid, epoch=epoch, sequence=0))
            partition = server.broker.topics.partition(topic, 0)
            assert partition is not None
            written = partition.log.next_offset
        (tmp_path / "server.meta").write_bytes(copy)
    assert written == 2
