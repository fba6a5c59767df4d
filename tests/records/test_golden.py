"""What a real Kafka stored is read as Kafka's own tools read it, by every reader that we have."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from oncelog.records.build import encode_headers
from oncelog.records.codecs import CODECS
from oncelog.records.columns import decode
from oncelog.records.header import BatchHeader, body_crc, headers
from oncelog.records.read import records_of
from oncelog.records.trim import retain, trim
from tests.records.samples import GOLDEN, Row, read_by_aiokafka, rows_of_columns

LOGS = sorted(GOLDEN.glob("*.log"), key=lambda path: path.name)
by_log = pytest.mark.parametrize("log", LOGS, ids=[log.stem for log in LOGS])


_TEXTS = re.compile(r".*?\](?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?(?: endTxnMarker: (?P<marker>.*))?")


class DumpedBatch(NamedTuple):
    facts: dict[str, str]
    records: list[dict[str, Any]]


def dump_of(log: Path) -> list[DumpedBatch]:
    """`name: value` pairs as DumpLogSegments prints them; a record's key and payload go on to the end."""
    batches: list[DumpedBatch] = []
    for line in log.with_suffix(".dump").read_text().splitlines():
        if line.startswith("|"):
            numbers, _, texts = line[2:].partition(" headerKeys: ")
            facts: dict[str, Any] = dict(re.findall(r"(\w+): (\S+)", numbers))
            facts["headerKeys"] = texts[1 : texts.index("]")]
            found = _TEXTS.fullmatch(texts)
            assert found, line
            facts.update(found.groupdict())
            batches[-1].records.append(facts)
        else:
            batches.append(DumpedBatch(dict(re.findall(r"(\w+): (\S+)", line)), []))
    return batches


def time_of(facts: dict[str, str]) -> int:
    return int(facts.get("CreateTime") or facts["LogAppendTime"])


def test_there_is_a_log_of_each_codec_by_each_producer() -> None:
    names = {log.stem for log in LOGS}
    assert names >= {f"{producer}-{codec}" for producer in ("java", "librdkafka") for codec in CODECS}
    for log in LOGS:
        producer, _, codec = log.stem.partition("-")
        if producer in ("java", "librdkafka"):
            assert {header.codec for _, header in headers(log.read_bytes())} == {CODECS[codec]}


@by_log
def test_every_batch_header_says_what_kafka_says(log: Path) -> None:
    data = log.read_bytes()
    found = list(headers(data))
    assert sum(header.size_bytes for _, header in found) == len(data)
    dumped = dump_of(log)
    assert len(found) == len(dumped) > 0
    for (at, header), (facts, _) in zip(found, dumped, strict=True):
        assert_header(header, facts)
        assert body_crc(data, at, header.size_bytes) == header.crc


def assert_header(header: BatchHeader, facts: dict[str, str]) -> None:
    last_sequence = header.base_sequence + header.last_offset_delta if header.base_sequence >= 0 else -1
    assert {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "size": header.size_bytes,
        "crc": header.crc,
    } == {name: int(facts[name]) for name in facts if name in _NUMBERS}
    assert facts["isTransactional"] == str(header.is_transactional).lower()
    assert facts["isControl"] == str(header.is_control).lower()
    assert CODECS[facts["compresscodec"]] == header.codec
    assert time_of(facts) == header.max_timestamp
    assert header.has_log_append_time == ("LogAppendTime" in facts)


_NUMBERS = {
    "baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId", "producerEpoch",
    "partitionLeaderEpoch", "size", "crc",
}  # fmt: skip


