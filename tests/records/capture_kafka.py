"""Capture golden files from a real Apache Kafka: `python -m tests.records.capture_kafka` writes `golden/` anew.

For each topic the log exactly as Kafka stored it, and what Kafka's own DumpLogSegments reads in it. Java's
producer writes `java-CODEC`, librdkafka writes `librdkafka-CODEC`. `refused.json` holds produced batches that are wrong
in one way each, and the error that Kafka gave.
"""

import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from crc32c import crc32c

from tests.peers.apache import ApacheKafka
from tests.peers.jars import kafka_java
from tests.raw import CODECS, RawConnection, Rec, batch, message_set

GOLDEN = Path(__file__).parent / "golden"
TIMESTAMP_MS = 1_700_000_000_000
PATIENCE_S = 60


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}
        with ApacheKafka(Path(folder) / "kafka", settings=settings) as kafka, RawConnection(kafka.port) as raw:
            names = _produce_everything(kafka, raw)
            refused = _ask_about_wrong_batches(raw)
            GOLDEN.mkdir(exist_ok=True)
            for name in names:
                _keep(kafka.data / f"{name}-0", name)
    (GOLDEN / "refused.json").write_text(json.dumps(refused, indent=1) + "\n")


def _produce_everything(kafka: ApacheKafka, raw: RawConnection) -> list[str]:
    names: list[str] = []

    def topic(name: str, **configs: str) -> str:
        raw.create_topic(name, configs={key.replace("_", "."): value for key, value in configs.items()})
        names.append(name)
        return name

    for codec in CODECS:
        _by_java(kafka, topic(f"java-{codec}"), codec)
        _by_librdkafka(kafka, topic(f"librdkafka-{codec}"), codec)
    _by_librdkafka(kafka, topic("append-time", message_timestamp_type="LogAppendTime"), "lz4")
    _by_librdkafka(kafka, topic("recompressed", compression_type="zstd"), "gzip")
    _in_transactions(kafka, topic("transactions"))
    _compacted(kafka, raw, topic("compacted", cleanup_policy="compact", **_CLEAN_AT_ONCE))
    return names


_CLEAN_AT_ONCE = {
    "min_cleanable_dirty_ratio": "0.0",
    "segment_ms": "100",
    "max_compaction_lag_ms": "100",
    "delete_retention_ms": "86400000",
}


def _by_java(kafka: ApacheKafka, topic: str, codec: str) -> None:
    lines = [f"h{i}:v{i},same:{i}\tkey-{i % 3}\t{'value ' * (i * 3)}{i}" for i in range(20)]
    lines += ["none\tNULL\tno key, no headers", "h:NULL\tkey\tNULL"]
    properties = {"parse.key": "true", "parse.headers": "true", "null.marker": "NULL"}
    reader = [part for key, value in properties.items() for part in ("--reader-property", f"{key}={value}")]
    order = kafka_java(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--compression-codec", codec),
        *("--command-property", "linger.ms=500", *reader),
    )
    text = "\n".join(line.replace("none\t", "NULL\t", 1) for line in lines) + "\n"
    subprocess.run(order, input=text.encode(), check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)


def _by_librdkafka(kafka: ApacheKafka, topic: str, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 200,
            "enable.idempotence": True,
        }
    )
    for turn in range(2):
        for i in range(25):
            headers: list[tuple[str, str | bytes | None]] = [(f"h{n}", f"v{n}" if n else None) for n in range(i % 4)]
            key = None if i % 5 == 0 else f"key-{i}"
            value = None if i % 7 == 3 else f"{turn}" + " value" * (i * 3)
            producer.produce(topic, value, key, timestamp=TIMESTAMP_MS + (i * 37) % 50 - 10, headers=headers)
        producer.flush(PATIENCE_S)


def _in_transactions(kafka: ApacheKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "golden", "linger.ms": 50})
    producer.init_transactions(PATIENCE_S)
    for turn in range(4):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, f"turn {turn} record {i}", f"key-{i}", timestamp=TIMESTAMP_MS + i)
        producer.flush(PATIENCE_S)
        if turn % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def _compacted(kafka: ApacheKafka, raw: RawConnection, topic: str) -> None:
    """Batches with holes, a tombstone, and a batch of which nothing but the header was left."""
    first_pid, epoch = raw.init_producer_id()
    now_ms = time.time_ns() // 1_000_000
    rounds = [[(f"key-{i}", f"old {i}") for i in range(8)], [(f"key-{i}", f"new {i}") for i in range(0, 8, 2)]]
    for number, pairs in enumerate(rounds):
        records = [Rec(value.encode(), key.encode(), (), i) for i, (key, value) in enumerate(pairs)]
        sequence = 8 * number
        raw.produce(
            topic, 0, batch(records, pid=first_pid, epoch=epoch, sequence=sequence, timestamp_ms=now_ms, codec=3)
        )
    other_pid, other_epoch = raw.init_producer_id()
    for turn in range(2):
        records = [Rec(b"%d" % turn, b"overwritten"), Rec(None, b"tombstone")]
        data = batch(records, pid=other_pid + turn, epoch=other_epoch, sequence=0, timestamp_ms=now_ms, codec=1)
        raw.produce(topic, 0, data)
    segment = kafka.data / f"{topic}-0" / f"{0:020}.log"
    before = segment.stat().st_size
    give_up = time.monotonic() + PATIENCE_S
    number = 0
    while segment.stat().st_size in (0, before) or number < 3:
        if time.monotonic() > give_up:
            raise TimeoutError("Kafka's cleaner left the topic alone")
        time.sleep(0.5)
        number += 1
        raw.produce(topic, 0, batch([Rec(b"x", b"rolls the segment")]))
        before = max(before, segment.stat().st_size)
    time.sleep(2)


