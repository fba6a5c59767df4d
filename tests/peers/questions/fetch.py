"""Fetch and the offsets that lead to it."""

import uuid
from typing import Any

from tests.peers.questions.asking import EPOCH_MS, KEEP, question
from tests.raw import RawConnection, Rec, batch
from tests.raw.batches import HEADER

# --- fetch ----------------------------------------------------------------------------------------------------------


def filled(c: RawConnection, topic: str, batches: int = 5, records: int = 3, **configs: str) -> None:
    c.create_topic(topic, configs=KEEP | {key.replace("_", "."): value for key, value in configs.items()})
    for i in range(batches):
        c.produce(topic, 0, batch([b"x" * 100] * records, timestamp_ms=EPOCH_MS + 1000 * i))


def fetched(part: Any) -> tuple[object, ...]:
    firsts, at = [], 0
    records = part.records or b""
    while at + HEADER.size <= len(records):
        header = HEADER.unpack_from(records, at)
        firsts.append((header[0], header[0] + header[6]))
        at += header[1] + 12
    return part.error_code.name, part.high_watermark, part.log_start_offset, firsts


@question
def fetch_from_each_kind_of_offset(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    return [fetched(c.fetch(topic, 0, offset)) for offset in (0, 1, 3, 14, 15)]


@question
def fetch_out_of_range(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    return [fetched(c.fetch(topic, 0, offset)) for offset in (16, 10**9, -1, -5)]


@question
def fetch_of_unknown_places(c: RawConnection, topic: str) -> object:
    absent = fetched(c.fetch(topic, 0, 0))
    filled(c, topic)
    return absent, fetched(c.fetch(topic, 9, 0)), fetched(c.fetch(topic, -1, 0))


@question
def fetch_gives_at_least_one_batch(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    return [fetched(c.fetch(topic, 0, 0, partition_max_bytes=size)) for size in (1, 400, 900)], [
        fetched(c.fetch(topic, 0, 0, max_bytes=size)) for size in (1, 900)
    ]


@question
def fetch_in_old_and_new_versions(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    errors = []
    for version in range(4, 13):
        values = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
        if version >= 7:
            values |= {"session_id": 0, "session_epoch": -1}
        wanted: dict[str, object] = {"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20}
        if version >= 9:
            wanted["current_leader_epoch"] = -1
        asked: dict[str, Any] = {**values, "topics": [{"topic": topic, "partitions": [wanted]}]}
        part = c.call("fetch", version, **asked).responses[0].partitions[0]
        errors.append((version, part.error_code.name, part.high_watermark, len(part.records)))
    return errors


@question
def fetch_by_topic_id(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    known = c.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
    answers = []
    for topic_id in (known, uuid.UUID(int=99)):
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        topics = [{"topic_id": topic_id, "partitions": [wanted]}]
        limits: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        answer = c.call("fetch", 13, replica_id=-1, topics=topics, **limits)
        answers.append([(p.error_code.name, p.high_watermark) for t in answer.responses for p in t.partitions])
    return answers


@question
def fetch_with_a_stale_and_a_future_leader_epoch(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    answers = []
    for epoch in (-1, 0, 1000):
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": epoch}
        topics = [{"topic": topic, "partitions": [wanted]}]
        limits: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        part = c.call("fetch", 11, replica_id=-1, topics=topics, **limits).responses[0].partitions[0]
        answers.append(part.error_code.name)
    return answers


@question
def fetch_in_an_unknown_session(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    answer = c.call("fetch", 11, max_wait=0, min_bytes=1, max_bytes=1000, session_id=77, session_epoch=5, replica_id=-1)
    return answer.error_code.name


# --- offsets --------------------------------------------------------------------------------------------------------


def offset_answer(part: Any) -> tuple[str, object, int]:
    stamp = getattr(part, "timestamp", None)
    return part.error_code.name, stamp, part.offset


@question
def list_offsets_of_every_kind(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    kinds = (-1, -2, -3, 0, EPOCH_MS, EPOCH_MS + 1, EPOCH_MS + 1000, EPOCH_MS + 4000, EPOCH_MS + 4001)
    return [offset_answer(c.offset_at(topic, 0, kind)) for kind in kinds]


@question
def list_offsets_within_a_batch(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs=KEEP)
    records = [Rec(b"x", timestamp_delta_ms=delta) for delta in (0, 50, 20, 90)]
    for codec in (0, 1):
        c.produce(topic, 0, batch(records, timestamp_ms=EPOCH_MS + 100 * codec, codec=codec))
    kinds = (-3, EPOCH_MS + 10, EPOCH_MS + 60, EPOCH_MS + 95, EPOCH_MS + 130, EPOCH_MS + 190, EPOCH_MS + 191)
    return [offset_answer(c.offset_at(topic, 0, kind)) for kind in kinds]


@question
def list_offsets_of_an_empty_log(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return [offset_answer(c.offset_at(topic, 0, kind)) for kind in (-1, -2, -3, 0)]


@question
def list_offsets_of_unknown_places(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return offset_answer(c.offset_at(topic, 5, -1)), offset_answer(c.offset_at(topic + "-absent", 0, -1))


@question
def list_offsets_of_kinds_that_do_not_exist(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    return [offset_answer(c.offset_at(topic, 0, kind)) for kind in (-9, -100)]


@question
def end_of_a_leader_epoch(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    answers = []
    for epoch in (0, 5, -1):
        wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        topics = [{"topic": topic, "partitions": [wanted]}]
        part = c.call("offset_for_leader_epoch", 4, replica_id=-1, topics=topics).topics[0].partitions[0]
        answers.append((part.error_code.name, part.leader_epoch, part.end_offset))
    return answers
