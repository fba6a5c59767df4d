"""What was tried against the sinks beside kills: attempts that live at once, many partitions, partitions that come in
the middle, copies of a checkpoint."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import LaneMessage, LaneTask
from oncelog.spark.sink.lane_writer import LaneWriter
from tests.lives.stored import end_offsets
from tests.logged import messages
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import Sink, cut, grow_topic, make_topic, numbers, stored, values, values_of
from tests.spark.sink.test_transactional import TransactionalSink

PARTITIONS, LANES = 64, 4


def rows_of(batch: int, lane: int, count: int = 1500) -> list[tuple[bytes, bytes]]:
    first = (batch * LANES + lane) * count
    return [(b"k%d" % (number % 997), b"%d" % number) for number in range(first, first + count)]


def open_lane(sink: Sink, batch: int, lane: int, attempt: int = 0) -> LaneWriter:
    return LaneWriter(sink.options, LaneTask(sink.query, batch, lane, attempt))


def in_turn(lanes: Sequence[LaneWriter], batches: Sequence[pa.RecordBatch]) -> None:
    """Each writes a piece, and then the next one does: all live at once."""
    for batch in batches:
        for lane in lanes:
            lane.write(batch)


def test_attempts_that_live_at_once_fill_64_partitions_once(server: ServerProcess, topic: str) -> None:
    """Two attempts of each lane send in turn; one of them is lost in the middle, and a third one goes on."""
    make_topic(server, topic, PARTITIONS)
    sink = Sink(server, topic)
    for batch in range(2):
        messages = []
        for lane in range(LANES):
            pieces = cut(rows_of(batch, lane), 300)
            with open_lane(sink, batch, lane) as one:
                with open_lane(sink, batch, lane, 1) as lost:
                    in_turn((one, lost), pieces[:3])
                with open_lane(sink, batch, lane, 2) as third:
                    in_turn((third,), pieces[:3])
                    in_turn((one, third), pieces[3:])
                    messages.append(third.finish())
                assert one.finish().order_hash == messages[-1].order_hash
        sink.commit(batch, messages)
    found = stored(server, topic)
    assert sum(bool(rows) for rows in found.values()) > PARTITIONS // 2
    assert values(server, topic) == values_of(*(rows_of(batch, lane) for batch in range(2) for lane in range(LANES)))


def test_partitions_that_come_while_two_attempts_live_change_nothing(server: ServerProcess, topic: str) -> None:
    make_topic(server, topic, 3)
    sink = Sink(server, topic)
    sink.run(0, [rows_of(0, 0)])
    pieces = cut(rows_of(1, 0), 300)
    with open_lane(sink, 1, 0) as one:
        in_turn((one,), pieces[:2])
        grow_topic(server, topic, PARTITIONS)
        with open_lane(sink, 1, 0, 1) as other:
            in_turn((other,), pieces[:2])
            in_turn((one, other), pieces[2:])
            other.finish()
        sink.commit(1, [one.finish()])
    sink.run(2, [rows_of(2, 0)])
    assert values(server, topic) == values_of(*(rows_of(batch, 0) for batch in range(3)))
    assert any(stored(server, topic)[at] for at in range(3, PARTITIONS)), "the batch after that writes to them"


def test_a_checkpoint_from_an_older_backup_writes_nothing(server: ServerProcess, topic: str) -> None:
    """Of the last batch it is compared with what stands there; the source may have grown since the backup was made."""
    make_topic(server, topic, 3)
    sink = Sink(server, topic)
    for batch in range(3):
        sink.run(batch, [numbers(batch * 100, batch * 100 + 100)])
    written = values(server, topic)
    with pytest.raises(SinkRefused, match=r"runs batch 1, and sink .* has saved batch 2: the checkpoint is older"):
        sink.run(1, [numbers(100, 250)])
    with pytest.raises(SinkRefused, match=r"150 rows where 100 were written; row 100 goes to .* no further record"):
        sink.run(2, [numbers(200, 350)])
    sink.run(2, [numbers(200, 300)])
    assert values(server, topic) == written


# --- the same of a batch that is a transaction


def end_of(lane: LaneWriter, pieces: Sequence[pa.RecordBatch]) -> LaneMessage:
    for piece in pieces:
        lane.write(piece)
    return lane.finish()


@pytest.mark.thorough
def test_of_attempts_that_live_at_once_one_shows_in_64_partitions(server: ServerProcess, topic: str) -> None:
    """Each yields other rows, and the last one to begin is the one that counts, with partitions that come meanwhile."""
    make_topic(server, topic, PARTITIONS)
    sink, grown = TransactionalSink(server, topic), PARTITIONS + 6
    sink.write(0, rows_of(0, 0))
    one, two, last = (cut(rows_of(1, lane), 300) for lane in range(3))
    with LaneWriter(sink.options, LaneTask(sink.query, 1, 0)) as first:
        first.write(one[0])
        with LaneWriter(sink.options, LaneTask(sink.query, 1, 0, 1)) as second:
            second.write(two[0])
            with pytest.raises(MayPass, match=r"batch 1 of .* was ended by others"):
                end_of(first, one[1:])
            grow_topic(server, topic, grown)
            message = sink.lane(1, 0, last, 2)
            with pytest.raises(MayPass, match=r"batch 1 of .* was ended by others"):
                end_of(second, two[1:])
    sink.shows(rows_of(0, 0), partitions=grown)
    sink.commit(1, [message])
    sink.write(2, rows_of(2, 0))
    sink.shows(rows_of(0, 0), rows_of(1, 2), rows_of(2, 0), partitions=grown)
    ends = end_offsets(server.bootstrap_servers, topic)
    assert len(ends) == grown and any(ends[PARTITIONS:]), "later batches go to them, too"


def test_a_checkpoint_from_an_older_backup_shows_nothing_twice(
    server: ServerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(server, topic, 3)
    sink = TransactionalSink(server, topic)
    for batch in range(3):
        sink.write(batch, numbers(batch * 100, batch * 100 + 100))
    for stale in (0, 1):
        with pytest.raises(SinkRefused, match=rf"runs batch {stale}, and sink .* has saved batch [12]: .* is older"):
            sink.write(stale, numbers(0, 250))  # what was committed may show a moment later
    sink.write(2, numbers(200, 300))
    assert messages(caplog, "oncelog.spark") == []
    sink.write(2, numbers(200, 350))  # planned anew: to be told from a query that does not repeat by nothing but this
    assert "was committed with 100 rows, and yields 150 now, none of which is written" in caplog.text
    sink.write(3, numbers(350, 360))
    sink.shows(numbers(0, 300), numbers(350, 360), partitions=3)
