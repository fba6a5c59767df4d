"""Memory of batches that is used again: fresh pages cost as much as filling them (extra `[columns]`).

A buffer is free when nobody refers to it any more but its keeper, neither a batch nor a socket that still has to send
it; so nobody needs to say that it is done with one.
"""

from sys import getrefcount
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_KEPT_BYTES: Final = 32 << 20
LEAST_BYTES: Final = 1 << 20  # smaller ones the allocator itself keeps
FREE: Final = 3  # references: the list's, the loop's, and the one that counts them


class Buffers:
    def __init__(self, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_kept_bytes = most_kept_bytes
        self.kept: list[NDArray[np.uint8]] = []
        self._kept_bytes = 0
        self._lock = Lock()

    def take(self, size_bytes: int) -> NDArray[np.uint8]:
        """Room for that many bytes, and perhaps for some more."""
        if size_bytes < LEAST_BYTES:
            return np.empty(size_bytes, np.uint8)
        with self._lock:
            for kept in self.kept:
                if size_bytes <= len(kept) <= 2 * size_bytes and getrefcount(kept) == FREE:
                    return kept
            made = np.empty(size_bytes + size_bytes // 8, np.uint8)
            self._keep(made)
        return made

    def _keep(self, made: NDArray[np.uint8]) -> None:
        """The buffer takes the place of free ones, whose sizes are not asked for any more."""
        for at in range(len(self.kept) - 1, -1, -1):
            if self._kept_bytes + len(made) <= self._most_kept_bytes:
                break
            if getrefcount(self.kept[at]) == FREE - 1:
                self._kept_bytes -= len(self.kept.pop(at))
        if self._kept_bytes + len(made) <= self._most_kept_bytes:
            self.kept.append(made)
            self._kept_bytes += len(made)
