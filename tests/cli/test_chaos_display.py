"""What `oncelog chaos` shows while it runs, in a terminal of any width and without one."""

import io
import re
from collections import Counter
from dataclasses import dataclass, field

import pytest

from oncelog.chaos.outcome import Progress
from oncelog.chaos.plan import Target
from oncelog.cli.parts.chaos_display import (
    CLEAR_BELOW,
    DRAW_S,
    HIDE_CURSOR,
    NAME,
    SHOW_CURSOR,
    TELL_S,
    Display,
    Frame,
    is_plain_ascii,
    styled,
)

CODES = re.compile(r"\033\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\033\[[0-9;]*m")


class Terminal(io.StringIO):
    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def drawn(self) -> list[str]:
        """The lines of the last drawing, as they are read."""
        return CODES.sub("", self.getvalue().rsplit(HIDE_CURSOR, 1)[-1]).replace("\r", "").splitlines()


@dataclass
class Shown:
    """A display, its terminal, and its clock."""

    terminal: Terminal = field(default_factory=Terminal)
    columns: int = 100
    messages: int = 1_000
    has_pipeline: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    is_quiet: bool = False
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.display = Display(
            Frame(self.messages, has_pipeline=self.has_pipeline),
            stream=self.terminal,
            now_s=lambda: self.now_s,
            columns=lambda: self.columns,
            variables=self.variables,
            is_quiet=self.is_quiet,
        )

    def show(self, **what: object) -> None:
        progress = Progress(phase="sending")
        for name, value in what.items():
            setattr(progress, name, value)
        self.display.show(progress)


def test_it_says_how_much_how_fast_what_is_behind_and_how_long_to_go() -> None:
    shown = Shown()
    shown.show(seconds=1.0, sent=210, confirmed=200, written=100)
    shown.now_s += 1
    shown.show(seconds=2.0, sent=520, confirmed=500, written=250, faults=Counter({Target.SERVER: 2}), last_fault="kill")
    messages, pipeline, faults, last, time = shown.terminal.drawn()
    assert messages.endswith("500 of 1,000 confirmed, 300/s, 20 under way")
    assert pipeline.endswith("250 rows through Spark, 150/s, 250 behind")
    assert faults.split() == ["faults", "server", "2"]
    assert last.split() == ["the", "last", "kill"]
    assert time.split() == ["time", "0:02,", "about", "0:06", "to", "go;", "sending"]


def test_a_bar_is_as_full_as_the_work_is_done() -> None:
    shown = Shown(has_pipeline=False)
    shown.show(sent=750, confirmed=750)
    (messages, *_) = shown.terminal.drawn()
    assert (messages.count("█"), messages.count("░")) == (18, 6)


def test_while_spark_starts_it_says_so() -> None:
    shown = Shown()
    shown.show(is_spark_starting=True)
    assert "Spark starts (about 10 s)" in shown.terminal.drawn()[1]
    shown.now_s += 1
    shown.show(is_spark_starting=True, written=10, faults=Counter({Target.DRIVER: 1}))
    assert "Spark starts again" in shown.terminal.drawn()[1]


def test_it_draws_over_itself_and_not_more_often_than_one_can_read() -> None:
    shown = Shown()
    shown.show(confirmed=1)
    first = len(shown.terminal.getvalue())
    shown.now_s += DRAW_S / 2
    shown.show(confirmed=2)
    assert len(shown.terminal.getvalue()) == first
    shown.now_s += DRAW_S
    shown.show(confirmed=3)
    assert "\033[5A" in shown.terminal.getvalue()[first:]


def test_a_new_phase_is_shown_at_once() -> None:
    shown = Shown()
    shown.show(phase="sending")
    shown.show(phase="counting")
    assert shown.terminal.drawn()[-1].endswith("counting")


@pytest.mark.parametrize("columns", [12, 40, 79])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    shown = Shown(columns=columns)
    shown.show(confirmed=500, sent=900, last_fault="cut the connection after 90% of a produce frame", seconds=3.0)
    assert max(len(line) for line in shown.terminal.drawn()) < columns


def test_the_cursor_comes_back_and_the_lines_go_also_after_ctrl_c() -> None:
    shown = Shown()
    with pytest.raises(KeyboardInterrupt), shown.display:
        shown.show(confirmed=1)
        assert SHOW_CURSOR not in shown.terminal.getvalue()
        raise KeyboardInterrupt
    assert shown.terminal.getvalue().endswith(f"\033[5A{CLEAR_BELOW}{SHOW_CURSOR}")


