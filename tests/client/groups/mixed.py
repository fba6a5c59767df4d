"""Groups in which our members and librdkafka's stand side by side, coming and going."""

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.client.groups.support import CONSUMER, Ours, speaking, until

PARTITIONS = 6


def make_topic(servers: str, name: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


class Theirs:
    """A librdkafka consumer, polled by a task of its own; what it owns is told by its callbacks."""

    def __init__(self, servers: str, topic: str, assignor: str, **more: object) -> None:
        self.owned: set[int] = set()
        self.errors: list[str] = []
        self._is_cooperative = assignor in ("cooperative-sticky", CONSUMER)
        self._is_closing = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": topic,
                **speaking(assignor),
                "enable.auto.commit": False,
                **more,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        self._polling = asyncio.get_running_loop().run_in_executor(None, self._poll)

    def _assign(self, consumer: Any, partitions: Any) -> None:
        found = {each.partition for each in partitions}
        self.owned = self.owned | found if self._is_cooperative else found

    def _revoke(self, consumer: Any, partitions: Any) -> None:
        self.owned = self.owned - {each.partition for each in partitions}

    def _poll(self) -> None:
        while not self._is_closing.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
        self.consumer.close()

    async def __aenter__(self) -> "Theirs":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._is_closing.set()
        await self._polling
        self.owned = set()


def are_shared(ours: list[Ours], theirs: list[Theirs], partitions: int = PARTITIONS) -> bool:
    """Every partition with one member, every member with as many as the next, and our members settled."""
    shares = [*(member.numbers for member in ours), *(member.owned for member in theirs)]
    given = sorted(partition for share in shares for partition in share)
    sizes = {len(share) for share in shares}
    return (
        given == list(range(partitions))
        and max(sizes) - min(sizes) <= 1
        and all(member.group.is_steady for member in ours)
    )


async def come_and_go(servers: str, topic: str, assignor: str) -> None:
    """Ours first and theirs first, each leading for a while, until one is alone again."""
    async with AsyncExitStack() as stack:

        async def shared(*members: Ours | Theirs) -> None:
            ours = [member for member in members if isinstance(member, Ours)]
            theirs = [member for member in members if isinstance(member, Theirs)]
            await until(
                lambda: are_shared(ours, theirs), ours, lambda: [(member.owned, member.errors) for member in theirs]
            )

        async def ours_comes() -> Ours:
            member = await stack.enter_async_context(Ours(servers, topic, assignor))
            member.group.subscribe([topic])
            return member

        async def theirs_comes() -> Theirs:
            return await stack.enter_async_context(Theirs(servers, topic, assignor))

        first = await ours_comes()
        await shared(first)
        second = await theirs_comes()
        await shared(first, second)  # ours leads, theirs follows
        third = await ours_comes()
        await shared(first, second, third)
        await first.close()
        await shared(second, third)
        fourth = await theirs_comes()
        await shared(second, third, fourth)
        await third.close()
        fifth = await ours_comes()
        await shared(second, fourth, fifth)  # theirs leads, ours follows
        await second.close()
        await fourth.close()
        await shared(fifth)
        assert [member.errors for member in (first, third, fifth)] == [[], [], []]
        assert all(told[0] != "lost" for member in (first, third, fifth) for told in member.told)
        await fifth.close()
        assert all(member.owned == set() for member in (first, third, fifth))
