"""The saved producer as JSON, version 1.

    {"oncelog.saved": 1, "cluster": "...", "made_at_ms": 1700000000000, "partitioner": "consistent_random",
     "identities": [[pid, generation, expires_at_ms], ...],
     "topics": {"out": {"id": "...", "count": 12, "keyless": 0, "at": {"0": [next_offset, identity, next_sequence]}}},
     "checksum": "..."}

An identity stands as its index in `identities`. Where a lease ended between two saves, the closed spans stand before
the open one: `[next_offset, identity, next_sequence, records, ..., identity, next_sequence]`.

`"keyless_run": n` stands beside the partitioner where it is not 1.

The checksum covers all the rest, in the one spelling that `spell` gives it, so that no number can be changed
unnoticed. It is no signature: who may write the store may write a new checksum too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from oncelog.client.saving.errors import BadSavedProducer
from oncelog.client.saving.saved_topics import SavedTopic
from oncelog.producers.sequences import GENERATIONS, SEQUENCES
from oncelog.settings import INT_MAX, LONG_MAX
from oncelog.slots import NEVER, Identity, Span
from oncelog.slots.chain import SavedPartition

T = TypeVar("T")

VERSION = 1
VERSION_KEY = "oncelog.saved"
CHECKSUM_LETTERS = 16
LARGEST_BYTES = 64 << 20
MOST_PARTITIONS = INT_MAX
NUMBER_LETTERS = 10  # of the largest partition


class Fields(TypedDict):
    """The fields of a saved producer."""

    cluster_id: str
    made_at_ms: int
    partitioner: str
    topics: Mapping[str, SavedTopic]
    keyless_run: int


def value_of(saved: Fields, identities: Sequence[Identity]) -> dict[str, Any]:
    index = {identity: at for at, identity in enumerate(identities)}
    value: dict[str, Any] = {
        VERSION_KEY: VERSION,
        "cluster": saved["cluster_id"],
        "made_at_ms": saved["made_at_ms"],
        "partitioner": saved["partitioner"],
        "identities": [list(identity) for identity in identities],
        "topics": {
            name: {
                "id": topic.topic_id,
                "count": topic.partition_count,
                "keyless": topic.keyless_counter,
                "at": {str(at): _row(each, index) for at, each in sorted(topic.partitions.items())},
            }
            for name, topic in sorted(saved["topics"].items())
        },
    }
    if saved["keyless_run"] != 1:
        value["keyless_run"] = saved["keyless_run"]
    value["checksum"] = _checksum(value)
    return value


def _row(partition: SavedPartition, index: Mapping[Identity, int]) -> list[int]:
    row = [partition.next_offset]
    for span in partition.spans:
        row += [index[span.identity], span.next_sequence]
        if span.records is not None:
            row.append(span.records)
    return row


def decode(text: "str | bytes | Mapping[str, Any]") -> Fields:
    value = text if isinstance(text, Mapping) else _parse(text)
    version = value.get(VERSION_KEY)
    if version is None:
        raise BadSavedProducer(f"this is no saved producer: it has no {VERSION_KEY!r}")
    if not _is_int(version) or not 1 <= version <= LONG_MAX:
        raise BadSavedProducer(f"{VERSION_KEY!r} is no version number")
    if version > VERSION:
        raise BadSavedProducer(
            f"the producer was saved by a newer oncelog (format {version}, this one knows {VERSION}): update this one"
        )
    if value.get("checksum") != _checksum(value):
        raise BadSavedProducer(
            "the saved producer is not as it was saved: its checksum does not fit; it was changed or damaged since"
        )
    return _saved(value)


def _parse(text: str | bytes) -> Mapping[str, Any]:
    if not isinstance(text, (str, bytes)):
        raise BadSavedProducer(f"a saved producer is text, bytes or a dictionary, not {type(text).__name__}")
    if len(text) > LARGEST_BYTES:
        raise BadSavedProducer(f"{len(text)} bytes are no saved producer: at most {LARGEST_BYTES} are read")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSavedProducer(f"the saved producer is cut short or not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadSavedProducer(f"a saved producer is a JSON object, not {type(value).__name__}")
    return value


def spell(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=True)


def _checksum(value: Mapping[str, Any]) -> str:
    try:
        spelled = spell({key: each for key, each in value.items() if key != "checksum"})
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSavedProducer(f"the saved producer holds what JSON does not: {error}") from None
    return hashlib.sha256(spelled.encode()).hexdigest()[:CHECKSUM_LETTERS]


# The checksum is for accidents. What follows also stops a value that somebody wrote by hand, before anything is sent.


def _saved(value: Mapping[str, Any]) -> Fields:
    identities = [_identity(each) for each in _field(value, "identities", list, "a list")]
    return Fields(
        cluster_id=_text(value, "cluster"),
        made_at_ms=_number(value.get("made_at_ms"), "made_at_ms", LONG_MAX),
        partitioner=_text(value, "partitioner"),
        topics={name: _topic(name, each, identities) for name, each in _object(value, "topics").items()},
        keyless_run=_number(value.get("keyless_run", 1), "keyless_run", INT_MAX, least=1),
    )


def _identity(row: Any) -> Identity:
    if not isinstance(row, list) or len(row) != 3:
        raise BadSavedProducer(f"an identity is [pid, generation, expires_at_ms], not {row!r}")
    pid, generation, expires_at_ms = row
    return Identity(
        _number(pid, "a pid", LONG_MAX),
        _number(generation, "a generation", GENERATIONS - 1),
        _number(expires_at_ms, "expires_at_ms", LONG_MAX, least=NEVER),
    )


def _topic(name: str, value: Any, identities: list[Identity]) -> SavedTopic:
    if not name or not isinstance(value, dict):
        raise BadSavedProducer(f"topic {name!r} is {value!r} where an object is expected")
    count = _number(value.get("count"), f"the partition count of {name!r}", MOST_PARTITIONS, least=1)
    partitions = {}
    for at, row in _object(value, "at").items():
        if not (
            at.isascii() and at.isdecimal() and len(at) <= NUMBER_LETTERS and str(int(at)) == at and int(at) < count
        ):
            raise BadSavedProducer(f"topic {name!r} has {count} partitions, and {at[:60]!r} is none of them")
        partitions[int(at)] = _partition(f"{name}-{at}", row, identities)
    return SavedTopic(
        topic_id=_text(value, "id"),
        partition_count=count,
        keyless_counter=_number(value.get("keyless"), f"the counter of {name!r}", LONG_MAX),
        partitions=partitions,
    )


def _partition(where: str, row: Any, identities: list[Identity]) -> SavedPartition:
    if not isinstance(row, list) or len(row) < 3 or len(row) % 3:
        raise BadSavedProducer(f"{where} stands at {row!r}, which is not [next_offset, identity, next_sequence]")
    next_offset = _number(row[0], f"the offset of {where}", LONG_MAX)
    spans = tuple(
        _span(where, row[at], row[at + 1], row[at + 2] if at + 2 < len(row) else None, identities)
        for at in range(1, len(row), 3)
    )
    return SavedPartition(next_offset=next_offset, spans=spans)


def _span(where: str, at: Any, sequence: Any, records: Any, identities: list[Identity]) -> Span:
    index = _number(at, f"the identity of {where}", len(identities) - 1)
    next_sequence = _number(sequence, f"the sequence of {where}", SEQUENCES - 1)
    if records is not None:
        records = _number(records, f"the records of {where}", LONG_MAX)
    return Span(identities[index], next_sequence, records)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any, what: str, most: int, *, least: int = 0) -> int:
    if not _is_int(value) or not least <= value <= most:
        raise BadSavedProducer(f"{what} is {value!r}: impossible, it is a number from {least} to {most}")
    number: int = value
    return number


def _field(value: Mapping[str, Any], name: str, kind: type[T], words: str) -> T:
    found = value.get(name)
    if not isinstance(found, kind):
        raise BadSavedProducer(f"{name!r} is {found!r} where {words} is expected")
    return found


def _text(value: Mapping[str, Any], name: str) -> str:
    return _field(value, name, str, "a text")


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = _field(value, name, dict, "an object")
    if not all(isinstance(key, str) for key in found):
        raise BadSavedProducer(f"{name!r} has keys that are no texts, as no JSON object has")
    return found
