"""Lanes and commits on both servers: whatever is run again, every row is there once."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from oncelog.chaos.life import free_ports
from oncelog.client import Producer, SavedProducer
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.metadata import Metadata
from oncelog.client.saving.resume import check_metadata
from oncelog.slots import Place
from oncelog.spark.sink import destination
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import topic_of
from oncelog.spark.sink.written import attempt
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import (
    Rows,
    Sink,
    cut,
    grow_topic,
    make_topic,
    messages_of,
    numbers,
    remove_topic,
    stored,
    table,
    values,
    values_of,
)

LEFT, RIGHT = numbers(0, 5000), numbers(5000, 9000)


@pytest.fixture(autouse=True)
def _topic(server: ServerProcess, topic: str) -> None:
    make_topic(server, topic, retention_ms="-1")  # some rows are old by their times


def test_batches_are_written_once_and_in_order(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT, RIGHT])
    sink.run(1, [numbers(9000, 9500), numbers(9500, 9700)])
    assert values(server, topic) == values_of(numbers(0, 9700))
    for rows in stored(server, topic).values():
        for first, last in ((0, 5000), (5000, 9000), (9000, 9500), (9500, 9700)):
            mine = [int(value or 0) for _, value in rows if first <= int(value or 0) < last]
            assert mine == sorted(mine)


def test_a_batch_that_is_saved_is_compared_and_not_sent_again(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT, RIGHT])
    sink.run(0, [LEFT, RIGHT], size=777)
    assert values(server, topic) == values_of(LEFT, RIGHT)


def test_attempts_that_ended_early_leave_a_prefix_that_the_next_one_goes_on_from(
    server: ServerProcess, topic: str
) -> None:
    sink = Sink(server, topic)
    for batch in range(2):
        rows = numbers(batch * 5000, batch * 5000 + 5000)
        sink.lane(batch, 0, cut(rows[:1700], 1000))  # its input ended early, and nobody committed
        sink.lane(batch, 0, cut(rows[:3100], 900), attempt=1)
        sink.commit(batch, [sink.lane(batch, 0, cut(rows, 1000), attempt=2)])
    assert values(server, topic) == values_of(numbers(0, 10_000))


def test_two_whole_attempts_of_a_lane_write_it_once(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    first, second = sink.lane(0, 0, cut(LEFT, 1000)), sink.lane(0, 0, cut(LEFT, 333), attempt=1)
    assert (first.rows, first.order_hash) == (second.rows, second.order_hash)
    sink.commit(0, [second])
    assert values(server, topic) == values_of(LEFT)


def test_a_replay_with_other_rows_is_refused_before_it_writes(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.lane(0, 0, cut(LEFT[:3000], 1000))
    others = [*LEFT[:2000], (b"k0", b"another"), *LEFT[2001:]]
    with pytest.raises(SinkRefused, match=r"batch 0 .* lane 0: .*b'another' where b'2000' stands.*sealed"):
        sink.lane(0, 0, cut(others, 1000), attempt=1)
    assert set(values(server, topic)) <= set(values_of(LEFT))


def test_a_replay_with_fewer_rows_than_stand_there_is_refused(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.lane(0, 0, cut(LEFT[:3000], 1000))
    with pytest.raises(SinkRefused, match=r"batch 0 .* lane 0: .*ended before the records that stand in the log"):
        sink.lane(0, 0, cut(LEFT[:1000], 1000), attempt=1)


def test_a_saved_batch_with_other_rows_is_refused_and_the_first_one_named(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT[:500], []])
    sink.run(1, [LEFT[500:], RIGHT])  # lane 0 goes on, lane 1 is new
    for lane, rows in ((0, LEFT[500:]), (1, RIGHT)):
        changed = [*rows[:700], (rows[700][0], b"another"), *rows[701:]]
        with pytest.raises(SinkRefused, match=rf"lane {lane}: .*row 700: .*value is b'another' where b'\d+' stands"):
            sink.lane(1, lane, cut(changed, 1000))
        with pytest.raises(SinkRefused, match=r"3900 rows where 4\d00 were written; the record at offset \d+ of"):
            sink.lane(1, lane, cut(rows[:3900], 1000))
        with pytest.raises(SinkRefused, match=rf"row {len(rows)} goes to .* where no further record stands"):
            sink.lane(1, lane, cut([*rows, (b"k1", b"more")], 1000))
        with pytest.raises(SinkRefused, match=r"rows as before, but others, or in another order; row 0: .* the key is"):
            sink.lane(1, lane, cut([rows[1], rows[0], *rows[2:]], 1000))
    assert values(server, topic) == values_of(LEFT, RIGHT)


def test_another_number_of_lanes_is_refused_with_both_numbers(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.lane(0, 0, cut(LEFT, 1000))
    sink.lane(0, 1, cut(RIGHT, 1000))  # killed before the commit; then it runs in one task
    with pytest.raises(
        SinkRefused, match=r"batch 0 .* runs in 1 tasks and ran in at least 2 before \(lane 1 has begun"
    ):
        sink.commit(0, [sink.lane(0, 0, cut(LEFT, 1000), attempt=1)])


def test_another_number_of_lanes_of_a_saved_batch_is_refused(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    messages = sink.run(0, [LEFT, RIGHT])
    with pytest.raises(SinkRefused, match="runs in 1 tasks and was written by 2"):
        sink.commit(0, messages[:1])


def test_lanes_come_and_go(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    expected = []
    for batch, lanes in enumerate((2, 1, 3, 0, 2)):
        rows = [numbers(batch * 10_000 + lane * 1000, batch * 10_000 + lane * 1000 + 500) for lane in range(lanes)]
        sink.run(batch, rows or [[]])
        expected += rows
    assert values(server, topic) == values_of(*expected)


def test_a_checkpoint_older_or_newer_than_the_sink_is_refused(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    for batch in range(3):
        sink.run(batch, [LEFT[batch : batch + 1]])
    with pytest.raises(SinkRefused, match=r"runs batch 1, and sink .* has saved batch 2: the checkpoint is older"):
        sink.lane(1, 0, cut(LEFT, 1000))
    with pytest.raises(SinkRefused, match=r"runs batch 4, and sink .* has saved batch 2: the checkpoint is newer"):
        sink.lane(4, 0, cut(LEFT, 1000))


def test_a_checkpoint_whose_sink_state_is_lost_is_refused(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    with pytest.raises(SinkRefused, match=r"nothing saved, and the checkpoint runs batch 7.*sink\.first\.batch` = 7"):
        sink.lane(7, 0, cut(LEFT, 1000))
    adopting = Sink(server, topic, sink_first_batch="7", sink_name=f"adopted-{topic}")
    adopting.run(7, [LEFT])
    adopting.run(8, [RIGHT])
    assert values(server, topic) == values_of(LEFT, RIGHT)


def test_a_sink_name_that_another_query_uses_is_refused(server: ServerProcess, topic: str) -> None:
    Sink(server, topic, sink_name=f"mine-{topic}", query="first").run(0, [LEFT[:10]])
    other = Sink(server, topic, sink_name=f"mine-{topic}", query="second")
    with pytest.raises(SinkRefused, match="belongs to query first, and this is query second"):
        other.lane(0, 0, cut(LEFT, 1000))


def test_partitions_that_are_added_are_written_to_from_the_next_batch_on(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT])
    grow_topic(server, topic, 6)
    sink.lane(1, 0, cut(RIGHT[:100], 50))
    sink.run(1, [RIGHT])
    before = stored(server, topic)
    assert not before[4] and not before[5], "the count of batch 1 was pinned by batch 0"
    more = numbers(9000, 20_000)
    sink.lane(2, 0, cut(more[:5000], 500))
    sink.run(2, [more])
    after = stored(server, topic)
    assert after[4] or after[5]
    assert values(server, topic) == values_of(LEFT, RIGHT, more)


def test_rows_that_name_partitions_that_came_after_the_batch_before_are_written_there_once(
    server: ServerProcess, topic: str
) -> None:
    """Two attempts that were given up go before, one of them knows of the first new partitions only. What is replayed
    of the saved batch is compared, also where it lies in a new partition."""
    sink = Sink(server, topic)
    sink.run(0, [LEFT])
    grow_topic(server, topic, 6)
    named = table(RIGHT, partition=pa.array([at % 6 for at in range(len(RIGHT))], pa.int32()))
    sink.lane(1, 0, [named[:3000]])
    grow_topic(server, topic, 8)
    further = table(LEFT, partition=pa.array([7 - at % 2 for at in range(len(LEFT))], pa.int32()))
    sink.lane(1, 0, [named, further[:100]])
    for _ in range(2):
        sink.commit(1, [sink.lane(1, 0, [named, further])])
    found = stored(server, topic)
    assert all(found[at] for at in range(8))
    assert values(server, topic) == values_of(LEFT, RIGHT, LEFT)
    other = table(LEFT[::-1], partition=further.column("partition"))
    with pytest.raises(SinkRefused, match=rf"row {len(RIGHT)}: {topic}-7, sequence 0 of"):
        sink.lane(1, 0, [named, other])
    sink.run(2, [RIGHT])
    assert values(server, topic) == values_of(LEFT, RIGHT, LEFT, RIGHT)


def test_beside_rows_that_are_left_to_the_partitioner_none_names_a_partition_that_came_later(
    server: ServerProcess, topic: str
) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT[:10]])
    grow_topic(server, topic, 6)
    left, named = (table(RIGHT[:1], partition=pa.array([at], pa.int32())) for at in (None, 5))
    both = table(RIGHT[:2], partition=pa.array([5, None], pa.int32()))
    for lane, rows in enumerate(([both], [left, named])):
        with pytest.raises(SinkRefused, match=r"row \d: there is no partition 5: .* has 4 for this batch: where other"):
            sink.lane(1, lane, rows)
    for lane, others in ((2, [6]), (3, [None, 6])):
        rows = table(RIGHT[: len(others)], partition=pa.array(others, pa.int32()))
        with pytest.raises(SinkRefused, match=rf"row {len(others) - 1}: there is no partition 6: {topic} has \d$"):
            sink.lane(1, lane, [rows])


def test_the_second_of_two_drivers_changes_nothing(server: ServerProcess, topic: str) -> None:
    one, other = Sink(server, topic), Sink(server, topic)
    one.run(0, [LEFT, RIGHT])
    ours = [one.lane(1, 0, cut(LEFT, 1000)), one.lane(1, 1, cut(RIGHT, 1000))]
    theirs = [other.lane(1, 0, cut(LEFT, 1000)), other.lane(1, 1, cut(RIGHT, 1000))]
    one.commit(1, ours)
    other.commit(1, theirs)
    one.run(2, [LEFT[:7]])
    with pytest.raises(SinkRefused, match="has saved batch 2"):
        other.commit(1, theirs)
    assert values(server, topic) == values_of(LEFT, LEFT, LEFT[:7], RIGHT, RIGHT)


def test_two_sinks_of_one_query_do_not_take_each_others_rows_for_their_own(server: ServerProcess, topic: str) -> None:
    """In a `foreachBatch` they run the same batch of the same query, and may write the same rows."""
    Sink(server, topic).run(0, [LEFT])
    make_topic(server, f"{topic}-other")
    with pytest.raises(SinkRefused, match=rf"wrote its rows to {topic}, once, .* to {topic}-other: .*`sink.name`"):
        Sink(server, f"{topic}-other", query=f"query-of-{topic}").run(0, [LEFT])


def test_a_lane_of_which_acknowledged_rows_are_missing_sends_nothing(
    server: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored disk: a broker that has forgotten the lane as well would take what comes next."""
    sink = Sink(server, topic)
    sink.run(0, [LEFT])
    written = values(server, topic)

    async def restored(_: object, places: list[Place], **__: object) -> dict[Place, int]:
        return dict.fromkeys(places, 7)

    monkeypatch.setattr(destination, "end_offsets", restored)
    with pytest.raises(SinkRefused, match=rf"lane 0 cannot go on: {topic}-\d ends at offset 7, and .* saved at \d+:"):
        sink.lane(1, 0, cut(RIGHT, 1000))
    assert values(server, topic) == written


