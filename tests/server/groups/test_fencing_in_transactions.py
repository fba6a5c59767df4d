"""Offsets in a transaction, and what changes while its coordinator is asked: a member is sent away, a topic goes."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.memory import Memory
from oncelog.server.topics import Partition
from tests.server.groups.support import SESSION_MS, House, joined


class Unheard:
    """By the time that the coordinator of the transaction has answered, nobody has heard of the member for too long."""

    def __init__(self, house: House, silent_ms: int) -> None:
        self._house = house
        self._silent_ms = silent_ms

    async def ask_for_groups(self, partition: Partition, _: str, pid: int, epoch: int, *, adds: bool) -> ErrorCode:
        partition.log.producers.transactions.verify(pid, epoch)
        self._house.timers.advance(self._silent_ms)
        return ErrorCode.none


class Renewing(Unheard):
    """By then there is another topic of that name."""

    def __init__(self, house: House, topic: str) -> None:
        super().__init__(house, 0)
        self._topic = topic

    async def ask_for_groups(self, partition: Partition, _: str, pid: int, epoch: int, *, adds: bool) -> ErrorCode:
        self._house.delete_topic(self._topic)
        self._house.make_topic(self._topic)
        return await super().ask_for_groups(partition, _, pid, epoch, adds=adds)


class AlwaysOn:
    """Its turn."""

    async def pause(self) -> None: ...

    def is_over(self) -> bool:
        return False


@pytest.mark.parametrize(("silent_ms", "error"), [(0, ErrorCode.none), (SESSION_MS + 1, ErrorCode.unknown_member_id)])
async def test_who_was_a_member_when_it_asked_and_is_none_any_more_commits_nothing(
    silent_ms: int, error: ErrorCode
) -> None:
    house = House()
    house.make_topic("t")
    house.commit("g", "t", 1)
    answer = await joined(house)
    told = await answered(house, Unheard(house, silent_ms), ["t"], answer.generation, answer.member_id)
    assert told == [error]


async def test_what_was_read_of_a_topic_that_is_another_one_by_then_is_not_committed() -> None:
    """The others are."""
    house = House()
    for topic in ("t", "u"):
        house.make_topic(topic)
    house.commit("g", "u", 1)
    assert await answered(house, Renewing(house, "t"), ["t", "u"]) == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
    ]
    is_pending = house.groups.in_transactions.is_pending
    assert [is_pending("g", topic, 0) for topic in ("t", "u")] == [False, True]
    assert await answered(house, Renewing(house, "t"), ["t"]) == [ErrorCode.unknown_topic_or_partition]


async def answered(
    house: House, verifying: Unheard, topics: list[str], generation: int = -1, member_id: str = ""
) -> list[ErrorCode]:
    """What is said of the first partition of each topic."""
    api = next(each for each in apis().values() if each.name == "txn_offset_commit")
    broker: Any = SimpleNamespace(
        groups=house.groups,
        topics=house.topics,
        settings=house.settings,
        clock=house.clock,
        memory=Memory(-1),
        turns=AlwaysOn(),
        verifying=verifying,
    )
    call = Call(broker, api.name, 3, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    offsets = SimpleNamespace(partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata="")
    request = SimpleNamespace(
        transactional_id="copier",
        group_id="g",
        producer_id=1 << 33,
        producer_epoch=0,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        topics=[SimpleNamespace(name=each, partitions=[offsets]) for each in topics],
    )
    assert api.handle is not None
    told = await api.handle(request, call)
    return [each.partitions[0].error_code for each in told.topics]
