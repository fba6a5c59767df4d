"""Questions of an experiment to a cluster: a topic, its number of records, and the numbers in them."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oncelog.chaos.audit import NOT_A_NUMBER
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.stopped import Stopped
from oncelog.client import Admin, Consumer, NewTopic
from oncelog.client.consumer.ranges import read_range
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import TopicPartition

REACH_S: Final = 10.0


def check_reach(kafka: Kafka) -> None:
    """Reach the cluster before anything is made there: an admin client would wait for a minute."""
    try:
        with Admin(kafka.client) as admin:
            admin.list_topics(timeout=REACH_S)
    except KafkaException as failure:
        if failure.error.code() == KafkaError._INVALID_ARG:
            raise  # no address at all, or properties that cannot be meant
        if failure.error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            raise Stopped(failure.error.str()) from failure
        words = f"no Kafka answers at {kafka.servers} ({failure.error.str()}): --servers names another one"
        raise Stopped(words) from failure


def create_topic(kafka: Kafka, topic: str, partitions: int) -> None:
    with Admin(kafka.client) as admin:
        failure = admin.create_topics([NewTopic(topic, partitions, -1)])[topic].exception()
    if isinstance(failure, KafkaException) and failure.error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        raise Stopped(f"there is a topic {topic!r} already, and its messages would be counted: --topic names a new one")
    if failure is not None:
        raise failure


def delete_topics(kafka: Kafka, topics: Iterable[str]) -> list[str]:
    """Delete topics; returns those that are still there afterwards: we may not have been allowed to."""
    left = []
    with Admin(kafka.client) as admin:
        for topic, deleted in admin.delete_topics(list(topics)).items():
            failure = deleted.exception()
            is_gone = isinstance(failure, KafkaException) and failure.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if failure is not None and not is_gone:
                left.append(topic)
    return left


def stored_numbers(kafka: Kafka, topic: str, partitions: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The numbers in each partition, portion by portion, in the order of the log; -1 for a record that is no number."""
    for partition, rows in stored(kafka, topic, partitions, "value"):
        yield partition, numbers_of(rows.column("value"))


def stored(kafka: Kafka, topic: str, partitions: int, *columns: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    for partition, end in enumerate(end_offsets(kafka, topic, partitions)):
        found = read_range(
            kafka.client,
            topic,
            partition,
            0,
            end,
            columns=frozenset(columns),
            on_loss=lambda words: None,  # what is gone is missing, which the audit tells message by message
        )
        for rows in found:
            yield partition, rows


def end_offsets(kafka: Kafka, topic: str, partitions: int) -> list[int]:
    with Consumer(kafka.client) as consumer:
        every = [TopicPartition(topic, partition) for partition in range(partitions)]
        marks = [consumer.get_watermark_offsets(each, timeout=60) for each in every]
    return [mark[1] for mark in marks if mark is not None]  # it is None only where `cached` is asked for


def numbers_of(values: pa.Array) -> NDArray[np.int64]:
    is_number = pc.match_substring_regex(values, r"^[0-9]{1,18}$")
    if not pc.all(is_number.fill_null(False)).as_py():
        values = pc.if_else(is_number.fill_null(False), values, pa.scalar(b"%d" % NOT_A_NUMBER, values.type))
    found: NDArray[np.int64] = pc.cast(values.cast(pa.string()), pa.int64()).to_numpy(zero_copy_only=False)
    return found
