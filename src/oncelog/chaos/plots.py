"""Plots as SVG, for a page that needs nothing but itself. Pure.

Colours and sizes of text are the page's (`page.py`), by classes. A line of very many points is drawn by as many
as can be told apart.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

WIDTH: Final = 860
HEIGHT: Final = 220
LEFT, RIGHT, TOP, BOTTOM = 62, 8, 14, 26
STEPS: Final = 4  # about this many ticks at the side, and twice as many below
MOST_POINTS: Final = 400

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    points: Sequence[Point]
    style: str = "first"  # a class of the page
    name: str = ""  # for a legend, where there is more than one


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a place of the axis below."""

    at: float
    style: str
    words: str


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    right: float  # where the axis below ends
    lines: Sequence[Line] = ()
    bars: Sequence[tuple[float, float, float]] = ()  # from, to, how tall
    marks: Sequence[Mark] = field(default_factory=list)
    unit: str = " s"  # of the axis below
    note: str = ""

    def svg(self) -> str:
        top = self._top()
        legend = "".join(
            f"<span class='key {line.style}'>{html.escape(line.name)}</span>" for line in self.lines if line.name
        )
        caption = f"<b>{html.escape(self.title)}</b>{legend}" + (
            f" <i>{html.escape(self.note)}</i>" if self.note else ""
        )
        return (
            f"<figure><figcaption>{caption}</figcaption><div class=plot>"
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(self.title)}">'
            f"{self._grid(top)}{self._marks()}{self._bars(top)}{self._lines(top)}</svg></div></figure>"
        )

    def _top(self) -> float:
        values = [value for line in self.lines for _, value in line.points] + [tall for _, _, tall in self.bars]
        return _ceiling(max(values, default=0.0))

    def _x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, value / max(self.right, 1e-9))

    @staticmethod
    def _y(value: float, top: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    def _grid(self, top: float) -> str:
        found = []
        for value in ticks(top, STEPS):
            y = self._y(value, top)
            found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            found.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
        for value in ticks(self.right, 2 * STEPS):
            x = self._x(value)
            where = "end" if x > WIDTH - 30 else "middle"
            found.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{where}">{short(value)}{self.unit}</text>')
        return "".join(found)

    def _marks(self) -> str:
        return "".join(
            f'<g class="mark {mark.style}"><line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<circle cx="{x:.1f}" cy="{TOP - 6}" r="4"/><title>{html.escape(mark.words)}</title></g>'
            for mark in self.marks
            for x in (self._x(mark.at),)
        )

    def _bars(self, top: float) -> str:
        found = []
        for start, end, tall in self.bars:
            x, y = self._x(start), min(self._y(tall, top), HEIGHT - BOTTOM - 2)
            size = f'width="{max(1.5, self._x(end) - x):.1f}" height="{HEIGHT - BOTTOM - y:.1f}"'
            found.append(f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" {size}/>')
        return "".join(found)

    def _lines(self, top: float) -> str:
        return "".join(
            f'<polyline class="line {line.style}" points="'
            + " ".join(f"{self._x(at):.1f},{self._y(value, top):.1f}" for at, value in line.points)
            + '"/>'
            for line in self.lines
        )


def rates(points: Sequence[Point]) -> list[Point]:
    """A second, of counts that grow: between any two points that can be told apart."""
    kept = thinned(points, last=True)
    return [
        (at, (count - before) / (at - at_before))
        for (at_before, before), (at, count) in pairwise(kept)
        if at > at_before
    ]


def thinned(points: Sequence[Point], *, last: bool = False) -> list[Point]:
    """At most about MOST_POINTS of the points: of each group the last, or else the largest, which is what a reader
    looks for."""
    size = math.ceil(len(points) / MOST_POINTS)
    groups: Iterable[Sequence[Point]] = (points[at : at + size] for at in range(0, len(points), max(1, size)))
    return [group[-1] if last else max(group, key=lambda point: point[1]) for group in groups]


def ticks(top: float, about: int) -> list[float]:
    """Round numbers from 0 to at most `top`."""
    if top <= 0:
        return [0.0]
    step = _round_step(top / about)
    return [number * step for number in range(math.floor(top / step + 1e-9) + 1)]


def _ceiling(value: float) -> float:
    """The next tick, so that the tallest line touches no edge."""
    if value <= 0:
        return 1.0
    step = _round_step(value / STEPS)
    return math.ceil(value / step - 1e-9) * step


def _round_step(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value * (1 - 1e-9))


def short(value: float) -> str:
    """A number as an axis says it."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"
