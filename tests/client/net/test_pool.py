"""What is opened is closed again, whoever else leads to the same broker."""

import asyncio
import random
from typing import Any

from oncelog.client.net.connection import Endpoint
from oncelog.client.net.opening import Opener
from oncelog.client.net.pool import Pool
from tests.client.net.fake_broker import Asked, FakeBroker


async def test_a_connection_taken_over_while_another_is_being_opened_is_not_forgotten(broker: FakeBroker) -> None:
    settings = broker.settings()
    pool = Pool(settings, Opener(settings).open, random.random, lambda error: None)
    unnamed, named = Endpoint(broker.host, broker.port), Endpoint(broker.host, broker.port, 0)
    bootstrap = await pool.connection(unnamed)
    may_open, versions = asyncio.Event(), broker.answers["api_versions"]

    async def slowly(asked: Asked) -> Any:
        await may_open.wait()
        return versions(asked)

    broker.answers["api_versions"] = slowly
    opening = asyncio.create_task(pool.connection(named))
    await broker.until(lambda: len(broker.asked_for("api_versions")) == 2)
    pool.adopt(bootstrap, named)
    may_open.set()
    opened = await opening
    await pool.close()
    assert opened.is_closed and bootstrap.is_closed
