"""Reads everything back and holds it against the ledger."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

from confluent_kafka import Consumer, KafkaException, TopicPartition
from kio.schema.errors import ErrorCode

from tests.raw import RawConnection
from tests.soak.workers import GROUP, KEYED, PARTITIONS, RECORDS, SHORT, Ledger, committed_offset

READ_SECONDS = 60


def read_all(port: int, topic: str, partition: int) -> Iterator[tuple[int, bytes, bytes]]:
    """(offset, key, value) of everything from the start of the log to its end, by a stock consumer."""
    with RawConnection(port) as connection:
        start = connection.offset_at(topic, partition, -2).offset
        end = connection.offset_at(topic, partition, -1).offset
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, partition, start)])
    give_up = time.monotonic() + READ_SECONDS
    try:
        while start < end:
            messages = consumer.consume(10_000, 0.2)  # it waits that long even where it has some
            if time.monotonic() > give_up:
                raise TimeoutError(f"{topic}-{partition} gave nothing for {READ_SECONDS} s")
            if messages:
                give_up = time.monotonic() + READ_SECONDS
            for message in messages:
                error = message.error()
                if error is not None and error.name() == "_PARTITION_EOF":
                    return
                if error is not None:
                    raise KafkaException(error)
                offset = message.offset()
                assert offset is not None
                yield offset, message.key() or b"", message.value() or b""
                start = offset + 1
    finally:
        consumer.close()


def audit(port: int, ledger: Ledger) -> list[str]:
    """What is wrong; nothing if all is well."""
    return [
        *ledger.complaints,
        *audit_records(port, ledger),
        *audit_short(port, ledger),
        *audit_keys(port, ledger),
        *audit_pids(ledger),
        *audit_offsets(port, ledger),
        *audit_topics(port, ledger),
    ]


def audit_records(port: int, ledger: Ledger) -> list[str]:
    """Every acknowledged record there once, none twice, none that nobody sent, each producer's in order."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for partition in range(PARTITIONS):
        newest: dict[str, int] = {}
        for offset, _, value in read_all(port, RECORDS, partition):
            name = value.decode()
            found[name] += 1
            producer, _, number = name.rpartition(":")
            if newest.get(producer, -1) >= int(number):
                wrong.append(f"{name} stands behind {newest[producer]} at offset {offset}")
            newest[producer] = int(number)
    acknowledged, sent = ledger.acknowledged[RECORDS], ledger.sent[RECORDS]
    lost = acknowledged - found.keys()
    twice = [name for name, count in found.items() if count > 1]
    strange = found.keys() - sent
    for what, names in (("lost", lost), ("twice", twice), ("never sent", strange)):
        if names:
            wrong.append(f"{RECORDS}: {len(names)} {what}, such as {sorted(names)[:5]}")
    return wrong


def audit_short(port: int, ledger: Ledger) -> list[str]:
    """Retention takes whole segments from the old end, and nothing out of the middle."""
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        last: int | None = None
        for offset, _, value in read_all(port, SHORT, partition):
            if last is not None and offset != last + 1:
                wrong.append(f"{SHORT}-{partition}: {last} is followed by {offset}")
            last = offset
            seen[value.decode()] += 1
    wrong += [f"{SHORT}: {name} {count} times" for name, count in seen.items() if count > 1]
    if strange := seen.keys() - ledger.sent[SHORT]:
        wrong.append(f"{SHORT}: {len(strange)} records that nobody sent")
    return wrong


def audit_keys(port: int, ledger: Ledger) -> list[str]:
    """The newest version of a key is the last one acknowledged, or one that was tried after it."""
    newest: dict[str, int] = {}
    for _, key, value in read_all(port, KEYED, 0):
        version = int(value)
        name = key.decode()
        if newest.get(name, 0) > version:
            return [f"{KEYED}: version {version} of {name} stands behind {newest[name]}"]
        newest[name] = version
    return [
        f"{KEYED}: {key} is at {newest.get(key)}, acknowledged was {version}, tried {ledger.tried_of_key[key]}"
        for key, version in ledger.newest_of_key.items()
        if not version <= newest.get(key, -1) <= ledger.tried_of_key[key]
    ]


def audit_pids(ledger: Ledger) -> list[str]:
    wrong = []
    for what, pids in (("InitProducerId", ledger.granted), ("lease_pid", ledger.leased)):
        again = [pid for pid, count in Counter(pids).items() if count > 1]
        if again:
            wrong.append(f"{what} granted {len(again)} ids twice, such as {again[:5]}")
    return wrong


def audit_offsets(port: int, ledger: Ledger) -> list[str]:
    with RawConnection(port) as connection:
        found = committed_offset(connection, threading.Event())
    if found is None or not ledger.committed <= found <= ledger.tried_commit:
        return [f"{GROUP} had committed {ledger.committed}, now it says {found}"]
    return []


def audit_topics(port: int, ledger: Ledger) -> list[str]:
    with RawConnection(port) as connection:
        there = {topic.name for topic in connection.call("metadata", 9, topics=None).topics}
        wrong = [f"the topic {name} is gone" for name in ledger.topics_made - there]
        wrong += [f"the topic {name} is back" for name in ledger.topics_gone & there]
        for name in Random(0).sample(sorted(ledger.topics_made & there), min(3, len(ledger.topics_made & there))):
            error = connection.offset_at(name, 1, -1).error_code
            if error is not ErrorCode.none:
                wrong.append(f"the topic {name} answers {error.name}")
    return wrong
