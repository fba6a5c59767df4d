"""The picture of `./dev run` in the README is one of a run that was exact, and any browser can show it."""

import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.picture import PICTURE, as_svg, cut, moments, record
from bench.screen import Picture, Screen, text_of
from oncelog.chaos.outcome import Verdict
from oncelog.chaos.plan import OF_BROKERS, ORPHANS, Target
from oncelog.chaos.report import WORDS
from tests.repo.tree import read

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 40_000
SPEAKS = r"""
import sys
sys.stdout.write("dev: setting up\n\033[?25l\033[2K\033[2mtime\033[0m \033[33m█░ 1 & <2>\033[0m\n")
sys.stdout.write("\033[1A\033[Jdone\n\nGo on\n  elsewhere\n" if sys.stdout.isatty() else "no terminal")
sys.exit(int(sys.argv[1]))
"""


def screen_of(text: str) -> Picture:
    screen = Screen()
    screen.write(text)
    return screen.picture()


def texts(drawing: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in drawing.iter(f"{SVG}text")]


def test_the_picture_is_small_and_well_formed_and_needs_nothing_from_elsewhere() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert len(text.encode()) < MOST_BYTES
    assert text.count("http") == 1  # the name of SVG
    assert "url(" not in text and "@import" not in text


def test_the_picture_ends_with_the_verdict_exact_and_shows_every_kind_of_its_faults() -> None:
    (end,) = (group for group in ElementTree.parse(PICTURE).getroot().findall(f"{SVG}g") if group.get("class") == "e")
    shown = texts(end)
    assert WORDS[Verdict.EXACT] in shown
    for target in set(Target) - ORPHANS - OF_BROKERS:
        (line,) = (line for line in shown if line.split()[:1] == [target])
        _, planned, _, hit_work = line.split()
        assert int(hit_work) > 0, line
        assert int(planned) > 0


def test_the_readme_shows_it() -> None:
    assert "](docs/run.svg)" in read("README.md")


def test_a_run_is_recorded_as_it_looks_in_a_terminal() -> None:
    *_, (_, last) = record([sys.executable, "-c", SPEAKS, "0"])
    assert text_of(last)[:4] == ["dev: setting up", "done", "", "Go on"]
    assert text_of(cut(last)) == ["done"]


def test_of_a_run_that_failed_there_is_no_picture() -> None:
    with pytest.raises(SystemExit, match="exit code 3"):
        list(record([sys.executable, "-c", SPEAKS, "3"]))


def test_the_screen_knows_what_was_drawn_over() -> None:
    picture = screen_of("a\r\n\033[2Kb\r\nc\r\n\033[2A\033[2Kx\r\n\033[Jy\033[33mz")
    assert text_of(picture) == ["a", "x", "yz"]
    assert [(each.column, each.style) for each in picture[-1]] == [(0, ""), (1, "yellow")]


def test_moments_are_even_over_the_time() -> None:
    shown = [(float(second), screen_of(str(second))) for second in range(100)]
    seconds = [int(text_of(picture)[0]) for picture in moments(shown, 5)]
    assert len({b - a for a, b in pairwise(seconds)}) == 1
    assert moments([]) == []


def test_what_a_program_writes_cannot_break_the_picture(tmp_path: Path) -> None:
    svg = as_svg([screen_of("\033[2mbar \033[0m██░ <1> & 2")], screen_of("the end"))
    drawing = ElementTree.fromstring(svg)
    assert "<1> & 2" in texts(drawing)
    widths = [float(each.get("width", "")) for each in drawing.iter(f"{SVG}rect") if each.get("class") != "back"]
    assert widths == [16, 8]