def test_no_color_takes_the_colours_away_and_nothing_else() -> None:
    for variables, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
        shown = Shown(variables=variables)
        shown.show(confirmed=1)
        assert bool(COLOURS.search(shown.terminal.getvalue())) is is_coloured
        assert shown.terminal.drawn()[0].startswith("messages".ljust(NAME))


@pytest.mark.parametrize(
    ("terminal", "variables"), [(Terminal(is_terminal=False), {}), (Terminal(), {"TERM": "dumb"})], ids=["log", "dumb"]
)
def test_a_log_gets_a_plain_line_for_each_phase_and_every_ten_seconds(
    terminal: Terminal, variables: dict[str, str]
) -> None:
    shown = Shown(terminal=terminal, variables=variables)
    with shown.display:
        for second in range(25):
            shown.now_s = float(second)
            shown.show(seconds=float(second), confirmed=10 * second, written=5 * second)
        shown.show(phase="counting", seconds=25.0, confirmed=1_000, written=999, faults=Counter({Target.DRIVER: 3}))
    assert TELL_S == 10
    assert terminal.getvalue().splitlines() == [
        "0:00 sending: 0 of 1,000 confirmed, 0 rows through Spark, 0 faults",
        "0:10 sending: 100 of 1,000 confirmed, 50 rows through Spark, 0 faults",
        "0:20 sending: 200 of 1,000 confirmed, 100 rows through Spark, 0 faults",
        "0:25 counting: 1,000 of 1,000 confirmed, 999 rows through Spark, 3 faults",
    ]


def test_a_log_says_that_spark_is_what_is_waited_for() -> None:
    shown = Shown(terminal=Terminal(is_terminal=False))
    with shown.display:
        shown.show(confirmed=10, is_spark_starting=True)
        shown.now_s = 10.0
        shown.show(seconds=10.0, confirmed=90, written=20, faults=Counter({Target.DRIVER: 1}), is_spark_starting=True)
    assert shown.terminal.getvalue().splitlines() == [
        "0:00 sending: 10 of 1,000 confirmed, 0 rows through Spark, which starts, 0 faults",
        "0:10 sending: 90 of 1,000 confirmed, 20 rows through Spark, which starts again, 1 fault",
    ]


def test_quiet_is_quiet() -> None:
    shown = Shown(is_quiet=True)
    with shown.display:
        shown.show(confirmed=1)
    assert shown.terminal.getvalue() == ""


def test_an_experiment_goes_on_where_what_it_shows_cannot_be_written() -> None:
    class Gone(Terminal):
        tried = 0

        def write(self, text: str) -> int:
            self.tried += 1
            raise BrokenPipeError

    terminal = Gone()
    shown = Shown(terminal=terminal)
    with shown.display:
        shown.show(confirmed=1)
        shown.now_s += 100
        shown.show(confirmed=2)
    assert terminal.tried == 1


def test_by_the_clock_there_is_no_bar_and_no_end_to_be_foretold() -> None:
    shown = Shown(messages=0, has_pipeline=False)
    shown.show(confirmed=500, sent=500, seconds=5.0)
    messages, _, _, time = shown.terminal.drawn()
    assert messages.split() == ["messages", "500", "confirmed,", "0/s,", "0", "under", "way"]
    assert "to go" not in time


def test_where_blocks_cannot_be_shown_the_bar_is_plain() -> None:
    assert is_plain_ascii(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert not is_plain_ascii(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    (messages, *_) = Frame(10, is_plain_ascii=True).lines(Progress(confirmed=5))
    assert "############------------" in messages


@pytest.mark.parametrize(("exit_code", "colour"), [(0, "32"), (1, "31"), (2, "33")])
def test_the_verdict_has_the_colour_of_its_exit_code_and_sections_stand_out(exit_code: int, colour: str) -> None:
    section, *plain, verdict = styled(["messages", "  sent  1", "", "2.0 s", "exact"], exit_code)
    assert verdict == f"\033[{colour}m\033[1mexact\033[0m"
    assert section == "\033[1mmessages\033[0m"
    assert plain == ["  sent  1", "", "2.0 s"]
