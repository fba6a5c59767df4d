"""Errors of saved producers: before anything is sent, and while a replay is checked."""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.slots.errors import CannotTell, Differs


class BadSavedProducer(KafkaException, ValueError):
    """The saved value itself cannot be used: tampered with, cut short, from a future version, of another place.

    Here and below, `what` alone is for a caller whose users have no saved producer before them: he knows another
    remedy."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = what
        super().__init__(KafkaError(KafkaError._INVALID_ARG, _both(what, remedy)))


class TopicGone(BadSavedProducer):
    """A topic of the saved value was deleted, and perhaps made again."""


class TopicMissing(TopicGone):
    """The topic is not there. A broker that lags behind says so, too: another look may find it."""


class CannotResume(KafkaException):
    """The log and the saved value do not fit together, or the log can no longer tell. Nothing was sent."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = what
        super().__init__(KafkaError(KafkaError._INCONSISTENT, _both(what, remedy), fatal=True))


class ReplayDiffers(KafkaException):
    """The application produced something else than what stands in the slot already. Nothing more may be written."""

    def __init__(self, message: str) -> None:
        super().__init__(KafkaError(KafkaError._INCONSISTENT, message, fatal=True))


class TakenOver(KafkaException):
    """Another copy of the same job has taken the saved producer over; this one must stop."""

    def __init__(self, message: str) -> None:
        super().__init__(KafkaError(KafkaError._FENCED, message, fatal=True))


@contextmanager
def in_words() -> Iterator[None]:
    """Errors of `oncelog.slots`, raised as errors of the client."""
    try:
        yield
    except CannotTell as found:
        raise CannotResume(found.what, found.remedy) from None
    except Differs as found:
        raise ReplayDiffers(str(found)) from None


def _both(what: str, remedy: str) -> str:
    return f"{what}. {remedy}" if remedy else what
