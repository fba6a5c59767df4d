"""Kafka's own tool reads our segments, and finds nothing to complain about."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.log.disk import RealDisk
from oncelog.log.partition import PartitionLog
from tests.log.support import KAFKA_PID, LEASED, NOW, SMALL, open_log, put
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip

CONFIG = replace(SMALL, segment_bytes=100_000, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


def filled(folder: Path) -> PartitionLog:
    log = open_log(RealDisk(), CONFIG, folder=f"{folder}/orders-0")
    for codec in range(5):
        put(log, b"first", b"second", key=b"k%d" % codec, codec=codec, pid=KAFKA_PID, sequence=2 * codec)
    put(log, b"leased", key=b"k0", pid=LEASED, sequence=0)
    log.fence(LEASED, 1, NOW)
    return log


def dumped(log: PartitionLog) -> list[dict[str, str]]:
    """The tool's line about each batch."""
    try:
        order = kafka_java(
            "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", log.segments[0].log_path
        )
    except MissingPeer as reason:
        need_or_skip(reason)
    done = subprocess.run(order, capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("baseOffset:")]
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]


@pytest.mark.peers
def test_kafkas_dump_tool_reads_every_batch(tmp_path: Path) -> None:
    log = filled(tmp_path)
    found = dumped(log)
    assert [int(each["baseOffset"]) for each in found] == [0, 2, 4, 6, 8, 10, 11]
    assert {each["isvalid"] for each in found} == {"true"}
    assert [each["compresscodec"] for each in found[:5]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [int(each["baseSequence"]) for each in found[:6]] == [0, 2, 4, 6, 8, 0]
    assert found[-1]["isControl"] == "true"
    log.close()


@pytest.mark.peers
def test_kafkas_dump_tool_reads_a_compacted_segment_with_its_empty_batches(tmp_path: Path) -> None:
    log = filled(tmp_path)
    put(log, b"newer", key=b"k4")
    log.segments.roll()
    assert log.compact(NOW)
    found = dumped(log)
    assert {each["isvalid"] for each in found} == {"true"}
    counts = {int(each["baseOffset"]): int(each["count"]) for each in found}
    assert counts == {2: 1, 4: 1, 6: 1, 8: 0, 10: 1, 11: 1, 12: 1}
    log.close()
