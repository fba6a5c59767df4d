"""One record as the application gets it, with confluent-kafka's methods.

A consumer makes as many of these as it reads records, so making one is storing six values: what is the same for all
records of a batch stands in its `Source`, and headers become text when somebody asks for them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.client.errors import KafkaError
from oncelog.client.types import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
)

RawHeaders = Sequence[tuple[bytes, bytes | None]]
Headers = list[tuple[str, bytes | None]]


class Source(NamedTuple):
    """The fields of a batch that hold for all of its records."""

    topic: str
    partition: int
    leader_epoch: int = -1
    has_append_time: bool = False


class Message:
    """A record, or an error in a place where a record would come: look at `error()` first."""

    __slots__ = ("_headers", "_key", "_offset", "_source", "_timestamp_ms", "_value")

    def __init__(
        self,
        value: bytes | None,
        key: bytes | None,
        offset: int,
        timestamp_ms: int,
        headers: RawHeaders | None,
        source: Source,
    ) -> None:
        self._value = value
        self._key = key
        self._offset = offset
        self._timestamp_ms = timestamp_ms
        self._headers = headers
        self._source = source

    def error(self) -> KafkaError | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return self._source.topic

    def partition(self) -> int:
        return self._source.partition

    def leader_epoch(self) -> int | None:
        epoch = self._source.leader_epoch
        return epoch if epoch >= 0 else None

    def timestamp(self) -> tuple[int, int]:
        """The kind of time, and milliseconds since 1970."""
        if self._timestamp_ms < 0:
            return TIMESTAMP_NOT_AVAILABLE, self._timestamp_ms
        kind = TIMESTAMP_LOG_APPEND_TIME if self._source.has_append_time else TIMESTAMP_CREATE_TIME
        return kind, self._timestamp_ms

    def headers(self) -> Headers | None:
        """The headers in their order, or None. Names that are not UTF-8 are brought to it, as Java does."""
        if not self._headers:
            return None
        return [(name.decode(errors="replace"), value) for name, value in self._headers]

    def latency(self) -> float | None:
        """Always None: only a record that was produced has taken a time."""
        return None

    def set_value(self, value: object) -> None:
        """`value()` gives this from now on; for deserializers."""
        self._value = value  # type: ignore[assignment]

    def set_key(self, key: object) -> None:
        self._key = key  # type: ignore[assignment]

    def set_headers(self, headers: Headers | None) -> None:
        self._headers = None if headers is None else [(name.encode(), value) for name, value in headers]

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    def __bool__(self) -> bool:
        """A record without a value is a record all the same."""
        return True

    def __repr__(self) -> str:
        return f"<Message {self.topic()} [{self.partition()}] @ {self._offset}, {len(self)} bytes>"


class ErrorMessage(Message):
    """An error that `poll` and `consume` hand out in the order in which it happened among the records."""

    __slots__ = ("_error",)

    def __init__(self, error: KafkaError, topic: str, partition: int, offset: int) -> None:
        super().__init__(None, None, offset, -1, None, Source(topic, partition))
        self._error = error

    def error(self) -> KafkaError:
        return self._error

    def __repr__(self) -> str:
        return f"<Message {self.topic()} [{self.partition()}] @ {self._offset}, {self._error}>"
