"""Requests of the application, and errors in the place of records, as both faces handle them."""

from typing import Any

from oncelog.arguments import as_whole
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.clock import monotonic_s

MOST_MESSAGES = 1_000_000
MOST_ROWS = 1_000_000_000


def give_up_at_s(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else monotonic_s() + timeout_s


def count_of(given: object, most: int = MOST_MESSAGES) -> int:
    number = as_whole(given)
    if number is None:
        raise TypeError(f"a number of messages is an int, not {given!r}")
    if not 0 <= number <= most:
        raise ValueError(f"num_messages must be between 0 and {most}, not {number}")
    return number


def is_error(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() != KafkaError._PARTITION_EOF


def raise_for(message: Message) -> None:
    error = message.error()
    if error is not None and is_error(message):
        raise KafkaException(error)


def closed_in_callback() -> KafkaException:
    words = "close() in a rebalance's callback would wait for that callback to end: close the consumer after it"
    return KafkaException(KafkaError(KafkaError._STATE, words))


def arrow_tables() -> Any:
    try:
        from oncelog.client.consumer.arrow import table_of
    except ImportError:
        raise ImportError("install oncelog[columns]: consume_arrow() needs pyarrow and numba") from None
    return table_of
