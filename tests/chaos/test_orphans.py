"""What is stopped goes on when another has its cells, and not before."""

import os
import signal
import subprocess
import sys

import pytest

from oncelog.chaos.orphans import PATIENCE_S, Heir, Orphan, Succession, busiest
from oncelog.chaos.plan import ORPHANS, Target, schedule


@pytest.mark.parametrize(
    ("looks", "place"),
    [
        ([(0.5, (4, 4)), (1.0, (5, 5)), (2.0, (9, 5)), (3.0, (9, 5)), (15.0, (12, 6))], Heir.TAKEN),
        ([(0.5, (4, 4)), (1.0, (5, 5)), (2.0, (9, 6))], Heir.NONE),  # both cells are at work: it held none
        ([(0.5, (4, 4)), (1.0, (5, 5)), (20.0, (9, 5))], Heir.HELD),
        ([(1.0, (5, 5)), (PATIENCE_S + 1, (9, 5))], Heir.LEFT),
        ([(0.5, (4, 4)), (0.9, (9, 9))], Heir.HELD),  # of what it had on its way nothing is counted
    ],
)
def test_another_has_the_cells_when_each_journal_has_grown_again(
    looks: list[tuple[float, tuple[int, int]]], place: Heir
) -> None:
    succession = Succession(0.0)
    *before, last = [succession.look(ends, now_s) for now_s, ends in looks]
    assert last is place
    assert set(before) <= {Heir.HELD}


def test_a_process_is_stopped_and_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        orphan = Orphan([process.pid], 0.0)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        orphan.go_on()
        assert os.WIFCONTINUED(os.waitpid(process.pid, os.WCONTINUED)[1])
        process.send_signal(signal.SIGKILL)
    orphan.go_on()  # it has ended: that is nobody's fault


def test_those_that_do_nothing_are_not_at_work() -> None:
    me = os.getpid()
    assert busiest([me], {me: 0}) == [me]
    assert busiest([me], {me: 1 << 40}) == []


def test_the_plan_says_what_is_stopped() -> None:
    words = {event.target: event.in_words() for event in schedule(1, ORPHANS, every=10, messages=100)}
    assert words == {
        Target.ORPHAN: "stop a worker until another has the cells, then let it go on",
        Target.ORPHAN_DRIVER: "stop the driver and its workers until another has the cells, then let it go on",
    }
