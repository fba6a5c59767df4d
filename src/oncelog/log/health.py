"""Whether a log can be appended to, and whether it can be read."""

import logging

from oncelog.log.errors import LogStorageError

logger = logging.getLogger(__name__)

MOST_DAMAGE = 20  # places of one log that are told


class Health:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.offline: str | None = None  # why nothing is appended any more
        self.readable = True
        self.closed = False
        self.damage: list[str] = []  # places of which readers are told that they are not what was written
        self.refuses = False  # the disk, when it was last asked to take something in

    def go_offline(self, reason: str, *, readable: bool = True) -> None:
        """Take the log offline: nothing is appended any more until it is opened anew. Said once."""
        self.readable = self.readable and readable
        if self.offline is None:
            self.offline = reason
            logger.error("%s is offline: %s", self._folder, reason)

    def note_damage(self, what: str) -> None:
        """All else can be read and appended to. Each place is said once."""
        if what not in self.damage and len(self.damage) < MOST_DAMAGE:
            self.damage.append(what)
            logger.error(
                "%s is damaged, and readers get CORRUPT_MESSAGE there: %s. Restore the file from a backup, or have "
                "readers go on behind it",
                self._folder,
                what,
            )

    def come_back(self) -> None:
        """The log can be used again: the trouble has gone by itself."""
        self.offline = None

    def close(self) -> None:
        self.closed = True
        self.offline = self.offline or f"{self._folder} is closed"

    def check(self) -> None:
        if self.offline is not None:
            raise LogStorageError(self.offline)
