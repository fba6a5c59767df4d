"""Refusals of a sink. The message is for the person who runs the query: it says what differs, in numbers, and what to
do."""

from typing import Final

from oncelog.client import KafkaException
from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots.states import Event
from oncelog.slots.verdicts import verdict_of

_OURS: Final = (Code._INCONSISTENT, Code._INVALID_ARG, Code._UNKNOWN_PARTITION, Code._UNSUPPORTED_FEATURE)


class SinkRefused(Exception):
    """Nothing more is written. Running the same again brings the same answer."""


class MayPass(SinkRefused):
    """Nothing more is written by this attempt; another one may succeed."""


class BadState(SinkRefused):
    """A record in the sink's topic that cannot be read as its state."""


def refused(words: str, failure: Exception) -> SinkRefused:
    """A refusal in these words. Whether another attempt may succeed depends on what failed."""
    if isinstance(failure, KafkaException):
        code = failure.error.code()
        if code not in _OURS and verdict_of(code).event not in (Event.REFUSED, Event.TOO_LARGE):
            return MayPass(words)
    return SinkRefused(words)
