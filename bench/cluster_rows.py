"""The rows about three brokers. A row measures those of one kind once, and returns named figures."""

import time
from functools import partial
from statistics import median, quantiles

from bench.arena import ONCELOG
from bench.cluster_arena import NODES, PARTITIONS, ZOOKEEPER, ClusterArena, Three, processor_time, until
from bench.cluster_client import KB_16, MB_1, ONE, Filling, Pumps, Shape, Trickle, first_acknowledgement
from bench.process import bytes_read, proportional_mb
from bench.rows import BOTH, Figures, Line, Row
from tests.raw import RawConnection, batch

IDLE_S = 8.0
SETTLED_S = 4.0
MANY = 1_000  # partitions
STEADY_PER_S = 20_000
AWAY_PER_S, ROLLING_PER_S = 200, 600
BEFORE_S = 1.0  # so long it goes well before something happens
PATIENCE_S = 120
# librdkafka waits a minute for an answer, and does not look at who leads meanwhile.
IMPATIENT = {"socket.timeout.ms": 3_000, "socket.connection.setup.timeout.ms": 3_000}


def fresh(arena: ClusterArena, peer: str) -> Figures:
    three = arena.new(peer)
    try:
        started = time.perf_counter()
        three.begin()
        three.create("first", PARTITIONS)
        first_acknowledgement(three.servers, "first")
        figures = {"start_s": time.perf_counter() - started}
        three.await_up()
        three.await_in_sync("first", PARTITIONS)
        time.sleep(BEFORE_S)
        with processor_time(three) as spent:
            time.sleep(IDLE_S)
        return figures | {
            "idle_percent": spent[0] / IDLE_S * 100,
            "memory_mb": sum(map(proportional_mb, three.pids)),
        }
    finally:
        three.end()


def quiet(arena: ClusterArena, peer: str) -> Figures:
    """What followers cost where nothing happens."""
    three = arena.new(peer)
    try:
        three.begin()
        three.create("quiet", MANY)
        three.await_up()
        three.await_in_sync("quiet", MANY)
        time.sleep(SETTLED_S)
        read_bytes = sum(map(bytes_read, three.pids))
        with processor_time(three) as spent:
            time.sleep(IDLE_S)
        read_bytes = sum(map(bytes_read, three.pids)) - read_bytes
        return {"idle_percent": spent[0] / IDLE_S * 100, "kb_per_s": read_bytes / IDLE_S / 1000}
    finally:
        three.end()


def fresh_on_zookeeper(arena: ClusterArena, _: str) -> Figures:
    return fresh(arena, ZOOKEEPER)


def produce(arena: ClusterArena, peer: str, shape: Shape) -> Figures:
    three = arena.three(peer)
    with three.topic(arena.new_name()) as topic:
        load = Filling(three.servers, topic, PARTITIONS, shape)
        load.run(arena.warm_up_seconds(peer, str(shape)))
        return sending(arena, three, load)


def pump(arena: ClusterArena, peer: str, records: int, depth: int) -> Figures:
    three = arena.three(peer)
    with three.topic(arena.new_name()) as topic:
        leaders = [lead for lead, _, _ in three.leaders(topic)[0]]
        with Pumps([three.ports[lead - 1] for lead in leaders], topic, records, depth) as pumps:
            pumps.run(arena.warm_up_seconds(peer, f"pump {records}"))
            return sending(arena, three, pumps)


def sending(arena: ClusterArena, three: Three, load: Filling | Pumps) -> Figures:
    with processor_time(three) as spent:
        sent = load.run(arena.seconds)
    return {
        "records_per_s": sent.records_per_s,
        "mb_per_s": sent.mb_per_s,
        "cpu_s_per_million": spent[0] / sent.records * 1e6,
    }


