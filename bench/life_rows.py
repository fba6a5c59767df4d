"""Rows about a server's life: how soon it serves, what it weighs, how it grows, how it comes back from kill -9."""

import socket
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from bench.arena import ONCELOG, Arena, fill
from bench.load import LoadFailed, ProduceLoad
from bench.process import resident_mb
from bench.rows import Figures, Line, row
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, ServerClosed, batch

IDLE_SECONDS = 2.0
CONNECTIONS = 1_000
PRODUCERS = 10_000
PARTITIONS = 2_000


@row(
    Line("seconds", "from start to the first acknowledged idempotent message of librdkafka, s", "< 0.5 s", below=0.5),
    Line("listening_s", "from start until the port is open, s"),
)
def start_to_ack(arena: Arena, peer: str) -> Figures:
    """A client that is there before the server asks again once a second; this one comes when the port is open."""
    server = arena.new_server(peer)
    acknowledged: list[object] = []
    server.prepare_folder()
    started = time.perf_counter()
    server.begin()
    await_port(server.port)
    listening = time.perf_counter() - started
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "enable.idempotence": True,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    try:
        producer.produce("first", b"x", on_delivery=lambda error, _: acknowledged.append(error))
        while not acknowledged:
            producer.poll(0.001)
            if time.perf_counter() - started > 60:
                raise TimeoutError(f"{peer} acknowledged nothing in a minute")
        seconds = time.perf_counter() - started
    finally:
        server.kill()
    if acknowledged[0] is not None:
        raise LoadFailed(str(acknowledged[0]))
    return {"seconds": seconds, "listening_s": listening}


def await_port(port: int, patience_s: float = 60) -> None:
    give_up = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.002)


@row(
    Line("idle_mb", "memory when idle, MB", "< 60 MB", below=60.0),
    Line("served_mb", "memory after a produce, a fetch and a group, MB"),
)
def idle_memory(arena: Arena, peer: str) -> Figures:
    with arena.new_server(peer) as server:
        time.sleep(IDLE_SECONDS)
        idle = resident_mb(server.pid)
        with RawConnection(server.port) as connection:
            connection.create_topic("t")
            connection.produce("t", 0, batch([b"x"] * 100))
            connection.fetch("t", 0, 0)
            connection.call("offset_fetch", 7, group_id="g", topics=None)
        return {"idle_mb": idle, "served_mb": resident_mb(server.pid)}


@row(
    Line("alone_us", "time of one produce, 1 connection, µs"),
    Line("among_us", f"time of one produce among {CONNECTIONS:,} live connections, µs"),
    Line("kb_each", "memory for each of them, KB"),
    once=True,
)
def connections(arena: Arena, peer: str) -> Figures:
    with arena.new_server(peer) as server, RawConnection(server.port) as first:
        first.create_topic("t")
        alone = produce_us(first, "t")
        before = resident_mb(server.pid)
        crowd = [RawConnection(server.port) for _ in range(CONNECTIONS)]
        try:
            for one in crowd:
                one.produce("t", 0, batch([b"x"]))
            among = produce_us(first, "t")
            grown = resident_mb(server.pid) - before
        finally:
            for one in crowd:
                one.close()
    return {"alone_us": alone, "among_us": among, "kb_each": grown * 1000 / CONNECTIONS}


def produce_us(connection: RawConnection, topic: str, count: int = 2_000) -> float:
    """Microseconds of one produce, one in flight."""
    load = ProduceLoad(connection.socket.getpeername()[1], topic, 1)
    load.run(count, 1)
    rate = load.run(count, 1)
    load.close()
    return 1e6 / rate.requests_per_s


@row(
    Line("few_us", "time of one produce, 10 live producers in the partition, µs"),
    Line("many_us", f"time of one produce, {PRODUCERS:,} live producers in the partition, µs"),
    Line("bytes_each", "memory for each of them, bytes"),
    once=True,
)
def live_producers(arena: Arena, peer: str) -> Figures:
    with arena.new_server(peer) as server, RawConnection(server.port, timeout_s=120) as connection:
        connection.create_topic("t")
        first_of_each(connection, 10)
        few = produce_us(connection, "t")
        before = resident_mb(server.pid)
        first_of_each(connection, PRODUCERS - 10)
        many = produce_us(connection, "t")
        grown = resident_mb(server.pid) - before
    return {"few_us": few, "many_us": many, "bytes_each": grown * 1e6 / PRODUCERS}


