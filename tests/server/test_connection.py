"""What a connection does with bytes: in order, in any pieces, and never more than its own harm."""

import logging
import struct
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.embedded import Server
from oncelog.server.connections import LineLimit
from oncelog.server.errors import ErrorCode
from tests.logged import messages
from tests.raw import RawConnection, ServerClosed, batch, encode_request, make, message
from tests.raw.topics import new_topic
from tests.server.sasl_support import TurnedClock
from tests.waiting import until

Payload = bytes
IDLE_MS = 600_000  # by default


def metadata_frame(correlation_id: int = 1, version: int = 9) -> bytes:
    kind = message("metadata", version)
    values = {"topics": [], "allow_auto_topic_creation": False}
    payload = encode_request(kind, make(kind.request, values), correlation_id)
    return struct.pack(">i", len(payload)) + payload


def produce_frame(topic: str, records: bytes, correlation_id: int, *, acks: int = -1, version: int = 9) -> bytes:
    kind = message("produce", version)
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    payload = encode_request(kind, make(kind.request, values), correlation_id)
    return struct.pack(">i", len(payload)) + payload


def correlation_of(answer: bytes) -> int:
    return int(struct.unpack_from(">i", answer)[0])


def assert_closed(connection: RawConnection) -> None:
    with pytest.raises(ServerClosed):
        connection.receive_bytes()


def assert_alive(connection: RawConnection) -> None:
    assert connection.call("metadata", 9, topics=[], allow_auto_topic_creation=False).brokers


# In order, in any pieces


def test_answers_come_in_the_order_of_the_requests(raw: RawConnection, topic: str) -> None:
    frames = [
        produce_frame(topic, batch([b"x"]), number) if number % 3 else metadata_frame(number) for number in range(100)
    ]
    raw.socket.sendall(b"".join(frames))
    assert [correlation_of(raw.receive_bytes()) for _ in frames] == list(range(100))


def test_pipelined_batches_get_consecutive_offsets(raw: RawConnection, topic: str) -> None:
    for _ in range(50):
        raw.ask_produce(topic, 0, batch([b"a", b"b"]))
    assert [raw.produce_answer().base_offset for _ in range(50)] == list(range(0, 100, 2))


def test_a_frame_may_arrive_byte_by_byte(raw: RawConnection, topic: str) -> None:
    frame = produce_frame(topic, batch([b"slow"]), 5)
    for at in range(len(frame)):
        raw.socket.sendall(frame[at : at + 1])
    assert correlation_of(raw.receive_bytes()) == 5
    assert raw.fetch(topic, 0, 0).high_watermark == 1


@pytest.mark.parametrize("value_bytes", [1, 30_000, 33_000, 70_000, 300_000, 1_000_000])
def test_frames_of_every_size_keep_their_order_and_their_bytes(raw: RawConnection, value_bytes: int) -> None:
    topic = new_topic(raw)
    sent = [batch([bytes([number]) * value_bytes]) for number in range(5)]
    small = batch([b"small"])
    for each in sent:
        raw.ask_produce(topic, 0, each)
        raw.ask_produce(topic, 0, small)
    answers = [raw.produce_answer() for _ in range(10)]
    assert [answer.base_offset for answer in answers] == list(range(10))
    for number, each in enumerate(sent):
        stored = raw.fetch(topic, 0, number * 2, partition_max_bytes=len(each), max_bytes=len(each)).records
        assert stored[17:] == each[17:]  # everything behind what the log stamps


def ask_and_wait(server: Server, raw: RawConnection, topic: str) -> None:
    """A fetch that is answered when there is something."""
    wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    raw.ask(
        "fetch",
        11,
        replica_id=-1,
        max_wait=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [wanted]}],
        forgotten_topics_data=[],
    )
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    until(lambda: len(partition.polls) == 1, "the fetch to wait")


def test_a_waiting_fetch_holds_back_what_is_behind_it(server: Server, raw: RawConnection, topic: str) -> None:
    ask_and_wait(server, raw, topic)
    raw.ask("metadata", 9, topics=[], allow_auto_topic_creation=False)
    with RawConnection(server.bootstrap_servers) as other:
        other.produce(topic, 0, batch([b"wake"]))
    assert raw.answer().responses[0].partitions[0].high_watermark == 1
    assert raw.answer().brokers


