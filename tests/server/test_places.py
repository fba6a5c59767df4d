"""Which host has most connections, after any that came and went."""

import random

import pytest

from oncelog.server.places import Places


class Visitor:
    def __init__(self, host: str) -> None:
        self.client_host = host


def test_nobody_has_most_where_nobody_is() -> None:
    places: Places[Visitor] = Places()
    assert not places.most() and places.count("a") == 0
    places.discard(Visitor("a"))
    assert not places.most()


def test_who_comes_twice_is_there_once() -> None:
    places: Places[Visitor] = Places()
    visitor = Visitor("a")
    for _ in range(2):
        places.add(visitor)
    assert places.count("a") == 1
    for _ in range(2):
        places.discard(visitor)
    assert not places.most()


def test_of_those_who_have_as_many_it_is_who_has_had_them_for_longest() -> None:
    places: Places[Visitor] = Places()
    for host in ("a", "b", "b", "a"):
        places.add(Visitor(host))
    assert {each.client_host for each in places.most()} == {"b"}


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_counting_them_says(seed: int) -> None:
    chance, places, there = random.Random(seed), Places[Visitor](), list[Visitor]()
    for _ in range(300):
        if there and chance.random() < 0.5:
            places.discard(there.pop(chance.randrange(len(there))))
        else:
            there.append(Visitor(chance.choice("abcde")))
            places.add(there[-1])
        hosts = [each.client_host for each in there]
        counted = {host: hosts.count(host) for host in "abcde"}
        assert {host: places.count(host) for host in "abcde"} == counted
        assert len(places.most()) == max(counted.values())
        assert list(places.most()) == [each for each in there if each.client_host == _host_of(places)]


def _host_of(places: Places[Visitor]) -> str | None:
    return next((each.client_host for each in places.most()), None)
