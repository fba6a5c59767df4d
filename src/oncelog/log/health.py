"""Whether a log can be appended to, and whether it can be read."""

import logging

from oncelog.log.errors import LogStorageError

logger = logging.getLogger(__name__)


class Health:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.offline: str | None = None  # why nothing is appended any more
        self.readable = True
        self.closed = False

    def go_offline(self, reason: str, *, readable: bool = True) -> None:
        """Nothing is appended any more until the log is opened anew. Said once."""
        self.readable = self.readable and readable
        if self.offline is None:
            self.offline = reason
            logger.error("%s is offline: %s", self._folder, reason)

    def come_back(self) -> None:
        """What was wrong has gone by itself."""
        self.offline = None

    def close(self) -> None:
        self.closed = True

    def let_go(self) -> None:
        """Once closed, and when nothing works on it any more."""
        self.offline = self.offline or f"{self._folder} is closed"

    def check(self) -> None:
        if self.offline is not None:
            raise LogStorageError(self.offline)
