"""What a user of the source is told when something fails: words, not numbers of a protocol."""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.client.errors import KafkaException


class SourceError(RuntimeError):
    """The cluster does not give what was asked for."""


@contextmanager
def in_words() -> Iterator[None]:
    try:
        yield
    except KafkaException as failure:
        error = failure.error
        raise SourceError(f"{error.str()} ({error.name()})") from failure
