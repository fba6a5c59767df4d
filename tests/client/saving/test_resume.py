"""A saved producer is resumed by what the log holds: on oncelog with a fence, on a real Kafka by what can be known."""

from dataclasses import replace

import pytest

from oncelog.client.net.brokers import Brokers
from oncelog.client.saving import BadSavedProducer, CannotResume
from oncelog.client.saving.fencing import kafka_pid
from oncelog.client.saving.read_back import slots
from oncelog.client.saving.resume import Resumed, resume
from oncelog.clock import wall_s
from oncelog.slots import Place
from tests.client.saving.written import WALL_MS, Written, new_writer
from tests.raw import RawConnection
from tests.waiting import until

FENCED = 47
A_DAY_MS = 86_400_000
only_oncelog = pytest.mark.parametrize("bootstrap_servers", ["oncelog"], indirect=True)
only_kafka = pytest.mark.parametrize("bootstrap_servers", ["kafka"], indirect=True)


def summary(resumed: Resumed, topic: str) -> list[tuple[int, int]]:
    """For each partition how many records are dropped, and the sequence that is sent next."""
    return [
        (each.records_to_drop, each.last.next_sequence)
        for place, each in sorted(resumed.partitions.items())
        if place.topic == topic
    ]


def forgotten(written: Written, partition: int = 0) -> bool:
    producers = written.raw.describe_producers(written.topic, partition).active_producers
    return all(each.producer_id != written.identity.pid for each in producers)


async def test_what_was_written_since_the_save_is_found_in_each_partition(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic, 4)
    written.write(5, 0)
    written.write(5, 1)
    saved = written.saved()
    written.others_write(3, 1)
    written.write(4, 1)
    written.write(2, 1, codec=4)
    written.write(7, 2)
    resumed = await resume(brokers, saved, WALL_MS)
    assert summary(resumed, topic) == [(0, 5), (6, 11), (7, 7), (0, 0)]
    assert not resumed.must_be_saved


async def test_the_records_to_compare_with_are_read_back(brokers: Brokers, raw: RawConnection, topic: str) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    saved = written.saved()
    written.others_write(3)
    written.write(4, codec=1)
    written.others_write(1)
    written.write(2)
    resumed = (await resume(brokers, saved, WALL_MS)).partitions[Place(topic, 0)]
    (span,) = resumed.drops
    found = [
        each
        async for portion in slots(brokers, topic, 0, span, resumed.next_offset, any_generation=True)
        for each in portion
    ]
    assert [(each.sequence, each.offset, each.value) for each in found] == [
        (5, 8, b"5"), (6, 9, b"6"), (7, 10, b"7"), (8, 11, b"8"), (9, 13, b"9"), (10, 14, b"10")
    ]  # fmt: skip
    assert found[0].key == b"k"
    assert found[0].headers == ((b"h", b"x"),)


