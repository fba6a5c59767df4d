"""The progress of a copy while it runs: a line that is drawn over in a terminal, one now and then in a log.

Records are counted where they arrive, by the ends of the destination's partitions, so it does not matter who copies;
what others write there meanwhile is counted too, though never as more than there is to copy.
"""

from collections.abc import Mapping
from threading import Event, Thread
from typing import Final, Self, TextIO

from oncelog.client import KafkaException
from oncelog.clock import monotonic_s
from oncelog.spark.copying.topics import Topics
from oncelog.spark.drawn_line import DrawnLine
from oncelog.waiting import until_ended

DRAW_EVERY_S: Final = 0.5
LINE_EVERY_S: Final = 10.0


def words(copied: int, wanted: int | None, took_s: float) -> str:
    """`wanted`: how many there are; None where it goes on and on."""
    if wanted is not None:
        copied = min(copied, wanted)
    per_s = f"{copied / took_s:,.0f} records/s" if took_s > 0 else ""
    if wanted is None:
        return f"copied {copied:,} records, {per_s}"
    share = copied / wanted if wanted else 1.0
    return f"copied {copied:,} of {wanted:,} records ({share:.0%}), {per_s}"


class Showing:
    """`with Showing(...)`: as long as the block runs."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        ends: Mapping[int, int],
        stream: TextIO,
        wanted: int | None,
    ) -> None:
        self._properties = properties
        self._topic = topic
        self._before = dict(ends)
        self._stream = stream
        self._wanted = wanted
        self._line = DrawnLine(stream) if stream.isatty() else None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="oncelog-copy-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        until_ended(self._thread)

    def _run(self) -> None:
        began_s = monotonic_s()
        told = 0
        with Topics(self._properties) as topics:
            while not self._stop.wait(DRAW_EVERY_S if self._line is not None else LINE_EVERY_S):
                try:
                    ends = topics.ends(self._topic, self._before)
                except KafkaException:
                    continue  # the copy itself reports it
                copied = sum(ends[index] - self._before[index] for index in ends)
                if copied != told:
                    told = copied
                    self._tell(words(copied, self._wanted, monotonic_s() - began_s))
        if self._line is not None:
            self._line.draw()

    def _tell(self, text: str) -> None:
        if self._line is not None:
            self._line.draw(text)
        else:
            self._stream.write(f"{text}\n")
            self._stream.flush()
