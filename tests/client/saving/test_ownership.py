"""Positions and producer in one commit, and one owner at a time, on both kinds of server."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.groups.commits import commit_to_group
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.retry import NoAnswer
from oncelog.client.register.entry import Entry
from oncelog.client.register.offsets import OffsetsKeeper
from oncelog.client.saving import BadSavedProducer, SavedProducer, TakenOver
from oncelog.client.saving.ownership import Ownership, fetch_committed
from tests.client.saving.values import saved_producer
from tests.raw import RawConnection

Given = Callable[[], Awaitable[None]]
STORING = "oncelog.client.register.offsets.commit_to_group"


def at(offset: int, topic: str) -> list[Entry]:
    return [Entry(topic, 0, offset, "mine"), Entry(topic, 1, offset * 2)]


def value(number: int) -> SavedProducer:
    return replace(saved_producer(), made_at_ms=number)


def no_further_join() -> AbstractContextManager[object]:
    return patch.object(OffsetsKeeper, "join", side_effect=AssertionError("it was a member"))


@pytest.fixture
def group(raw: RawConnection, topic: str) -> str:
    """The group has the name of its input topic."""
    assert raw.create_topic(topic, 2) == 0
    return topic


async def test_a_group_that_was_never_committed_to_holds_nothing(brokers: Brokers, group: str) -> None:
    held = await fetch_committed(brokers, group, SavedProducer.from_json)
    assert (held.positions, held.saved, held.save) == ((), None, 0)


async def test_positions_and_producer_come_back_as_they_were_committed(brokers: Brokers, group: str) -> None:
    owner = Ownership(brokers, group, None, SavedProducer.from_json)
    for number in (1, 2, 3):
        await owner.commit(at(number, group), value(number))
        held = await fetch_committed(brokers, group, SavedProducer.from_json)
        assert sorted(held.positions) == at(number, group)
        assert (held.saved, held.save) == (value(number), number)


async def test_of_two_copies_that_start_with_nothing_only_one_becomes_the_owner(brokers: Brokers, group: str) -> None:
    first, second = (
        Ownership(brokers, group, None, SavedProducer.from_json),
        Ownership(brokers, group, None, SavedProducer.from_json),
    )
    await first.commit(at(1, group), value(1))
    with pytest.raises(TakenOver, match="another copy of the job has committed meanwhile"):
        await second.commit(at(1, group), value(99))
    # The second one fenced the first when it joined; nothing was committed by it, so the first goes on.
    await first.commit(at(2, group), value(2))
    assert (await fetch_committed(brokers, group, SavedProducer.from_json)).saved == value(2)


async def test_who_starts_from_what_is_committed_takes_over_and_the_former_owner_learns_it(
    brokers: Brokers, group: str
) -> None:
    former = Ownership(brokers, group, None, SavedProducer.from_json)
    await former.commit(at(1, group), value(1))
    held = await fetch_committed(brokers, group, SavedProducer.from_json)
    later = Ownership(brokers, group, held.saved, SavedProducer.from_json)
    await later.commit(at(2, group), value(2))
    with pytest.raises(TakenOver):
        await former.commit(at(7, group), value(7))
    await later.commit(at(3, group), value(3))
    assert sorted((await fetch_committed(brokers, group, SavedProducer.from_json)).positions) == at(3, group)


async def test_a_former_owner_that_leaves_takes_nobody_along(brokers: Brokers, group: str) -> None:
    former = Ownership(brokers, group, None, SavedProducer.from_json)
    await former.commit(at(1, group), value(1))
    later = Ownership(brokers, group, value(1), SavedProducer.from_json)
    await later.commit(at(2, group), value(2))
    with pytest.raises(KafkaException) as refused:
        await former.leave()
    assert refused.value.error.code() == KafkaError.FENCED_INSTANCE_ID
    with no_further_join():
        await later.commit(at(3, group), value(3))
    assert (await fetch_committed(brokers, group, SavedProducer.from_json)).saved == value(3)


async def test_who_has_left_commits_nothing_over_what_others_have_committed(brokers: Brokers, group: str) -> None:
    first = Ownership(brokers, group, None, SavedProducer.from_json)
    await first.commit(at(1, group), value(1))
    await first.leave()
    await first.leave()
    await first.commit(at(2, group), value(2))  # it looks, and goes on
    await first.leave()
    await Ownership(brokers, group, value(2), SavedProducer.from_json).commit(at(3, group), value(3))
    with pytest.raises(TakenOver):
        await first.commit(at(7, group), value(7))
    assert (await fetch_committed(brokers, group, SavedProducer.from_json)).saved == value(3)


async def test_an_owner_that_could_not_look_looks_again_before_it_commits(
    brokers: Brokers, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Ownership(brokers, group, None, SavedProducer.from_json)
    await Ownership(brokers, group, None, SavedProducer.from_json).commit(at(1, group), value(1))
    looks = OffsetsKeeper.held
    failures = [KafkaError(KafkaError._TRANSPORT, retriable=True)]

    async def held(keeper: OffsetsKeeper) -> list[Entry]:
        if failures:
            raise KafkaException(failures.pop())
        return await looks(keeper)

    monkeypatch.setattr(OffsetsKeeper, "held", held)
    with pytest.raises(TakenOver):
        await late.commit(at(2, group), value(2))
    assert (await fetch_committed(brokers, group, SavedProducer.from_json)).saved == value(1)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_an_owner_has_stored_without_hearing_of_it_is_not_taken_for_another_copys(
    is_cancelled: bool, brokers: Brokers, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user gives up a commit, as a broker that goes away makes him, and commits what came since."""
    owner = Ownership(brokers, group, None, SavedProducer.from_json)
    await owner.commit(at(1, group), value(1))

    async def unheard(*about: Any, **how: Any) -> Any:
        monkeypatch.setattr(STORING, commit_to_group)
        await commit_to_group(*about, **how)
        if is_cancelled:
            raise asyncio.CancelledError
        raise NoAnswer(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(STORING, unheard)
    with pytest.raises(asyncio.CancelledError if is_cancelled else KafkaException):
        await owner.commit(at(2, group), value(2))
    assert (await fetch_committed(brokers, group, SavedProducer.from_json)).saved == value(2)
    joins = OffsetsKeeper.join
    joined: list[OffsetsKeeper] = []

    async def join(keeper: OffsetsKeeper) -> None:
        joined.append(keeper)
        await joins(keeper)

    monkeypatch.setattr(OffsetsKeeper, "join", join)
    await owner.commit(at(3, group), value(3))
    assert joined, "what is still under way of the former commit is fenced off"
    held = await fetch_committed(brokers, group, SavedProducer.from_json)
    assert (held.saved, held.save) == (value(3), 3)
    await Ownership(brokers, group, held.saved, SavedProducer.from_json).commit(at(4, group), value(4))
    with pytest.raises(TakenOver):
        await owner.commit(at(5, group), value(5))


async def test_a_commit_without_the_producer_is_refused_while_there_is_an_owner(
    brokers: Brokers, raw: RawConnection, group: str
) -> None:
    await Ownership(brokers, group, None, SavedProducer.from_json).commit(at(1, group), value(1))
    plain = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    answer = raw.call(
        "offset_commit",
        7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": group, "partitions": [plain]}],
    )
    assert answer.topics[0].partitions[0].error_code.name == "unknown_member_id"
    assert (await fetch_committed(brokers, group, SavedProducer.from_json)).saved == value(1)


async def test_what_does_not_fit_is_refused_before_anything_is_sent(brokers: Brokers, group: str) -> None:
    owner = Ownership(brokers, group, None, SavedProducer.from_json, limit_bytes=60)
    with pytest.raises(BadSavedProducer, match=r"offset\.metadata\.max\.bytes"):
        await owner.commit(at(1, group), value(1))
    held = await fetch_committed(brokers, group, SavedProducer.from_json)
    assert (held.positions, held.saved) == ((), None)


async def test_a_limit_that_is_lower_at_the_brokers_is_told_and_the_torn_save_is_found(
    brokers: Brokers, group: str
) -> None:
    owner = Ownership(brokers, group, None, SavedProducer.from_json, limit_bytes=100_000)
    whole = [Entry(group, 0, 1), Entry(group, 1, 2, "x" * 4_090)]
    with pytest.raises(BadSavedProducer, match=r"less metadata to an entry than the 100000"):
        await owner.commit(whole, value(1))
    with pytest.raises(BadSavedProducer, match="not whole"):
        await fetch_committed(brokers, group, SavedProducer.from_json)
