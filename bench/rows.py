"""The rows of the table. A row measures one peer once and returns named figures; `table.py` sets them side by side."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bench.arena import KAFKA, ONCELOG, Arena, processor_time
from bench.fetching import bare_fetch_rate, fetch_rate
from bench.load import ProduceLoad, bare_copy_rate
from bench.pairs import on_against_off
from bench.process import bare_program, cached_share, drop_from_cache
from bench.stock_clients import LARGE, SMALL, Shape, java_consume, java_produce, librdkafka_consume, librdkafka_produce

BARE = "bare"
SENDFILE = "sendfile"
BOTH = (KAFKA, ONCELOG)
Figures = dict[str, float]
A = TypeVar("A")  # what a row needs, which has its servers


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a figure of the row, and what oncelog's should be against a peer's."""

    figure: str
    title: str
    goal: str = ""
    against: str = KAFKA
    at_least: float | None = None  # oncelog / peer
    at_most: float | None = None
    below: float | None = None  # oncelog's figure itself
    above: float | None = None


@dataclass(frozen=True, slots=True)
class Row(Generic[A]):
    name: str
    measure: Callable[[A, str], Figures]
    lines: tuple[Line, ...]
    peers: tuple[str, ...] = BOTH
    once: bool = False  # too slow to repeat in every round


ROWS: list[Row[Arena]] = []


def row(*lines: Line, peers: tuple[str, ...] = BOTH, once: bool = False) -> Callable[..., Callable[..., Figures]]:
    def add(measure: Callable[[Arena, str], Figures]) -> Callable[[Arena, str], Figures]:
        ROWS.append(Row(measure.__name__, measure, lines, peers, once))
        return measure

    return add


# --- produce ------------------------------------------------------------------------------------------------------


def produce(arena: Arena, peer: str, records_per_batch: int, depth: int) -> Figures:
    if peer == BARE:
        return bare_copy(arena, records_per_batch, depth)
    server = arena.server(peer)
    with arena.topic(peer) as topic:
        load = ProduceLoad(server.port, topic, records_per_batch)
        load.run_for(arena.warm_up_seconds(peer, records_per_batch), depth)
        os.sync()  # the pages of the peer before, and of the warm-up, or they are on their way to the disk meanwhile
        with processor_time(server) as spent:
            before = load.sent_records
            rate = load.run_for(arena.seconds, depth)
            records = load.sent_records - before
        load.close()
    return {
        "requests_per_s": rate.requests_per_s,
        "mb_per_s": rate.mb_per_s,
        "cpu_s_per_million": spent[0] / records * 1e6,
    }


def bare_copy(arena: Arena, records_per_batch: int, depth: int) -> Figures:
    file = arena.folder / "bare.copy"
    with bare_program("copy", file) as (port, _):
        pilot = bare_copy_rate(port, records_per_batch, 200, depth)
        os.sync()
        rate = bare_copy_rate(port, records_per_batch, int(pilot.requests_per_s * arena.seconds) + 200, depth)
    file.unlink()
    return {"requests_per_s": rate.requests_per_s, "mb_per_s": rate.mb_per_s}


CPU_1 = "server's processor seconds per million records, 1 record a batch"
CPU_150 = "server's processor seconds per million records, 150 records a batch"
CPU_8500 = "server's processor seconds per million records, 8,500 records a batch"


@row(
    Line("requests_per_s", "produce, 1 record a request, 16 in flight, idempotent: requests/s", "≥ 3x", at_least=3.0),
    Line("cpu_s_per_million", CPU_1, "≤ half", at_most=0.5),
    peers=(*BOTH, BARE),
)
def produce_depth16(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 1, 16)


@row(Line("requests_per_s", "produce, 1 record a request, 1 in flight, idempotent: requests/s", "≥ 1x", at_least=1.0))
def produce_depth1(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 1, 1)


@row(
    Line("mb_per_s", "produce, 16 KB batches, 4 in flight, idempotent: MB/s", "≥ 1.7x", at_least=1.7),
    Line("cpu_s_per_million", CPU_150, "≤ half", at_most=0.5),
    peers=(*BOTH, BARE),
)
def produce_16k(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 150, 4)


@row(
    Line("mb_per_s", "produce, 1 MB batches, 4 in flight, idempotent: MB/s", "≥ 1x", at_least=1.0),
    Line("mb_per_s", "the same against a bare copy from socket to file", "≥ 0.8x", against=BARE, at_least=0.8),
    Line("cpu_s_per_million", CPU_8500, "≤ equal", at_most=1.0),
    peers=(*BOTH, BARE),
)
def produce_1m(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 8_500, 4)


ON_OFF = "idempotence on against off, {}: share of the rate"
ON_OFF_SPREAD = "the same: how far off that median may be"


@row(
    Line("small", ON_OFF.format("1 record a request, 16 in flight"), "≥ 0.97", above=0.97),
    Line("small_uncertainty", ON_OFF_SPREAD, "< 0.03"),
    Line("medium", ON_OFF.format("16 KB batches"), "≥ 0.97", above=0.97),
    Line("medium_uncertainty", ON_OFF_SPREAD, "< 0.03"),
    Line("large", ON_OFF.format("1 MB batches"), "≥ 0.97", above=0.97),
    Line("large_uncertainty", ON_OFF_SPREAD, "< 0.03"),
)
def idempotence(arena: Arena, peer: str) -> Figures:
    figures: Figures = {}
    for name, records, depth in (("small", 1, 16), ("medium", 150, 4), ("large", 8_500, 4)):
        ratio = on_against_off(arena, peer, records, depth)
        figures |= {name: ratio.middle, f"{name}_uncertainty": ratio.uncertainty}
    return figures


