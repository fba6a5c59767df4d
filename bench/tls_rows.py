"""Rows of TLS: the same load through OpenSSL on both ends of the connection, against Kafka's TLS."""

import ssl

from bench.arena import Arena, Encrypted, Filled, fill, processor_time
from bench.fetching import FetchRate, fetch_rate
from bench.load import ProduceLoad
from bench.rows import Figures, Line, row

FILL_GB = 0.3


def produce(arena: Arena, peer: str, records_per_batch: int, depth: int) -> Figures:
    """`share`: of the rate that the same server has without TLS."""
    encrypted = arena.encrypted(peer)
    with arena.topic(peer, server=encrypted.server) as topic:
        plain = _rate(arena, peer, encrypted, topic, records_per_batch, depth, is_encrypted=False)
        found = _rate(arena, peer, encrypted, topic, records_per_batch, depth, is_encrypted=True)
    return {**found, "share": found["requests_per_s"] / plain["requests_per_s"]}


def _rate(
    arena: Arena,
    peer: str,
    encrypted: Encrypted,
    topic: str,
    records_per_batch: int,
    depth: int,
    *,
    is_encrypted: bool,
) -> Figures:
    port = encrypted.port if is_encrypted else encrypted.server.port
    load = ProduceLoad(port, topic, records_per_batch, tls=encrypted.context if is_encrypted else None)
    load.run_for(arena.warm_up_seconds(f"{peer} {is_encrypted} TLS", records_per_batch), depth)
    with processor_time(encrypted.server) as spent:
        before = load.sent_records
        rate = load.run_for(arena.seconds, depth)
        records = load.sent_records - before
    load.close()
    return {
        "requests_per_s": rate.requests_per_s,
        "mb_per_s": rate.mb_per_s,
        "cpu_s_per_million": spent[0] / records * 1e6,
    }


SHARE = "the same: share of the rate without TLS"


@row(
    Line("requests_per_s", "TLS: produce, 1 record a request, 16 in flight: requests/s", "> 1x", at_least=1.0),
    Line("share", SHARE, "stated"),
)
def tls_produce_depth16(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 1, 16)


@row(
    Line("mb_per_s", "TLS: produce, 16 KB batches, 4 in flight: MB/s", "> 1x", at_least=1.0),
    Line("share", SHARE, "stated"),
)
def tls_produce_16k(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 150, 4)


@row(
    Line("mb_per_s", "TLS: produce, 1 MB batches, 4 in flight: MB/s", "> 1x", at_least=1.0),
    Line("share", SHARE, "stated"),
)
def tls_produce_1m(arena: Arena, peer: str) -> Figures:
    return produce(arena, peer, 8_500, 4)


@row(
    Line("mb_per_s", "TLS: fetch, 1 MB answers: MB/s", "> 1x", at_least=1.0),
    Line("share", SHARE, "stated"),
)
def tls_fetch(arena: Arena, peer: str) -> Figures:
    encrypted = arena.encrypted(peer)
    with arena.topic(peer, server=encrypted.server) as topic:
        filled = fill(encrypted.server.port, topic, FILL_GB)
        plain = _fetched(arena, encrypted.server.port, filled)
        fetch_rate(encrypted.port, topic, 0, filled.end_offset, tls=encrypted.context)
        with processor_time(encrypted.server) as spent:
            rate = _fetched(arena, encrypted.port, filled, encrypted.context)
    return {
        "mb_per_s": rate.mb_per_s,
        "share": rate.mb_per_s / plain.mb_per_s,
        "cpu_s_per_gb": spent[0] / rate.size_bytes * 1e9,
    }


def _fetched(arena: Arena, port: int, filled: Filled, tls: ssl.SSLContext | None = None) -> FetchRate:
    """All of it again and again: once takes a third of a second, in which a machine does anything."""
    answers, size_bytes, seconds = 0, 0, 0.0
    while seconds < arena.seconds:
        once = fetch_rate(port, filled.topic, 0, filled.end_offset, tls=tls)
        answers, size_bytes, seconds = answers + once.answers, size_bytes + once.size_bytes, seconds + once.seconds
    return FetchRate(answers, size_bytes, seconds)
