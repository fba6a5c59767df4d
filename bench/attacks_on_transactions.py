"""Attacks by transactions: wide ones, many, open ones, and requests that speak of those of others."""

import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench import attacks
from bench.attacks import PATIENCE_S, SIZE, Row, Said, answers, counted, frame, said_to, varint
from bench.attacks_on_topics import wide_topic
from bench.victim import TOPIC as OF_THE_OTHERS
from tests.peers.questions.transacting import Reader, Who, begun, end, write
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

WIDE = 4_900
ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS)


def initialised(name: str, timeout_ms: int = 900_000) -> bytes:
    own: dict[str, Any] = {
        "transactional_id": name,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return frame("init_producer_id", 4, **own)


def producers(server: ServerProcess, count: int, timeout_ms: int = 900_000) -> list[Who]:
    found: list[Who] = []
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        begun(connection, "first")
        for start in range(0, count, 500):
            names = [f"id-{number}" for number in range(start, min(start + 500, count))]
            for each in names:
                connection.socket.sendall(initialised(each, timeout_ms))
            said = answers("init_producer_id", 4, [connection] * len(names))
            found += [Who(name, each.producer_id, each.producer_epoch) for name, each in zip(names, said, strict=True)]
    return found


def added(who: Who, topic: str, partitions: int) -> bytes:
    values: dict[str, Any] = {
        "v3_and_below_transactional_id": who.name,
        "v3_and_below_producer_id": who.pid,
        "v3_and_below_producer_epoch": who.epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": list(range(partitions))}],
    }
    return frame("add_partitions_to_txn", 3, **values)


def ended(who: Who, *, is_commit: bool) -> bytes:
    own: dict[str, Any] = {"transactional_id": who.name, "producer_id": who.pid, "producer_epoch": who.epoch}
    return frame("end_txn", 3, **own, committed=is_commit)


def state(connection: RawConnection, name: str) -> str:
    connection.ask("describe_transactions", 0, transactional_ids=[name])
    connection.forget_asked()
    read = Reader(connection.receive_bytes()[4 + 1 + 4 + 1 :])
    read.number(2)
    read.text()
    return read.text()


@row("a transaction of 4,900 partitions: added, described, committed, aborted, and fenced")
def wide_transaction(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    (who,) = producers(server, 1)
    add = added(who, "wide", WIDE)
    look = frame("describe_transactions", 0, transactional_ids=[who.name])
    yield
    said: Counter[str] = Counter()
    for is_commit in (True, False):
        said += said_to(server.port, [add, add, look, ended(who, is_commit=is_commit)])
        with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
            while not state(connection, who.name).startswith("Complete"):
                time.sleep(0.05)
    return counted(said + said_to(server.port, [add, initialised(who.name)]))


@row("101,000 transactional ids", restart=True)
def many_transactional_ids(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        begun(connection, "first")
    frames = (initialised(f"id-{number}") for number in range(101_000))
    yield
    said = counted(said_to(server.port, frames, at_once=100))
    with RawConnection(server.port, timeout_s=PATIENCE_S, from_host="127.0.0.9") as connection:
        connection.socket.sendall(initialised("newcomer"))
        (answer,) = answers("init_producer_id", 4, [connection])
    about = counted(said_to(server.port, [frame("list_transactions", 1, **ALL)] * 4))
    return f"{said}; a newcomer is told {answer.error_code.name}; of ListTransactions {about}"


ALL: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}


@row("ListTransactions with patterns that a backtracking search never ends, or that are long")
def hostile_patterns(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        begun(connection, "a" * 34 + "b")
    patterns = ["(a+)+c", "(a|a)*c", "(a*)*" * 5_000, "a{1,30000}" * 50, "(" * 16_000, "[" + "a-z" * 10_000 + "]*c"]
    frames = [frame("list_transactions", 2, **ALL, transactional_id_pattern=each) for each in patterns]
    yield
    return counted(said_to(server.port, frames))


@row("3,000 transactions that end by their time-out in one moment")
def many_timeouts(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked", 10)
    owners = producers(server, 3_000, timeout_ms=1)
    yield
    said = said_to(server.port, [added(who, "attacked", 10) for who in owners], at_once=100)
    time.sleep(12)
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        said[f"in the end {state(connection, owners[-1].name)}"] += 1
    return counted(said)


@row("10,000 transactions that write to the victim's topic and stay open, and 500 readers that wait for their end")
def open_for_ever(server: ServerProcess) -> Generator[None, None, Said]:
    owners = producers(server, 10_000)
    yield
    with ExitStack() as stack:
        connection = stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S))
        codes = Counter(write(connection, who, OF_THE_OTHERS, 0, version=12) for who in owners)
        wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
        topics = [{"topic": OF_THE_OTHERS, "partitions": [{**wanted, "partition_max_bytes": 1 << 20}]}]
        poll: dict[str, Any] = {"replica_id": -1, "max_wait": 20_000, "min_bytes": 1 << 30, "max_bytes": 1 << 30}
        poll |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
        for _ in range(500):
            reader = stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S))
            reader.socket.sendall(frame("fetch", 11, **poll, isolation_level=1, topics=topics))
        time.sleep(5)
        for who in owners[:2_000]:
            end(connection, who, True)
    return counted(codes)


