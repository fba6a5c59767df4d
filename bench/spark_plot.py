"""Lines over a logarithmic axis as SVG; a few lines of code instead of a library for two pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10
from typing import Final

WIDTH: Final = 760
HEIGHT: Final = 400
LEFT: Final = 64
RIGHT: Final = 220
TOP: Final = 24
BOTTOM: Final = 52
OURS: Final = "#0b6e4f"
THEIRS: Final = "#b5541c"
INK: Final = "#444444"
GRID: Final = "#dddddd"
TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    is_ours: bool
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    x_title: str
    y_title: str
    series: Sequence[Series]

    def svg(self) -> str:
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12" fill="{INK}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *self._grid(),
            *(part for number, series in enumerate(self.series) for part in self._line(number, series)),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    @property
    def _xs(self) -> list[float]:
        return sorted({x for series in self.series for x, _ in series.points})

    @property
    def _top(self) -> float:
        """The next round number."""
        most = max(y for series in self.series for _, y in series.points)
        step = 10 ** (ceil(log10(most)) - 1) / 2
        return float(ceil(most / step) * step)

    def _x(self, value: float) -> float:
        low, high = self._xs[0], self._xs[-1]
        share = 0.5 if low == high else log10(value / low) / log10(high / low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - TOP - BOTTOM)

    def _grid(self) -> list[str]:
        parts = []
        for tick in range(TICKS + 1):
            value = self._top * tick / TICKS
            y = self._y(value)
            parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        for x in self._xs:
            parts.append(f'<text x="{self._x(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(self.x_title)}</text>')
        parts.append(f'<text x="{LEFT - 48}" y="{TOP - 8}">{escape(self.y_title)}</text>')
        return parts

    def _line(self, number: int, series: Series) -> list[str]:
        colour = OURS if series.is_ours else THEIRS
        dash = ' stroke-dasharray="6 4"' if series.is_dashed else ""
        places = [(self._x(x), self._y(y)) for x, y in sorted(series.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        at = TOP + 16 + 22 * number
        left = WIDTH - RIGHT + 16
        return [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places),
            f'<line x1="{left}" y1="{at}" x2="{left + 26}" y2="{at}" stroke="{colour}" stroke-width="2"{dash}/>',
            f'<text x="{left + 34}" y="{at + 4}">{escape(series.name)}</text>',
        ]
