"""One line of a terminal that is drawn again and again, and is gone in the end."""

import shutil
from collections.abc import Callable
from typing import Final, TextIO

from oncelog.spark.progress import fitted

_CLEAR: Final = "\r\x1b[K"


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


class DrawnLine:
    """A line that is drawn over. After each drawing the cursor goes back to its beginning, so that what others write
    there, a JVM for one, stands at the beginning of a line."""

    def __init__(self, stream: TextIO, width: Callable[[], int] = terminal_width) -> None:
        self._stream = stream
        self._width = width
        self._is_drawn = False

    def draw(self, *parts: str) -> None:
        """Draw these parts. Without any, what stands there is taken away."""
        if parts:
            self._write(f"{_CLEAR}{fitted(parts, self._width())}\r")
        elif self._is_drawn:
            self._write(_CLEAR)
        self._is_drawn = bool(parts)

    def leave(self, line: str) -> None:
        """A line that stays."""
        self._write(f"{_CLEAR}{line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
