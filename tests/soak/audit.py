"""Reads everything back and holds it against the ledger."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import numpy as np
from kio.schema.errors import ErrorCode

from tests.lives.count import counted
from tests.lives.stored import records
from tests.raw import RawConnection
from tests.soak.workers import GROUP, KEYED, PARTITIONS, RECORDS, SHORT, Ledger, committed_offset

Numbers = dict[str, list[int]]  # of each producer


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
    with RawConnection(port) as raw:
        return list(wrong_numbers(raw, RECORDS, ledger.sent[RECORDS], ledger.acknowledged[RECORDS]))


def audit_short(port: int, ledger: Ledger) -> list[str]:
    """Retention takes whole segments from the old end, and nothing out of the middle."""
    with RawConnection(port) as raw:
        wrong = list(wrong_numbers(raw, SHORT, ledger.sent[SHORT], {}))
        for partition in range(PARTITIONS):
            offsets = [each.offset for each in records(raw, SHORT, partition)]
            wrong += [f"{SHORT}-{partition}: {a} is followed by {b}" for a, b in pairwise(offsets) if b != a + 1]
    return wrong


def wrong_numbers(raw: RawConnection, topic: str, sent: dict[str, int], acknowledged: Numbers) -> Iterator[str]:
    found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for partition in range(PARTITIONS):
        for each in records(raw, topic, partition):
            producer, _, number = (each.value or b"").decode().rpartition(":")
            found[producer][partition].append(int(number))
    for producer in sorted(found.keys() | acknowledged.keys()):
        standing = {partition: np.array(numbers) for partition, numbers in found[producer].items()}
        confirmed = np.array(acknowledged.get(producer, []), np.int64)
        result = counted(sent.get(producer, 0), standing, confirmed)
        if not result.is_exact:
            lost = f"{result.missing} lost, such as {result.missing_examples}"
            yield f"{topic}: of {producer} {lost}; {result.all}; {result.runs[:3]}"


def audit_keys(port: int, ledger: Ledger) -> list[str]:
    """The newest version of a key is the last one acknowledged, or one that was tried after it."""
    newest: dict[str, int] = {}
    with RawConnection(port) as raw:
        stored = records(raw, KEYED)
    for each in stored:
        version, name = int(each.value or b""), (each.key or b"").decode()
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
