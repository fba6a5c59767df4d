"""A terminal shows one line that comes and goes; a log gets lines that stay."""

import logging
import re
from io import StringIO

import pytest

from oncelog.clock import ManualClock
from oncelog.spark.progress import Batch, Stage
from oncelog.spark.screen import Lines, Terminal, screen_for

STAGE = [Stage(number=4, tasks=10, done=5, active=2)]


def batch(number: int, query: str = "words") -> Batch:
    return Batch(query=query, first=number, last=number, rows=100, took_ms=200, behind=0)


def seen(stream: StringIO, width: int = 200) -> list[str]:
    """What the terminal shows: all lines that stay, and the one that the cursor is in."""
    lines = [""]
    column = 0
    for part in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+", stream.getvalue()):
        if part == "\r":
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif part == "\n":
            lines.append("")
            column = 0
        else:
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part) :]
            column += len(part)
            assert column < width, "it wraps"
    return lines


class Tty(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stream() -> StringIO:
    return StringIO()


@pytest.fixture
def terminal(stream: StringIO, clock: ManualClock) -> Terminal:
    return Terminal(stream, clock, lambda: 200)


def test_work_that_is_done_in_half_a_second_draws_no_bar(
    terminal: Terminal, stream: StringIO, clock: ManualClock
) -> None:
    terminal.working(STAGE)
    clock.advance(499)
    terminal.working(STAGE)
    terminal.working([])
    assert stream.getvalue() == ""


def test_work_that_takes_longer_draws_a_bar_and_leaves_nothing_of_it(
    terminal: Terminal, stream: StringIO, clock: ManualClock
) -> None:
    terminal.working(STAGE)
    clock.advance(500)
    terminal.working(STAGE)
    assert seen(stream) == ["stage 4 [============>           ] 5/10 tasks, 2 running, 0.5 s"]
    terminal.working([])
    assert seen(stream) == [""]


def test_a_bar_counts_from_the_begin_of_what_runs_now(terminal: Terminal, stream: StringIO, clock: ManualClock) -> None:
    terminal.working(STAGE)
    clock.advance(5000)
    terminal.working([Stage(number=5, tasks=1, done=0)])
    clock.advance(400)
    terminal.working([Stage(number=5, tasks=1, done=0)])
    assert seen(stream) == [""]


def test_a_query_shows_its_last_batch_and_the_bar_of_the_one_that_runs(
    terminal: Terminal, stream: StringIO, clock: ManualClock
) -> None:
    terminal.batch("run", batch(1))
    terminal.batch("run", batch(2))
    told = "words, batch 2: 100 rows in 0.2 s, 500 rows/s, up to date"
    assert seen(stream) == [told]
    terminal.working(STAGE)
    clock.advance(1000)
    terminal.working(STAGE)
    assert seen(stream)[-1] == f"{told} | [=====>    ] 5/10"


def test_the_end_of_a_query_stays(terminal: Terminal, stream: StringIO, clock: ManualClock) -> None:
    terminal.batch("run", batch(1))
    terminal.batch("other", batch(7, "copies"))
    clock.advance(1800)
    terminal.ended("run", None)
    expected = [
        "words ended after 1 batch, 100 rows in 2.0 s",
        "copies, batch 7: 100 rows in 0.2 s, 500 rows/s, up to date",
    ]
    assert seen(stream) == expected
    terminal.close()
    assert seen(stream) == [expected[0], ""]


def test_a_query_that_an_error_stopped_before_its_first_batch_is_told(terminal: Terminal, stream: StringIO) -> None:
    terminal.ended("e58905f8-db93", "no such topic")
    terminal.ended("0e11f10d-7382", None)
    assert seen(stream) == ["query e58905f8 stopped by an error after 0 batches: no such topic", ""]


def test_a_line_that_somebody_else_writes_begins_at_the_margin(terminal: Terminal, stream: StringIO) -> None:
    terminal.batch("run", batch(1))
    stream.write("ERROR something\n")
    terminal.batch("run", batch(2))
    shown = seen(stream)
    assert shown[0].startswith("ERROR something")
    assert shown[1].startswith("words, batch 2")


# --- a log ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def lines(said: list[str], clock: ManualClock) -> Lines:
    return Lines(said.append, clock)


def test_a_log_has_one_line_a_batch_and_one_at_the_end(lines: Lines, said: list[str], clock: ManualClock) -> None:
    for number in (1, 2):
        lines.batch("run", batch(number))
        clock.advance(1000)
    lines.ended("run", None)
    assert said == [
        "words, batch 1: 100 rows in 0.2 s, 500 rows/s, up to date",
        "words, batch 2: 100 rows in 0.2 s, 500 rows/s, up to date",
        "words ended after 2 batches, 200 rows in 2.2 s",
    ]


def test_batches_that_come_faster_than_one_reads_share_a_line_and_none_is_left_out(
    lines: Lines, said: list[str], clock: ManualClock
) -> None:
    for number in range(1, 12):
        lines.batch("run", batch(number))
        clock.advance(200)
    lines.ended("run", "broken")
    assert [line.partition(":")[0] for line in said] == [
        "words, batch 1",
        "words, batches 2 to 6",
        "words, batches 7 to 11",
        "words stopped by an error after 11 batches",
    ]


def test_the_last_batch_before_a_pause_is_told_without_waiting_for_the_next(
    lines: Lines, said: list[str], clock: ManualClock
) -> None:
    lines.batch("run", batch(1))
    lines.batch("run", batch(2))
    assert len(said) == 1
    clock.advance(1000)
    lines.working([])
    assert said[1].startswith("words, batch 2:")


def test_a_log_tells_of_a_long_stage_now_and_then_and_of_short_ones_never(
    lines: Lines, said: list[str], clock: ManualClock
) -> None:
    for _ in range(13):
        lines.working(STAGE)
        clock.advance(5000)
    lines.working([Stage(number=5, tasks=1, done=0)])
    assert said == [f"stage 4: 5 of 10 tasks done, {took}" for took in ("30 s", "1 min 00 s")]


def test_what_was_not_told_yet_is_told_when_the_session_ends(lines: Lines, said: list[str]) -> None:
    lines.batch("run", batch(1))
    lines.batch("run", batch(2))
    lines.close()
    assert [line.partition(":")[0] for line in said] == ["words, batch 1", "words, batch 2"]


def test_a_terminal_gets_a_bar_and_anything_else_lines() -> None:
    assert isinstance(screen_for(Tty()), Terminal)
    assert isinstance(screen_for(StringIO()), Lines)


def test_lines_go_to_logging_where_the_program_has_set_it_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Lines().ended("e58905f8-db93", "broken")
    assert [(record.name, record.levelname) for record in caplog.records] == [("oncelog.spark.progress", "INFO")]


def test_lines_go_to_stderr_where_nothing_is_set_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("oncelog.spark.progress"), "propagate", False)
    Lines().ended("e58905f8-db93", "broken")
    assert capsys.readouterr().err == "oncelog: query e58905f8 stopped by an error after 0 batches: broken\n"
