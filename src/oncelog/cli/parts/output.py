"""Facts on stdout: a table for people, JSON and YAML for programs."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from oncelog.printable import printable, spelled

Row = Mapping[str, Any]

# A text that YAML takes for itself without quotes; words that mean something else are quoted.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def emit(form: str, value: Any, rows: Iterable[Row], columns: Sequence[str]) -> None:
    """The value as JSON or YAML, or these rows of it as a table."""
    if form == "json":
        click.echo(json.dumps(value, indent=2))
    elif form == "yaml":
        click.echo(yaml(value), nl=False)
    else:
        click.echo(table(rows, columns), nl=False)


def table(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """Columns aligned, numbers to the right; `-` where nothing is known. The headings are there without any row."""
    whole = [[row.get(name) for name in columns] for row in rows]
    cells = [[name.upper().replace("_", " ") for name in columns], *([_cell(value) for value in row] for row in whole)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    is_number = [
        any(isinstance(row[at], int) for row in whole)
        and all(row[at] is None or isinstance(row[at], int) for row in whole)
        for at in range(len(columns))
    ]
    lines = []
    for line in cells:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        )
        lines.append("  ".join(padded).rstrip() + "\n")
    return "".join(lines)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, (list, tuple)):
        return printable(",".join(str(each) for each in value))
    return printable(" ".join(str(value).split()))


def yaml(value: Any, indent: int = 0) -> str:
    """Block style for what has members; a text is quoted wherever YAML could take it for something else."""
    margin = "  " * indent
    if isinstance(value, Mapping) and value:
        return "".join(f"{margin}{_scalar(str(name))}:{_member(each, indent)}" for name, each in value.items())
    if isinstance(value, (list, tuple)) and value:
        return "".join(f"{margin}- {yaml(each, indent + 1).lstrip(' ')}" for each in value)
    return f"{margin}{_scalar(value)}\n"


def _member(value: Any, indent: int) -> str:
    if isinstance(value, (Mapping, list, tuple)) and value:
        return "\n" + yaml(value, indent + 1)
    return f" {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(letter: str) -> str:
    if letter in _SHORT:
        return _SHORT[letter]
    return letter if letter.isprintable() else spelled(letter)


def duration(ms: int | None) -> str | None:
    """A duration in its two largest units, for people."""
    if ms is None:
        return None
    if ms < 10_000:
        return f"{ms / 1000:.1f}s"
    seconds = ms // 1000
    parts = [
        (seconds // 86_400, "d"),
        (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "m"),
        (seconds % 60, "s"),
    ]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count)
