"""Brokers that follow one another, in one loop, wired by hand: records by Fetch, leaderships as given."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from oncelog.cluster.fetcher import EARLY_S, Fetcher
from oncelog.log.config import Flush
from oncelog.log.partition import PartitionLog
from oncelog.replication.leadership import elected, first
from oncelog.server.errors import ErrorCode
from oncelog.wire.follower_fetch import FollowerFetch, pack_follower_fetch
from tests.cluster.followers import CONFIG, FETCH, PATIENCE_S, PEERS, TOPIC_ID, Node, Start, content
from tests.cluster.trees import turns_until
from tests.logged import messages
from tests.raw import RawConnection, batch


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    nodes = []

    async def begin(number: int, partitions: int = 1) -> Node:
        node = Node(tmp_path, number, partitions)
        nodes.append(node)
        await node.service.start()
        return node

    yield begin
    for node in nodes:
        await node.stop()


async def test_acks_all_is_answered_once_the_follower_has_it(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    state = leader.lead(first((1, 2)))
    produced = asyncio.ensure_future(leader.produce(batch([b"a"])))
    await leader.replica().until(lambda log: log.next_offset == 1)
    assert (leader.log().high_watermark, produced.done()) == (0, False)
    follower.see(state)
    follower.follow(leader)
    answer = await produced
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert follower.log().next_offset == 1
    await follower.replica().until(lambda log: log.high_watermark == 1)


async def test_a_followers_log_is_its_leaders_byte_by_byte(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    state = leader.lead(first((1, 2)))
    follower.see(state)
    follower.follow(leader)
    for number in range(30):
        values = [b"%d" % number * 10 ** (number % 5)] * (number + 1)
        assert (await leader.produce(batch(values, codec=number // 5 % 5))).error_code == 0
    assert content(follower.log()) == content(leader.log())
    assert len(leader.log().segments) > 1


async def test_a_long_log_comes_in_parts(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    follower.see(leader.lead(first((1, 2))))
    leader.append(*(b"%d" % number for number in range(3000)))
    follower.follow(leader)
    await follower.replica().until(lambda log: log.high_watermark == 3000)
    assert content(follower.log()) == content(leader.log())


async def test_a_follower_that_was_killed_goes_on(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    state = leader.lead(first((1, 2)))
    follower.see(state)
    follower.follow(leader)
    assert (await leader.produce(batch([b"a", b"b"]))).error_code == 0
    await follower.kill()
    produced = asyncio.ensure_future(leader.produce(batch([b"c"])))
    await leader.replica().until(lambda log: log.next_offset == 3)
    again = await start(2)
    assert again.log().next_offset == 2
    again.see(state)
    again.follow(leader)
    assert (await produced).base_offset == 2
    assert content(again.log()) == content(leader.log())


async def test_a_follower_cuts_off_what_its_leader_does_not_have(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    for node, values in ((leader, (b"a", b"b")), (follower, (b"a", b"b", b"X", b"Y"))):
        node.log().begin_epoch(0)
        node.append(*values)
    state = leader.lead(first((1, 2))._replace(epoch=3))
    leader.append(b"c")
    follower.see(state)
    follower.follow(leader)
    await follower.replica().until(lambda log: log.high_watermark == 3)
    assert content(follower.log()) == content(leader.log())


async def test_what_came_under_an_earlier_leader_is_on_the_disk_before_a_fetch_says_that_it_is_here(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With flush=every: that leader's end may have come before its records were flushed here."""
    leader, follower = await start(1), await start(2)
    for node in (leader, follower):
        node.log().begin_epoch(0)
        node.append(b"a", b"b")
    log = follower.log()
    log.configure(replace(CONFIG, flush=Flush.EVERY))
    safe, flush = [], log.flush

    def flushing() -> None:
        safe.append(leader.log().high_watermark)
        flush()

    monkeypatch.setattr(log, "flush", flushing)
    follower.see(leader.lead(first((1, 2))._replace(epoch=3)))
    follower.follow(leader)
    await leader.replica().until(lambda log: log.high_watermark == 2)
    assert safe == [0]


async def test_one_fetch_is_for_all_partitions(start: Start) -> None:
    leader, follower = await start(1, 64), await start(2, 64)
    for index in range(64):
        follower.see(leader.lead(first((1, 2)), index), index)
        leader.append(b"%d" % index, index=index)
    follower.follow(leader, range(64))
    for index in range(64):
        await follower.replica(index).until(lambda log: log.next_offset == 1)
        await leader.replica(index).until(lambda log: log.high_watermark == 1)
    assert leader.broker.metrics.requests[FETCH] <= 3


