"""The display of `oncelog chaos` while it runs, on stderr: in a terminal a few lines that are drawn over themselves,
elsewhere a line for each phase and every ten seconds, so that a log shows life."""

import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

import click

from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.chaos.outcome import Progress

DRAW_S: Final = 0.2
TELL_S: Final = 10.0  # between two lines where there is no terminal
RATE_OVER_S: Final = 6.0  # a rate is that of the last seconds: batches of Spark come in jumps
KNOWN_BY_PART: Final = 0.03  # of the work: before it is done, nobody can say how long the rest takes
BAR: Final = 24
NAME: Final = 10
HIDE_CURSOR, SHOW_CURSOR, CLEAR_BELOW, CLEAR_LINE = "\033[?25l", "\033[?25h", "\033[J", "\033[2K"


class Frame:
    """The lines about an experiment at some moment. It learns rates from what it was shown before."""

    def __init__(self, messages: int, *, has_pipeline: bool = False, is_plain_ascii: bool = False) -> None:
        self._messages = messages  # 0: for as long as it takes
        self._has_pipeline = has_pipeline
        self._full, self._empty = ("#", "-") if is_plain_ascii else ("█", "░")
        self._seen: deque[tuple[float, int, int]] = deque()  # seconds, confirmed, written

    def learn(self, progress: "Progress") -> None:
        self._seen.append((progress.seconds, progress.confirmed, progress.written))
        while len(self._seen) > 2 and progress.seconds - self._seen[1][0] >= RATE_OVER_S:
            self._seen.popleft()

    def lines(self, progress: "Progress") -> list[str]:
        found = [self._messages_line(progress)]
        if self._has_pipeline:
            found.append(self._rows_line(progress))
        found += [*_faults_lines(progress), self._time_line(progress)]
        return found

    def in_one_line(self, progress: "Progress") -> str:
        found = [f"{progress.confirmed:,}{self._of()} confirmed"]
        if self._has_pipeline:
            starts = ", which starts again" if progress.written else ", which starts"  # its driver may have been killed
            waits = starts if progress.is_spark_starting else ""
            found.append(f"{progress.written:,} rows through Spark{waits}")
        count = sum(progress.faults.values())
        found.append("1 fault" if count == 1 else f"{count} faults")
        return f"{_minutes(progress.seconds)} {progress.phase}: {', '.join(found)}"

    def _of(self) -> str:
        return f" of {self._messages:,}" if self._messages else ""

    def _messages_line(self, progress: "Progress") -> str:
        under_way = max(0, progress.sent - progress.confirmed - progress.failed)
        words = f"{progress.confirmed:,}{self._of()} confirmed"
        is_all = progress.confirmed == self._messages
        if not is_all and progress.sent:
            words += f", {self._rate(1):,.0f}/s, {under_way:,} under way"
        return f"{'messages':<{NAME}}{self._bar(progress.confirmed)}{words}"

    def _rows_line(self, progress: "Progress") -> str:
        words = f"{progress.written:,} rows through Spark"
        if progress.is_spark_starting:
            words += ", Spark starts (about 10 s)" if not progress.written else ", Spark starts again"
        elif progress.written:
            words += f", {self._rate(2):,.0f}/s, {behind(progress):,} behind"
        return f"{'pipeline':<{NAME}}{self._bar(progress.written)}{words}"

    def _bar(self, done: int) -> str:
        if not self._messages:
            return ""
        full = min(BAR, BAR * done // self._messages)
        return f"{self._full * full}{self._empty * (BAR - full)}  "

    def _rate(self, column: int) -> float:
        """A second, over the last few of them."""
        if len(self._seen) < 2:
            return 0.0
        first, last = self._seen[0], self._seen[-1]
        return max(0.0, (last[column] - first[column]) / max(last[0] - first[0], 0.001))

    def _time_line(self, progress: "Progress") -> str:
        words = f"{'time':<{NAME}}{_minutes(progress.seconds)}"
        left_s = self.left_s(progress)
        if left_s is not None:
            words += f", about {_minutes(left_s)} to go"
        return f"{words}; {progress.phase}"

    def left_s(self, progress: "Progress") -> float | None:
        """The seconds that are left, by what the whole took until now: rates of the moment jump with every fault."""
        done = progress.written if self._has_pipeline else progress.confirmed
        if not self._messages or not KNOWN_BY_PART * self._messages <= done < self._messages:
            return None
        return progress.seconds * (self._messages - done) / done


def behind(progress: "Progress") -> int:
    """Messages that are confirmed and have not come through; a message makes one row on average."""
    return max(0, progress.confirmed - progress.written)


def _faults_lines(progress: "Progress") -> list[str]:
    counts = ", ".join(f"{target} {count}" for target, count in sorted(progress.faults.items())) or "none yet"
    return [f"{'faults':<{NAME}}{counts}", f"{'the last':<{NAME}}{progress.last_fault or '-'}"]


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Display:
    """Use it as a context: whatever ends the experiment, the cursor is there again."""

    def __init__(
        self,
        frame: Frame,
        *,
        stream: TextIO | None = None,
        now_s: Callable[[], float] = monotonic_s,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
        variables: Mapping[str, str] = os.environ,
        is_quiet: bool = False,
    ) -> None:
        self._frame = frame
        self._stream = stream or sys.stderr
        self._now_s = now_s
        self._columns = columns
        self._is_terminal = self._stream.isatty() and variables.get("TERM") != "dumb"
        self._is_coloured = not variables.get("NO_COLOR")
        self._is_quiet = is_quiet
        self._shown_s = float("-inf")
        self._phase = ""
        self._drawn = 0  # lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._drawn and not self._is_quiet:
            self._write(f"{self._up()}{CLEAR_BELOW}{SHOW_CURSOR}")
            self._drawn = 0

    def show(self, progress: "Progress") -> None:
        if self._is_quiet:
            return
        self._frame.learn(progress)
        waits_s = DRAW_S if self._is_terminal else TELL_S
        if progress.phase == self._phase and self._now_s() - self._shown_s < waits_s:
            return
        self._shown_s, self._phase = self._now_s(), progress.phase
        if self._is_terminal:
            self._draw(self._frame.lines(progress))
        else:
            self._write(self._frame.in_one_line(progress) + "\n")

    def _write(self, text: str) -> None:
        """An experiment does not end because nobody can see it: a closed pipe, a full disk, a terminal that is gone."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._is_quiet = True

    def _draw(self, lines: list[str]) -> None:
        width = max(10, self._columns() - 1)
        text = HIDE_CURSOR + self._up()
        text += "".join(f"{CLEAR_LINE}{self._coloured(line[:width])}\n" for line in lines)
        self._write(text + CLEAR_BELOW)
        self._drawn = len(lines)

    def _coloured(self, line: str) -> str:
        if not self._is_coloured:
            return line
        colour = "yellow" if line.startswith(("faults", "the last")) else None
        return click.style(line[:NAME], dim=True) + click.style(line[NAME:], fg=colour)

    def _up(self) -> str:
        return f"\r\033[{self._drawn}A" if self._drawn else ""


def styled(lines: Sequence[str], exit_code: int) -> list[str]:
    """The lines for `click.echo`, which takes the colours away where nobody sees them."""
    *table, verdict = lines
    found = [click.style(line, bold=True) if line[:1].isalpha() else line for line in table]
    return [*found, click.style(verdict, fg=("green", "red", "yellow")[exit_code], bold=True)]


def is_plain_ascii(stream: TextIO) -> bool:
    """Whether it cannot show the blocks of a bar."""
    try:
        "█░".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return True
    return False
