"""Produce: what is accepted, and what each thing that is wrong with a batch is answered with."""

from typing import Any

from tests.peers.questions.asking import EPOCH_MS, KEEP, QUESTIONS, Question, produced, question
from tests.raw import RawConnection, Rec, batch, message_set
from tests.raw.batches import HEADER, squeeze


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


LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@question
def log_append_time_is_told_to_the_producer(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs=LOG_APPEND_TIME)
    answer = c.produce(topic, 0, batch([b"x"], timestamp_ms=5))
    stored = HEADER.unpack_from(c.fetch(topic, 0, 0).records)
    return produced(answer), answer.log_append_time is not None, bool(stored[5] & 8), stored[8] > EPOCH_MS


@question
def create_time_is_not_touched(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs=KEEP)
    answer = c.produce(topic, 0, batch([b"x"], timestamp_ms=EPOCH_MS))
    stored = HEADER.unpack_from(c.fetch(topic, 0, 0).records)
    return produced(answer), answer.log_append_time, stored[5:9]


@question
def timestamps_out_of_bounds(c: RawConnection, topic: str) -> object:
    hour_ms = 3_600_000
    c.create_topic(topic, configs={"message.timestamp.before.max.ms": str(hour_ms), "cleanup.policy": "compact"})
    c.create_topic(topic + "-stamped", configs={"message.timestamp.before.max.ms": "1"} | LOG_APPEND_TIME)
    answers = []
    for codec in (0, 2):
        for deltas in ((0, -2 * hour_ms, 1), (-2 * hour_ms, 0, 2 * hour_ms), (0, -hour_ms + 60_000, hour_ms - 60_000)):
            records = [Rec(b"v", b"k", timestamp_delta_ms=delta) for delta in deltas]
            answer = c.produce(topic, 0, batch(records, codec=codec))
            answers.append((produced(answer), [each.batch_index for each in answer.record_errors]))
    mixed = c.produce(topic, 0, batch([Rec(b"v"), Rec(b"v", b"k", timestamp_delta_ms=-2 * hour_ms)]))
    answers.append((produced(mixed), [each.batch_index for each in mixed.record_errors]))
    answers.append((produced(c.produce(topic, 0, batch([Rec(b"v", b"k")], timestamp_ms=-1))), []))
    answers.append((produced(c.produce(topic + "-stamped", 0, batch([b"x"], timestamp_ms=5))), []))
    return answers


@question
def more_copies_asked_for_than_there_are(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs={"min.insync.replicas": "2"})
    return [produced(c.produce(topic, 0, batch([b"x"]), acks=acks)) for acks in (-1, 1)]


@question
def every_codec_is_stored_as_it_was_sent(c: RawConnection, topic: str) -> object:
    c.create_topic(topic, configs=KEEP)
    sent = [batch([b"text " * 40] * 3, codec=codec, timestamp_ms=EPOCH_MS) for codec in range(5)]
    for one in sent:
        c.produce(topic, 0, one)
    stored = c.fetch(topic, 0, 0).records
    at, same = 0, []
    for one in sent:
        same.append(stored[at + 16 : at + len(one)] == one[16:])
        at += len(one)
    return same, at == len(stored)
