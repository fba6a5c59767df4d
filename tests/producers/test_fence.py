"""The fence's control record: its bytes, and what Python clients read in it (see also `test_clients_skip_fences`)."""

import pytest
from aiokafka.record.control_record import ABORT_MARKER
from aiokafka.record.control_record import ControlRecord as AioControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from kafka.record.default_records import ControlRecord
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from oncelog.producers.fence import FENCE_TYPE, NotAFence, fence_key, fence_value, is_fence, read_fence
from oncelog.records.build import build_batch

PID, GENERATION = 4_000_000_000, 32767


def batch() -> bytes:
    record = (fence_key(), fence_value(PID, GENERATION), (), 1_700_000_000_000)
    return bytes(build_batch([record], producer_id=PID, producer_epoch=GENERATION, is_control=True))


def test_it_says_whom_it_fences() -> None:
    assert read_fence(fence_key(), fence_value(PID, GENERATION)) == (PID, GENERATION)


def test_its_bytes_never_change() -> None:
    assert fence_key() == bytes.fromhex("0000 4f4c")
    assert fence_value(PID, GENERATION) == bytes.fromhex("0000 00000000ee6b2800 7fff")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"\0\0\0\0", b"\0\0\0\0\0\0"),  # Kafka's abort marker
        (b"\0\1\x4f\x4c", fence_value(1, 1)),
        (fence_key() + b"\0", fence_value(1, 1)),
        (fence_key(), None),
        (fence_key(), fence_value(1, 1)[:-1]),
        (fence_key(), b"\0\1" + fence_value(1, 1)[2:]),
    ],
)
def test_what_is_no_fence_of_this_version_is_not_read_as_one(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(NotAFence):
        read_fence(key, value)


def test_its_type_is_none_of_kafkas() -> None:
    assert FENCE_TYPE not in range(-1, 16)
    assert 0 < FENCE_TYPE < 2**15
    assert not is_fence(b"\0\0\0\1")


def test_aiokafka_takes_it_for_a_control_batch_that_aborts_nothing() -> None:
    read = AioBatch(batch())
    assert read.is_control_batch and not read.is_transactional
    assert AioControlRecord.parse(next(read).key or b"") != ABORT_MARKER


def test_kafka_python_takes_it_for_a_control_batch_that_aborts_nothing() -> None:
    read = KafkaPythonBatch(batch())
    assert read.is_control_batch and not read.is_transactional
    record = next(read)
    assert isinstance(record, ControlRecord)
    assert not record.abort and not record.commit
