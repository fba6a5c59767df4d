"""What passes through the proxy, and what each fault does to it."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

import oncelog
from oncelog.chaos.faults import Direction, Fault, Kind, Sides
from oncelog.chaos.proxy import FaultProxy
from tests.lives.own_threads import own_threads
from tests.raw import RawConnection, batch
from tests.raw.connection import ServerClosed
from tests.waiting import until

UP, DOWN = Direction.UP, Direction.DOWN


@pytest.fixture(scope="module")
def server() -> Iterator[oncelog.Server]:
    with oncelog.Server() as started, RawConnection(started.bootstrap_servers) as raw:
        raw.create_topic("t")
        yield started


def stored(server: oncelog.Server) -> int:
    with RawConnection(server.bootstrap_servers) as raw:
        offset: int = raw.offset_at("t", 0, -1).offset
        return offset


def produce(raw: RawConnection, value: bytes = b"v") -> Any:
    return raw.produce("t", 0, batch([value]))


def cut(direction: Direction, **more: Any) -> Fault:
    return Fault(kind=Kind.CUT, counter="requests", at=10**9, direction=direction, api="produce", **more)


def test_everything_passes_unchanged_while_nothing_is_planned(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        before = stored(server)
        for number in range(50):
            assert produce(raw, bytes([number]) * 10_000).base_offset == before + number
        assert proxy.happened == []


def test_requests_in_flight_keep_their_order(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        for _ in range(100):
            raw.ask_produce("t", 0, batch([b"v"]))
        offsets = [raw.produce_answer().base_offset for _ in range(100)]
        assert offsets == list(range(offsets[0], offsets[0] + 100))


def test_clients_are_led_to_the_proxy(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        (broker,) = raw.call("metadata", 12, topics=[]).brokers
        assert f"{broker.host}:{broker.port}" == proxy.bootstrap_servers != server.bootstrap_servers


def test_a_request_that_is_cut_is_not_stored_and_one_whose_answer_is_cut_is(server: oncelog.Server) -> None:
    for direction, part, stored_count in ((UP, 0.9, 0), (UP, 0.0, 0), (DOWN, 0.0, 1), (DOWN, 0.9, 1)):
        before = stored(server)
        with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
            proxy.inject(cut(direction, part=part))
            with pytest.raises(ServerClosed):
                produce(raw)
            (happened,) = proxy.happened
            assert happened.hit_work
        assert stored(server) - before == stored_count


def test_exactly_the_planned_byte_of_the_stream_is_the_last_one(server: oncelog.Server) -> None:
    fault = Fault(kind=Kind.CUT, counter="down bytes", at=11, direction=DOWN, is_reset=False)
    with FaultProxy(server.bootstrap_servers, [fault]) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        raw.ask("api_versions", 0)
        got = b""
        while chunk := raw.socket.recv(100):
            got += chunk
        assert len(got) == 11
        assert proxy.happened[0].passed_bytes == 11


def test_a_swallowed_answer_was_stored_and_the_connection_ends(server: oncelog.Server) -> None:
    before = stored(server)
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        proxy.inject(Fault(kind=Kind.SWALLOW, counter="answers", at=1, api="produce", frames=2))
        with raw.in_one_piece():  # a proxy that has seen one request ends the connection with its answer
            for _ in range(3):
                raw.ask_produce("t", 0, batch([b"v"]))
        with pytest.raises(ServerClosed):
            raw.produce_answer()
    assert stored(server) - before >= 2


def test_a_swallow_of_more_answers_than_there_will_be_ends_with_the_last_one(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        proxy.inject(Fault(kind=Kind.SWALLOW, counter="answers", at=1, api="produce", frames=50))
        with pytest.raises(ServerClosed):
            produce(raw)


def test_a_cut_that_only_the_server_is_told_of_leaves_the_client_waiting(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers, timeout_s=0.2) as raw:
        proxy.inject(cut(UP, sides=Sides.SERVER))
        with pytest.raises(TimeoutError):
            produce(raw)
        until(lambda: proxy.happened, "the server to be told")
        assert proxy.open_connections == 1
        raw.close()
        until(lambda: proxy.open_connections == 0, "the proxy to let go of it")


def test_a_cut_that_only_the_client_is_told_of_leaves_the_server_at_work(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        proxy.inject(cut(UP, sides=Sides.CLIENT))
        with pytest.raises(ServerClosed):
            produce(raw)
        assert proxy.open_connections == 1


def test_a_stall_passes_nothing_one_way_and_everything_the_other_way(server: oncelog.Server) -> None:
    before = stored(server)
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers, timeout_s=0.2) as raw:
        proxy.inject(Fault(kind=Kind.STALL, counter="answers", at=1, direction=DOWN))
        for _ in range(2):
            with pytest.raises(TimeoutError):
                produce(raw)
        until(lambda: stored(server) == before + 2, "both to be stored")


def test_a_stall_for_a_while_delivers_afterwards(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        proxy.inject(Fault(kind=Kind.STALL, counter="answers", at=1, direction=DOWN, ms=20))
        assert produce(raw).error_code == 0
        assert [each.fault.kind for each in proxy.happened] == [Kind.STALL]


def test_delayed_frames_arrive_late_and_in_order(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        proxy.inject(Fault(kind=Kind.DELAY, counter="answers", at=1, direction=DOWN, ms=10, frames=3))
        for _ in range(5):
            raw.ask_produce("t", 0, batch([b"v"]))
        offsets = [raw.produce_answer().base_offset for _ in range(5)]
        assert offsets == sorted(offsets)
        assert [each.fault.kind for each in proxy.happened] == [Kind.DELAY]


def test_a_refusal_ends_the_connection_and_so_many_new_ones(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        raw.call("api_versions", 0)  # it is let in before
        proxy.inject(Fault(kind=Kind.REFUSE, counter="requests", at=1, direction=UP, connections=2))
        with pytest.raises(ServerClosed):
            produce(raw)
        outcomes = [is_let_in(proxy) for _ in range(3)]
        assert outcomes == [False, False, True]


def test_new_connections_are_refused_for_as_long_as_asked(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy:
        proxy.refuse()
        assert not is_let_in(proxy)
        proxy.refuse(False)
        assert is_let_in(proxy)


def is_let_in(proxy: FaultProxy) -> bool:
    try:
        with RawConnection(proxy.bootstrap_servers) as raw:
            raw.call("api_versions", 0)
            return True
    except (OSError, EOFError):
        return False


def test_all_connections_can_be_cut_at_once(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy:
        several = [RawConnection(proxy.bootstrap_servers) for _ in range(3)]
        for raw in several:
            raw.call("api_versions", 0)
        assert proxy.cut_all() == 3
        for raw in several:
            with pytest.raises((ServerClosed, ConnectionError)):
                raw.call("api_versions", 0)
            raw.close()


def test_a_fault_may_end_all_connections(server: oncelog.Server) -> None:
    with (
        FaultProxy(server.bootstrap_servers) as proxy,
        RawConnection(proxy.bootstrap_servers) as one,
        RawConnection(proxy.bootstrap_servers) as other,
    ):
        other.call("api_versions", 0)
        proxy.inject(cut(DOWN, is_everywhere=True))
        with pytest.raises(ServerClosed):
            produce(one)
        with pytest.raises((ServerClosed, ConnectionError)):
            other.call("api_versions", 0)


def test_faults_can_be_keyed_to_what_the_experiment_counts(server: oncelog.Server) -> None:
    fault = Fault(kind=Kind.CUT, counter="confirmed", at=1000, direction=DOWN, api="produce")
    with FaultProxy(server.bootstrap_servers, [fault]) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        proxy.count("confirmed", 999)
        produce(raw)
        proxy.count("confirmed")
        with pytest.raises(ServerClosed):
            produce(raw)
        assert (proxy.planned, proxy.happened[0].number) == ((fault,), 0)
        assert proxy.happened[0].counts["confirmed"] == 1000


def test_a_server_that_is_not_there_ends_the_clients_connection() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with FaultProxy(f"127.0.0.1:{nobody.getsockname()[1]}") as proxy:
            assert not is_let_in(proxy)


def test_bytes_that_are_no_frame_are_recorded_and_not_passed_on(server: oncelog.Server) -> None:
    with FaultProxy(server.bootstrap_servers) as proxy, RawConnection(proxy.bootstrap_servers) as raw:
        raw.socket.sendall(struct.pack(">i", -7))
        assert raw.socket.recv(1) == b""
        assert proxy.unreadable == [
            f"{('127.0.0.1', int(server.bootstrap_servers.split(':')[1]))}: a frame of -7 bytes"
        ]


def test_a_stop_leaves_no_listener_no_connection_and_no_thread(server: oncelog.Server) -> None:
    before = own_threads()
    with FaultProxy(server.bootstrap_servers) as proxy:
        address = proxy.bootstrap_servers
        raw = RawConnection(address)
        raw.call("api_versions", 0)
        proxy.inject(Fault(kind=Kind.STALL, counter="answers", at=1, direction=DOWN))
        raw.ask("api_versions", 0)
    assert own_threads() <= before
    with pytest.raises((ServerClosed, ConnectionError)):
        raw.answer()
    raw.close()
    with pytest.raises(ConnectionRefusedError):
        RawConnection(address)