def test_behind_a_waiting_request_only_so_much_is_kept(server: Server, raw: RawConnection, topic: str) -> None:
    """The rest stays in the sockets until the client, too, must stop sending."""
    ask_and_wait(server, raw, topic)
    raw.socket.settimeout(0.5)
    frame = metadata_frame()
    sent_bytes = 0
    with pytest.raises(TimeoutError):
        while sent_bytes < 64 << 20:
            sent_bytes += raw.socket.send(frame * 100)
    held = server.call(lambda: max(each.kept_bytes for each in server.service.connections.each()))
    assert held <= 512 * 1024
    assert sent_bytes < 64 << 20


def test_a_client_that_does_not_read_stops_being_served(server: Server, raw: RawConnection, topic: str) -> None:
    """What it asks for must not pile up in memory: one answer above the mark, not thousands."""
    raw.produce(topic, 0, batch([b"x" * 900_000]))
    with RawConnection(server.bootstrap_servers) as slow:
        for _ in range(60):
            wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            slow.ask(
                "fetch",
                11,
                replica_id=-1,
                max_wait=0,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[{"topic": topic, "partitions": [wanted]}],
                forgotten_topics_data=[],
            )
        until(lambda: server.broker.memory.unsent.held_bytes > 0, "the server to wait for the client")
        assert_alive(raw)  # by now the server has had time to do too much
        assert server.call(lambda: max(each.write_buffer_bytes for each in server.service.connections.each())) < 4 << 20
        assert_alive(raw)
        for _ in range(60):
            assert len(slow.answer().responses[0].partitions[0].records) > 900_000
    until(lambda: server.broker.memory.unsent.held_bytes == 0, "the account of unsent bytes to be empty")


def test_acks_0_gets_no_answer(raw: RawConnection, topic: str) -> None:
    raw.ask_produce(topic, 0, batch([b"quiet"]), acks=0)
    assert raw.produce(topic, 0, batch([b"loud"])).base_offset == 1


def test_a_failed_acks_0_closes_the_connection(raw: RawConnection) -> None:
    raw.ask_produce("no-such-topic", 0, batch([b"quiet"]), acks=0)
    assert_closed(raw)


# Bad input: only its own connection


def size(number: int) -> bytes:
    return struct.pack(">i", number)


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhi", key, version, 1) + b"\x00\x01x"


DEEP_ARRAYS = header(3, 1) + struct.pack(">i", 2**31 - 1) * 8
BAD_FRAMES = {
    "garbage": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a negative length": size(-1),
    "the lowest length": size(-(2**31)),
    "an empty frame": size(0),
    "a frame without room for a header": size(7) + b"\x00" * 7,
    "a frame over the limit": size(2**31 - 1) + b"x" * 100,
    "an unknown key": size(10) + struct.pack(">hhi", 9999, 0, 1) + b"\xff\xff",
    "a negative key": size(10) + struct.pack(">hhi", -1, 0, 1) + b"\xff\xff",
    "a version that is too new": size(10) + struct.pack(">hhi", 3, 99, 1) + b"\xff\xff",
    "a negative version": size(10) + struct.pack(">hhi", 3, -1, 1) + b"\xff\xff",
    "an old produce version": size(10) + struct.pack(">hhi", 0, 2, 1) + b"\xff\xff",
    "a client id beyond the frame": size(10) + struct.pack(">hhi", 3, 9, 1) + b"\x7f\xff",
    "a body that stops": size(11) + header(3, 1),
    "huge arrays": size(len(DEEP_ARRAYS)) + DEEP_ARRAYS,
    "a produce body that stops": size(11) + header(0, 3),
    "a produce request of garbage": size(111) + header(0, 9) + b"\x7f" * 100,
    "a produce request of huge arrays": size(29) + header(0, 3) + b"\xff\xff\xff\xff" + b"\x00" * 4 + b"\x7f" * 10,
    "a fetch request of garbage": size(111) + header(1, 11) + b"\x7f" * 100,
}


def many_topics(key: int, version: int, before: bytes, count: int) -> bytes:
    body = header(key, version) + before + size(count) + b"\x00\x01t" * count
    return size(len(body)) + body


