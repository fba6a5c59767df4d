"""Questions that any broker can be asked, each with what is worth comparing in its answer.

A question gets a connection and a topic name of its own, and returns plain values. It never looks at times, ids or
texts that may differ between two honest brokers.
"""

import socket
import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.raw import RawConnection, Rec, ServerClosed, batch, message_set
from tests.raw.batches import HEADER, squeeze

Question = Callable[[RawConnection, str], object]
QUESTIONS: dict[str, Question] = {}

EPOCH_MS = 1_700_000_000_000


def question(ask: Question) -> Question:
    QUESTIONS[ask.__name__.replace("_", " ")] = ask
    return ask


def produced(answer: Any) -> tuple[str, int]:
    return answer.error_code.name, answer.base_offset


def or_closed(ask: Callable[[], object]) -> object:
    """What came back, or that the connection was ended instead."""
    try:
        return ask()
    except ServerClosed:
        return "closed"


def settled(ask: Callable[[], object], wanted: object, patience_s: float = 5) -> object:
    """The answer once it is the wanted one, or the last one: a change that Kafka's controller has accepted reaches
    its broker a moment later."""
    give_up = time.monotonic() + patience_s
    while (last := ask()) != wanted and time.monotonic() < give_up:
        time.sleep(0.02)
    return last


# --- metadata -----------------------------------------------------------------------------------------------------


@question
def metadata_of_an_unknown_topic(c: RawConnection, topic: str) -> object:
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return [(t.error_code.name, t.name == topic, len(t.partitions)) for t in answer.topics]


@question
def metadata_creates_a_topic(c: RawConnection, topic: str) -> object:
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True)
    first = answer.topics[0].error_code.name in ("none", "unknown_topic_or_partition", "leader_not_available")
    c.await_leaders(topic, [0])
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True)
    return first, [(t.error_code.name, len(t.partitions)) for t in answer.topics]