def is_safe_up_to(end: int) -> Callable[[PartitionLog], bool]:
    return lambda log: log.high_watermark == end


async def test_partitions_without_records_are_not_asked_for_with_every_record_of_another(start: Start) -> None:
    leader, follower = await start(1, 64), await start(2, 64)
    for index in range(64):
        follower.see(leader.lead(first((1, 2)), index), index)
    with patch("oncelog.cluster.fetcher.MAX_WAIT_MS", PATIENCE_S * 1000):
        follower.follow(leader, range(64))
        for count in range(1, 51):
            leader.append(b"a", index=7)
            await leader.replica(7).until(is_safe_up_to(count))
    assert leader.replica(7).fetches > 50
    assert max(leader.replica(index).fetches for index in range(64) if index != 7) <= 3


async def test_no_record_waits_while_its_partition_goes_from_one_connection_to_the_other(start: Start) -> None:
    """Each is quiet again at once, and the next record comes before, while and after that is known."""
    leader, follower = await start(1, 2), await start(2, 2)
    for index in range(2):
        follower.see(leader.lead(first((1, 2)), index), index)
    with (
        patch("oncelog.cluster.fetcher.MAX_WAIT_MS", PATIENCE_S * 1000),
        patch("oncelog.cluster.fetcher.BUSY_S", 0.0),
    ):
        follower.follow(leader, range(2))
        for count in range(1, 101):
            for index in range(2):
                leader.append(b"a", index=index)
            for index in range(1 + count % 2):
                await leader.replica(index).until(is_safe_up_to(count))
        for index in range(2):
            await follower.replica(index).until(lambda log: log.next_offset == 100)
    assert content(follower.log(1)) == content(leader.log(1))


async def test_what_is_to_be_on_the_disk_first_is_asked_for_by_neither_connection(start: Start) -> None:
    leader, follower = await start(1, 2), await start(2, 2)
    for index in range(2):
        follower.see(leader.lead(first((1, 2)), index), index)
    may_save, quiet = asyncio.Event(), leader.replica(1)
    may_save.set()

    async def save(*_: object) -> None:
        await may_save.wait()

    with (
        patch("oncelog.cluster.fetcher.BUSY_S", 0.0),
        patch("oncelog.cluster.fetcher.MAX_WAIT_MS", 1),
        patch.object(follower.broker, "flush", Flush.EVERY),
        patch.object(follower.broker.at_disk, "run", save),
    ):
        follower.follow(leader, range(2))
        leader.append(b"a")
        await leader.replica().until(lambda log: log.high_watermark == 1)
        may_save.clear()
        leader.append(b"b")
        await follower.replica().until(lambda log: log.next_offset == 2)
        seen = quiet.fetches
        await quiet.until(lambda _: quiet.fetches > seen + 5)
        assert leader.log().high_watermark == 1
        may_save.set()
        await leader.replica().until(lambda log: log.high_watermark == 2)


async def test_a_partition_that_is_new_does_not_wait_for_the_end_of_a_fetch(start: Start) -> None:
    leader, follower = await start(1, 2), await start(2, 2)
    for index in range(2):
        follower.see(leader.lead(first((1, 2)), index), index)
    leader.append(b"a", index=1)
    with patch("oncelog.cluster.fetcher.MAX_WAIT_MS", PATIENCE_S * 1000):
        fetcher = follower.follow(leader)
        async with asyncio.timeout(PATIENCE_S):
            while not leader.partition().polls:
                await asyncio.sleep(0)
        fetcher.follow(follower.partition(1))
        await leader.replica(1).until(lambda log: log.high_watermark == 1)


async def test_a_partition_whose_leader_does_not_know_it_yet_is_asked_for_again(start: Start) -> None:
    """Not only when the fetch of the others is over."""
    leader, follower = await start(1, 2), await start(2, 2)
    follower.see(leader.lead(first((1, 2))))
    follower.see(elected(first((1, 2)), 1, PEERS, 2), 1)
    with patch("oncelog.cluster.fetcher.MAX_WAIT_MS", PATIENCE_S * 1000):
        follower.follow(leader, range(2))
        async with asyncio.timeout(PATIENCE_S):
            while not leader.partition().polls:
                await asyncio.sleep(0)
        leader.lead(first((1, 2)), 1)
        leader.append(b"a", index=1)
        await leader.replica(1).until(lambda log: log.high_watermark == 1)


