"""The runs of the table: every codec, 1 and 5 in flight, one and many partitions, on both servers; the three ways take
turns, so that each meets every codec. Without idempotence each way must fail on each server."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from tests.client.faults.case import BULK, CODECS, KAFKA, ONCELOG, PRODUCE, SERVERS, WAYS, Case

MANY: Final = 6


def full(records: int, seed: int) -> Iterator[Case]:
    for way, server in product(WAYS, SERVERS):
        yield Case(
            server=server, way=way, codec="lz4", partitions=MANY, is_idempotent=False, records=records, seed=seed
        )
    settings = product((5, 1), (MANY, 1), CODECS)
    for number, (in_flight, partitions, codec) in enumerate(settings):
        for server in SERVERS:
            yield Case(
                server=server,
                way=WAYS[(number + number // len(CODECS)) % len(WAYS)],
                codec=codec,
                in_flight=in_flight,
                partitions=partitions,
                records=records,
                seed=seed + number + 1,
            )


def short(server: str) -> list[Case]:
    """A covering subset, small enough for every test run: each codec, way, count in flight and count of partitions."""
    quick = Case(
        server=server,
        records=24_000,
        batch_records=50,
        answers_between_faults=10,
        least_hits=8,
        socket_timeout_ms=200,
        stall_ms=300,
    )
    # Requests for one partition hold one batch, so there are more of them, and more faults.
    lonely = replace(quick, partitions=1, answers_between_faults=20)
    return [
        replace(lonely, codec="none", way=PRODUCE, in_flight=5, seed=1),
        replace(lonely, codec="gzip", way=BULK, in_flight=1, seed=2),
        replace(quick, codec="snappy", way="async", in_flight=5, partitions=MANY, seed=3),
        replace(quick, codec="lz4", way=PRODUCE, in_flight=1, partitions=MANY, seed=4),
        replace(quick, codec="zstd", way=BULK, in_flight=5, partitions=MANY, seed=5),
    ]


def must_fail(server: str) -> list[Case]:
    quick = replace(short(server)[0], is_idempotent=False)
    return [quick, replace(quick, way=BULK, seed=6)]


__all__ = ["KAFKA", "ONCELOG", "full", "must_fail", "short"]
