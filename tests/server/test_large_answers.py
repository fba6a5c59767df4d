"""What each kind of request owes the others: much in an answer, or many questions about rights, hold nobody else up."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, get_args, get_origin

import pytest

from oncelog.server.api import Api, apis
from oncelog.server.call import Call
from oncelog.server.memory import Memory
from tests.raw import message
from tests.server.groups.support import House
from tests.server.topics_support import AlwaysOver

# What they name is the server's own, and little; or it is packed by code of its own.
OF_ITS_OWN = {"produce", "fetch", "api_versions", "describe_cluster"}


def names_much(api: Api) -> bool:
    response = message(api.name, api.versions[1]).response
    arrays = [get_args(each.type)[0] for each in fields(response) if get_origin(each.type) is tuple]
    return any(is_dataclass(each) for each in arrays)


@pytest.mark.parametrize("api", [each for each in apis().values() if names_much(each)], ids=lambda api: str(api.name))
def test_an_answer_with_an_entry_for_each_of_a_request_is_put_into_bytes_by_a_thread(api: Api) -> None:
    is_packed_aside = getattr(api.handle, "__wrapped__", None) is not None
    assert is_packed_aside or api.name in OF_ITS_OWN


ALL = {
    "metadata": {"topics": None},
    "describe_topic_partitions": {"topics": (), "cursor": None, "response_partition_limit": 1},
}


@pytest.mark.parametrize("name", ALL)
def test_what_a_client_may_know_of_all_topics_is_asked_in_turns(name: str) -> None:
    house = House()
    for number in range(20):
        house.make_topic(f"t{number}")
    left: list[int] = []
    turns = AlwaysOver(lambda: 0)

    async def others() -> None:
        left.append(1)

    turns.next = others  # type: ignore[method-assign]
    asked: set[int] = set()

    def may(*about: object) -> bool:
        asked.add(len(left))
        return False

    async def until_nobody_is_missed() -> None:
        pass

    cluster = SimpleNamespace(until_nobody_is_missed=until_nobody_is_missed, lost=())
    broker: Any = SimpleNamespace(
        topics=house.topics,
        turns=turns,
        memory=Memory(-1),
        cluster=cluster,
        cluster_id="c",
        node_id=1,
        brokers=lambda *who, also=(): (),
    )
    (api,) = [each for each in apis().values() if each.name == name]
    call = Call(broker, name, api.versions[1], "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    call.rights = SimpleNamespace(may=may, operations=lambda *about: 0)
    handle: Callable[[Any, Call], Awaitable[Any]] | None = api.handle
    assert handle is not None
    asyncio.run(handle(SimpleNamespace(**ALL[name]), call))  # type: ignore[arg-type]
    assert len(asked) >= 20