# Both would unfold to gigabytes if they were decoded.
BAD_FRAMES["a huge metadata request"] = many_topics(3, 1, b"", 1_500_000)
BAD_FRAMES["a produce request of a million topics"] = many_topics(0, 3, b"\xff\xff" + b"\x00" * 6, 1_000_000)


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_bytes_lose_only_their_own_connection(
    server: Server, raw: RawConnection, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.service.connections.lines = LineLimit(server.broker.clock)
    with RawConnection(server.bootstrap_servers) as bad:
        bad.socket.sendall(BAD_FRAMES[name])
        assert_closed(bad)
    assert_alive(raw)
    lines = [record.getMessage() for record in caplog.records if record.name == "oncelog.server.connections"]
    assert len(lines) == 1 and "127.0.0.1" in lines[0], lines


def test_what_came_before_the_garbage_is_answered(raw: RawConnection, topic: str) -> None:
    raw.socket.sendall(
        produce_frame(topic, batch([b"x"]), 1) + metadata_frame(2) + produce_frame(topic, batch([b"y"]), 3)
    )
    raw.socket.sendall(BAD_FRAMES["a negative length"])
    assert [correlation_of(raw.receive_bytes()) for _ in range(3)] == [1, 2, 3]
    assert_closed(raw)


def test_what_others_are_called_makes_no_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    LineLimit(ManualClock()).log(logging.WARNING, "%s is %s", "127.0.0.1", "x\n2026-01-01 a line\r\x1b[2J\u202e")
    assert messages(caplog, "oncelog.server") == [r"127.0.0.1 is x\x0a2026-01-01 a line\x0d\x1b[2J\u202e"]


def test_lines_about_bad_connections_are_few(
    server: Server, raw: RawConnection, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        with RawConnection(server.bootstrap_servers) as bad:
            bad.socket.sendall(size(-1))
            assert_closed(bad)
    assert len([record for record in caplog.records if record.name == "oncelog.server.connections"]) <= 60


def test_an_accident_in_a_handler_is_answered_and_told_once(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def accident(*_: object) -> Any:
        raise ZeroDivisionError("an accident")

    monkeypatch.setattr(server.broker.kafka_pids, "take", accident)
    answer = raw.call("init_producer_id", 4, transaction_timeout=1000, producer_id=-1, producer_epoch=-1)
    assert answer.error_code is ErrorCode.unknown_server_error
    assert_alive(raw)
    told = [record for record in caplog.records if record.exc_info and "accident" in str(record.exc_info[1])]
    assert len(told) == 1


def test_an_accident_where_no_answer_has_room_for_it_closes_the_connection(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accident(*_: object) -> Any:
        raise ZeroDivisionError("an accident")

    with RawConnection(server.bootstrap_servers) as unlucky, monkeypatch.context() as patch:
        patch.setattr(server.broker.topics, "get", accident)
        unlucky.ask("metadata", 5, topics=[{"name": "x"}], allow_auto_topic_creation=False)
        assert_closed(unlucky)
    assert_alive(raw)


def test_an_accident_while_staging_closes_the_connection_and_harms_no_log(
    server: Server, raw: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_topic(raw)
    partition = server.broker.topics.partition(other, 0)
    assert partition is not None

    def accident(*_: object) -> Any:
        raise ZeroDivisionError("an accident")

    with RawConnection(server.bootstrap_servers) as unlucky, monkeypatch.context() as patch:
        patch.setattr(partition.log, "stage", accident)
        unlucky.ask_produce(other, 0, batch([b"x"]))
        assert_closed(unlucky)
    assert raw.produce(topic, 0, batch([b"y"])).base_offset == 0
    assert raw.produce(other, 0, batch([b"y"])).base_offset == 0


# Limits


def test_connections_beyond_the_limit_are_refused() -> None:
    with Server(max_connections=2) as server:
        first, second = RawConnection(server.bootstrap_servers), RawConnection(server.bootstrap_servers)
        assert_alive(first)
        assert_alive(second)
        with RawConnection(server.bootstrap_servers) as third:
            assert_closed(third)
        second.close()
        until(lambda: server.broker.metrics.connections_open == 1, "the second connection to be gone")
        with RawConnection(server.bootstrap_servers) as fourth:
            assert_alive(fourth)
        first.close()


def test_who_has_taken_all_connections_loses_some_to_hosts_that_have_fewer() -> None:
    """The ones that were silent for longest; and hosts that have as many take none from each other."""
    with Server(max_connections=4) as server, ExitStack() as all_of_them:
        clock = server.broker.clock = TurnedClock()

        def coming(host: str) -> RawConnection:
            clock.ahead_ms += 1000
            return all_of_them.enter_context(RawConnection(server.bootstrap_servers, from_host=host))

        greedy = [coming("127.0.0.2") for _ in range(4)]
        for each in (*greedy, greedy[0]):
            clock.ahead_ms += 1000
            assert_alive(each)
        for silent in greedy[1:3]:
            assert_alive(coming("127.0.0.3"))
            assert_closed(silent)
        for host in ("127.0.0.2", "127.0.0.3"):
            assert_closed(coming(host))
        for each in (greedy[0], greedy[3]):
            assert_alive(each)


def test_who_has_most_takes_no_turn_of_those_who_have_fewer_by_coming_again_and_again() -> None:
    """Room is made ten times a second, and by this clock no tenth of a second passes."""
    with Server(max_connections=4) as server, ExitStack() as all_of_them:
        server.broker.clock = ManualClock(monotonic_ms=1_000)

        def coming(host: str) -> RawConnection:
            return all_of_them.enter_context(RawConnection(server.bootstrap_servers, from_host=host))

        for each in [coming("127.0.0.2") for _ in range(4)]:
            assert_alive(each)
        for _ in range(5):
            assert_closed(coming("127.0.0.2"))
        assert_alive(coming("127.0.0.3"))


def let_pass(server: Server, ahead_ms: int) -> None:
    """As if so long nothing had come; and then connections are looked at."""
    clock = TurnedClock()
    clock.ahead_ms = ahead_ms
    server.broker.clock = clock
    server.call(server.service.connections.close_idle)


def test_idle_and_half_sent_connections_are_closed_in_time() -> None:
    with Server() as server:
        frame = metadata_frame()
        with RawConnection(server.bootstrap_servers) as idle, RawConnection(server.bootstrap_servers) as half:
            half.socket.sendall(frame[:-1])
            until(lambda: server.broker.metrics.connections_open == 2, "both to be open")
            let_pass(server, IDLE_MS + 1)
            assert_closed(idle)
            assert_closed(half)


def test_a_byte_at_a_time_is_no_activity() -> None:
    with Server(connections_max_idle_ms=300) as server, RawConnection(server.bootstrap_servers) as slow:
        closed = threading.Event()

        def drip() -> None:
            try:
                slow.socket.sendall(size(1000))
                while not closed.wait(0.02):
                    slow.socket.sendall(b"x")
            except OSError:
                closed.set()

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert_closed(slow)
        finally:
            closed.set()
            thread.join()


def test_a_client_that_waits_for_us_is_not_idle() -> None:
    with Server() as server, RawConnection(server.bootstrap_servers) as waiting:
        topic = new_topic(waiting)
        ask_and_wait(server, waiting, topic)
        with RawConnection(server.bootstrap_servers) as idle:
            until(lambda: server.broker.metrics.connections_open == 2, "both to be open")
            let_pass(server, IDLE_MS + 1)
            assert_closed(idle)
        with RawConnection(server.bootstrap_servers) as other:
            other.produce(topic, 0, batch([b"wake"]))
        assert waiting.answer().responses[0].partitions[0].high_watermark == 1


def test_half_received_frames_are_bounded_in_memory() -> None:
    megabyte = 1 << 20
    limit: dict[str, Any] = {"queued_max_request_bytes": 3 * megabyte, "socket_request_max_bytes": 2 * megabyte}
    with Server(**limit) as server:
        half = struct.pack(">i", 2 * megabyte - 4) + bytes(200_000)
        open_connections = [RawConnection(server.bootstrap_servers) for _ in range(20)]
        for connection in open_connections:
            connection.socket.setblocking(False)
            try:
                connection.socket.send(half)
            except BlockingIOError:
                pass
        budget = server.broker.memory.unserved
        until(lambda: budget.left_bytes == 0, "the budget to be used up")
        # Those who wait are let in one by one until half as much again is held, with what the last of them brings: how
        # many by now depends on the machine.
        assert server.call(lambda: budget.held_bytes) < budget.most_bytes + 2 * megabyte
        with RawConnection(server.bootstrap_servers) as small:
            assert_alive(small)
        for connection in open_connections:
            connection.close()
        until(lambda: budget.held_bytes == 0, "the budget to be given back")
        with RawConnection(server.bootstrap_servers) as large:
            name = new_topic(large)
            assert large.produce(name, 0, batch([b"x" * 900_000])).error_code is ErrorCode.none
