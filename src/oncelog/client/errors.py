"""Errors of the client: KafkaError says what went wrong, KafkaException raises it.

As in confluent-kafka the two are apart, because an error is also something that a delivery report or a partition
carries without anyone raising it.
"""

from typing import Final

from oncelog.error_codes import NAMES, TEXTS, ErrorCodes

# Kafka's own list of errors after which the same request may be sent again, perhaps to another broker.
_RETRIABLE_BROKER: Final = frozenset(
    {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89, 100, 103, 106}
    | {122, 123, 133}
)
_RETRIABLE_LOCAL: Final = frozenset(
    {
        ErrorCodes._TRANSPORT,
        ErrorCodes._RESOLVE,
        ErrorCodes._ALL_BROKERS_DOWN,
        ErrorCodes._TIMED_OUT,
        ErrorCodes._TIMED_OUT_QUEUE,
        ErrorCodes._WAIT_COORD,
        ErrorCodes._WAIT_CACHE,
        ErrorCodes._RETRY,
    }
)
RETRIABLE: Final = _RETRIABLE_BROKER | _RETRIABLE_LOCAL


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed when it is sent again, without anyone changing anything."""
    return code in RETRIABLE


class KafkaError(ErrorCodes):
    """One error: a number, its words, and what may be done about it. Equal to its number, as in confluent-kafka."""

    __slots__ = ("_code", "_is_fatal", "_is_maybe_stored", "_is_retriable", "_message")

    def __init__(
        self,
        code: int,
        message: str | None = None,
        *,
        fatal: bool = False,
        retriable: bool = False,
        maybe_stored: bool = False,
    ) -> None:
        self._code = code
        self._message = message
        self._is_fatal = fatal
        self._is_retriable = retriable
        self._is_maybe_stored = maybe_stored

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        return NAMES.get(self._code, f"ERR_{self._code}?")

    def fatal(self) -> bool:
        """Whether the client that reported it can do nothing more."""
        return self._is_fatal

    def retriable(self) -> bool:
        return self._is_retriable

    def maybe_stored(self) -> bool:
        """Whether the records may stand in the log all the same: they were sent, and no answer denies it."""
        return self._is_maybe_stored

    def txn_requires_abort(self) -> bool:
        """Always False: our producer has no transactions. Programs written for confluent-kafka ask."""
        return False

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self._code == other._code
        return self._code == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> str:
        fatal = "FATAL," if self._is_fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    __str__ = __repr__

    # The last one, since from here on `str` is this method.
    def str(self) -> str:
        return self._message if self._message is not None else text_of(self._code)


class KafkaException(Exception):
    """Raised with one KafkaError, which is also its first argument."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error)
        self.error = error


def text_of(code: int) -> str:
    return TEXTS.get(code, f"Err-{code}?")


def error_of(code: int, message: str | None = None) -> KafkaError:
    """The error for a number that a broker answered. Its own message, where it sent one, follows the known words."""
    known = text_of(code)
    if not message or _plain(known).endswith(_plain(message)):
        said = known
    elif _plain(message).startswith(_plain(known)):  # brokers often begin with the words of the code
        said = f"Broker: {message}" if known.startswith("Broker: ") else message
    else:
        said = f"{known}: {message}"
    return KafkaError(code, said, retriable=is_retriable(code))


def _plain(words: str) -> str:
    return words.removeprefix("Broker: ").rstrip(".").casefold()


def exception_of(code: int, message: str | None = None) -> KafkaException:
    return KafkaException(error_of(code, message))


def invalid_argument(message: str) -> KafkaException:
    """The error for an argument that cannot be right."""
    return KafkaException(KafkaError(KafkaError._INVALID_ARG, message))


__all__ = [
    "KafkaError",
    "KafkaException",
    "error_of",
    "exception_of",
    "invalid_argument",
    "is_retriable",
    "text_of",
]
