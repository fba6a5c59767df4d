"""Large answers that go from the segment to the socket: every byte, in order, whatever the client does meanwhile."""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.clock import Now
from oncelog.embedded import Server
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk, RealDisk
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.log.slices import Slice
from oncelog.producers import ProducerMap
from oncelog.records.header import read_header
from oncelog.server.connection import Connection
from oncelog.server.errors import ErrorCode
from oncelog.server.straight import LONG_RUN_ANSWERS, TRIAL_ANSWERS, Pace, Straight
from tests.log.memory_disk import MemoryDisk
from tests.raw import RawConnection, ServerClosed, batch, encode_request, make, message
from tests.raw.topics import new_topic
from tests.waiting import until

MEGABYTE = 1 << 20
LARGE = batch([bytes(range(256)) * 400] * 8)  # some 800 KB


@pytest.fixture(params=[True, False], ids=["straight", "read"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways must give the same bytes; which is taken otherwise depends on time."""
    monkeypatch.setattr(Pace, "is_straight", lambda self, size_bytes: request.param)
    return bool(request.param)


@pytest.fixture
def always_straight(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many bytes the socket took at once, for each slice."""
    taken: list[int] = []
    send_to = Slice.send_to

    def noted(self: Slice, socket_fd: int) -> int:
        taken.append(send_to(self, socket_fd))
        return taken[-1]

    monkeypatch.setattr(Pace, "is_straight", lambda self, size_bytes: True)
    monkeypatch.setattr(Slice, "send_to", noted)
    yield taken


def stored(server: Server, topic: str, index: int = 0) -> bytes:
    partition = server.broker.topics.partition(topic, index)
    assert partition is not None
    data: bytes = server.call(partition.log.read, 0, 1 << 30)
    return data


def fill(raw: RawConnection, topic: str, batches: int, index: int = 0) -> None:
    for _ in range(batches):
        assert raw.produce(topic, index, LARGE).error_code is ErrorCode.none


def ask(raw: RawConnection, topics: list[Any], version: int = 11, **more: Any) -> None:
    values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 50 * MEGABYTE, "session_epoch": -1, "topics": topics, **more}
    raw.ask("fetch", version, **values)


def part(index: int = 0, max_bytes: int = 50 * MEGABYTE) -> dict[str, Any]:
    return {"partition": index, "fetch_offset": 0, "partition_max_bytes": max_bytes, "current_leader_epoch": -1}


@pytest.mark.parametrize("version", [9, 11, 12, 17])
def test_every_byte_of_several_partitions_arrives(server: Server, raw: RawConnection, way: bool, version: int) -> None:
    topic = new_topic(raw, 3)
    fill(raw, topic, 3, index=0)
    raw.produce(topic, 1, batch([b"little"]))
    fill(raw, topic, 2, index=2)
    found = server.broker.topics.get(topic)
    assert found is not None
    name: dict[str, Any] = {"topic_id": found.id} if version >= 13 else {"topic": topic}
    partitions = [part(index) for index in range(3)]
    ask(raw, [{**name, "partitions": partitions}], version)
    answer = raw.answer()
    got = [each.records for each in answer.responses[0].partitions]
    assert got == [stored(server, topic, index) for index in range(3)]


def test_answers_keep_the_order_of_the_requests(server: Server, raw: RawConnection, topic: str, way: bool) -> None:
    fill(raw, topic, 2)
    wanted = [{"topic": topic, "partitions": [part()]}]
    for _ in range(5):
        raw.ask("api_versions", 0)
        ask(raw, wanted)
        ask(raw, wanted, version=12)
    for _ in range(5):
        assert raw.answer().api_keys
        for _ in range(2):
            assert raw.answer().responses[0].partitions[0].records == stored(server, topic)


def test_the_bytes_sent_are_counted_once(server: Server, raw: RawConnection, topic: str, way: bool) -> None:
    fill(raw, topic, 2)
    before = server.broker.metrics.bytes_sent
    ask(raw, [{"topic": topic, "partitions": [part()]}])
    data = raw.receive_bytes()
    assert server.call(lambda: server.broker.metrics.bytes_sent) - before == 4 + len(data)


def test_a_slow_reader_gets_every_byte_and_holds_no_more_than_the_rest(
    server: Server, topic: str, raw: RawConnection, always_straight: list[int]
) -> None:
    fill(raw, topic, 12)
    whole = stored(server, topic)
    with slow_connection(server) as slow:
        for _ in range(3):
            ask(slow, [{"topic": topic, "partitions": [part()]}])
        until(lambda: server.broker.memory.unsent.held_bytes > 0, "the server to wait for the client")
        assert len(always_straight) == 1, "nothing more is served while the first answer is not taken"
        assert 0 < always_straight[0] < len(whole), "the socket takes a part"
        assert server.broker.memory.unsent.held_bytes <= len(whole) + 1000 - always_straight[0]
        for _ in range(3):
            assert slow.answer().responses[0].partitions[0].records == whole
    until(lambda: server.broker.memory.unsent.held_bytes == 0, "nothing to be held")


def test_what_is_promised_to_a_slow_reader_survives_its_segment(
    raw: RawConnection, always_straight: list[int], server: Server
) -> None:
    """Retention may remove the file while the answer is on its way."""
    topic = new_topic(raw)
    fill(raw, topic, 12)
    whole = stored(server, topic)
    with slow_connection(server) as slow:
        ask(slow, [{"topic": topic, "partitions": [part()]}])
        until(lambda: server.broker.memory.unsent.held_bytes > 0, "the server to wait for the client")
        assert 0 < always_straight[0] < len(whole)
        assert raw.delete_topic(topic) is ErrorCode.none
        assert slow.answer().responses[0].partitions[0].records == whole


def test_a_client_that_hangs_up_in_the_middle_disturbs_nobody(
    server: Server, raw: RawConnection, topic: str, always_straight: list[int]
) -> None:
    fill(raw, topic, 12)
    open_before = server.call(lambda: server.broker.metrics.connections_open)
    for reset in (True, False):
        slow = slow_connection(server)
        for _ in range(3):
            ask(slow, [{"topic": topic, "partitions": [part()]}])
        until(lambda: server.broker.memory.unsent.held_bytes > 0, "the server to wait for the client")
        if reset:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        slow.close()
        until(lambda: server.broker.memory.unsent.held_bytes == 0, "what was held to be given back")
        until(lambda: server.broker.metrics.connections_open == open_before, "the connection to be gone")
    assert raw.fetch(topic, 0, 0).records == stored(server, topic)


def test_a_fetch_that_waited_is_answered_with_every_byte(server: Server, raw: RawConnection, topic: str) -> None:
    """Its answer leaves a turn later than it was made, so nothing in it may refer to a segment."""
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    ask(raw, [{"topic": topic, "partitions": [part()]}], max_wait=60_000)
    until(lambda: len(partition.polls) == 1, "the fetch to wait")
    with RawConnection(server.bootstrap_servers) as other:
        fill(other, topic, 1)
    assert raw.answer().responses[0].partitions[0].records == stored(server, topic)


def test_a_fetch_that_was_read_aside_is_answered_with_every_byte(
    server: Server, raw: RawConnection, topic: str, always_straight: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served as one that comes in then: what it finds is sent in the turn in which it is found."""
    fill(raw, topic, 1)
    monkeypatch.setattr("oncelog.server.connection.is_loaded", lambda name, version: False)
    ask(raw, [{"topic": topic, "partitions": [part()]}])
    assert raw.answer().responses[0].partitions[0].records == stored(server, topic)
    assert always_straight


def test_a_file_that_lost_its_end_costs_the_connection_and_then_answers_an_error_or_less(
    server: Server, raw: RawConnection, topic: str, always_straight: list[int]
) -> None:
    fill(raw, topic, 2)
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    path = partition.log.segments[0].log_path
    os.truncate(path, os.path.getsize(path) - 1000)
    with RawConnection(server.bootstrap_servers) as other, pytest.raises(ServerClosed):
        other.fetch(topic, 0, 0)
    assert len(raw.fetch(topic, 0, 0).records) == 2 * len(LARGE) - 1000


class BusyTransport:
    """One that has still something to send."""

    def __init__(self) -> None:
        self.written = b""
        self.socket, self.other_end = socket.socketpair()

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self.socket if name == "socket" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """As asyncio's."""

    def get_write_buffer_size(self) -> int:
        return 1

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, buffers: list[bytes]) -> None:
        self.written += b"".join(buffers)


def test_nothing_overtakes_what_the_transport_has_still_to_send(
    server: Server, raw: RawConnection, topic: str, always_straight: list[int]
) -> None:
    fill(raw, topic, 1)
    whole = stored(server, topic)
    kind = message("fetch", 11)
    request = make(
        kind.request, {"session_epoch": -1, "max_bytes": MEGABYTE, "topics": [{"topic": topic, "partitions": [part()]}]}
    )
    payload = encode_request(kind, request, 1)
    frame = struct.pack(">i", len(payload)) + payload
    transport = BusyTransport()

    def ask_twice() -> None:
        connection = Connection(server.service.connections, server.broker.endpoints[0])
        connection.connection_made(cast(Any, transport))
        cast(memoryview, connection.get_buffer(-1))[: 2 * len(frame)] = 2 * frame
        connection.buffer_updated(2 * len(frame))
        connection.connection_lost(None)

    with transport.socket, transport.other_end:
        server.call(ask_twice)
    assert transport.written.count(whole) == 2
    assert always_straight == []


def slow_connection(server: Server) -> RawConnection:
    """One whose socket takes little, so that the server's soon takes no more."""
    raw = RawConnection(server.bootstrap_servers)
    raw.socket.close()
    host, _, port = server.bootstrap_servers.rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    sock.settimeout(30)
    sock.connect((host, int(port)))
    raw.socket = sock
    return raw


# The log's half


def log_with(disk: Disk, folder: str) -> PartitionLog:
    log = PartitionLog.open(disk, folder, LogConfig(), ProducerMap(), Now(1, 1))
    for _ in range(3):
        data = bytearray(LARGE)
        log.append(data, read_header(data), Now(1, 1))
    return log


@pytest.fixture(params=["real", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> PartitionLog:
    return log_with(RealDisk() if request.param == "real" else MemoryDisk(), str(tmp_path / "t-0"))


def test_a_socket_that_takes_a_part_gets_the_rest_by_reading(log: PartitionLog) -> None:
    whole = log.read(0, 1 << 30)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        got = bytearray()
        while len(got) < len(whole):
            found = log.find(0, 1 << 30)
            assert found is not None
            assert len(found) == len(whole)
            taken = found.send_to(ours.fileno())
            assert 0 < taken < len(whole)
            assert found.send_to(ours.fileno()) == 0, "there is no room"
            received = receive(theirs, taken)
            assert received + found.rest(taken) == whole
            got += received + found.rest(taken)


def test_a_socket_that_is_gone_takes_nothing_and_raises_nothing(log: PartitionLog) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    found = log.find(0, 1 << 30)
    assert found is not None
    assert found.send_to(ours.fileno()) == 0
    ours.close()


def test_what_was_promised_and_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    log = log_with(RealDisk(), str(tmp_path / "t-0"))
    found = log.find(0, 1 << 30)
    assert found is not None
    assert found.is_sendable
    os.truncate(log.segments[0].log_path, 1000)
    with pytest.raises(LogStorageError, match="are missing"):
        found.rest(10)
    assert not found.is_sendable, "the next reader is answered by the plain way"


def test_head_records_and_tail_leave_in_order_however_little_the_socket_takes(log: PartitionLog) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        straight = Straight(ours.fileno(), ours.family, ours.type, ours.proto)
        found = log.find(0, 1 << 30)
        assert found is not None
        expected = b"head" + found.read() + b"tail"
        sent, left = straight.send([b"head", found, b"tail"])
        assert 4 < sent < len(expected)
        assert receive(theirs, sent) + b"".join(left) == expected
        assert straight.send([bytearray(b"head"), b"tail"]) == (8, [])
        straight.let_go()
        assert receive(theirs, 8) == b"headtail", "the descriptor is not closed by letting go"


def receive(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        got += sock.recv(size - len(got))
    return bytes(got)


# Which way is the faster one


class Client:
    """Asks again after a time that depends on the way in which it was answered."""

    def __init__(self, straight_s: float, read_s: float) -> None:
        self.now_s = 1000.0
        self.straight_s, self.read_s = straight_s, read_s
        self.pace = Pace(lambda: self.now_s)

    def ways(self, answers: int) -> list[bool]:
        found = []
        for _ in range(answers):
            found.append(self.pace.is_straight(MEGABYTE))
            self.now_s += self.straight_s if found[-1] else self.read_s
        return found


ROUND = LONG_RUN_ANSWERS + TRIAL_ANSWERS


@pytest.mark.parametrize("is_straight_faster", [True, False])
def test_most_answers_go_the_faster_way(is_straight_faster: bool) -> None:
    client = Client(*((3e-4, 4e-4) if is_straight_faster else (4e-4, 3e-4)))
    client.ways(ROUND)
    assert client.ways(10 * ROUND).count(is_straight_faster) >= 10 * LONG_RUN_ANSWERS


def test_a_connection_notices_that_the_other_way_has_become_faster() -> None:
    client = Client(3e-4, 4e-4)
    client.ways(5 * ROUND)
    client.straight_s = 8e-4
    client.ways(2 * ROUND)
    assert client.ways(10 * ROUND).count(False) >= 10 * LONG_RUN_ANSWERS


def test_a_client_that_takes_its_time_is_answered_straight_and_by_reading_without_a_judgement() -> None:
    client = Client(1.0, 1.0)
    ways = client.ways(3 * ROUND)
    assert {True, False} == set(ways)