def test_a_task_that_told_nothing_fails_the_batch(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    message = sink.lane(0, 0, cut(LEFT[:10], 5))
    with pytest.raises(SinkRefused, match=r"a task of batch 0 ended without reporting to the driver.*trigger"):
        sink.commit(0, [message, None])


def test_an_attempt_of_which_the_broker_knows_nothing_any_more_is_found_in_the_log(
    server: ServerProcess, topic: str
) -> None:
    """Stock Kafka forgets a producer at once whose records have old timestamps; also one that was idle for a day."""
    sink = Sink(server, topic)
    for batch in range(3):
        rows = numbers(batch * 3000, batch * 3000 + 3000)
        sink.lane(batch, 0, dated(rows[:1200]))
        sink.commit(batch, [sink.lane(batch, 0, dated(rows), attempt=1)])
    assert values(server, topic) == values_of(numbers(0, 9000))


def test_lanes_that_write_to_several_topics_resume_all_of_them(server: ServerProcess, topic: str) -> None:
    names = [topic, f"{topic}-second", f"{topic}-third"]
    for name in names[1:]:
        make_topic(server, name, 2)
    sink = Sink(server, topic="", query=f"query-of-{topic}")
    rows = numbers(0, 3000)

    def batches(count: int) -> list[pa.RecordBatch]:
        """The second topic comes late, the third only behind what an attempt before had read."""
        chosen = [names[(at > 500) + (at > 2000)] if at % 2 else names[0] for at in range(len(rows))]
        return [table(rows[at : at + 300], topic=pa.array(chosen[at : at + 300])) for at in range(0, count, 300)]

    sink.lane(0, 0, batches(900))
    sink.lane(0, 0, batches(1800), attempt=1)
    sink.commit(0, [sink.lane(0, 0, batches(3000), attempt=2)])
    sink.lane(1, 0, batches(900))
    sink.commit(1, [sink.lane(1, 0, batches(3000), attempt=1)])
    found = [value or b"" for name in names for value in values(server, name)]
    assert sorted(found) == values_of(rows, rows)


def test_rows_without_a_key_are_placed_alike_by_every_attempt(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic, kafka_oncelog_keyless_run="125")
    rows = [(None, value) for _, value in numbers(0, 5000)]
    sink.lane(0, 0, cut(rows[:1700], 1000))
    sink.run(0, [rows], size=333)
    sink.run(0, [rows], size=999)
    assert values(server, topic) == values_of(rows)
    assert all(len(each) == 1250 for each in stored(server, topic).values())


def test_a_place_is_kept_for_as_long_as_the_lane_lives(server: ServerProcess, topic: str) -> None:
    """What decides where a row goes may have another default in another version, or be changed by the user."""
    rows = [(None, value) for _, value in numbers(0, 1000)]
    Sink(server, topic, kafka_oncelog_keyless_run="100").run(0, [rows])
    Sink(server, topic).run(1, [rows])
    with pytest.raises(SinkRefused, match="saved with partitioner=murmur2_random, and is started with"):
        Sink(server, topic, kafka_partitioner="fnv1a").run(2, [rows])


def test_old_records_of_the_sinks_topic_are_removed(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    for batch in range(6):
        sink.lane(batch, 0, cut(LEFT[:100], 50))
        sink.run(batch, [LEFT[:100], RIGHT[:100]])
    (messages,) = messages_of(server, topic_of(sink.query)).values()
    left = {message.key() for message in messages} - {message.key() for message in messages if message.value() is None}
    batches = sorted(int(key.split(b"/")[0]) for key in left if b"/state/" in key)
    assert batches == [3, 4, 5]
    assert all(key.startswith((b"4/", b"5/")) for key in left if b"/state/" not in key)


def test_a_topic_that_was_removed_stops_the_query_with_its_name(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic, kafka_delivery_timeout_ms="4000")
    sink.run(0, [LEFT[:100]])
    remove_topic(server, topic)
    with pytest.raises(MayPass, match=f"batch 1 of .*topic '{topic}' is not there any more"):
        sink.run(1, [LEFT[:100]])
    make_topic(server, topic)
    with pytest.raises(SinkRefused, match=rf"'{topic}' was deleted and made again.*`sink.first.batch` = 1$") as refused:
        sink.run(1, [LEFT[:100]])
    assert not isinstance(refused.value, MayPass), "no other attempt finds the former one"
    assert values(server, topic) == []
    again = Sink(server, topic, sink_name=f"again-{topic}", sink_first_batch="1")
    again.run(1, [LEFT[:100]])
    assert values(server, topic) == values_of(LEFT[:100])


def test_a_broker_that_lags_behind_costs_an_attempt_and_not_the_batch(
    server: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT[:100]])
    ends_of = Destination.ends_of
    lagging = [True]

    async def asked(self: Destination, lane: SavedProducer) -> dict[Place, int]:
        if lagging.pop():
            check_metadata(Metadata(lane.cluster_id), lane)
        return await ends_of(self, lane)

    monkeypatch.setattr(Destination, "ends_of", asked)
    with pytest.raises(MayPass, match=f"topic '{topic}' is not there any more"):
        attempt(lambda: sink.lane(1, 0, cut(LEFT[:100], 50)), iter(()))
    lagging.append(False)
    sink.run(1, [LEFT[:100]])
    assert values(server, topic) == values_of(LEFT[:100], LEFT[:100])


def test_a_topic_that_the_broker_that_is_asked_hears_of_last_gets_its_rows(
    server: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one knows it already: the one that made it, or was asked to make it."""
    refresh, unheard = Brokers.refresh, [topic, topic]

    async def behind(brokers: Brokers, topics: Iterable[str | UUID] | None = None) -> Metadata:
        found = await refresh(brokers, topics)
        is_of_the_lanes = not brokers.settings.allow_auto_create_topics
        return found.without_topics({unheard.pop()}) if is_of_the_lanes and topics == [topic] and unheard else found

    monkeypatch.setattr(Brokers, "refresh", behind)
    Sink(server, topic).run(0, [LEFT[:100]])
    assert not unheard
    assert values(server, topic) == values_of(LEFT[:100])


def test_a_topic_that_was_made_again_behind_a_warm_workers_back_gets_no_row(server: ServerProcess, topic: str) -> None:
    """What the worker knows of the topic was right a moment ago."""
    sink = Sink(server, topic)
    sink.run(0, [LEFT[:100]])
    remove_topic(server, topic)
    make_topic(server, topic)
    with pytest.raises(SinkRefused, match=rf"topic '{topic}' was deleted and made again.*`sink.first.batch` = 1$"):
        sink.run(1, [LEFT[:100]])
    assert values(server, topic) == []


def test_a_topic_that_is_made_again_in_the_middle_of_a_batch_gets_no_row(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT[:100]])

    def rows() -> Iterator[pa.RecordBatch]:
        yield from cut(LEFT[:3000], 1000)
        remove_topic(server, topic)
        make_topic(server, topic)
        yield from cut(LEFT[3000:], 1000)

    with pytest.raises(SinkRefused, match=rf"topic '{topic}' (was deleted and made again|is not there any more)"):
        sink.commit(1, [sink.lane(1, 0, rows())])
    assert values(server, topic) == []


def test_a_sinks_topic_that_was_removed_is_a_lost_state(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic, kafka_delivery_timeout_ms="4000")
    sink.run(0, [LEFT[:100]])
    remove_topic(server, topic_of(sink.query))
    with pytest.raises(MayPass, match="holds the sink's state, is not there any more"):
        sink.run(1, [LEFT[:100]])


def test_a_topic_of_the_sinks_name_that_is_not_compacted_is_refused(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    make_topic(server, topic_of(sink.query), 1)
    with pytest.raises(SinkRefused, match=r"cleanup.policy"):
        sink.run(0, [LEFT[:100]])


def test_no_such_server_is_told_within_the_time_limit(topic: str) -> None:
    class Nobody:
        (port,) = free_ports(1)
        bootstrap_servers = f"127.0.0.1:{port}"

    nobody: Any = Nobody()
    sink = Sink(nobody, topic, kafka_delivery_timeout_ms="1000")
    with pytest.raises(SinkRefused, match=r"could not be asked for 1 s: .*127.0.0.1"):
        sink.run(0, [LEFT[:100]])


def dated(rows: Rows) -> list[pa.RecordBatch]:
    """With timestamps of long ago."""
    times = pa.array([1_500_000_000_000] * 400).view(pa.timestamp("ms", "UTC"))
    return [table(rows[at : at + 400], timestamp=times[: len(rows[at : at + 400])]) for at in range(0, len(rows), 400)]


def test_a_record_that_no_sink_wrote_is_passed_over_and_a_damaged_one_stops_it(
    server: ServerProcess, topic: str
) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT, RIGHT])
    with Producer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        producer.produce(topic_of(sink.query), b"what is this", b"hello")
    sink.run(1, [LEFT, RIGHT])
    assert values(server, topic) == values_of(LEFT, RIGHT, LEFT, RIGHT)
    with Producer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        producer.produce(topic_of(sink.query), b"what is this", b"2/mark/0/n")
    with pytest.raises(SinkRefused, match=r"of the sink's topic: the record is no JSON"):
        sink.run(2, [LEFT])
