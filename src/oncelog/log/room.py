"""Whether a disk that has refused something takes something in again, for all logs of a data folder."""

import logging
from contextlib import suppress
from typing import Final

from oncelog.log.disk import Disk, write_all
from oncelog.log.names import TEMPORARY

logger = logging.getLogger(__name__)

TRIED_BYTES: Final = 2**20  # a disk with less room than that is full again at once
AGAIN_MS: Final = 1_000
TRUE_FOR_MS: Final = 100  # two thousand logs that wait for room do not all try by themselves


class Room:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._is_there = True
        self._tried_ms: int | None = None

    def is_there(self, folder: str, now_ms: int) -> bool:
        """Found out by writing: a quota, or a disk that can only be read, is not seen in how much is free."""
        for_ms = TRUE_FOR_MS if self._is_there else AGAIN_MS
        if self._tried_ms is None or now_ms - self._tried_ms >= for_ms:
            was_there = self._is_there
            self._tried_ms, self._is_there = now_ms, self._takes(f"{folder}/room{TEMPORARY}")
            if was_there and not self._is_there:
                logger.warning(
                    "%s: the disk takes nothing in: others lead where they can, and none is followed", folder
                )
            elif self._is_there and not was_there:
                logger.warning("%s: the disk takes something in again", folder)
        return self._is_there

    def _takes(self, path: str) -> bool:
        try:
            file = self._disk.open(path, create=True)
            try:
                write_all(file, [bytes(TRIED_BYTES)], 0)
            finally:
                file.close()
        except OSError:
            return False
        finally:
            with suppress(OSError):
                self._disk.unlink(path)
        return True