async def test_a_save_that_lies_further_back_than_the_brokers_memory_of_batches(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    saved = written.saved()
    for _ in range(20):
        written.write(3)
    assert summary(await resume(brokers, saved, WALL_MS), topic) == [(60, 60)]


async def test_another_cluster_or_a_topic_made_again_is_refused(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    with pytest.raises(BadSavedProducer, match="saved on cluster 'elsewhere'"):
        await resume(brokers, replace(written.saved(), cluster_id="elsewhere"), WALL_MS)
    assert raw.delete_topic(topic) == 0
    until(lambda: raw.create_topic(topic) == 0, "the topic's name is free again")
    with pytest.raises(BadSavedProducer, match="deleted and made again"):
        await resume(brokers, written.saved(), WALL_MS)


async def test_a_saved_position_beyond_what_the_log_holds_stops(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    written.next_sequences[0] = 9
    with pytest.raises(CannotResume, match="goes on at sequence 9, and the broker knows it only up to 4"):
        await resume(brokers, written.saved(), WALL_MS)


@only_oncelog
async def test_on_oncelog_the_zombie_is_fenced_before_the_answer(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    zombie = replace(written, next_sequences=dict(written.next_sequences))
    resumed = (await resume(brokers, written.saved(), WALL_MS)).partitions[Place(topic, 0)]
    assert resumed.last.identity.generation != written.identity.generation
    with pytest.raises(AssertionError, match="invalid_producer_epoch"):
        zombie.write(1)
    written.identity = resumed.last.identity
    written.write(1)


@only_oncelog
async def test_whoever_resumes_again_with_the_same_value_takes_a_newer_generation(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic, 2)
    written.write(5)
    saved = written.saved()
    first = (await resume(brokers, saved, WALL_MS)).partitions[Place(topic, 0)]
    second = (await resume(brokers, saved, WALL_MS)).partitions[Place(topic, 0)]
    assert second.last.identity.generation == (first.last.identity.generation + 1) % 32_768
    with pytest.raises(AssertionError, match="invalid_producer_epoch"):
        replace(written, identity=first.last.identity).write(1)
    replace(written, identity=second.last.identity).write(1)


@only_oncelog
async def test_an_expired_lease_is_closed_where_it_got_to_and_a_new_one_goes_on(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    saved = written.saved()
    written.write(3)
    resumed = await resume(brokers, saved, WALL_MS + 2 * A_DAY_MS)
    partition = resumed.partitions[Place(topic, 0)]
    assert resumed.must_be_saved
    assert partition.last.identity.pid != written.identity.pid
    assert (partition.records_to_drop, partition.last.next_sequence) == (3, 0)
    closed, opened = partition.spans
    assert (closed.identity.pid, closed.next_sequence, closed.records) == (written.identity.pid, 5, 3)
    assert (opened.identity, opened.next_sequence, opened.records) == (partition.last.identity, 0, None)
    # A crash after the first record under the new lease, from the chain that was saved before it:
    replace(written, identity=partition.last.identity, next_sequences={}).write(2)
    topics = {topic: replace(saved.topics[topic], partitions={0: partition})}
    again = (await resume(brokers, replace(saved, topics=topics), WALL_MS)).partitions[Place(topic, 0)]
    assert (again.records_to_drop, again.last.next_sequence) == (5, 2)


@only_oncelog
async def test_a_lease_that_the_server_knows_no_more_is_followed_in_the_log(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    never_granted = written.identity._replace(pid=4_000_000_000)
    written.write(4)
    saved = replace(written, identity=never_granted, next_sequences={}).saved()
    resumed = (await resume(brokers, saved, WALL_MS)).partitions[Place(topic, 0)]
    assert (resumed.records_to_drop, resumed.last.next_sequence) == (0, 0)
    assert resumed.last.identity.pid not in (written.identity.pid, never_granted.pid)


@only_kafka
async def test_where_kafka_has_forgotten_the_producer_the_log_has_not(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic, 2)
    written.write(5)
    saved = written.saved()
    written.others_write(2)
    written.write(4)
    until(lambda: forgotten(written), "the broker forgets the producer")
    assert summary(await resume(brokers, saved, WALL_MS), topic) == [(4, 9), (0, 0)]


@only_kafka
async def test_a_late_batch_of_who_slept_does_not_hide_what_was_written_since(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    """Kafka has forgotten who filled its slots, and remembers it alone: up to the very sequence that was saved."""
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    saved = written.saved()
    sleeper = replace(written, next_sequences={0: 2}, next_offsets={})
    written.write(3)
    until(lambda: forgotten(written), "the broker forgets the producer")
    now_ms = int(wall_s() * 1000)
    sleeper.write(3, timestamp_ms=now_ms - 2_500)
    assert summary(await resume(brokers, saved, now_ms), topic) == [(3, 8)]


@only_kafka
async def test_records_of_two_days_ago_make_kafka_forget_and_the_log_still_tells(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    saved = written.saved()
    written.write(4, timestamp_ms=int(wall_s() * 1000) - 2 * 86_400_000)
    until(lambda: forgotten(written), "the broker forgets a producer that is still sending")
    assert summary(await resume(brokers, saved, WALL_MS), topic) == [(4, 4)]


@only_kafka
async def test_another_epoch_stops(brokers: Brokers, raw: RawConnection, topic: str) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    saved = written.saved()
    taken = replace(written, identity=written.identity._replace(generation=1), next_sequences={})
    taken.write(1)
    with pytest.raises(CannotResume, match="knows the newer epoch 1"):
        await resume(brokers, saved, WALL_MS)
    until(lambda: forgotten(written), "the broker forgets the producer")
    with pytest.raises(CannotResume, match="goes on with epoch 1"):
        await resume(brokers, saved, WALL_MS)


@only_kafka
@pytest.mark.parametrize(
    ("log_start", "words"),
    [
        (7, r"slot 5 of producer \d+ is due, and the next that the log holds is 7 at offset 7.* by retention"),
        pytest.param(9, r"from offset 5 up to 9, and the log begins at 9 now", marks=pytest.mark.thorough),
    ],
)
async def test_what_retention_took_stops_with_what_to_do(
    brokers: Brokers, raw: RawConnection, topic: str, log_start: int, words: str
) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    saved = written.saved()
    for _ in range(2):
        written.write(2)
    until(lambda: forgotten(written), "the broker forgets the producer")
    remove(raw, topic, log_start)
    with pytest.raises(CannotResume, match=f"{words}.*without a saved producer"):
        await resume(brokers, saved, WALL_MS)


@only_kafka
async def test_a_log_that_begins_behind_what_was_saved_still_tells_what_was_written_since(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    """Where the slot that is due stands there, all behind it do."""
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    saved = written.saved()
    written.others_write(3)
    remove(raw, topic, 8)
    for _ in range(2):
        written.write(2)
    until(lambda: forgotten(written), "the broker forgets the producer")
    resumed = (await resume(brokers, saved, WALL_MS)).partitions[Place(topic, 0)]
    assert (resumed.records_to_drop, resumed.last.next_sequence) == (4, 9)


def remove(raw: RawConnection, topic: str, log_start: int) -> None:
    partition = {"partition_index": 0, "offset": log_start}
    deleted = raw.call("delete_records", 1, topics=[{"name": topic, "partitions": [partition]}], timeout=10_000)
    assert deleted.topics[0].partitions[0].error_code == 0


@only_kafka
async def test_kafka_lets_a_pid_that_it_forgot_go_on(brokers: Brokers, raw: RawConnection, topic: str) -> None:
    written = await new_writer(brokers, raw, topic)
    written.write(5)
    until(lambda: forgotten(written), "the broker forgets the producer")
    written.write(2)
    assert written.next_offsets[0] == 7


@only_kafka
async def test_every_grant_is_another_pid(brokers: Brokers) -> None:
    assert await kafka_pid(brokers) != await kafka_pid(brokers)


async def test_a_hundred_partitions_with_nothing_to_read_back_take_three_requests_at_most(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written = await new_writer(brokers, raw, topic, 100)
    for partition in range(100):
        written.write(1, partition)
    before = sum(each.answered_count for each in brokers.pool.open_connections())
    resumed = await resume(brokers, written.saved(), WALL_MS)
    asked = sum(each.answered_count for each in brokers.pool.open_connections()) - before
    assert summary(resumed, topic) == [(0, 1)] * 100
    assert asked <= 3  # metadata, what is remembered or fenced, and on Kafka for how long it is remembered
