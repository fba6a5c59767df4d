"""Connections that have not proven who they are: how many there may be, and how long."""

import pytest

from oncelog.server.strangers import STRANGER_MS, Strangers


class Visitor:
    def __init__(self, host: str) -> None:
        self.client_host = host
        self.why = ""

    def turn_away(self, why: str) -> None:
        self.why = why


@pytest.fixture
def visitors() -> list[Visitor]:
    return [Visitor(host) for host in ("a", "b", "b", "a", "b", "c")]


async def test_the_oldest_of_the_host_that_has_most_makes_room(visitors: list[Visitor]) -> None:
    strangers = Strangers(lambda: 0, most=len(visitors))
    for each in visitors:
        strangers.add(each)
    for closed in (1, 0):  # of b, and then of a, which was there before b
        strangers.add(Visitor("new"))
        assert [bool(each.why) for each in visitors].index(True) in (0, 1) and visitors[closed].why
        assert len(strangers) == len(visitors)
    assert sum(bool(each.why) for each in visitors) == 2


async def test_who_has_proven_it_makes_no_room(visitors: list[Visitor]) -> None:
    strangers = Strangers(lambda: 0)
    for each in visitors:
        strangers.add(each)
    for each in visitors:
        strangers.discard(each)
        strangers.discard(each)
    assert not strangers.make_room() and len(strangers) == 0
    assert not any(each.why for each in visitors)


async def test_each_has_so_long_and_no_longer(visitors: list[Visitor]) -> None:
    now_ms = 0
    strangers = Strangers(lambda: now_ms)
    for each in visitors:
        strangers.add(each)
        now_ms += 1000
    strangers.close_late(STRANGER_MS - 1)
    assert not any(each.why for each in visitors)
    strangers.close_late(STRANGER_MS + 1000)
    assert [bool(each.why) for each in visitors] == [True, True, False, False, False, False]


async def test_one_customer_is_one_host() -> None:
    strangers = Strangers(lambda: 0, most=3)
    lone, others = Visitor("10.0.0.1"), [Visitor(f"2001:db8::{number}") for number in range(4)]
    for each in (lone, *others):
        strangers.add(each)
    assert not lone.why and [bool(each.why) for each in others] == [True, True, False, False]


async def test_many_of_them_take_no_time_to_be_looked_at() -> None:
    """The sweep stops at the first that is in time, and room is made by hosts, of which there are no more."""
    strangers = Strangers(lambda: 0, most=512)
    for number in range(2000):
        strangers.add(Visitor(f"host{number}"))
    assert len(strangers) == 512
