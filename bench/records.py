"""How fast records are put into batches and taken out again, on one core:  python -m bench.records

aiokafka's builder and reader (compiled C, a Python object for each record) run in the same process, in turn with ours.
Figures are millions of records a second of processor time, the best of some rounds.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from oncelog.records.arrow import to_arrow
from oncelog.records.build import NewRecord, build_batch
from oncelog.records.columns import decode, encode
from oncelog.records.header import check_produced, headers
from oncelog.records.read import records_of

TIMESTAMP_MS = 1_700_000_000_000
ROUNDS = 5
RECORDS_A_ROUND = 400_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def values(count: int) -> list[NewRecord]:
    """100 bytes that compress about as text does."""
    texts = [(b"%012d the log keeps every record once; " % (i * 7919)) * 2 for i in range(count)]
    return [(None, text[:100], (), TIMESTAMP_MS + i // 10) for i, text in enumerate(texts)]


def with_everything(count: int) -> list[NewRecord]:
    return [
        (b"key-%d" % i, value, [("trace", b"0123456789abcdef")], at)
        for i, (_, value, _, at) in enumerate(values(count))
    ]


def built_by_aiokafka(records: list[NewRecord], codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0,
        producer_id=1, producer_epoch=0, base_sequence=0, batch_size=1 << 30,
    )  # fmt: skip
    for offset, (key, value, pairs, timestamp) in enumerate(records):
        builder.append(offset, timestamp, key, value, list(pairs))
    return bytes(builder.build())


def read_by_aiokafka(log: bytes) -> None:
    view = memoryview(log)
    for at, header in headers(log):
        batch = DefaultRecordBatch(bytes(view[at : at + header.size_bytes]))
        if not batch.validate_crc():
            raise ValueError("a wrong CRC")
        for record in batch:
            _ = record.value


def read_by_us(log: bytes) -> None:
    for at, _ in headers(log):
        records_of(log, at)


def best(work: Callable[[], Any], records: int) -> float:
    """Millions of records a second."""
    work()
    gc.collect()
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return records / min(seconds) / 1e6


def a_response(records: list[NewRecord], a_batch: int, codec: int) -> bytes:
    """Batch after batch, as a fetch brings them."""
    starts = range(0, len(records), a_batch)
    parts = [build_batch(records[at : at + a_batch], codec=codec, base_offset=at) for at in starts]
    return b"".join(bytes(part) for part in parts)


def measure(name: str, records: list[NewRecord], a_batch: int, codec: int, columns: set[str]) -> None:
    log = a_response(records, a_batch, codec)
    rounds = max(1, RECORDS_A_ROUND // len(records))
    few = records[: max(a_batch, 20_000)]
    few_log = a_response(few, a_batch, codec)
    batches = [few[at : at + a_batch] for at in range(0, len(few), a_batch)]
    decoded = decode(log)
    target_bytes = max(header.size_bytes for _, header in headers(a_response(records, a_batch, 0)))
    kept: dict[str, Any] = {"value": decoded.value, "timestamp_ms": decoded.timestamp_ms}
    if "headers" in columns:
        kept |= {"key": decoded.key, "headers": decoded.headers}

    def repeated(work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(rounds):
                work()

        return run

    many = rounds * len(records)
    figures = {
        "decode": [
            best(repeated(lambda: decode(log, columns=columns)), many),
            best(repeated(lambda: to_arrow(decode(log, columns=columns))), many),
            best(lambda: read_by_us(few_log), len(few)),
            best(lambda: read_by_aiokafka(few_log), len(few)),
        ],
        "encode": [
            best(repeated(lambda: encode(**kept, codec=codec, target_bytes=target_bytes)), many),
            float("nan"),
            best(lambda: [build_batch(batch, codec=codec) for batch in batches], len(few)),
            best(lambda: [built_by_aiokafka(batch, codec) for batch in batches], len(few)),
        ],
    }
    for what, found in figures.items():
        cells = "".join(f"{'':>10}" if figure != figure else f"{figure:10.2f}" for figure in found)
        print(f"{what} {name:42}{cells}", flush=True)


def check_speed() -> None:
    [record] = values(1)
    batch = memoryview(build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0))
    count = 200_000
    start = time.process_time()
    for _ in range(count):
        check_produced(batch)
    print(
        f"checking a produced batch of one record, CRC included: {(time.process_time() - start) / count * 1e6:.2f} us"
    )


def main() -> None:
    print(f"{'million records a second of one core':49}{'columns':>10}{'to Arrow':>10}{'pure':>10}{'aiokafka':>10}")
    plain = {"value", "offset", "timestamp"}
    # A fetch response of 1 MB holds about 9,000 records of 100 bytes.
    for a_batch in (1, 150, 9_000):
        measure(f"100-byte values, {a_batch:,} a batch", values(9_000), a_batch, 0, plain)
    measure("the same, a response of 32 MB", values(290_000), 9_000, 0, plain)
    measure("key, value, a header, 9,000 a batch", with_everything(9_000), 9_000, 0, plain | {"key", "headers"})
    for name, codec in CODECS.items():
        if codec:
            measure(f"100-byte values, 9,000 a batch, {name}", values(9_000), 9_000, codec, plain)
    check_speed()


if __name__ == "__main__":
    main()
