"""All that stands in a partition from an offset on; and what comes while nothing does."""

import asyncio
from datetime import timedelta

from oncelog.client.net.brokers import Brokers
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
