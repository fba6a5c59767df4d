"""Attacks on what is served beside the log: the page and the metrics. Each is made as those in `attacks.py` are."""

import socket
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, suppress
from functools import partial
from threading import Thread
from typing import Any

from bench import attacks
from bench.attacks import PATIENCE_S, Row, Said, counted, frame, said_to
from bench.attacks_on_topics import wide_topic
from tests.console.served import Served
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, batch

ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS)

LOOKERS = 60
PIECE_BYTES = 64 << 10
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
HEADS = {
    "a head of 50,000 lines": b"GET /" + HOST + b"a:b\r\n" * 50_000 + b"\r\n",
    "a query of 60,000 fields": b"GET /api/topics?" + b"a=b&" * 60_000 + HOST + b"\r\n",
    "a body of 200,000 chunks": b"GET /" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200_000,
}
LOOKS = ("overview", "topics", "producers", "groups", "topic?topic=wide", "messages?topic=wide", "group?group=group-1")


def asked(port: int, count: int, request: bytes) -> Counter[str]:
    """What each of many connections that ask at the same moment is told."""
    said: Counter[str] = Counter()

    def send(connection: socket.socket) -> None:
        with suppress(OSError):  # it may be told what it may not before it has asked
            connection.sendall(request)

    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) for _ in range(count)
        ]
        threads = [Thread(target=send, args=(connection,)) for connection in connections]
        for thread in threads:
            thread.start()
        for connection in connections:
            try:
                answer = connection.recv(PIECE_BYTES)
                said[f"answered {answer[9:12].decode()}" if answer else "closed"] += 1
                while answer:
                    answer = connection.recv(PIECE_BYTES)
            except ConnectionResetError:
                said["closed"] += 1
        for thread in threads:
            thread.join()
    return said


def page_of(server: ServerProcess) -> Served:
    assert isinstance(server, Served)
    return server


@row(f"the page: {', '.join(HEADS)}, from 20 connections each")
def large_heads(server: ServerProcess) -> Generator[None, None, Said]:
    yield
    return counted(sum((asked(page_of(server).console_port, 20, each) for each in HEADS.values()), Counter()))


def much(server: ServerProcess) -> None:
    """A wide topic, 100 groups that have commits for all of it, and 20,000 that have one."""
    wide_topic(server)
    values: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""}
    frames = []
    for number in range(20_100):
        count = 4_900 if number < 100 else 1
        places = [{"partition_index": each, "committed_offset": 1, "committed_metadata": ""} for each in range(count)]
        topics = [{"name": "wide", "partitions": places}]
        frames.append(frame("offset_commit", 8, group_id=f"group-{number}", topics=topics, **values))
    said_to(server.port, frames)


@row(f"the page: {LOOKERS} connections that each ask for all views of 4,900 partitions and 20,100 groups")
def looks(server: ServerProcess) -> Generator[None, None, Said]:
    much(server)
    requests = [b"GET /api/" + each.encode() + HOST + b"Connection: close\r\n\r\n" for each in LOOKS]
    yield
    return counted(sum((asked(page_of(server).console_port, LOOKERS, each) for each in requests), Counter()))


@row(f"the page: {LOOKERS} connections that look at batches of 45,000 records and of 15 MB of zeros")
def bombs(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("bombs", 8)
        for index in range(8):
            connection.produce("bombs", index, batch([b""] * 45_000, codec=4))
            connection.produce("bombs", index, batch([bytes(15 << 20)], codec=4))
    yield
    request = b"GET /api/messages?topic=bombs" + HOST + b"Connection: close\r\n\r\n"
    return counted(asked(page_of(server).console_port, LOOKERS, request))


@row("16 scrapes of 4,900 partitions and 20,100 groups")
def scrapes(server: ServerProcess) -> Generator[None, None, Said]:
    much(server)
    yield
    return counted(asked(page_of(server).metrics_port, 16, b"GET /metrics" + HOST + b"\r\n"))
