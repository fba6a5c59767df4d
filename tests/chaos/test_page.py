"""The report: what a reader must find on it is there, whatever happened."""

from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from oncelog.chaos.audit import Audit, Result
from oncelog.chaos.outcome import Killed, Options, Outcome, Pipeline, Replicas, Sample, Verdict
from oncelog.chaos.page import as_html
from oncelog.chaos.plan import OF_BROKERS, Target, schedule
from oncelog.chaos.plots import MOST_POINTS, Line, Mark, Plot, rates, thinned, ticks
from oncelog.chaos.report import command_of, lines, verdict_in_words

MESSAGES = 1_000


def result_of(stored: Sequence[int], *, sent: int = MESSAGES) -> Result:
    audit = Audit(sent)
    audit.confirm(np.arange(sent))
    audit.take(0, np.array(stored, np.int64))
    return audit.result()


def outcome_of(
    stored: Sequence[int] = range(MESSAGES),
    written: Sequence[int] | None = None,
    *,
    samples: int = 40,
    replicas: Replicas | None = None,
) -> Outcome:
    targets = frozenset(Target) - OF_BROKERS if written is not None else frozenset({Target.SERVER, Target.RESPONSES})
    options = Options(
        messages=MESSAGES, targets=targets, every=50, spark=Pipeline() if written is not None else None, servers="a&b:1"
    )
    planned = schedule(1, targets, every=50, messages=MESSAGES)
    happened = [Killed(each.target, each.at, each.at + 3, 7, each.at / 100, each.in_words()) for each in planned[:-1]]
    return Outcome(
        options=options,
        planned=planned,
        happened=happened,
        result=result_of(stored),
        failed=0,
        seconds=10.0,
        samples=[Sample(at / 4, 25 * at, 12.5, 20 * at) for at in range(samples)],
        written=None if written is None else result_of(written),
        replicas=replicas,
    )


def drawings(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(part.split("</svg>")[0] + "</svg>") for part in page.split("<div class=plot>")[1:]]


def test_the_page_says_the_verdict_and_every_count_before_anything_else() -> None:
    page = as_html(outcome_of())
    assert page.index("exact: every confirmed message stands there once") < page.index("<svg")
    assert page.index("<td>duplicates</td><td class=n>0</td>") < page.index("<svg")
    assert "class=bad" not in page


def test_what_is_wrong_is_named_in_the_verdict_and_marked_among_the_counts() -> None:
    found = outcome_of([*range(400), *range(300, MESSAGES - 5)])
    assert found.verdict is Verdict.NOT_EXACT
    assert verdict_in_words(found) == "not exact: 100 duplicates, 5 missing"
    page = as_html(found)
    assert page.count("class=bad") == 2
    assert "JUMP BACK 99" in page
    assert len(drawings(page)[-1].findall("rect")) == 1  # the run


def test_rows_that_are_wrong_are_told_apart_from_messages() -> None:
    found = outcome_of(written=[*range(MESSAGES), 999])
    assert verdict_in_words(found) == "not exact: 1 duplicates of the rows"


def test_each_plot_marks_each_fault_in_the_colour_of_its_kind() -> None:
    found = outcome_of(written=range(MESSAGES))
    page = as_html(found)
    plots = drawings(page)
    assert len(plots) == 4  # rate, how far, rows to come, latency
    for plot in plots:
        assert [mark.get("class") for mark in plot.findall("g")] == [f"mark {each.target}" for each in found.happened]
        assert len(plot.findall("text")) > 8  # the ticks
    for target in Target:
        assert f"--{target}: #" in page
    for target in found.options.targets:
        assert f"<span class='kind {target}'>" in page


def test_the_table_of_faults_has_all_that_came_about_and_names_those_that_did_not() -> None:
    found = outcome_of()
    page = as_html(found)
    assert page.count("<tr><td class=n>") == len(found.happened)
    last = found.planned[-1]
    assert f"never came about: {last.target} at {last.at:,}" in page


def test_what_a_user_named_cannot_break_the_page() -> None:
    page = as_html(outcome_of())
    assert "a&amp;b:1" in page
    assert "a&b" not in page


def test_a_run_of_hours_is_drawn_by_as_many_points_as_can_be_told_apart() -> None:
    plots = drawings(as_html(outcome_of(samples=50_000)))
    for plot in plots:
        for line in plot.findall("polyline"):
            assert len(line.get("points", "").split()) <= MOST_POINTS + 1


def test_thinning_keeps_the_largest_of_each_group_and_for_counts_the_last() -> None:
    points = [(float(at), float(at % 7 == 3) * at) for at in range(4_000)]
    assert max(value for _, value in thinned(points)) == max(value for _, value in points)
    assert thinned(points, last=True)[-1] == points[-1]
    assert thinned([]) == []


def test_a_rate_is_what_came_between_two_moments() -> None:
    assert rates([(0.0, 0), (0.5, 100), (1.5, 100)]) == [(0.5, 200.0), (1.5, 0.0)]


@pytest.mark.parametrize("top", [0.3, 1, 7, 99, 1_234, 6_723_843])
def test_ticks_are_round_numbers_from_nothing_to_the_top(top: float) -> None:
    found = ticks(top, 4)
    assert found[0] == 0
    assert found[-1] <= top * 1.001
    assert 3 <= len(found) <= 6
    assert len({round(b - a, 9) for a, b in pairwise(found)}) == 1


def test_a_plot_of_nothing_is_still_a_plot() -> None:
    svg = Plot("nothing", 0.0, [Line([])], marks=[Mark(0.0, "server", "at <once>")]).svg()
    (drawing,) = drawings(svg)
    assert drawing.findtext("g/title") == "at <once>"


def test_the_table_in_the_terminal_stands_in_columns() -> None:
    said = lines(outcome_of(written=range(MESSAGES)))
    assert [line for line in said if line and not line.startswith(" ")][:3] == [
        "messages",
        "through Spark, local, the direct sink",
        f"{'killed':<28}{'planned':>14}{'came about':>14}{'hit work':>14}",
    ]
    counts = [line for line in said if line.startswith("  ") and line.strip().split("  ")[0] in ("sent", "missing")]
    assert {line[:42].rstrip()[-1] for line in counts} <= set("0123456789")
    assert said[-1] == "exact: every confirmed message stands there once, in its order"


def test_the_page_tells_the_command_that_plans_the_same_again() -> None:
    assert command_of(outcome_of(written=range(MESSAGES)).options) == (
        "oncelog chaos --messages 1000 --every 50 --seed 1 "
        "--kill connections,driver,executor,orphan,orphan-driver,producer,responses,server --client oncelog --linger 5 "
        "--partitions 1 --servers 'a&b:1' --spark --sink direct"
    )
    by_the_clock = Options(messages=5, seconds=90, is_idempotent=False)
    assert "--minutes 1.5" in command_of(by_the_clock)
    assert "--messages" not in command_of(by_the_clock)
    assert "--kill nothing" in command_of(by_the_clock)


def test_a_report_that_is_handed_on_tells_no_password() -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.driver.memory": "2g"}
    said = command_of(Options(messages=5, spark=Pipeline(conf=conf)))
    assert "hush" not in said
    assert "--spark-conf spark.hadoop.fs.s3a.secret.key=... --spark-conf spark.driver.memory=2g" in said
