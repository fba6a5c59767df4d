"""Errors for users of the source: words, not numbers of a protocol."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.client import KafkaException
from oncelog.client.door import DataLost

_log: Final = logging.getLogger("oncelog.spark")
_LOST: Final = "Some data may have been lost: it was deleted by retention, or with its topic, before it was read"


class SourceError(RuntimeError):
    """The cluster does not give what was asked for."""


@contextmanager
def in_words() -> Iterator[None]:
    try:
        yield
    except KafkaException as failure:
        error = failure.error
        raise SourceError(f"{error.str()} ({error.name()})") from failure


def lost(words: str, *, is_error: bool) -> None:
    """Records are lost: an error or a warning, as `failOnDataLoss` decides."""
    if is_error:
        raise DataLost(f"{words}. {_LOST}. With `failOnDataLoss` set to false the query goes on with what is there.")
    _log.warning("%s. %s. The query goes on with what is there; `failOnDataLoss` would stop it.", words, _LOST)