async def test_one_partition_that_fails_does_not_hold_up_the_others(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    leader, follower = await start(1, 3), await start(2, 3)
    for index in range(3):
        follower.see(leader.lead(first((1, 2)), index), index)
        leader.append(b"a" * 100, index=index)
    (path,) = (leader.folder / "orders-0").glob("*.log")
    path.write_bytes(path.read_bytes()[:-1] + b"b")
    follower.log(1).go_offline("its disk is gone")
    caplog.clear()
    follower.follow(leader, range(3))
    await leader.replica(2).until(lambda log: log.high_watermark == 1)
    assert [follower.log(index).next_offset for index in range(3)] == [0, 0, 1]
    (told,) = messages(caplog, "oncelog.cluster")
    assert "orders-0 is not followed for now" in told
    assert "does not fit its CRC" in told


async def test_too_few_in_sync_refuse_acks_all(start: Start) -> None:
    leader = await start(1)
    state = leader.lead(first((1, 2)))
    leader.see(state._replace(in_sync=(1,), version=state.version + 1))
    assert (await leader.produce(batch([b"a"]))).error_code is ErrorCode.not_enough_replicas
    assert (await leader.produce(batch([b"a"]), acks=1)).error_code is ErrorCode.none


async def test_a_follower_suspects_a_leader_that_refuses_it_twice(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    follower.see(leader.lead(first((1, 2))))
    address = leader.address
    await leader.stop()
    suspected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def suspect(broker: int) -> None:
        if not suspected.done():
            suspected.set_result(broker)

    fetcher = Fetcher(follower.broker, 1, lambda: address, suspect, follower.missed.append, lambda: 1, follower.links)
    follower.fetchers.append(fetcher)
    fetcher.follow(follower.partition())
    fetcher.start()
    async with asyncio.timeout(PATIENCE_S):
        assert await suspected == 1


# What a leader answers


def wanted(offset: int, epoch: int = 0, last_epoch: int = -1, watermark: int = 0, index: int = 0) -> dict[str, Any]:
    return {
        "partition": index,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": last_epoch,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
        "high_watermark": watermark,
    }


def ask(raw: RawConnection, *partitions: dict[str, Any], replica: int = 2, max_wait_ms: int = 0) -> None:
    raw.ask(
        "fetch",
        18,
        max_wait=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{"topic_id": TOPIC_ID, "partitions": list(partitions)}],
        replica_state={"replica_id": replica, "replica_epoch": 1},
    )


async def answer(raw: RawConnection) -> list[Any]:
    """About each partition of the topic that is told of."""
    found = (await asyncio.to_thread(raw.answer)).responses
    return list(found[0].partitions) if found else []


async def test_an_append_wakes_a_follower_and_so_does_the_watermark(start: Start) -> None:
    leader = await start(1)
    leader.lead(first((1, 2, 3)))
    with leader.asked() as two, leader.asked() as three:
        for raw, replica in ((two, 2), (three, 3)):
            ask(raw, wanted(0), replica=replica, max_wait_ms=PATIENCE_S * 1000)
        async with asyncio.timeout(PATIENCE_S):
            while len(leader.partition().polls) < 2:
                await asyncio.sleep(0)
        leader.append(b"a")
        assert [(each.high_watermark, bool(each.records)) for each in await answer(two)] == [(0, True)]
        assert [(each.high_watermark, bool(each.records)) for each in await answer(three)] == [(0, True)]
        ask(two, wanted(1, last_epoch=0), max_wait_ms=PATIENCE_S * 1000)
        await leader.replica().until(lambda log: bool(leader.partition().polls))
        ask(three, wanted(1, last_epoch=0), replica=3, max_wait_ms=PATIENCE_S * 1000)
        assert [(each.high_watermark, each.records) for each in await answer(two)] == [(1, b"")]
        assert [(each.high_watermark, each.records) for each in await answer(three)] == [(1, b"")]


async def test_partitions_without_news_are_left_out(start: Start) -> None:
    leader = await start(1, 3)
    for index in range(3):
        leader.lead(first((1, 2)), index)
    leader.append(b"a", index=1)
    with leader.asked() as raw:
        ask(raw, *(wanted(0, index=index) for index in range(3)))
        assert [each.partition_index for each in await answer(raw)] == [1]


async def test_a_stranger_is_no_replica(start: Start) -> None:
    leader = await start(1)
    leader.lead(first((1, 2)))
    leader.append(b"a")
    with leader.asked() as raw:
        for stranger in (1, 3):
            ask(raw, wanted(1, last_epoch=0), replica=stranger)
            assert [each.error_code for each in await answer(raw)] == [ErrorCode.unknown_leader_epoch]
    assert leader.log().high_watermark == 0


async def test_a_follower_is_told_what_is_wrong(start: Start) -> None:
    leader = await start(1, 2)
    leader.lead(first((1, 2))._replace(epoch=4))
    leader.append(b"a", b"b")
    with leader.asked() as raw:
        for asked, code in (
            (wanted(0, 4), ErrorCode.fenced_leader_epoch),
            (wanted(0, 6), ErrorCode.unknown_leader_epoch),
            (wanted(0, 5, index=1), ErrorCode.not_leader_or_follower),
            (wanted(0, 5, index=2), ErrorCode.unknown_topic_or_partition),
        ):
            ask(raw, asked, max_wait_ms=PATIENCE_S * 1000)
            assert [each.error_code for each in await answer(raw)] == [code]
        ask(raw, wanted(9, 5, 5), max_wait_ms=PATIENCE_S * 1000)
        (found,) = await answer(raw)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (5, 2)
        assert leader.log().high_watermark == 0
        ask(raw, wanted(2, 5, 5))
        await answer(raw)
        assert leader.log().high_watermark == 2


async def test_a_follower_behind_its_leaders_first_record_begins_anew(start: Start) -> None:
    leader, follower = await start(1), await start(2)
    state = leader.lead(first((1, 2)))
    follower.see(state)
    leader.append(*(b"%d" % number * 1000 for number in range(100)))
    leader.log().advance_high_watermark(100)
    leader.log().delete_before(60)
    assert leader.log().first_offset > 0
    follower.follow(leader)
    await turns_until(lambda: (follower.log().log_start_offset, follower.log().next_offset) == (60, 100))
    assert content(follower.log()) == content(leader.log())


async def test_a_follower_deletes_what_its_leader_has_deleted_while_others_are_served(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = await start(1), await start(2)
    follower.see(leader.lead(first((1, 2))))
    leader.append(*(b"%d" % number * 1000 for number in range(100)))
    follower.follow(leader)
    await follower.replica().until(lambda log: log.high_watermark == 100)
    threads = set()

    def noting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def syncing(fd: int) -> None:
            if os.readlink(f"/proc/self/fd/{fd}").startswith(follower.log().folder):
                threads.add(threading.current_thread())
            sync(fd)

        return syncing

    monkeypatch.setattr(os, "fsync", noting(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noting(os.fdatasync))
    leader.log().delete_before(60)
    leader.append(b"more")
    await turns_until(lambda: follower.log().log_start_offset == 60)
    assert len(threads) > 0 and threading.current_thread() not in threads


async def test_a_leader_that_ends_its_connection_is_missed_at_once_and_one_that_is_left_is_not(start: Start) -> None:
    leader, one, other = await start(1), await start(2), await start(3)
    state = leader.lead(first((1, 2, 3)))
    fetchers = []
    for follower in (one, other):
        follower.see(state)
        fetchers.append(follower.follow(leader))
    leader.append(b"a")
    for follower in (one, other):
        await follower.replica().until(lambda log: log.next_offset == 1)
    await fetchers[0].stop()
    await leader.stop()
    await turns_until(lambda: bool(other.missed))
    assert (one.missed, set(other.missed)) == ([], {1})


async def test_a_leader_that_lets_nobody_wait_is_not_asked_without_a_pause(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.server.polls.MOST_AWAITED", 0)
    asked_s: list[float] = []

    def packed(correlation_id: int, client_id: str | None, fetch: FollowerFetch) -> bytes:
        asked_s.append(asyncio.get_running_loop().time())
        return pack_follower_fetch(correlation_id, client_id, fetch)

    leader, follower = await start(1), await start(2)
    follower.see(leader.lead(first((1, 2))))
    with patch("oncelog.cluster.fetcher.pack_follower_fetch", packed):
        follower.follow(leader)
        await turns_until(lambda: len(asked_s) == 4)
    assert min(later_s - sooner_s for sooner_s, later_s in pairwise(asked_s)) > EARLY_S / 2


@pytest.mark.parametrize(("lag_ms", "wait_ms"), [(10_000, 2_000), (1_000, 500)])
async def test_a_fetch_of_quiet_partitions_waits_longer_where_who_waits_counts_as_caught_up(
    start: Start, lag_ms: int, wait_ms: int
) -> None:
    waits = []

    def packed(correlation_id: int, client_id: str | None, fetch: FollowerFetch) -> bytes:
        waits.append(fetch.max_wait_ms)
        return pack_follower_fetch(correlation_id, client_id, fetch)

    leader, follower = await start(1), await start(2)
    follower.broker.settings = replace(follower.broker.settings, replica_lag_time_max_ms=lag_ms)
    follower.see(leader.lead(first((1, 2))))
    with patch("oncelog.cluster.fetcher.pack_follower_fetch", packed):
        follower.follow(leader)
        await leader.replica().until(lambda log: leader.replica().fetches > 0)
    assert waits[0] == wait_ms
