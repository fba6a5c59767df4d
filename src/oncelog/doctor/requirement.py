"""One line of a package's `Requires-Dist`, as far as it is needed here.

The core has no library that reads these lines, and is not given one for that: of markers only the extra and the system
are understood, of versions numbers. What is not understood is no reason to call anything missing.
"""

import re
import sys
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

_LINE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*\(?(?P<clauses>[^;()]*)\)?\s*(?:;(?P<marker>.*))?"
)
_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)\s*")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_SYSTEM: Final = re.compile(r"""sys_platform\s*(==|!=)\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Requirement:
    name: str
    extras: tuple[str, ...]  # of that package
    clauses: tuple[tuple[str, str], ...]
    extra: str | None  # ours, to which it belongs
    is_for_this_system: bool

    @property
    def range(self) -> str:
        return ",".join(operator + version for operator, version in self.clauses)

    def allows(self, version: str) -> bool:
        have = numbers(version)
        return all(_holds(have, operator, numbers(wanted)) for operator, wanted in self.clauses)


def parse(line: str) -> Requirement | None:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        return None
    marker = match["marker"] or ""
    extra = _EXTRA.search(marker)
    system = _SYSTEM.search(marker)
    found = (_CLAUSE.fullmatch(clause) for clause in match["clauses"].split(","))
    return Requirement(
        name=match["name"],
        extras=tuple(each.strip() for each in (match["extras"] or "").split(",") if each.strip()),
        clauses=tuple((clause[1], clause[2]) for clause in found if clause is not None),
        extra=None if extra is None else extra[1],
        is_for_this_system=system is None or (sys.platform == system[2]) == (system[1] == "=="),
    )


def numbers(version: str) -> tuple[int, ...]:
    """The release, without what stands behind it: 4.2.0rc1 is 4.2.0, and 4.2 too."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release[0].split(".")] if release else []
    zeros = len(list(takewhile(lambda part: part == 0, reversed(parts))))
    return tuple(parts[: len(parts) - zeros])


def _holds(have: tuple[int, ...], operator: str, wanted: tuple[int, ...]) -> bool:
    match operator:
        case ">=":
            return have >= wanted
        case "<=":
            return have <= wanted
        case ">":
            return have > wanted
        case "<":
            return have < wanted
        case "==":
            return have == wanted
        case _:
            return have != wanted