# --- fetch --------------------------------------------------------------------------------------------------------


def fetch(arena: Arena, peer: str, first_share: float, last_share: float, *, cold: bool = False) -> Figures:
    filled = arena.filled(ONCELOG if peer in (BARE, SENDFILE) else peer)
    if peer in (BARE, SENDFILE):
        segment = arena.segment(ONCELOG, filled.topic)
        size_bytes = int(min(segment.stat().st_size, filled.size_bytes * (last_share - first_share)))
        if cold:
            drop_from_cache(segment.parent)
        with bare_program("send" if peer == BARE else "sendfile", segment) as (port, _):
            return {"mb_per_s": bare_fetch_rate(port, size_bytes).mb_per_s}
    server = arena.server(peer)
    folder = arena.segment(peer, filled.topic).parent
    if cold:
        drop_from_cache(folder)
    cached = cached_share(folder)
    start = int(filled.end_offset * first_share) // 150 * 150
    end = int(filled.end_offset * last_share)
    with processor_time(server) as spent:
        rate = fetch_rate(server.port, filled.topic, start, end)
    return {"mb_per_s": rate.mb_per_s, "cached": cached, "cpu_s_per_gb": spent[0] / rate.size_bytes * 1e9}


FETCH_PEERS = (*BOTH, BARE, SENDFILE)


def fetch_lines(place: str) -> tuple[Line, ...]:
    return (
        Line("mb_per_s", f"fetch, 1 MB answers, {place}: MB/s", "≥ 1x", at_least=1.0),
        Line("mb_per_s", "the same against a bare pread-and-send loop", "≥ 0.9x", against=BARE, at_least=0.9),
        Line("mb_per_s", "the same against a bare sendfile loop", "stated", against=SENDFILE),
        Line("cached", "share of that log in the page cache before", "stated"),
    )


@row(*fetch_lines("from the tail"), peers=FETCH_PEERS)
def fetch_tail(arena: Arena, peer: str) -> Figures:
    return fetch(arena, peer, 0.75, 1.0)


@row(*fetch_lines("from the start of a large log"), peers=FETCH_PEERS)
def fetch_start(arena: Arena, peer: str) -> Figures:
    return fetch(arena, peer, 0.0, 0.5)


@row(*fetch_lines("from the start, put out of the page cache first"), peers=FETCH_PEERS)
def fetch_cold(arena: Arena, peer: str) -> Figures:
    return fetch(arena, peer, 0.0, 0.25, cold=True)


# --- stock clients ------------------------------------------------------------------------------------------------


def librdkafka(arena: Arena, peer: str, shape: Shape) -> Figures:
    server = arena.server(peer)
    with arena.topic(peer) as topic, processor_time(server):
        produced = librdkafka_produce(server.bootstrap_servers, topic, shape, arena.seconds)
        consumed = librdkafka_consume(server.bootstrap_servers, topic, int(produced * arena.seconds * 0.5))
    return {"produced_per_s": produced, "consumed_per_s": consumed}


def client_lines(client: str, batches: str) -> tuple[Line, ...]:
    title = f"{client}, records of 100 bytes, {batches} batches"
    return (
        Line("produced_per_s", f"{title}: produced/s", "≥ 1x", at_least=1.0),
        Line("consumed_per_s", f"{title}: consumed/s", "≥ 1x", at_least=1.0),
    )


@row(*client_lines("librdkafka", "small"))
def librdkafka_small(arena: Arena, peer: str) -> Figures:
    return librdkafka(arena, peer, SMALL)


@row(*client_lines("librdkafka", "large"))
def librdkafka_large(arena: Arena, peer: str) -> Figures:
    return librdkafka(arena, peer, LARGE)


JAVA_SECONDS = 8.0


def java(arena: Arena, peer: str, shape: Shape) -> Figures:
    servers = arena.server(peer).bootstrap_servers
    # Less, and half of it would be a JVM that is still being compiled: ratios of 0.9 to 1.1 by chance.
    records = int(400_000 * max(JAVA_SECONDS, arena.seconds))
    with arena.topic(peer) as topic:
        produced = java_produce(servers, topic, records, shape)
        consumed = java_consume(servers, topic, records)
    return {"produced_per_s": produced["records_per_s"], "consumed_per_s": consumed, "p99_ms": produced["p99_ms"]}


@row(*client_lines("Java perf tools", "small"))
def java_small(arena: Arena, peer: str) -> Figures:
    return java(arena, peer, SMALL)


@row(*client_lines("Java perf tools", "large"))
def java_large(arena: Arena, peer: str) -> Figures:
    return java(arena, peer, LARGE)


@row(
    Line("p99_ms", "Java producer at 50,000 records/s: p99 latency, ms", "≤ Kafka's", at_most=1.0),
    Line("average_ms", "the same: average latency, ms"),
)
def latency_50k(arena: Arena, peer: str) -> Figures:
    with arena.topic(peer) as topic:
        servers = arena.server(peer).bootstrap_servers
        return java_produce(servers, topic, int(50_000 * max(5.0, arena.seconds * 2)), SMALL, per_s=50_000)
