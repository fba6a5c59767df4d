"""The `_SUCCESS` of an hour: every cell has committed that it waits for no older record, so its files are all there.
The first process that notices writes it; records that are late come in files of their own."""

from typing import Final

from oncelog.clock import HOUR_MS
from oncelog.flow.filing import SUCCESS, folder_of, hour_of
from oncelog.runner.storing.place import FilePlace, Unreachable, told

MOST_EMPTY: Final = 24  # hours that get one too, though no record came: the newest


class Hours:
    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._done: set[str] = set()
        self._looked_ms = -1  # up to which hour, when it was looked at last

    def is_due(self, watermark_ms: int) -> bool:
        """Whether another hour is over."""
        return watermark_ms // HOUR_MS > self._looked_ms // HOUR_MS

    def close(self, watermark_ms: int) -> list[str]:
        """Every hour that is over by the least watermark of all cells; which ones are closed now."""
        try:
            return self._close(watermark_ms)
        except self._place.failures as error:
            raise Unreachable(told(error)) from error

    def _close(self, watermark_ms: int) -> list[str]:
        over = {folder: hour_ms for folder in self._place.folders() if (hour_ms := hour_of(folder)) is not None}
        if over:
            now_ms = watermark_ms // HOUR_MS * HOUR_MS
            first_ms = max(min(over.values()), now_ms - MOST_EMPTY * HOUR_MS)
            over |= {folder_of(hour_ms): hour_ms for hour_ms in range(first_ms, now_ms, HOUR_MS)}
        due = [folder for folder, begin_ms in sorted(over.items()) if begin_ms + HOUR_MS <= watermark_ms]
        due = [folder for folder in due if folder not in self._done]
        there = self._place.exists([f"{folder}/{SUCCESS}" for folder in due]) if due else []
        closed = [folder for folder, is_there in zip(due, there, strict=True) if not is_there]
        for folder in closed:
            self._place.mark(f"{folder}/{SUCCESS}")
        self._done.update(due)
        self._looked_ms = max(self._looked_ms, watermark_ms)
        return closed
