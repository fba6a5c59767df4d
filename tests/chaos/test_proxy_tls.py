"""The proxy before brokers that speak TLS: it checks who they are, and hurts connections as it does without."""

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncelog.chaos.faults import Direction, Fault, Kind
from oncelog.chaos.proxy import FaultProxy
from tests.raw import RawConnection, ServerClosed
from tests.server.tls_support import World, new_world

FRAME_BYTES = 100


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


def test_clients_reach_the_brokers_without_tls_and_are_led_to_the_proxy(world: World) -> None:
    with world.serve() as server, FaultProxy(server.bootstrap_servers, tls=world.context()) as proxy:
        with RawConnection(proxy.bootstrap_servers) as raw:
            (broker,) = raw.call("metadata", 9, topics=[]).brokers
        assert f"{broker.host}:{int(broker.port)}" == proxy.bootstrap_servers


def test_a_broker_whose_certificate_is_refused_is_not_reached_and_named_once(world: World) -> None:
    strict = ssl.create_default_context(cafile=world.stranger.certificate)
    with world.serve() as server, FaultProxy(server.bootstrap_servers, tls=strict) as proxy:
        for _ in range(2):
            with pytest.raises((ServerClosed, OSError)), RawConnection(proxy.bootstrap_servers) as raw:
                raw.call("metadata", 9, topics=[])
        (words,) = proxy.unreadable
        assert server.bootstrap_servers in words
        assert "certificate is refused" in words


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        yield listener


def received(listener: socket.socket, world: World) -> tuple[int, bool]:
    """How many bytes came of one connection, and whether it ended with the goodbye of TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(world.server.certificate, world.server.key)
    accepted, _ = listener.accept()
    count = 0
    with context.wrap_socket(accepted, server_side=True, suppress_ragged_eofs=False) as reader:
        try:
            while data := reader.recv(1 << 16):
                count += len(data)
        except OSError:
            return count, False
    return count, True


def connected(proxy: FaultProxy) -> socket.socket:
    host, _, port = proxy.bootstrap_servers.partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_requests_pass_before_any_is_answered(world: World, broker: socket.socket) -> None:
    port = broker.getsockname()[1]
    with ThreadPoolExecutor(1) as thread, FaultProxy(f"127.0.0.1:{port}", tls=world.context()) as proxy:
        told = thread.submit(received, broker, world)
        with connected(proxy) as client:
            client.sendall((FRAME_BYTES.to_bytes(4, "big") + bytes(FRAME_BYTES)) * 10)
            client.shutdown(socket.SHUT_WR)
            assert told.result(30) == (10 * (4 + FRAME_BYTES), True)


# What a reset takes away of much that is on its way is the system's choice.
@pytest.mark.parametrize(("size_bytes", "is_reset"), [(FRAME_BYTES, True), (FRAME_BYTES, False), (1_000_000, False)])
def test_a_cut_comes_where_it_was_planned(
    world: World, broker: socket.socket, size_bytes: int, *, is_reset: bool
) -> None:
    fault = Fault(kind=Kind.CUT, counter="requests", at=1, direction=Direction.UP, part=0.5, is_reset=is_reset)
    port = broker.getsockname()[1]
    with ThreadPoolExecutor(1) as thread, FaultProxy(f"127.0.0.1:{port}", [fault], tls=world.context()) as proxy:
        told = thread.submit(received, broker, world)
        with connected(proxy) as client:
            client.sendall(size_bytes.to_bytes(4, "big") + bytes(size_bytes))
            assert told.result(30) == (proxy.happened[0].passed_bytes, not is_reset)
    assert 0 < proxy.happened[0].passed_bytes < size_bytes
