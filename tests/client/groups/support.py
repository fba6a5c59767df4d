"""Members of ours that tell what they own, on real connections."""

import asyncio
from collections.abc import Callable
from typing import Any

from oncelog.client.errors import KafkaError
from oncelog.client.groups.coordinator import Group
from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import consumer_settings
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace

PATIENCE_S = 60
CONSUMER = "consumer"  # in the place of an assignor: KIP-848, in which the broker shares out


def speaking(assignor: str) -> dict[str, object]:
    """The properties of a member, ours or librdkafka's."""
    if assignor == CONSUMER:
        return {"group.protocol": CONSUMER}
    return {"partition.assignment.strategy": assignor, "session.timeout.ms": 6000, "heartbeat.interval.ms": 100}


class Ours:
    """A member that remembers what it was told. With every change it is checked that nothing is given to it twice."""

    def __init__(self, servers: str, group_id: str, assignor: str, **more: object) -> None:
        given = {
            "bootstrap.servers": servers,
            "group.id": group_id,
            **speaking(assignor),
            "topic.metadata.refresh.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.settings = consumer_settings(given)
        self.brokers = Brokers(self.settings)
        self.owned: set[AnyPlace] = set()
        self.told: list[tuple[Any, ...]] = []
        self.errors: list[KafkaError] = []
        self.changed = asyncio.Event()
        self.ahead_ms = 0
        self.group = Group(self.settings, self.brokers, self, now_ms=self.now_ms)

    def now_ms(self) -> int:
        return int(monotonic_s() * 1000) + self.ahead_ms

    async def __aenter__(self) -> "Ours":
        await self.brokers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.group.leave()
        await self.brokers.close()

    async def revoked(self, partitions: frozenset[AnyPlace], *, is_lost: bool) -> None:
        assert partitions <= self.owned
        self.owned -= partitions
        self.told.append(("lost" if is_lost else "revoked", sorted(partitions)))
        self.changed.set()

    async def assigned(self, added: frozenset[AnyPlace]) -> None:
        assert not added & self.owned
        self.owned |= added
        self.told.append(("assigned", sorted(added)))
        self.changed.set()

    def failed(self, error: KafkaError) -> None:
        self.errors.append(error)
        self.changed.set()

    @property
    def numbers(self) -> set[int]:
        return {partition for _, partition in self.owned}


async def until(is_so: Callable[[], bool], members: list[Ours], what: Callable[[], object] = lambda: "") -> None:
    """Waits for what the members are told; other kinds of members are looked at between, a few times a second."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                waits = [asyncio.ensure_future(member.changed.wait()) for member in members]
                await asyncio.wait(waits, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                for member in members:
                    member.changed.clear()
                    member.group.polled()
    except TimeoutError:
        state = [(member.owned, member.group.member, member.errors, member.told[-6:]) for member in members]
        raise AssertionError(f"waited in vain: {state} {what()}") from None