def latency_20k(arena: ClusterArena, peer: str) -> Figures:
    three = arena.three(peer)
    with three.topic(arena.new_name()) as topic:
        with Trickle(three.servers, topic, PARTITIONS, STEADY_PER_S) as trickle:
            time.sleep(arena.warm_up_seconds(peer, "latency_20k"))
            began_s = time.perf_counter()
            time.sleep(arena.seconds)
        stop_if_failed(trickle)
        found = trickle.latencies_ms(began_s)
    return {"p99_ms": quantiles(found, n=100)[98], "p50_ms": median(found), "per_s": len(found) / arena.seconds}


def kill(arena: ClusterArena, peer: str) -> Figures:
    three, found, direct = arena.three(peer), list[float](), list[float]()
    with three.topic(arena.new_name(), 1) as topic:
        for _ in range(arena.kills):
            node = three.leader(topic)
            with Trickle(three.servers, topic, 1, AWAY_PER_S) as trickle:
                trickle.first_after(time.perf_counter() + BEFORE_S, PATIENCE_S)
                killed_s = time.perf_counter()
                three.kill(node)
                await_acknowledgement(three, topic, node)
                direct.append(time.perf_counter() - killed_s)
                found.append(trickle.first_after(killed_s, PATIENCE_S))
            stop_if_failed(trickle)
            three.start(node)
            three.await_in_sync(topic, 1)
    return {"p50_s": median(found), "worst_s": max(found), "direct_s": median(direct)}


def await_acknowledgement(three: Three, topic: str, gone: int) -> None:
    """With acks=all, by the one that leads now."""

    def is_so() -> bool:
        leaders = {lead for ((lead, _, _),) in three.leaders(topic, without=gone)} - {gone, -1}
        for lead in leaders:
            with RawConnection(three.ports[lead - 1], timeout_s=10) as raw:
                if not raw.produce(topic, 0, batch([b"x"])).error_code:
                    return True
        return False

    until(is_so, f"an acknowledgement without broker {gone}")


def silence(arena: ClusterArena, peer: str) -> Figures:
    three, found, direct = arena.three(peer), list[float](), list[float]()
    with three.topic(arena.new_name(), 1) as topic:
        for _ in range(arena.pauses):
            node = three.leader(topic)
            with Trickle(three.servers, topic, 1, AWAY_PER_S, **IMPATIENT) as trickle:
                trickle.first_after(time.perf_counter() + BEFORE_S, PATIENCE_S)
                silent_s = time.perf_counter()
                three.pause(node)
                try:
                    await_acknowledgement(three, topic, node)
                    direct.append(time.perf_counter() - silent_s)
                    found.append(trickle.first_after(silent_s, PATIENCE_S))
                finally:
                    three.resume(node)
            stop_if_failed(trickle)
            await_another_leader(three, topic, node)
            three.await_in_sync(topic, 1)
    return {"worst_s": max(found), "direct_s": max(direct)}


def await_another_leader(three: Three, topic: str, node: int) -> None:
    """The one that hung answers for a moment as if nothing had happened."""
    give_up_s = time.monotonic() + PATIENCE_S
    while any(lead == node for ((lead, _, _),) in three.leaders(topic)):
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"broker {node} thinks that it leads {topic}")
        time.sleep(0.05)


def rolling(arena: ClusterArena, peer: str) -> Figures:
    three = arena.three(peer)
    with (
        three.topic(arena.new_name()) as topic,
        Trickle(three.servers, topic, PARTITIONS, ROLLING_PER_S) as trickle,
    ):
        trickle.first_after(time.perf_counter() + BEFORE_S, PATIENCE_S)
        started_s = time.perf_counter()
        for node in NODES:
            three.stop(node)
            three.start(node)
            three.await_in_sync(topic, PARTITIONS)
        took_s = time.perf_counter() - started_s
        trickle.first_after(time.perf_counter(), PATIENCE_S)
    return {"gap_s": trickle.longest_gap_s(), "errors": float(len(trickle.failures)), "seconds": took_s}


def stop_if_failed(trickle: Trickle) -> None:
    if trickle.failures:
        raise RuntimeError(f"{len(trickle.failures)} of {trickle.sent} records failed: {trickle.failures[0]}")


