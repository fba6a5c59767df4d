"""A link that is cut passes nothing and tells nobody, and then everything."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from oncelog.chaos.relay import CLIENT, Relay, source_of
from oncelog.wire.follower_fetch import FollowerFetch, pack_follower_fetch

SILENCE_S = 0.2


@pytest.fixture
def relay() -> Iterator[Relay]:
    with closing(Relay()) as made:
        yield made


def fetch_of(client_id: str | None) -> bytes:
    return pack_follower_fetch(7, client_id, FollowerFetch(3, 1, 500, 1, 1000, -1, []))


def linked(relay: Relay, first: bytes) -> tuple[socket.socket, socket.socket]:
    """Both ends of a link to broker 1 on which this was said first, and has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = relay.reach_broker(1, server.getsockname()[1]).split(":")
        here = socket.create_connection((host, int(port)))
        here.sendall(first)
        there, _ = server.accept()
        assert there.recv(len(first), socket.MSG_WAITALL) == first
    here.settimeout(SILENCE_S)
    there.settimeout(SILENCE_S)
    return here, there


@pytest.mark.parametrize("client_id", ["broker-2", "consumer"])
def test_what_is_sent_while_a_link_is_cut_arrives_when_it_is_whole_again(relay: Relay, client_id: str) -> None:
    here, there = linked(relay, fetch_of(client_id))
    with here, there:
        relay.cut(1, are_clients_cut=True)
        here.sendall(b"up")
        there.sendall(b"down")
        for end in (here, there):
            with pytest.raises(TimeoutError):
                end.recv(1)
        relay.mend()
        for end, words in ((there, b"up"), (here, b"down")):
            end.settimeout(60)
            assert end.recv(len(words), socket.MSG_WAITALL) == words


def test_clients_may_still_reach_a_broker_that_others_do_not(relay: Relay) -> None:
    relay.cut(1, are_clients_cut=False)
    here, there = linked(relay, fetch_of("consumer"))
    with here, there:
        here.sendall(b"up")
        there.settimeout(60)
        assert there.recv(2, socket.MSG_WAITALL) == b"up"


def test_a_follower_is_known_by_its_first_request() -> None:
    assert source_of(fetch_of("broker-2")) == 2
    assert [source_of(fetch_of(each)) for each in (None, "", "broker-", "broker-x", "rdkafka")] == [CLIENT] * 5
    assert source_of(b"") == source_of(b"GET / HTTP/1.1") == CLIENT