@question
def metadata_of_an_illegal_name(c: RawConnection, topic: str) -> object:
    names = ["a b", "", ".", "..", "x" * 250, "é"]
    answers = [c.call("metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True) for name in names]
    return [answer.topics[0].error_code.name for answer in answers]


@question
def metadata_of_a_topic_id(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    known = c.call("metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
    asked = [{"topic_id": known, "name": None}, {"topic_id": uuid.UUID(int=77), "name": None}]
    answer = c.call("metadata", 12, topics=asked)
    return sorted((t.error_code.name, t.name == topic) for t in answer.topics)


@question
def metadata_of_no_topics_and_of_all(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    none = c.call("metadata", 9, topics=[]).topics
    every = c.call("metadata", 9, topics=None).topics
    return len(none), topic in {t.name for t in every}


@question
def partitions_tell_leader_replicas_and_epoch(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=3)
    answer = c.call("metadata", 9, topics=[{"name": topic}])
    here = answer.brokers[0].node_id
    return [
        (
            p.error_code.name,
            p.partition_index,
            p.leader_id == here,
            p.leader_epoch,
            len(p.replica_nodes),
            len(p.isr_nodes),
        )
        for p in sorted(answer.topics[0].partitions, key=lambda p: p.partition_index)
    ]


@question
def describe_topic_partitions_of_known_and_unknown(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    wanted = [{"name": topic}, {"name": topic + "-absent"}]
    answer = c.call("describe_topic_partitions", 0, topics=wanted, response_partition_limit=100)
    return sorted((t.error_code.name, t.name == topic, len(t.partitions)) for t in answer.topics)


@question
def describe_cluster(c: RawConnection, topic: str) -> object:
    answer = c.call("describe_cluster", 0)
    return answer.error_code.name, len(answer.brokers), answer.controller_id == answer.brokers[0].broker_id


# --- versions -----------------------------------------------------------------------------------------------------


@question
def api_versions_in_a_version_of_the_future(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 18, 99, 5, -1) + b"\x00")
    data = c.receive_bytes()
    correlation_id, error, count = struct.unpack_from(">ihi", data)
    keys = {struct.unpack_from(">h", data, 10 + 6 * i)[0] for i in range(count)}
    return correlation_id, error, 18 in keys


@question
def an_unknown_api_key(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 9999, 0, 5, -1))
    return or_closed(c.receive_bytes)


@question
def a_version_that_is_not_served(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 3, 99, 5, -1) + b"\x00")
    return or_closed(c.receive_bytes)


@question
def a_body_that_ends_too_early(c: RawConnection, topic: str) -> object:
    c.send_bytes(struct.pack(">hhih", 3, 1, 5, -1) + struct.pack(">i", 100))
    return or_closed(c.receive_bytes)


@question
def a_frame_of_negative_length(c: RawConnection, topic: str) -> object:
    c.socket.sendall(struct.pack(">i", -5) + b"12345")
    return or_closed(c.receive_bytes)


@question
def a_frame_of_two_gigabytes(c: RawConnection, topic: str) -> object:
    c.socket.sendall(struct.pack(">i", 2**31 - 1))
    return or_closed(c.receive_bytes)


@question
def a_frame_that_stops_half_way(c: RawConnection, topic: str) -> object:
    c.socket.sendall(struct.pack(">i", 100) + b"half")
    c.socket.shutdown(socket.SHUT_WR)
    return or_closed(c.receive_bytes)


# --- produce ------------------------------------------------------------------------------------------------------


@question
def produce_with_each_acks(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    answers = [produced(c.produce(topic, 0, batch([b"x"]), acks=acks)) for acks in (1, -1)]
    c.ask_produce(topic, 0, batch([b"x"]), acks=0)
    return answers, c.offset_at(topic, 0, -1).offset


@question
def produce_with_acks_two(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([b"x"]), acks=2))


@question
def produce_to_an_unknown_topic(c: RawConnection, topic: str) -> object:
    return produced(c.produce(topic, 0, batch([b"x"])))


@question
def produce_to_unknown_partitions(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return [produced(c.produce(topic, partition, batch([b"x"]))) for partition in (1, 77, -1)]


@question
def produce_in_old_and_new_versions(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return [produced(c.produce(topic, 0, batch([b"x"]), version=version)) for version in range(3, 13)]


def _produce_wrong(**wrong: Any) -> Question:
    def ask(c: RawConnection, topic: str) -> object:
        c.create_topic(topic)
        sent = batch([Rec(b"x" * 50), Rec(b"y" * 50)], **wrong)
        return produced(c.produce(topic, 0, sent)), c.offset_at(topic, 0, -1).offset

    return ask


WRONG_BATCHES: dict[str, dict[str, Any]] = {
    "a bad CRC": {"crc": 12345},
    "a length beyond the buffer": {"length_bytes": 5000},
    "a length within the header": {"length_bytes": 20},
    "a negative length": {"length_bytes": -1},
    "magic 3": {"magic": 3},
    "magic -1": {"magic": -1},
    "magic 1 in a header of magic 2": {"magic": 1},
    "more records counted than the last offset says": {"record_count": 9},
    "fewer records counted than the last offset says": {"record_count": 1},
    "a negative record count": {"record_count": -5},
    "a last offset that contradicts the count": {"last_offset_delta": 7},
    "a negative last offset": {"last_offset_delta": -3},
    "a control batch": {"attributes": 0x20},
    "a transactional batch": {"attributes": 0x10, "pid": 5, "epoch": 0, "sequence": 0},
    "a transactional batch without a producer": {"attributes": 0x10},
    "an unknown codec": {"attributes": 5},
    "a codec of seven": {"attributes": 7},
    "a base offset that is not zero": {"base_offset": 99},
    "a producer id without a sequence": {"pid": 7, "epoch": 0, "sequence": -1},
    "a producer id without an epoch": {"pid": 7, "epoch": -1, "sequence": 0},
    "a producer id of minus two": {"pid": -2, "epoch": 0, "sequence": 0},
    "a sequence without a producer id": {"pid": -1, "epoch": 0, "sequence": 5},
    "garbage that claims to be gzip": {"attributes": 1, "payload": b"no gzip at all"},
    "garbage that claims to be snappy": {"attributes": 2, "payload": b"no snappy at all"},
    "garbage that claims to be lz4": {"attributes": 3, "payload": b"no lz4 at all"},
    "garbage that claims to be zstd": {"attributes": 4, "payload": b"no zstd at all"},
    "garbage records that are not compressed": {"payload": b"\xff" * 40},
    "a record count that the compressed records contradict": {
        "codec": 1,
        "payload": squeeze(1, b""),
    },
    "no timestamp": {"timestamp_ms": -1},
    "a timestamp far in the future": {"timestamp_ms": 2**62},
    "a timestamp of 1970": {"timestamp_ms": 1},
}
for _name, _wrong in WRONG_BATCHES.items():
    QUESTIONS[f"produce {_name}"] = _produce_wrong(**_wrong)


@question
def produce_the_old_message_formats(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return [produced(c.produce(topic, 0, message_set(b"old", magic))) for magic in (0, 1)]


@question
def produce_no_bytes_at_all(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, b""))


@question
def produce_a_batch_without_records(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([])))


@question
def produce_half_a_header(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([b"x"])[: HEADER.size // 2]))


@question
def produce_garbage(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, b"\xa5" * 200))


@question
def produce_a_batch_that_is_cut_off(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([b"x" * 100])[:-10]))


@question
def produce_two_batches_for_one_partition(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([b"x"]) + batch([b"y"])))


@question
def produce_a_batch_with_a_tail_of_garbage(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([b"x"]) + b"tail"))


@question
def produce_a_batch_over_the_limit(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return produced(c.produce(topic, 0, batch([b"x" * 1_048_600]))), produced(c.produce(topic, 0, batch([b"ok"])))


@question
def produce_at_the_limit_of_the_topic(c: RawConnection, topic: str) -> object:
    size = len(batch([b"x" * 100]))
    c.create_topic(topic, configs={"max.message.bytes": str(size)})
    return [produced(c.produce(topic, 0, batch([b"x" * n]))) for n in (100, 101)]


@question
def produce_a_record_without_a_key_to_a_compacted_topic(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"cleanup.policy": "compact"})
    return produced(c.produce(topic, 0, batch([b"x"]))), produced(c.produce(topic, 0, batch([Rec(b"x", b"k")])))


@question
def produce_in_a_transaction(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    c.ask(
        "produce",
        9,
        transactional_id="tx",
        acks=-1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch([b"x"])}]}],
    )
    return produced(c.produce_answer())


