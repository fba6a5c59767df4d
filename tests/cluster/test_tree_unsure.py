"""Three brokers, while the tree does not answer one of them, or has told it nothing of what others changed."""

import asyncio
import errno
import os
from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.cluster.tree import Change, PutEphemeral, Unsure
from oncelog.log.room import AGAIN_MS
from oncelog.records.header import Buffer
from oncelog.server.errors import ErrorCode, KafkaError
from tests.cluster.brokers import ALL, PATIENCE_S, Brokers
from tests.raw import batch

LAG_MS = 11_000  # more than replica.lag.time.max.ms


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_broker_in_another_session_joins_once_the_tree_answers(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    await cluster.create()
    session, change = cluster.sessions[3], cluster.sessions[3].change
    unanswered: list[tuple[Change, ...]] = []

    async def changing(*changes: Change) -> None:
        is_join = any(isinstance(each, PutEphemeral) for each in changes)
        if not is_join or unanswered or is_done:
            await change(*changes)
        if is_join and not unanswered:
            unanswered.append(changes)
            raise Unsure("the connection was lost before the answer came")

    monkeypatch.setattr(session, "change", changing)
    session.suspend()
    session.expire()
    await cluster.until(lambda: all(3 not in cluster.brokers[node].supervisor.brokers for node in (1, 2)))
    session.resume()
    await cluster.until(lambda: len(unanswered) == 1)
    await cluster.settled()
    assert all(3 in each.in_sync for each in cluster.tree.leaderships("orders"))


async def test_a_change_of_a_deleted_topic_is_none_of_the_next_one_with_its_name(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    behind = next(node for node in ALL if node not in (1, cluster.leader("orders")))
    before, known = cluster.tree.nodes.get("/topics/orders"), cluster.known(behind, "orders")
    cluster.sessions[behind].hold_watches()
    assert await cluster.delete() is ErrorCode.none
    assert await cluster.create(partitions=1, settled=False) is ErrorCode.none
    after = cluster.tree.nodes.get("/topics/orders")
    assert before is not None and after is not None and before.node.version == after.node.version
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(KafkaError, match="was deleted meanwhile"):
            await cluster.brokers[behind].supervisor.alter(known, lambda _: {"retention.ms": "1000"})
    document = cluster.tree.document("orders")
    assert document is not None and (document.id == known.id, document.configs) == (False, {})
    cluster.sessions[behind].release_watches()
    await cluster.settled()


async def test_a_follower_goes_on_once_its_disk_has_room_while_the_tree_is_away(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create()
    follower = cluster.leader("orders")
    session, children, asked = cluster.sessions[follower], cluster.sessions[follower].children, []
    index = next(number for number in range(3) if cluster.leader("orders", number) != follower)

    async def noting(folder: str, **options: Any) -> Any:
        asked.append(folder)
        return await children(folder, **options)

    monkeypatch.setattr(session, "children", noting)
    session.suspend()
    cluster.clock.ms += LAG_MS  # so it has something to say about what it leads, and asks again and again
    await cluster.until(lambda: len(asked) > 1)
    log, write = cluster.known(follower, "orders").partitions[index].log, os.pwritev

    def full(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(f"{log.folder}/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, buffers, position)

    with monkeypatch.context() as patched:
        patched.setattr("os.pwritev", full)
        assert (await cluster.produce(batch([b"a"]), index=index, acks=1)).error_code is ErrorCode.none
        await cluster.until(lambda: log.refuses)
    cluster.clock.ms += AGAIN_MS
    await cluster.until(lambda: log.next_offset == 1)
    assert not session.is_connected
    session.resume()
    await cluster.settled()