def produce_lines(figure: str, title: str, at_least: float) -> tuple[Line, ...]:
    unit = {"records_per_s": "records/s", "mb_per_s": "MB/s"}
    other = next(each for each in unit if each != figure)
    return (
        Line(figure, f"acks=all, {title}: {unit[figure]}", f"≥ {at_least:g}x", at_least=at_least),
        Line(other, f"the same: {unit[other]}"),
        Line("cpu_s_per_million", "the same: the brokers' processor s a million records"),
    )


ROWS: list[Row[ClusterArena]] = [
    Row(
        "fresh",
        fresh,
        (
            Line("start_s", "start of three brokers to the first acknowledgement, s", "≤ 2 s", below=2.0),
            Line("memory_mb", "memory of all of their processes, MB", "≤ 170 MB", below=170.0),
            Line("idle_percent", "processor time when idle, % of one core"),
        ),
        BOTH,
    ),
    Row(
        "fresh_on_zookeeper",
        fresh_on_zookeeper,
        (
            Line("start_s", "start of ZooKeeper and three brokers to the first acknowledgement, s", "≤ 5 s", below=5.0),
            Line("memory_mb", "memory of all of their processes, MB"),
            Line("idle_percent", "processor time when idle, % of one core"),
        ),
        (ONCELOG,),
    ),
    Row(
        "quiet",
        quiet,
        (
            Line("idle_percent", "1,000 partitions without records: processor time, % of one core"),
            Line("kb_per_s", "the same: what the brokers read, KB/s"),
        ),
        BOTH,
        once=True,
    ),
    *(
        Row(name, partial(pump, records=records, depth=depth), produce_lines(figure, title, at_least), BOTH)
        for name, records, depth, figure, title, at_least in (
            ("raw_small", 1, 16, "records_per_s", "one record of 100 bytes a request, 16 in flight", 3.0),
            ("raw_16k", 150, 5, "mb_per_s", "requests of 16 KB, 5 in flight", 1.2),
            ("raw_1m", 8_500, 5, "mb_per_s", "requests of 1 MB, 5 in flight", 1.0),
        )
    ),
    *(
        Row(name, partial(produce, shape=shape), produce_lines(figure, f"librdkafka, {title}", at_least), BOTH)
        for name, shape, figure, title, at_least in (
            ("small", ONE, "records_per_s", "one record of 100 bytes a request", 3.0),
            ("batches_16k", KB_16, "mb_per_s", "requests of 16 KB", 1.2),
            ("batches_1m", MB_1, "mb_per_s", "requests of 1 MB", 1.0),
        )
    ),
    Row(
        "latency_20k",
        latency_20k,
        (
            Line("p99_ms", f"acks=all at {STEADY_PER_S:,} records/s: p99, ms", "≤ Kafka's", at_most=1.0),
            Line("p50_ms", "the same: p50, ms"),
            Line("per_s", "the same: records/s that were sent"),
        ),
        BOTH,
    ),
    Row(
        "kill",
        kill,
        (
            Line("p50_s", "kill -9 of a leader to the first acks=all: p50, s", "≤ 1 s", below=1.0),
            Line("worst_s", "the same: worst, s", "≤ 3 s", below=3.0),
            Line("direct_s", "the same by requests that are sent again every few ms, without librdkafka: p50, s"),
        ),
        BOTH,
        once=True,
    ),
    Row(
        "silence",
        silence,
        (
            Line("worst_s", "a leader falls silent (SIGSTOP) to the first acks=all: worst, s", "≤ 8 s", below=8.0),
            Line("direct_s", "the same by requests to the others, without librdkafka: worst, s", "≤ 8 s", below=8.0),
        ),
        BOTH,
        once=True,
    ),
    Row(
        "rolling",
        rolling,
        (
            Line(
                "gap_s",
                "rolling restart: longest time without an acknowledgement in a partition, s",
                "≤ 1 s",
                below=1.0,
            ),
            Line("errors", "the same: errors that reached the application", "0", below=1.0),
            Line("seconds", "the same: until all are back and in sync, s"),
        ),
        BOTH,
        once=True,
    ),
]
