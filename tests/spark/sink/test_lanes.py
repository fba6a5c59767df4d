"""Lanes and commits on both servers: whatever is run again, every row is there once."""

import pytest

from oncelog.spark.sink.errors import SinkRefused
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import (
    Sink,
    cut,
    grow_topic,
    make_topic,
    numbers,
    stored,
    values,
    values_of,
)

LEFT, RIGHT = numbers(0, 5000), numbers(5000, 9000)


@pytest.fixture(autouse=True)
def _topic(server: ServerProcess, topic: str) -> None:
    make_topic(server, topic)


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


def test_a_saved_batch_with_other_rows_is_refused(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    sink.run(0, [LEFT, RIGHT])
    with pytest.raises(SinkRefused, match=r"lane 0: .*4999 rows where 5000 were written"):
        sink.lane(0, 0, cut(LEFT[1:], 1000))
    with pytest.raises(SinkRefused, match=r"lane 1: "):
        sink.lane(0, 1, cut([*RIGHT[:-1], RIGHT[0]], 1000))
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


def test_a_task_that_told_nothing_fails_the_batch(server: ServerProcess, topic: str) -> None:
    sink = Sink(server, topic)
    message = sink.lane(0, 0, cut(LEFT[:10], 5))
    with pytest.raises(SinkRefused, match=r"a task of batch 0 has told nothing.*trigger"):
        sink.commit(0, [message, None])