def first_of_each(connection: RawConnection, count: int) -> None:
    """So many new producers, each with one batch in the partition."""
    for _ in range(count):
        pid, epoch = connection.init_producer_id()
        answer = connection.produce("t", 0, batch([b"x"], pid=pid, epoch=epoch, sequence=0))
        if answer.error_code:
            raise LoadFailed(f"producer {pid} was refused: {answer.error_code.name}")


@row(
    Line("create_s", f"creating a topic of {PARTITIONS:,} partitions, s"),
    Line("one_us", "time of one produce, 1 partition, µs"),
    Line("many_us", f"time of one produce to each of {PARTITIONS:,} partitions in turn, µs"),
    Line("kb_each", "memory for each partition, KB"),
    once=True,
)
def partitions(arena: Arena, peer: str) -> Figures:
    with arena.new_server(peer) as server, RawConnection(server.port, timeout_s=120) as connection:
        connection.create_topic("t")
        one = produce_us(connection, "t")
        before = resident_mb(server.pid)
        started = time.perf_counter()
        connection.create_topic("wide", PARTITIONS, patience_s=120)
        created = time.perf_counter() - started
        sent = batch([b"x" * 100])
        rounds = 2
        for _ in range(rounds):
            started = time.perf_counter()
            for partition in range(PARTITIONS):
                if connection.produce("wide", partition, sent).error_code:
                    raise LoadFailed(f"partition {partition} refused a batch")
            seconds = time.perf_counter() - started
        grown = resident_mb(server.pid) - before
    return {
        "create_s": created,
        "one_us": one,
        "many_us": seconds / PARTITIONS * 1e6,
        "kb_each": grown * 1000 / PARTITIONS,
    }


# --- coming back ----------------------------------------------------------------------------------------------


def restart(arena: Arena, peer: str, partitions: int, *, snapshots: bool = True) -> Figures:
    """Seconds from the start of the new process until it acknowledged a batch, after kill -9 in full flight."""
    server = arena.new_server(peer)
    with server:
        with RawConnection(server.port, timeout_s=120) as connection:
            connection.create_topic("big", partitions, patience_s=120)
        for partition in range(partitions):
            fill(server.port, "big", arena.restart_gb / partitions, partition=partition)
        kill_under_load(server, partitions)
        if not snapshots:
            remove_snapshots(server.data)
        started = time.perf_counter()
        server.begin()
        server.start_seconds = 900
        server.await_first_answer(pause_s=0.002)
        answered = time.perf_counter() - started
        await_acknowledgement(server.port)
        return {"answer_s": answered, "seconds": time.perf_counter() - started}


def kill_under_load(server: ServerProcess, partitions: int, seconds: float = 1.5) -> None:
    def load(partition: int) -> None:
        try:
            producer = ProduceLoad(server.port, "big", 150, partition=partition)
            while True:
                producer.run(200, 4)
        except (LoadFailed, ServerClosed, OSError):
            return

    threads = [threading.Thread(target=load, args=(partition,)) for partition in range(min(4, partitions))]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    server.kill()
    for thread in threads:
        thread.join()


def await_acknowledgement(port: int, patience_s: float = 900) -> None:
    give_up = time.monotonic() + patience_s
    with RawConnection(port, timeout_s=patience_s) as connection:
        while connection.produce("big", 0, batch([b"back"])).error_code:
            if time.monotonic() > give_up:
                raise TimeoutError("nothing was acknowledged after the restart")
            time.sleep(0.005)


def remove_snapshots(data: Path) -> None:
    """As if none had ever been written: the whole log has to be read again."""
    for path in [*data.rglob("*.producers"), *data.rglob("*checkpoint*")]:
        path.unlink()


RESTART = "restart after kill -9 under load, to the first acknowledgement, s: "


@row(Line("seconds", RESTART + "one partition", "< 2 s", below=2.0), once=True)
def restart_1(arena: Arena, peer: str) -> Figures:
    return restart(arena, peer, 1)


@row(Line("seconds", RESTART + "100 partitions", "< 2 s", below=2.0), once=True)
def restart_100(arena: Arena, peer: str) -> Figures:
    return restart(arena, peer, 100)


@row(Line("seconds", RESTART + "one partition, without snapshots", "for comparison"), peers=(ONCELOG,), once=True)
def restart_1_without_snapshots(arena: Arena, peer: str) -> Figures:
    return restart(arena, peer, 1, snapshots=False)