@by_log
def test_every_record_is_what_kafka_reads(log: Path) -> None:
    data = log.read_bytes()
    for (at, header), (_, dumped) in zip(headers(data), dump_of(log), strict=True):
        records = records_of(data, at)
        assert len(records) == len(dumped)
        for record, facts in zip(records, dumped, strict=True):
            assert record.offset == int(facts["offset"])
            assert record.timestamp_ms == time_of(facts)
            assert (-1 if record.key is None else len(record.key)) == int(facts["keySize"])
            assert (-1 if record.value is None else len(record.value)) == int(facts["valueSize"])
            assert ",".join(name.decode() for name, _ in record.headers) == facts["headerKeys"]
            if not header.is_control:
                assert record.key == (None if facts["key"] is None else facts["key"].encode())
                assert record.value == (None if facts["payload"] is None else facts["payload"].encode())


@by_log
def test_aiokafka_and_the_loops_read_the_same_rows(log: Path) -> None:
    data = log.read_bytes()
    rows = [Row(*record) for at, header in headers(data) if not header.is_control for record in records_of(data, at)]
    assert rows
    assert read_by_aiokafka(data) == rows
    columns = decode(data)
    assert rows_of_columns(columns) == rows
    assert columns.consumed_bytes == len(data)
    assert columns.next_offset == int(dump_of(log)[-1].facts["lastOffset"]) + 1
    is_append_time = ["LogAppendTime" in facts for _, dumped in dump_of(log) for facts in dumped if not facts["marker"]]
    assert columns.timestamp_type().tolist() == [int(is_it) for is_it in is_append_time]


@by_log
def test_from_every_offset_to_every_other_the_rows_between_are_given(log: Path) -> None:
    data = log.read_bytes()
    rows = rows_of_columns(decode(data))
    end = rows[-1].offset + 2
    for start in range(end + 1):
        assert rows_of_columns(decode(data, start_offset=start)) == [row for row in rows if row.offset >= start]
        stop = (start * 7 + 3) % (end + 1)
        some = decode(data, start_offset=start, end_offset=stop)
        assert rows_of_columns(some) == [row for row in rows if start <= row.offset < stop]
        assert some.next_offset <= max(start, stop)


@by_log
def test_the_columns_of_the_batches_are_their_headers(log: Path) -> None:
    data = log.read_bytes()
    batches = decode(data).batches
    expected = [header for _, header in headers(data) if not header.is_control]
    assert batches.base_offset.tolist() == [header.base_offset for header in expected]
    assert batches.last_offset.tolist() == [header.last_offset for header in expected]
    assert batches.leader_epoch.tolist() == [header.leader_epoch for header in expected]
    assert batches.attributes.tolist() == [header.attributes for header in expected]
    assert batches.producer_id.tolist() == [header.producer_id for header in expected]
    assert batches.producer_epoch.tolist() == [header.producer_epoch for header in expected]
    assert batches.base_sequence.tolist() == [header.base_sequence for header in expected]
    assert batches.record_count.tolist() == [header.record_count for header in expected]
    assert batches.first_row.tolist() == np.cumsum([0, *(header.record_count for header in expected)])[:-1].tolist()


@by_log
def test_a_trimmed_or_thinned_batch_is_the_rest_of_it_to_another_reader(log: Path) -> None:
    data = log.read_bytes()
    for at, header in headers(data):
        batch = data[at : at + header.size_bytes]
        rows = [] if header.is_control else read_by_aiokafka(batch)
        for drop in range(0, len(rows), 3):
            assert read_by_aiokafka(bytes(trim(batch, drop))) == rows[drop:]
            keep = [number % (drop + 2) == 0 for number in range(len(rows))]
            kept = [row for row, is_kept in zip(rows, keep, strict=True) if is_kept]
            assert read_by_aiokafka(bytes(retain(data, keep, at))) == kept


def test_header_values_come_back_as_librdkafka_was_given_them() -> None:
    records = records_of((GOLDEN / "librdkafka-zstd.log").read_bytes())
    for number, record in enumerate(records):
        assert record.headers == tuple((b"h%d" % n, b"v%d" % n if n else None) for n in range(number % 4))


def test_kafkas_bytes_of_headers_are_ours() -> None:
    data = (GOLDEN / "java-none.log").read_bytes()
    for record in records_of(data):
        assert encode_headers(record.headers) in data