@row("offsets with 4 KB of metadata each, in transactions of 40 producers, for 4,900 partitions")
def offsets_in_transactions(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    owners = producers(server, 40)
    some = [
        [{"partition_index": each, "committed_offset": 1, "committed_metadata": "m" * 4_000} for each in part]
        for part in (range(start, start + 200) for start in range(0, WIDE - 100, 200))
    ]
    frames = (
        frame(
            "txn_offset_commit",
            5,
            transactional_id=who.name,
            producer_id=who.pid,
            producer_epoch=who.epoch,
            group_id=f"group-{who.pid}",
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "wide", "partitions": each}],
        )
        for who in owners
        for each in some
    )
    yield
    return counted(said_to(server.port, frames))


@row("WriteTxnMarkers for 4,900 partitions, four producers each, with pids that were never granted")
def markers_of_a_stranger(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server)
    topics = [{"name": "wide", "partition_indexes": list(range(WIDE))}]
    rest = {"producer_epoch": 3, "transaction_result": False, "topics": topics, "coordinator_epoch": 0}
    frames = [
        frame(
            "write_txn_markers",
            2,
            markers=[{"producer_id": 2**40 + 4 * each + own, **rest, "transaction_version": 2} for own in range(4)],
        )
        for each in range(3)
    ]
    yield
    return counted(said_to(server.port, frames))


@row("100 connections that end one transaction again and again")
def concurrent_ends(server: ServerProcess) -> Generator[None, None, Said]:
    wide_topic(server, 100)
    (who,) = producers(server, 1)
    pieces = (added(who, "wide", 100) + ended(who, is_commit=True)) * 20
    yield
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(server.port, timeout_s=PATIENCE_S)) for _ in range(100)]
        for connection in connections:
            connection.socket.sendall(pieces)
        said: Counter[str] = Counter()
        for connection in connections:
            for _ in range(20):
                connection.receive_bytes()
                (answer,) = answers("end_txn", 3, [connection])
                said[answer.error_code.name] += 1
    return counted(said)


@row("transactions with ids of 32 KB, 5,000 of them looked for and 500 begun; and one of 4 MB")
def long_ids(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        begun(connection, "first")
    names = [f"{number:05d}" + "i" * 32_000 for number in range(5_000)]
    frames = [frame("find_coordinator", 3, key=each, key_type=1) for each in names]
    frames += [initialised(each) for each in names[:500]]
    four_mb = SIZE.pack(4_000_050) + b"\0\x16\0\4\0\0\0\1\xff\xff\0" + varint(4_000_001) + b"i" * 4_000_036
    frames += [four_mb] * 2
    yield
    return counted(said_to(server.port, frames))
