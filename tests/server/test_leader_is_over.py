"""What waits for the high watermark when another broker begins to lead: nobody is told that it is safe."""

from uuid import UUID

import pytest

from oncelog.embedded import Server
from oncelog.log.partition import Fate, PartitionLog
from oncelog.server.errors import ErrorCode
from oncelog.server.high_watermark import wait_until_settled, when_settled
from oncelog.server.metadata_log import Definition
from oncelog.server.produce_pattern import Pattern
from oncelog.server.produced import Commit, Many, One, Outcome
from oncelog.server.topic import Partition, Topic
from oncelog.wire.hot import Produced, encode_produced
from tests.log.memory_disk import MemoryDisk
from tests.log.support import open_log, put
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until


def partition_of() -> Partition:
    log = open_log(MemoryDisk(), replicated=True)
    log.begin_epoch(1)
    return Partition(Topic(Definition(name="orders", id=UUID(int=1), partitions=1), log.config), 0, log)


@pytest.fixture
def partition() -> Partition:
    return partition_of()


def many(outcome: Outcome) -> Many:
    return Many(9, 1, -1, [(b"orders", [outcome])])


def overruled(partition: Partition) -> None:
    """And whatever the next leader has there is below the high watermark."""
    partition.log.follow_epoch(2)
    partition.log.advance_high_watermark(partition.log.next_offset)
    partition.wake()


def test_a_produce_request_is_answered_that_another_leads(partition: Partition) -> None:
    staged = put(partition.log, b"a")
    outcome = Outcome(0, partition, staged)
    commit = Commit([many(outcome)], {partition: staged.end}, False)
    assert not commit.is_settled()
    overruled(partition)
    assert commit.is_settled()
    commit.frames()
    assert (outcome.error_code, outcome.staged) == (ErrorCode.not_leader_or_follower, None)


@pytest.mark.parametrize("is_recognised", [False, True])
def test_what_was_safe_is_answered_though_its_partition_went_away_while_others_waited(is_recognised: bool) -> None:
    moved, waits = partition_of(), partition_of()
    safe, staged = put(moved.log, b"a"), put(waits.log, b"a")
    moved.log.advance_high_watermark(1)
    outcome = Outcome(0, moved, safe)
    first = One(Pattern(b"", 9, -1, b"orders", moved), 1, outcome) if is_recognised else many(outcome)
    commit = Commit([first, many(Outcome(0, waits, staged))], {waits: staged.end}, False)
    moved.close().close()
    waits.log.advance_high_watermark(1)
    assert commit.is_settled()
    produced = Produced(0, base_offset=safe.base_offset, append_time_ms=safe.append_time_ms)
    assert commit.frames()[0] == encode_produced(9, 1, [(b"orders", [produced])])


async def test_who_waits_is_told_once(partition: Partition) -> None:
    told: list[Fate] = []
    end = put(partition.log, b"a").end
    when_settled(partition, end, told.append)
    assert await wait_until_settled(partition, end, 0) is Fate.WAITS
    assert told == []
    overruled(partition)
    partition.wake()
    assert told == [Fate.LOST]
    assert await wait_until_settled(partition, end, 0) is Fate.LOST


def test_a_partition_that_is_deleted_is_lost_to_who_waits_and_keeps_what_was_safe(partition: Partition) -> None:
    safe, waits = put(partition.log, b"a").end, put(partition.log, b"b").end
    partition.log.advance_high_watermark(1)
    partition.is_deleted = True
    assert (partition.fate(safe), partition.fate(waits)) == (Fate.SAFE, Fate.LOST)


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("partitions", [1, 2], ids=["at once", "in turns"])
def test_a_reader_that_waits_is_told_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, partitions: int, is_closed: bool
) -> None:
    monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", 1)
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions)
        partition = server.broker.topics.partition(topic, 0)
        assert partition is not None
        topics = [{"topic": topic, "partitions": [{"partition": index} for index in range(partitions)]}]
        raw.ask("fetch", 11, max_wait=3_600_000, min_bytes=1, max_bytes=1000, topics=topics)
        until(lambda: len(partition.polls) == 1, "the reader to wait")

        def end() -> PartitionLog | None:
            log = partition.close() if is_closed else None
            partition.leads = False
            partition.wake()
            return log

        log = server.call(end)
        codes = [each.error_code for each in raw.answer().responses[0].partitions]
        assert codes == [ErrorCode.not_leader_or_follower, *[ErrorCode.none] * (partitions - 1)]
        if log is not None:
            server.call(partition.open, log)
