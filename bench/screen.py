"""A terminal's screen, as far as our own commands write to one: text, colours, and lines that are drawn over."""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"\033\[(?P<numbers>[0-9;?]*)(?P<letter>[A-Za-z])|(?P<text>[^\033])", re.DOTALL)
_COLOURS: Final = {31: "red", 32: "green", 33: "yellow", 36: "cyan"}


class Cell(NamedTuple):
    character: str
    style: str  # names of classes, sorted


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cells of one style, side by side."""

    column: int
    text: str
    style: str


Picture = tuple[tuple[Stretch, ...], ...]  # line by line


class Screen:
    """Without an end below: what would scroll away stays."""

    def __init__(self) -> None:
        self._lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._styles: set[str] = set()

    def write(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            if token["text"] is None:
                self._obey(token["letter"], token["numbers"])
            elif token["text"] == "\n":
                self._row += 1
                self._lines += [[]] * (self._row == len(self._lines))
            elif token["text"] == "\r":
                self._column = 0
            else:
                self._put(token["text"])

    def _put(self, character: str) -> None:
        line = self._lines[self._row]
        line += [Cell(" ", "")] * (self._column + 1 - len(line))
        line[self._column] = Cell(character, " ".join(sorted(self._styles)))
        self._column += 1

    def _obey(self, letter: str, numbers: str) -> None:
        if letter == "A":
            self._row = max(0, self._row - int(numbers or 1))
        elif letter == "K":
            kept = 0 if numbers == "2" else self._column
            self._lines[self._row] = self._lines[self._row][:kept]
        elif letter == "J":
            self._lines[self._row] = self._lines[self._row][: self._column]
            self._lines = self._lines[: self._row + 1]
        elif letter == "m":
            for number in (int(each or 0) for each in numbers.split(";")):
                self._dress(number)

    def _dress(self, number: int) -> None:
        if number == 0:
            self._styles.clear()
        elif number in (1, 2):
            self._styles.add("bold" if number == 1 else "dim")
        elif number in _COLOURS:
            self._styles.add(_COLOURS[number])

    def picture(self) -> Picture:
        return tuple(tuple(_stretches(line)) for line in self._lines)


def _stretches(line: list[Cell]) -> list[Stretch]:
    found = []
    numbered = enumerate(line)
    for style, cells in groupby(numbered, key=lambda each: each[1].style):
        group = list(cells)
        text = "".join(cell.character for _, cell in group)
        if text.strip():
            found.append(Stretch(group[0][0], text.rstrip(), style))
    return found


def text_of(picture: Picture) -> list[str]:
    lines = []
    for line in picture:
        text = ""
        for stretch in line:
            text = text.ljust(stretch.column) + stretch.text
        lines.append(text)
    return lines
