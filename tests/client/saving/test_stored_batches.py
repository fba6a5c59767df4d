"""All that stands in a partition from an offset on; and what comes while nothing does."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.register.partition import fetch_once
from oncelog.client.saving import read_back
from oncelog.client.saving.read_back import stored_batches
from oncelog.slots import Place
from tests.client.saving.written import new_writer
from tests.raw import RawConnection
from tests.waiting import until

LONG = timedelta(seconds=20)


async def offsets(brokers: Brokers, place: Place, from_offset: int, wait: timedelta = timedelta(0)) -> list[int]:
    stored = stored_batches(brokers, place, from_offset, wait)
    return [each.base_offset async for portion in stored for each in portion]


def asks(brokers: Brokers) -> bool:
    return any(each["waitresp_cnt"] for each in brokers.statistics())


async def test_all_that_stands_there_is_found_and_behind_it_nothing_is_waited_for(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written, place = await new_writer(brokers, raw, topic), Place(topic, 0)
    written.write(3)
    written.others_write(2)
    assert await offsets(brokers, place, 0) == [0, 3]
    assert await offsets(brokers, place, 3, LONG) == [3]
    assert await offsets(brokers, place, 5) == []
    assert await offsets(brokers, place, 5, timedelta(milliseconds=1)) == []
    assert await offsets(brokers, place, 9) == []  # the log was longer when this offset was learned


async def test_what_comes_while_it_is_waited_for_is_found_and_the_others_do_not_wait(
    brokers: Brokers, raw: RawConnection, topic: str
) -> None:
    written, place = await new_writer(brokers, raw, topic), Place(topic, 0)
    written.write(3)
    waits = asyncio.create_task(offsets(brokers, place, 3, LONG))
    async with asyncio.timeout(LONG.total_seconds() / 2):
        await asyncio.to_thread(until, lambda: asks(brokers), "a request that waits")
        assert await offsets(brokers, place, 0) == [0]
        written.write(1)
        assert await waits == [3]


@pytest.mark.parametrize(("damaged_s", "times"), [(60.0, 2), (0.0, 1)], ids=["passes", "stays"])
async def test_what_its_broker_says_is_damaged_is_asked_for_again_and_not_for_ever(
    brokers: Brokers, raw: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch, damaged_s: float, times: int
) -> None:
    written, place = await new_writer(brokers, raw, topic), Place(topic, 0)
    written.write(3)
    asked: list[object] = []

    async def corrupt_at_first(*arguments: Any, **keywords: Any) -> Any:
        asked.append(arguments)
        return SimpleNamespace(error_code=2) if len(asked) <= times else await fetch_once(*arguments, **keywords)

    monkeypatch.setattr(read_back, "fetch_once", corrupt_at_first)
    monkeypatch.setattr(read_back, "DAMAGED_S", damaged_s)
    if damaged_s:
        assert await offsets(brokers, place, 0) == [0]
        return
    with pytest.raises(KafkaException, match=rf"{topic}-0 is damaged at offset 0, as its broker says") as failed:
        await offsets(brokers, place, 0)
    assert (failed.value.error.code(), len(asked)) == (KafkaError._BAD_MSG, 1)