@question
def produce_some_good_and_some_bad(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=3)
    good, bad = batch([b"x"]), batch([b"x"], crc=1)
    parts = [{"index": 0, "records": good}, {"index": 1, "records": bad}, {"index": 2, "records": good}]
    data = [{"name": topic, "partition_data": parts}]
    answer = c.call("produce", 9, acks=-1, timeout=1000, topic_data=data)
    return sorted((p.index, p.error_code.name, p.base_offset) for p in answer.responses[0].partition_responses)


@question
def log_append_time_is_told_to_the_producer(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    answer = c.produce(topic, 0, batch([b"x"], timestamp_ms=5))
    stored = HEADER.unpack_from(c.fetch(topic, 0, 0).records)
    return produced(answer), answer.log_append_time is not None, bool(stored[5] & 8), stored[8] > EPOCH_MS


@question
def create_time_is_not_touched(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    answer = c.produce(topic, 0, batch([b"x"], timestamp_ms=EPOCH_MS))
    stored = HEADER.unpack_from(c.fetch(topic, 0, 0).records)
    return produced(answer), answer.log_append_time, stored[5:9]


@question
def every_codec_is_stored_as_it_was_sent(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    sent = [batch([b"text " * 40] * 3, codec=codec, timestamp_ms=EPOCH_MS) for codec in range(5)]
    for one in sent:
        c.produce(topic, 0, one)
    stored = c.fetch(topic, 0, 0).records
    at, same = 0, []
    for one in sent:
        same.append(stored[at + 16 : at + len(one)] == one[16:])
        at += len(one)
    return same, at == len(stored)


# --- fetch --------------------------------------------------------------------------------------------------------


def filled(c: RawConnection, topic: str, batches: int = 5, records: int = 3, **configs: str) -> None:
    c.create_topic(topic, configs={key.replace("_", "."): value for key, value in configs.items()})
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


# --- offsets ------------------------------------------------------------------------------------------------------


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
    c.create_topic(topic)
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


# --- topics -------------------------------------------------------------------------------------------------------


def creation(c: RawConnection, topic: dict[str, Any], validate_only: bool = False) -> str:
    answer = c.call("create_topics", 5, topics=[topic], timeout=10_000, validate_only=validate_only)
    name: str = answer.topics[0].error_code.name
    return name


@question
def create_a_topic_twice(c: RawConnection, topic: str) -> object:
    return c.create_topic(topic).name, c.create_topic(topic).name


@question
def create_a_topic_twice_in_one_request(c: RawConnection, topic: str) -> object:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    answer = c.call("create_topics", 5, topics=[wanted, wanted], timeout=10_000)
    return sorted({t.error_code.name for t in answer.topics})


@question
def create_topics_with_illegal_names(c: RawConnection, topic: str) -> object:
    names = ["a b", "", ".", "..", "x" * 250, "x/y", "é", "a\x00b"]
    return [creation(c, {"name": name, "num_partitions": 1, "replication_factor": 1}) for name in names]


@question
def create_topics_whose_names_collide(c: RawConnection, topic: str) -> object:
    first, second = topic.replace("-", "."), topic.replace("-", "_")
    one = {"num_partitions": 1, "replication_factor": 1}
    return creation(c, {"name": first, **one}), creation(c, {"name": second, **one})


@question
def create_a_topic_with_the_longest_name(c: RawConnection, topic: str) -> object:
    return creation(c, {"name": (topic + "x" * 249)[:249], "num_partitions": 1, "replication_factor": 1})


@question
def create_topics_with_wrong_numbers(c: RawConnection, topic: str) -> object:
    numbers = [(0, 1), (-2, 1), (1, 0), (1, 3), (1, -2), (-1, -1)]
    return [
        creation(c, {"name": f"{topic}-{i}", "num_partitions": partitions, "replication_factor": replicas})
        for i, (partitions, replicas) in enumerate(numbers)
    ]


@question
def create_a_topic_with_unknown_and_wrong_settings(c: RawConnection, topic: str) -> object:
    settings = [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "-5"),
        ("compression.type", "rar"),
    ]
    one = {"num_partitions": 1, "replication_factor": 1}
    return [
        creation(c, {"name": f"{topic}-{i}", **one, "configs": [{"name": key, "value": value}]})
        for i, (key, value) in enumerate(settings)
    ]


@question
def create_a_topic_that_compresses_on_the_broker(c: RawConnection, topic: str) -> object:
    one = {"num_partitions": 1, "replication_factor": 1}
    return creation(c, {"name": topic, **one, "configs": [{"name": "compression.type", "value": "zstd"}]})


@question
def create_a_topic_only_to_validate(c: RawConnection, topic: str) -> object:
    said = creation(c, {"name": topic, "num_partitions": 1, "replication_factor": 1}, validate_only=True)
    answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return said, answer.topics[0].error_code.name


@question
def create_a_topic_by_assignment(c: RawConnection, topic: str) -> object:
    here = c.call("metadata", 9, topics=[]).brokers[0].node_id
    both = {"num_partitions": -1, "replication_factor": -1}
    assigned = [{"partition_index": i, "broker_ids": [here]} for i in range(2)]
    first = creation(c, {"name": topic, **both, "assignments": assigned})
    c.await_leaders(topic, [0, 1])
    strange = [{"partition_index": 0, "broker_ids": [here + 7]}]
    return first, creation(c, {"name": topic + "-2", **both, "assignments": strange})


@question
def delete_an_unknown_topic(c: RawConnection, topic: str) -> object:
    return c.delete_topic(topic).name


@question
def delete_a_topic(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    said = c.delete_topic(topic).name

    def seen() -> object:
        answer = c.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
        return answer.topics[0].error_code.name

    return said, settled(seen, "unknown_topic_or_partition")


@question
def create_partitions(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    errors = []
    for name, count in ((topic, 4), (topic, 4), (topic, 1), (topic, 0), (topic + "-absent", 3)):
        wanted = [{"name": name, "count": count, "assignments": None}]
        answer = c.call("create_partitions", 1, topics=wanted, timeout=10_000, validate_only=False)
        errors.append(answer.results[0].error_code.name)
    c.await_leaders(topic, range(4))
    return errors


@question
def delete_records(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    answers = []
    for partition, offset in ((0, 4), (0, 2), (0, 99), (0, -5), (7, 1), (0, -1)):
        topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
        part = c.call("delete_records", 2, topics=topics, timeout=10_000).topics[0].partitions[0]
        answers.append((part.error_code.name, part.low_watermark))
    return answers, fetched(c.fetch(topic, 0, 4)), offset_answer(c.offset_at(topic, 0, -2))


@question
def fetch_below_the_start_of_the_log(c: RawConnection, topic: str) -> object:
    filled(c, topic)
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}]
    c.call("delete_records", 2, topics=topics, timeout=10_000)
    return fetched(c.fetch(topic, 0, 3)), fetched(c.fetch(topic, 0, 4))


# --- settings of topics -------------------------------------------------------------------------------------------

TOPIC = 2
BROKER = 4


def described(c: RawConnection, kind: int, name: str, keys: list[str] | None) -> object:
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    result = c.call("describe_configs", 4, resources=wanted).results[0]
    values = {one.name: one.value for one in result.configs}
    return result.error_code.name, values if keys else len(values) > 10


@question
def describe_the_settings_of_a_topic(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"retention.ms": "12345"})
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "message.timestamp.type", "compression.type", "no.such"]
    return described(c, TOPIC, topic, keys), described(c, TOPIC, topic, None)


@question
def the_defaults_of_a_topic(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    keys = [
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ]
    return described(c, TOPIC, topic, keys)


@question
def describe_the_settings_of_an_unknown_topic(c: RawConnection, topic: str) -> object:
    return described(c, TOPIC, topic, ["retention.ms"])


def altered(c: RawConnection, topic: str, key: str, value: str | None, operation: int) -> str:
    change = {"name": key, "config_operation": operation, "value": value}
    wanted = [{"resource_type": TOPIC, "resource_name": topic, "configs": [change]}]
    answer = c.call("incremental_alter_configs", 1, resources=wanted, validate_only=False)
    name: str = answer.responses[0].error_code.name
    return name


@question
def change_settings_step_by_step(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    return [
        altered(c, topic, "retention.ms", "777", 0),
        altered(c, topic, "cleanup.policy", "compact", 2),
        altered(c, topic, "cleanup.policy", "delete", 3),
        altered(c, topic, "retention.ms", None, 1),
        altered(c, topic, "no.such.setting", "1", 0),
        altered(c, topic, "retention.ms", "soon", 0),
        altered(c, topic, "retention.ms", "1", 2),
        altered(c, topic + "-absent", "retention.ms", "1", 0),
        altered(c, topic, "retention.ms", "1", 9),
        altered(c, topic, "compression.type", "gzip", 0),
    ]


@question
def a_changed_setting_is_seen(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    altered(c, topic, "retention.ms", "777", 0)
    altered(c, topic, "cleanup.policy", "compact", 2)
    wanted = ("none", {"retention.ms": "777", "cleanup.policy": "delete,compact"})
    return settled(lambda: described(c, TOPIC, topic, ["retention.ms", "cleanup.policy"]), wanted)


@question
def replace_all_settings(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"retention.ms": "5000", "segment.bytes": "2000000"})
    wanted = [{"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "6000"}]}]
    said = c.call("alter_configs", 1, resources=wanted).responses[0].error_code.name
    settings = ("none", {"retention.ms": "6000", "segment.bytes": "1073741824"})
    return said, settled(lambda: described(c, TOPIC, topic, ["retention.ms", "segment.bytes"]), settings)


# --- producers ----------------------------------------------------------------------------------------------------


@question
def describe_the_producers_of_unknown_places(c: RawConnection, topic: str) -> object:
    absent = c.describe_producers(topic, 0).error_code.name
    c.create_topic(topic)
    return absent, c.describe_producers(topic, 9).error_code.name, c.describe_producers(topic, 0).error_code.name


@question
def producer_ids_are_granted_once(c: RawConnection, topic: str) -> object:
    granted = [c.init_producer_id() for _ in range(50)]
    return len({pid for pid, _ in granted}), {epoch for _, epoch in granted}


@question
def init_producer_id_with_half_an_identity(c: RawConnection, topic: str) -> object:
    answers = []
    for pid, epoch in ((5, -1), (-1, 5), (10**9, 3)):
        answer = c.call("init_producer_id", 4, transaction_timeout=60_000, producer_id=pid, producer_epoch=epoch)
        answers.append((answer.error_code.name, answer.producer_id >= 0))
    return answers


@question
def transactions(c: RawConnection, topic: str) -> object:
    found = c.call("find_coordinator", 3, key="a-transaction", key_type=1).error_code.name
    return found in ("none", "coordinator_not_available") or found


# --- groups -------------------------------------------------------------------------------------------------------


@question
def find_coordinator_of_strange_kinds(c: RawConnection, topic: str) -> object:
    answers = [c.call("find_coordinator", 3, key=topic, key_type=kind).error_code.name for kind in (9, -1)]
    return answers, c.call("find_coordinator", 3, key=topic, key_type=0).error_code.name in (
        "none",
        "coordinator_not_available",
    )


def await_coordinator(c: RawConnection, group: str) -> None:
    for _ in range(200):
        wanted = [{"name": "warm-up", "partition_indexes": [0]}]
        found = c.call("find_coordinator", 3, key=group, key_type=0).error_code.name
        if found == "none" and c.call("offset_fetch", 7, group_id=group, topics=wanted).error_code.name == "none":
            return
        time.sleep(0.1)
    raise TimeoutError("the coordinator of groups did not come up")


def join(c: RawConnection, group: str, member: str = "", **more: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 3_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    return c.call("join_group", more.pop("version", 5), **(values | more))


def joined(c: RawConnection, group: str) -> tuple[str, int]:
    """A group of one member, in sync."""
    await_coordinator(c, group)
    member: str = join(c, group).member_id
    answer = join(c, group, member)
    assigned = [{"member_id": member, "assignment": b"mine"}]
    c.call("sync_group", 3, group_id=group, generation_id=answer.generation_id, member_id=member, assignments=assigned)
    return member, answer.generation_id


@question
def join_without_a_member_id(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    first = join(c, topic)
    second = join(c, topic, first.member_id)
    return (
        first.error_code.name,
        bool(first.member_id),
        second.error_code.name,
        second.leader == second.member_id == first.member_id,
        second.generation_id,
        [m.metadata for m in second.members],
        second.protocol_name,
    )


@question
def join_in_an_old_version(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    answer = join(c, topic, version=2)
    return answer.error_code.name, answer.generation_id, bool(answer.member_id)


@question
def join_with_wrong_values(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    return [
        join(c, topic, "never-seen").error_code.name,
        join(c, "").error_code.name,
        join(c, topic, session_timeout=1).error_code.name,
        join(c, topic, session_timeout=2**31 - 1).error_code.name,
        join(c, topic, protocols=[], version=2).error_code.name,
        join(c, topic, protocol_type="", version=2).error_code.name,
    ]


@question
def join_with_protocols_that_do_not_fit(c: RawConnection, topic: str) -> object:
    joined(c, topic)
    other = [{"name": "roundrobin", "metadata": b""}]
    return join(c, topic, protocols=other, version=2).error_code.name, join(
        c, topic, protocol_type="connect", version=2
    ).error_code.name


@question
def sync_gives_the_assignment(c: RawConnection, topic: str) -> object:
    member, generation = joined(c, topic)
    again = c.call("sync_group", 3, group_id=topic, generation_id=generation, member_id=member, assignments=[])
    return again.error_code.name, again.assignment


@question
def sync_and_heartbeat_with_wrong_names(c: RawConnection, topic: str) -> object:
    member, generation = joined(c, topic)
    answers = []
    for group, who, when in (
        (topic, member, generation),
        (topic, member, generation + 5),
        (topic, "stranger", generation),
        (topic + "-absent", member, generation),
        ("", member, generation),
    ):
        named: dict[str, Any] = {"group_id": group, "member_id": who, "generation_id": when}
        beat = c.call("heartbeat", 3, **named).error_code.name
        sync = c.call("sync_group", 3, assignments=[], **named).error_code.name
        answers.append((beat, sync))
    return answers


@question
def leave_a_group(c: RawConnection, topic: str) -> object:
    member, _ = joined(c, topic)
    strange = c.call("leave_group", 3, group_id=topic, members=[{"member_id": "stranger"}])
    gone = c.call("leave_group", 3, group_id=topic, members=[{"member_id": member}])
    absent = c.call("leave_group", 2, group_id=topic + "-absent", member_id=member)
    beat = c.call("heartbeat", 3, group_id=topic, member_id=member, generation_id=1)
    return (
        strange.error_code.name,
        [m.error_code.name for m in strange.members],
        gone.error_code.name,
        [m.error_code.name for m in gone.members],
        absent.error_code.name,
        beat.error_code.name,
    )


@question
def static_members_come_back(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    first = join(c, topic, group_instance_id="i")
    mine = [{"member_id": first.member_id, "assignment": b"a"}]
    named: dict[str, Any] = {"group_id": topic, "group_instance_id": "i"}
    c.call("sync_group", 3, generation_id=first.generation_id, member_id=first.member_id, assignments=mine, **named)
    second = join(c, topic, group_instance_id="i")
    old = c.call("heartbeat", 3, generation_id=second.generation_id, member_id=first.member_id, **named)
    wrong = join(c, topic, first.member_id, group_instance_id="i")
    return (
        first.error_code.name,
        second.error_code.name,
        second.member_id != first.member_id,
        second.generation_id,
        old.error_code.name,
        wrong.error_code.name,
    )


def commit(c: RawConnection, group: str, topic: str, offset: int, **more: Any) -> list[str]:
    parts = [{"partition_index": more.pop("partition", 0), "committed_offset": offset, "committed_leader_epoch": -1}]
    parts[0]["committed_metadata"] = more.pop("metadata", "note")
    values: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = c.call("offset_commit", 8, topics=[{"name": topic, "partitions": parts}], **(values | more))
    return [p.error_code.name for t in answer.topics for p in t.partitions]


def committed(c: RawConnection, group: str, topic: str, partition: int = 0) -> tuple[str, object]:
    answer = c.call("offset_fetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": [partition]}])
    parts = [
        (p.error_code.name, p.committed_offset, p.committed_leader_epoch, p.metadata)
        for t in answer.topics
        for p in t.partitions
    ]
    return answer.error_code.name, parts


@question
def commit_and_fetch_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    await_coordinator(c, topic)
    none_yet = committed(c, topic, topic)
    said = commit(c, topic, topic, 42)
    return (
        none_yet,
        said,
        committed(c, topic, topic),
        committed(c, topic, topic, 5),
        committed(c, topic, "absent-topic"),
    )


@question
def commit_odd_things(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    await_coordinator(c, topic)
    return [
        commit(c, topic, topic + "-absent", 1),
        commit(c, topic, topic, 1, partition=9),
        commit(c, topic, topic, 1, metadata="x" * 4096),
        commit(c, topic, topic, 1, metadata="x" * 4097),
        commit(c, topic, topic, -1),
        commit(c, "", topic, 1),
        commit(c, topic, topic, 1, member_id="stranger", generation_id_or_member_epoch=3),
        commit(c, topic + "-new", topic, 1, member_id="stranger", generation_id_or_member_epoch=3),
        commit(c, topic, topic, 5, metadata=None),
    ], committed(c, topic, topic)


@question
def commit_as_a_member(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    member, generation = joined(c, topic)
    return [
        commit(c, topic, topic, 3, member_id=member, generation_id_or_member_epoch=generation),
        commit(c, topic, topic, 4, member_id=member, generation_id_or_member_epoch=generation + 1),
        commit(c, topic, topic, 5, member_id="stranger", generation_id_or_member_epoch=generation),
        commit(c, topic, topic, 6),
    ], committed(c, topic, topic)


@question
def fetch_the_offsets_of_everything(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, partitions=2)
    await_coordinator(c, topic)
    commit(c, topic, topic, 1)
    commit(c, topic, topic, 2, partition=1)
    answer = c.call("offset_fetch", 7, group_id=topic, topics=None)
    found = sorted((p.partition_index, p.committed_offset) for t in answer.topics for p in t.partitions)
    groups = [{"group_id": topic, "topics": None}, {"group_id": topic + "-absent", "topics": None}]
    several = c.call("offset_fetch", 8, groups=groups)
    return found, [(g.error_code.name, len(g.topics)) for g in several.groups]


@question
def describe_groups(c: RawConnection, topic: str) -> object:
    member, _ = joined(c, topic)
    answer = c.call("describe_groups", 5, groups=[topic, topic + "-absent"])
    found = []
    for group in answer.groups:
        members = [(m.member_id == member, m.member_metadata, m.member_assignment) for m in group.members]
        found.append((group.error_code.name, group.group_state, group.protocol_type, group.protocol_data, members))
    return found


@question
def describe_an_absent_group_in_the_newest_version(c: RawConnection, topic: str) -> object:
    await_coordinator(c, topic)
    group = c.call("describe_groups", 6, groups=[topic + "-absent"]).groups[0]
    return group.error_code.name, group.group_state


@question
def list_groups(c: RawConnection, topic: str) -> object:
    joined(c, topic)
    answers = []
    for states in ([], ["Stable"], ["Empty"]):
        answer = c.call("list_groups", 4, states_filter=states)
        mine = [(g.protocol_type, g.group_state) for g in answer.groups if g.group_id == topic]
        answers.append((answer.error_code.name, mine))
    return answers


@question
def delete_groups(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    member, _ = joined(c, topic)
    names = [topic, topic + "-absent"]
    before = c.call("delete_groups", 2, groups_names=names).results
    c.call("leave_group", 3, group_id=topic, members=[{"member_id": member}])
    commit(c, topic, topic, 3)
    after = c.call("delete_groups", 2, groups_names=[topic]).results
    return (
        sorted((r.group_id == topic, r.error_code.name) for r in before),
        [r.error_code.name for r in after],
        committed(c, topic, topic),
    )


@question
def delete_offsets(c: RawConnection, topic: str) -> object:
    c.create_topic(topic)
    await_coordinator(c, topic)
    commit(c, topic, topic, 3)
    wanted = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    said = c.call("offset_delete", 0, group_id=topic, topics=wanted)
    absent = c.call("offset_delete", 0, group_id=topic + "-absent", topics=wanted)
    parts = [p.error_code.name for t in said.topics for p in t.partitions]
    return said.error_code.name, parts, absent.error_code.name, committed(c, topic, topic)
