"""The common part of `Producer` and `AsyncProducer`: nothing here waits or calls back."""

import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.accumulator import Budget, Held
from oncelog.client.producer.arguments import as_record, check_topic, refused
from oncelog.client.producer.beginning import saved_value
from oncelog.client.properties import producer_settings
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.client.producer.engine import Engine
    from oncelog.client.saving.saved import SavedProducer
    from oncelog.client.saving.saving import Saving

W = TypeVar("W")
Data = str | bytes | bytearray | memoryview | None

CLOSED: Final = "the producer is closed"
NO_TRANSACTIONS: Final = (
    "this producer has no transactions: commit positions together with a saved producer instead, by "
    "consumer.commit(offsets, producer=producer) (docs/saved-producers.md)"
)
FORKED: Final = "this producer was made before the process forked: a forked process needs one of its own"


class Face:
    _engine: "Engine"

    def __init__(
        self, properties: Mapping[str, Any], more: Mapping[str, Any], saved: "SavedProducer | str | None"
    ) -> None:
        self._goes_on_as = saved_value(saved)
        self._settings = settings = producer_settings(properties, more)
        self._budget = Budget(settings.queue_buffering_max_messages, settings.queue_buffering_max_kbytes * 1024)
        self._most_bytes = settings.message_max_bytes
        self._unusable: str | None = None

    @property
    def saving(self) -> "Saving":
        """The state that a commit with this producer saves."""
        return self._engine.saving

    def __len__(self) -> int:
        """Records that are queued, under way, or not reported yet."""
        return self._budget.messages

    def __bool__(self) -> bool:
        return True

    def init_transactions(self, *_: object, **__: object) -> NoReturn:
        """Refused, though confluent-kafka's producers have it: the error says what to do instead."""
        raise KafkaException(KafkaError(KafkaError._NOT_IMPLEMENTED, NO_TRANSACTIONS))

    begin_transaction = commit_transaction = abort_transaction = send_offsets_to_transaction = init_transactions

    # --- for the two

    def _record(self, topic: Any, *given: Any) -> Held:
        """The record that `produce` was given, checked."""
        self._check_usable()
        record = as_record(*given)
        if record.size_bytes > self._most_bytes:
            raise refused(KafkaError.MSG_SIZE_TOO_LARGE)
        check_topic(topic)
        self._engine.saving.check(topic)
        return record

    def _put(self, topic: str, record: Held, report_to: Any) -> None:
        """Put a record into the queue, which has room for it."""
        now_s = monotonic_s()
        key, value, headers, time, _ = record.row
        row = key, value, headers, time or now_s, report_to
        self._engine.put(topic, Held(record.partition, now_s, record.size_bytes, row))

    def _begin(self, kind: Callable[["Engine", str, Any], W], topic: str, data: Any) -> W:
        """A writer of a table, or of batches."""
        self._check_usable()
        check_topic(topic)
        self._engine.saving.check(topic)
        return kind(self._engine, topic, data)

    def _check_usable(self) -> None:
        if self._unusable is not None:
            raise KafkaException(KafkaError(KafkaError._STATE, self._unusable))

    def _watch_forks(self) -> None:
        _faces.add(self)

    def _forked(self) -> None:
        self._unusable = self._unusable or FORKED


_faces: "weakref.WeakSet[Face]" = weakref.WeakSet()


def _after_fork() -> None:
    for face in tuple(_faces):
        face._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
