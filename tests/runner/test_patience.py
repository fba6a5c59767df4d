"""What a cell asks for is asked again, whatever patience those had who gave up."""

import asyncio

import pytest

from oncelog.client import KafkaError
from oncelog.client.net.retry import Patience
from oncelog.runner import cluster as shared
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


def test_what_brokers_lack_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is gone is told by two errors in turn, and both again when it is gone another time."""
    now_s = 0.0
    monkeypatch.setattr(shared, "monotonic_s", lambda: now_s)
    cluster = Cluster({"bootstrap.servers": "nowhere:1"}, lambda callback: callback(), lambda: None)
    for now_s in (0.0, 1.0, shared.SAY_EVERY_S - 1.0, shared.SAY_EVERY_S + 1.0):
        for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            cluster.note(KafkaError(code, f"{code} at {now_s:g}"))
    assert [words.split()[-1] for words in caplog.messages] == ["0", "0", "61", "61"]
