"""The arguments of `produce`, in the form that is stored; wrong ones are refused here."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import NoneType
from typing import Any, Final

from oncelog.arguments import as_number, as_whole, check_kind
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.accumulator import Held, headers_bytes, row_bytes

FOR_EVER_S: Final = 1e9  # decades; from somewhere above it no clock can count
NOT_YET_S: Final = 0.0
FAILED_FLUSH_S: Final = 1.0  # what an exception that leaves a `with` leaves for the records under way


def as_bytes(value: Any, what: str) -> bytes | None:
    """Text is sent as UTF-8. A buffer is copied, since its owner may change it before it is sent."""
    kind = type(value)
    if kind is bytes or value is None:
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} must be bytes, str or None, not {kind.__name__}")


def as_headers(headers: Any) -> list[tuple[bytes, bytes | None]] | None:
    """Headers as pairs of bytes, given as a dict or a list of (name, value) pairs."""
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        pairs = list(headers.items())
    elif isinstance(headers, (list, tuple)):
        pairs = list(headers)
    else:
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {type(headers).__name__}")
    found = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"expected a header to be a (key, value) tuple, not {pair!r:.60}")
        name = as_bytes(pair[0], "a header's key")
        if name is None:
            raise TypeError("a header's key must be bytes or str, not None")
        found.append((name, as_bytes(pair[1], "a header's value")))
    return found or None


def as_record(value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Held:
    """The record as it is kept until it is placed; when it was taken, and what it is reported to, come then."""
    key, value, pairs = as_bytes(key, "key"), as_bytes(value, "value"), as_headers(headers)
    size_bytes = row_bytes(key, value) + (0 if pairs is None else headers_bytes(pairs))
    row = key, value, pairs, as_time(timestamp, NOT_YET_S), None
    return Held(as_partition(partition), NOT_YET_S, size_bytes, row)


def check_topic(topic: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    if not topic or len(topic) > 249 or topic in (".", ".."):
        raise refused(KafkaError._INVALID_ARG, f"{topic[:60]!r} cannot be a topic: 1 to 249 characters are needed")
    try:
        topic.encode()
    except UnicodeEncodeError as error:  # half of a pair, which no request can carry
        raise refused(KafkaError._INVALID_ARG, f"{topic[:60]!r} cannot be a topic: {error.reason}") from None


def named(topic: Any) -> list[str] | None:
    """None where all are meant."""
    check_kind("topic", topic, (str, NoneType), "the name of a topic, or None for all")
    return None if topic is None else [topic]


def check_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"on_delivery must be callable, not {type(callback).__name__}")


def as_partition(partition: Any) -> int:
    """-1 where the partitioner is to choose."""
    number = partition if type(partition) is int else as_whole(partition)
    if number is None:
        raise TypeError(f"partition must be int, not {type(partition).__name__}")
    if number < -1:
        raise refused(KafkaError._UNKNOWN_PARTITION)
    return number


def as_time(timestamp: Any, now_s: float) -> float:
    """The time as the accumulator has it: the monotonic clock's seconds, or negative milliseconds where one was
    given."""
    time_ms = timestamp if type(timestamp) is int else as_whole(timestamp)
    if time_ms is None:
        raise TypeError(f"timestamp must be int (milliseconds since 1970), not {type(timestamp).__name__}")
    if time_ms == 0:
        return now_s
    if time_ms < 0:
        raise ValueError(f"timestamp must be milliseconds since 1970, or 0 for now, not {time_ms}")
    if time_ms >= 1 << 53:
        raise ValueError(f"timestamp {time_ms} is too far in the future")
    return -float(time_ms)


def as_end(timeout: Any, now_s: float) -> float | None:
    """The time to stop waiting; None, for ever, where no timeout was given, or a negative or infinite one."""
    if timeout is None:
        return None
    wait_s = as_number(timeout)
    if wait_s is None:
        raise TypeError(f"timeout must be seconds (int or float) or None, not {type(timeout).__name__}")
    if wait_s != wait_s:
        raise ValueError("timeout must be seconds or None (for ever), not nan")
    return now_s + wait_s if 0 <= wait_s < FOR_EVER_S else None


def check_pinned(topics: Sequence[Any]) -> None:
    if not topics:
        raise TypeError("pin() needs the topics that are to be pinned: pin('orders', 'payments')")
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"pin() takes each topic as a str, such as pin('orders', 'payments'), not {topic!r:.60}")


def refused(code: int, message: str | None = None) -> KafkaException:
    words = message if message is not None else KafkaError(code).str()
    return KafkaException(KafkaError(code, f"Unable to produce message: {words}"))


def bulk_module(name: str = "bulk") -> Any:
    """The module that sends tables (or, as `raw`, whole batches), if its extra is installed."""
    try:
        return import_module(f"oncelog.client.producer.{name}")
    except ImportError as missing:
        what = "tables" if name == "bulk" else "batches"
        raise ImportError(f"install oncelog[columns] to send {what}: {missing}") from None
