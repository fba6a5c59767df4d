"""Attacks on what is served beside the log: the page and the metrics. Each is made as those in `attacks.py` are."""

import socket
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from threading import Thread
from typing import Any

from bench import attacks
from bench.attacks import PATIENCE_S, Row, Said, counted, frame, said_to
from bench.attacks_on_topics import wide_topic
from bench.process import cpu_seconds
from oncelog.records.codecs import CODECS
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


def looked_at(server: ServerProcess, views: Iterable[str]) -> Said:
    """What each of many connections is told that ask for a view at the same moment, one view after the other."""
    spent_s, said = cpu_seconds(server.pid), Counter[str]()
    for each in views:
        request = b"GET /api/" + each.encode() + HOST + b"Connection: close\r\n\r\n"
        said += asked(page_of(server).console_port, LOOKERS, request)
    return f"{counted(said)} in {cpu_seconds(server.pid) - spent_s:.1f} s of processor time"


@row(f"the page: {LOOKERS} connections that each ask for all views of 4,900 partitions and 20,100 groups")
def looks(server: ServerProcess) -> Generator[None, None, Said]:
    much(server)
    yield
    return looked_at(server, LOOKS)


@row(f"the page: {LOOKERS} connections that look at batches of 45,000 records and of 15 MB of zeros, of each codec")
def bombs(server: ServerProcess) -> Generator[None, None, Said]:
    codecs = {name: number for name, number in CODECS.items() if number}
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        for name, codec in codecs.items():
            connection.create_topic(name, 8)
            for values in ([b""] * 45_000, [bytes(15 << 20)]):
                made = batch(values, codec=codec)
                for index in range(8):
                    answer = connection.produce(name, index, made)
                    assert not answer.error_code.value, answer
    yield
    return looked_at(server, [f"messages?topic={name}" for name in codecs])


@row("16 scrapes of 4,900 partitions and 20,100 groups")
def scrapes(server: ServerProcess) -> Generator[None, None, Said]:
    much(server)
    yield
    return counted(asked(page_of(server).metrics_port, 16, b"GET /metrics" + HOST + b"\r\n"))