def _ask_about_wrong_batches(raw: RawConnection) -> list[dict[str, object]]:
    raw.create_topic("wrong")
    pid, epoch = raw.init_producer_id()
    answers: list[dict[str, object]] = []
    for name, data in wrong_batches(pid, epoch).items():
        error = raw.produce("wrong", 0, data).error_code
        answers.append({"case": name, "error": error.name.upper(), "batch": data.hex()})
    return answers


def wrong_batches(pid: int, epoch: int) -> dict[str, bytes]:
    good = batch([b"a", b"b"], timestamp_ms=TIMESTAMP_MS)
    return {
        "good": good,
        "nothing": b"",
        "one byte": b"\0",
        "16 bytes": good[:16],
        "17 bytes": good[:17],
        "a header without its last byte": good[:60],
        "a batch without its last byte": good[:-1],
        "two batches": good + good,
        "a batch and one byte": good + b"\0",
        "a batch and half a batch": good + good[:40],
        "magic 0": message_set(b"old", 0),
        "magic 1": message_set(b"old", 1),
        "magic 0 in a batch": batch([b"a"], magic=0, timestamp_ms=TIMESTAMP_MS),
        "magic 3": batch([b"a"], magic=3, timestamp_ms=TIMESTAMP_MS),
        "magic -1": batch([b"a"], magic=-1, timestamp_ms=TIMESTAMP_MS),
        "a wrong CRC": batch([b"a"], crc=1, timestamp_ms=TIMESTAMP_MS),
        "length 0": batch([b"a"], length_bytes=0, timestamp_ms=TIMESTAMP_MS),
        "length -1": batch([b"a"], length_bytes=-1, timestamp_ms=TIMESTAMP_MS),
        "length 48": batch([b"a"], length_bytes=48, timestamp_ms=TIMESTAMP_MS)[:60],
        "length of 2 GiB": batch([b"a"], length_bytes=(1 << 31) - 1, timestamp_ms=TIMESTAMP_MS),
        "no records": batch([], timestamp_ms=TIMESTAMP_MS),
        "a negative count": batch([b"a"], record_count=-1, timestamp_ms=TIMESTAMP_MS),
        "a count above the last delta": batch([b"a"], record_count=2, timestamp_ms=TIMESTAMP_MS),
        "a count below the last delta": batch([b"a", b"b"], record_count=1, timestamp_ms=TIMESTAMP_MS),
        "a huge count": batch([b"a"], record_count=1 << 30, last_offset_delta=(1 << 30) - 1, timestamp_ms=TIMESTAMP_MS),
        "a control batch": batch(
            [Rec(bytes(6), bytes(4))], attributes=0x20, pid=pid, epoch=epoch, sequence=0, timestamp_ms=TIMESTAMP_MS
        ),
        "codec 5": batch([b"a"], attributes=5, timestamp_ms=TIMESTAMP_MS),
        "codec 7": batch([b"a"], attributes=7, timestamp_ms=TIMESTAMP_MS),
        "log append time": batch([b"a"], attributes=8, timestamp_ms=TIMESTAMP_MS),
        "transactional": batch([b"a"], attributes=0x10, pid=pid, epoch=epoch, sequence=0, timestamp_ms=TIMESTAMP_MS),
        "a negative sequence": batch([b"a"], pid=pid, epoch=epoch, sequence=-1, timestamp_ms=TIMESTAMP_MS),
        "a negative epoch": batch([b"a"], pid=pid + 1000, epoch=-1, sequence=0, timestamp_ms=TIMESTAMP_MS),
        "pid -2": batch([b"a"], pid=-2, epoch=0, sequence=0, timestamp_ms=TIMESTAMP_MS),
        "a base offset of 5": batch([b"a"], base_offset=5, timestamp_ms=TIMESTAMP_MS),
        "a leader epoch": good[:12] + bytes(4) + good[16:],
        "an unused attribute bit": _with_attributes(good, 0x100),
    }


def _with_attributes(data: bytes, attributes: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">h", changed, 21, attributes)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def _keep(folder: Path, name: str) -> None:
    """The topic's segments one after the other, and Kafka's own reading of them."""
    segments = sorted(folder.glob("*.log"))
    files = ",".join(str(segment) for segment in segments)
    order = kafka_java("org.apache.kafka.tools.DumpLogSegments", "--files", files, "--print-data-log")
    dump = subprocess.run(order, check=True, timeout=PATIENCE_S, capture_output=True, text=True).stdout
    lines = [line for line in dump.splitlines() if line.startswith(("baseOffset: ", "| offset: "))]
    (GOLDEN / f"{name}.log").write_bytes(b"".join(segment.read_bytes() for segment in segments))
    (GOLDEN / f"{name}.dump").write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{name}: {len(lines)} lines\n")


if __name__ == "__main__":
    main()
