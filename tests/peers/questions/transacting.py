"""Transactions by hand, for the questions about them: each step of a producer, and each look at what it did."""

import time
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from tests.raw import RawConnection, batch
from tests.raw.batches import HEADER

COMMIT, ABORT = True, False
TRANSACTIONAL = 0x10
PASSING = ("concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available", "not_coordinator")
PATIENCE_S = 20


class Who(NamedTuple):
    """A producer, as it names itself in a request."""

    name: str
    pid: int
    epoch: int


def once_passed(ask: Any) -> Any:
    """Markers are written behind the answer, and a fresh broker has to make its topics: that passes."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        error = answer if isinstance(answer, str) else answer[0]
        if error not in PASSING or time.monotonic() > give_up:
            return answer
        time.sleep(0.02)


def find(c: RawConnection, key: str, key_type: int) -> str:
    answer = c.call("find_coordinator", 3, key=key, key_type=key_type)
    return str(answer.error_code.name)


def init_once(
    c: RawConnection, name: str | None, *, version: int = 4, timeout_ms: int = 60_000, pid: int = -1, epoch: int = -1
) -> tuple[str, int, int]:
    answer = c.call(
        "init_producer_id",
        version,
        transactional_id=name,
        transaction_timeout=timeout_ms,
        producer_id=pid,
        producer_epoch=epoch,
    )
    return answer.error_code.name, answer.producer_id, answer.producer_epoch


def begun(c: RawConnection, name: str, **more: Any) -> Who:
    once_passed(lambda: find(c, name, 1))
    error, pid, epoch = once_passed(lambda: init_once(c, name, **more))
    assert error == "none", error
    return Who(name, pid, epoch)


def add(c: RawConnection, who: Who, topic: str, *partitions: int, version: int = 3) -> list[str]:
    answer = c.call(
        "add_partitions_to_txn",
        version,
        v3_and_below_transactional_id=who.name,
        v3_and_below_producer_id=who.pid,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
    )
    results = answer.results_by_topic_v3_and_below
    return [
        name_of_code(each.partition_error_code)
        for topic in results
        for each in sorted(topic.results_by_partition, key=lambda one: int(one.partition_index))
    ]


def name_of_code(code: Any) -> str:
    return str(ErrorCode(int(code)).name)


def added(c: RawConnection, who: Who, topic: str, *partitions: int) -> None:
    assert once_passed(lambda: add(c, who, topic, *partitions)[0]) == "none"


def write(
    c: RawConnection,
    who: Who,
    topic: str,
    sequence: int,
    *values: bytes,
    version: int = 9,
    partition: int = 0,
    attributes: int | None = TRANSACTIONAL,
    is_named: bool = True,
) -> str:
    records = batch(list(values or (b"x",)), pid=who.pid, epoch=who.epoch, sequence=sequence, attributes=attributes)
    answer = c.call(
        "produce",
        version,
        transactional_id=who.name if is_named else None,
        acks=-1,
        timeout=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )
    return str(answer.responses[0].partition_responses[0].error_code.name)


def written(c: RawConnection, who: Who, topic: str, sequence: int, *values: bytes, version: int = 9) -> None:
    answer = once_passed(lambda: write(c, who, topic, sequence, *values, version=version))
    assert answer == "none", answer


def end_once(c: RawConnection, who: Who, is_commit: bool, version: int = 3) -> tuple[str, int, int]:
    answer = c.call(
        "end_txn",
        version,
        transactional_id=who.name,
        producer_id=who.pid,
        producer_epoch=who.epoch,
        committed=is_commit,
    )
    return answer.error_code.name, getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)


def end(c: RawConnection, who: Who, is_commit: bool, version: int = 3) -> tuple[str, int]:
    """Once the one before it is through; the error, and the epoch behind it."""
    error, pid, epoch = once_passed(lambda: end_once(c, who, is_commit, version))
    assert pid in (-1, who.pid)
    return error, epoch


def ended(c: RawConnection, who: Who, is_commit: bool, version: int = 3) -> Who:
    """Until every partition has its marker."""
    error, epoch = end(c, who, is_commit, version)
    assert error == "none", error
    give_up = time.monotonic() + PATIENCE_S
    while not state_of(c, who.name).startswith("Complete") and time.monotonic() < give_up:
        time.sleep(0.01)
    return who if version < 5 else who._replace(epoch=epoch)


def state_of(c: RawConnection, name: str) -> str:
    return str(described(c, name)[1])


def described(c: RawConnection, name: str) -> tuple[Any, ...]:
    """Read by hand: kio knows no time before 1970, and an id without a transaction began at -1."""
    c.ask("describe_transactions", 0, transactional_ids=[name])
    c.forget_asked()
    read = Reader(c.receive_bytes()[4 + 1 + 4 + 1 :])  # correlation id, tags, throttle time, one state
    error, _, state = read.number(2), read.text(), read.text()
    read.number(4)
    start_ms, _, epoch = read.number(8), read.number(8), read.number(2)
    topics = []
    for _ in range(read.count()):
        topic, indexes = read.text(), [read.number(4) for _ in range(read.count())]
        read.number(1)
        topics.append((len(topic) - len(name), sorted(indexes)))
    return ErrorCode(error).name, state, epoch, topics, start_ms if start_ms <= 0 else "a time"


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, size: int) -> int:
        taken, self._data = self._data[:size], self._data[size:]
        return int.from_bytes(taken, "big", signed=True)

    def count(self) -> int:
        return self.number(1) - 1

    def text(self) -> str:
        size = self.count()
        taken, self._data = self._data[:size], self._data[size:]
        return taken.decode()


def seen(c: RawConnection, topic: str, *, is_committed: bool, version: int = 11) -> object:
    """What one fetch tells of a partition: the batches, their kinds, and what was aborted."""
    newer: dict[str, Any] = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []} if version >= 7 else {}
    answer = c.call(
        "fetch",
        version,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(is_committed),
        **newer,
        **({"rack_id": ""} if version >= 11 else {}),
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": 0,
                        "partition_max_bytes": 1 << 20,
                        **({"log_start_offset": -1} if version >= 5 else {}),
                        **({"current_leader_epoch": -1} if version >= 9 else {}),
                    }
                ],
            }
        ],
    )
    found = answer.responses[0].partitions[0]
    data, at, batches = bytes(found.records or b""), 0, []
    while at + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, at)
        batches.append((fields[0], fields[5] & 0x30, fields[6], fields[10]))
        at += fields[1] + 12
    aborted = None
    if found.aborted_transactions is not None:
        aborted = sorted(each.first_offset for each in found.aborted_transactions)
    return found.high_watermark, found.last_stable_offset, aborted, batches


def latest(c: RawConnection, topic: str, timestamp: int, isolation_level: int) -> tuple[str, int]:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    answer = c.call(
        "list_offsets",
        8,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": [wanted]}],
    )
    found = answer.topics[0].partitions[0]
    return found.error_code.name, found.offset


def producer(c: RawConnection, who: Who, topic: str) -> object:
    found = [each for each in c.describe_producers(topic, 0).active_producers if each.producer_id == who.pid]
    return [
        # Which epoch the coordinator is in says how often that broker was started.
        (each.producer_epoch, each.last_sequence, each.current_txn_start_offset, min(each.coordinator_epoch, 0))
        for each in found
    ]


def mark(c: RawConnection, who: Who, topic: str, coordinator_epoch: int, is_commit: bool, version: int) -> object:
    marker = {
        "producer_id": who.pid,
        "producer_epoch": who.epoch,
        "transaction_result": is_commit,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
        **({"transaction_version": 2} if version >= 2 else {}),
    }
    answer = c.call("write_txn_markers", version, markers=[marker])
    return [name_of_code(each.error_code) for each in answer.markers[0].topics[0].partitions]


def offsets(
    c: RawConnection, who: Who, group: str, topic: str, offset: int, version: int = 3, **member: Any
) -> list[str]:
    partitions = [{"partition_index": index, "committed_offset": offset, "committed_metadata": ""} for index in (0, 9)]
    answer = c.call(
        "txn_offset_commit",
        version,
        transactional_id=who.name,
        group_id=group,
        producer_id=who.pid,
        producer_epoch=who.epoch,
        topics=[{"name": topic, "partitions": partitions}],
        **({"generation_id": -1, "member_id": "", **member} if version >= 3 else {}),
    )
    found = sorted(answer.topics[0].partitions, key=lambda one: int(one.partition_index))
    return [name_of_code(each.error_code) for each in found]


def fetched(c: RawConnection, group: str, topic: str, *, is_stable: bool) -> tuple[str, int]:
    answer = c.call(
        "offset_fetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=is_stable,
    )
    if answer.error_code is not ErrorCode.none:
        return answer.error_code.name, -1
    found = answer.topics[0].partitions[0]
    return found.error_code.name, found.committed_offset


def add_offsets(c: RawConnection, who: Who, group: str, version: int = 3) -> str:
    answer = c.call(
        "add_offsets_to_txn",
        version,
        transactional_id=who.name,
        producer_id=who.pid,
        producer_epoch=who.epoch,
        group_id=group,
    )
    return str(answer.error_code.name)
