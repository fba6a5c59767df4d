"""The topics that there are, kept in the log itself: an internal compacted topic, replayed at every start.

    key             value (JSON)
    topic:NAME      {"id": ..., "partitions": n, "configs": {...}, "internal": false, "deleting": false}; null: gone
    broker          {"configs": {...}}: the server's settings changed while it ran
    users, acls, quotas, group-configs   all of them: see `security/documents.py`

A change is sure when its record is on the disk. Folders are made before the record that speaks of them and removed
after it, so a crash between two steps leaves either the old state or the new one, and folders that no record knows.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from oncelog.clock import Now
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Steps
from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import read_header
from oncelog.records.read import Record
from oncelog.security import documents
from oncelog.security.documents import Document, Kind
from oncelog.server.errors import ErrorCode, KafkaError, MayNotBeDurable
from oncelog.server.topic_replay import records_in

_TOPIC_PREFIX = "topic:"
_BROKER_KEY = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    name: str
    id: UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False
    is_deleting: bool = False  # it is gone for everyone; its folders may still have their names

    def deleting(self) -> "Definition":
        return replace(self, is_deleting=True)


class DamagedMetadata(Exception):
    """The log is not what was written."""


class MetadataLog:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.definitions: dict[str, Definition] = {}
        self.broker_configs: dict[str, str] = {}
        self.documents: dict[Kind, Document] = {kind: {} for kind in Kind}
        if log.offline is not None:
            raise self._damaged(log.offline)
        try:
            for record in records_in(log):
                self._apply(record.key, record.value)
        except (InvalidRecord, LogStorageError, documents.Damaged, ValueError, KeyError, TypeError) as damage:
            raise self._damaged(str(damage)) from damage

    def _damaged(self, what: str) -> DamagedMetadata:
        return DamagedMetadata(
            f"{what}. Restore the files in {self.log.folder} from a copy, or empty that folder to start without any "
            "topic; the folders of the topics stay as they are"
        )

    def put(self, definition: Definition, now: Now) -> None:
        self._write(_TOPIC_PREFIX + definition.name, _encode(definition), now)

    def forget(self, name: str, now: Now) -> None:
        self._write(_TOPIC_PREFIX + name, None, now)

    def put_broker_configs(self, configs: Mapping[str, str], now: Now) -> None:
        self._write(_BROKER_KEY, {"configs": dict(configs)}, now)

    def put_document(self, kind: Kind, document: Document, now: Now) -> None:
        """Raises TooMuch."""
        self._write_encoded(kind, documents.encode(kind, document), now)

    def making_durable(self, now: Now) -> Steps[None]:
        """Wait until the disk has what was written."""
        try:
            yield self.log.flush
            # Whatever is wrong below the recovery point is damage. Without one a start would take it for a torn write,
            # and cut off every topic behind it.
            yield self.log.begin_checkpoint(now)
        except (LogStorageError, OSError) as refusal:
            raise MayNotBeDurable(
                ErrorCode.kafka_storage_error, f"the change may not be durable: {refusal}"
            ) from refusal

    def _write(self, key: str, value: dict[str, Any] | None, now: Now) -> None:
        encoded = None if value is None else json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        self._write_encoded(key, encoded, now)

    def _write_encoded(self, key: str, encoded: bytes | None, now: Now) -> None:
        """Write, then apply: the state is always that of a replay of the log, also where the disk fails half-way."""
        batch = build_batch([(key.encode(), encoded, (), now.wall_ms)], timestamp_ms=now.wall_ms)
        try:
            self.log.append(batch, read_header(batch), now)
        except LogStorageError as refusal:
            raise KafkaError(ErrorCode.kafka_storage_error, f"the change could not be stored: {refusal}") from refusal
        self._apply(key.encode(), encoded)

    def _apply(self, raw_key: bytes | None, raw_value: bytes | None) -> None:
        key = (raw_key or b"").decode()
        if key in self.documents:
            self.documents[Kind(key)] = {} if raw_value is None else documents.decode(Kind(key), raw_value)
            return
        value = None if raw_value is None else json.loads(raw_value)
        if key == _BROKER_KEY:
            self.broker_configs = {} if value is None else value["configs"]
        else:
            _define(self.definitions, key, value)


def definitions_in(records: Iterable[Record]) -> dict[str, Definition]:
    """The definitions in these records, for readers that do not open the log. Raises what a record that is no such
    record raises."""
    found: dict[str, Definition] = {}
    for record in records:
        key = (record.key or b"").decode()
        _define(found, key, None if record.value is None else json.loads(record.value))
    return found


def documents_in(records: Iterable[Record]) -> dict[Kind, Document]:
    """The documents in these records, as `definitions_in`."""
    found: dict[Kind, Document] = {kind: {} for kind in Kind}
    for record in records:
        key = (record.key or b"").decode()
        if key in found:
            found[Kind(key)] = {} if record.value is None else documents.decode(Kind(key), record.value)
    return found


def _define(definitions: dict[str, Definition], key: str, value: dict[str, Any] | None) -> None:
    if not key.startswith(_TOPIC_PREFIX):
        return
    name = key.removeprefix(_TOPIC_PREFIX)
    if value is None:
        definitions.pop(name, None)
    else:
        definitions[name] = _decode(name, value)


def _encode(definition: Definition) -> dict[str, Any]:
    return {
        "id": str(definition.id),
        "partitions": definition.partitions,
        "configs": dict(definition.configs),
        "internal": definition.is_internal,
        "deleting": definition.is_deleting,
    }


def _decode(name: str, value: dict[str, Any]) -> Definition:
    return Definition(
        name=name,
        id=UUID(value["id"]),
        partitions=value["partitions"],
        configs=value["configs"],
        is_internal=value["internal"],
        is_deleting=value["deleting"],
    )
