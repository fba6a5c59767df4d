"""What a cell asks for is asked again, whatever patience those had who gave up."""

import asyncio

from oncelog.client.net.retry import Patience
from oncelog.runner.cluster import Cluster


def test_one_who_gave_up_is_asked_again(own_server: object) -> None:
    tries: list[int] = []

    async def question() -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise Patience().over(None)
        return "answered"

    async def ask() -> str:
        servers = str(own_server.bootstrap_servers)  # type: ignore[attr-defined]
        cluster = Cluster({"bootstrap.servers": servers}, lambda callback: callback(), lambda: None)
        await cluster.start()
        try:
            return await cluster.patiently(question)
        finally:
            await cluster.close()

    assert asyncio.run(ask()) == "answered"
    assert len(tries) == 3
