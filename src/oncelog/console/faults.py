"""Faults that somebody injects on purpose, as they happen: told by the experiment, shown by the page.

The experiment kills servers, so it cannot keep what happened in one. It appends to a file of JSON lines, which the next
server goes on reading; `FaultList` is for those who live in the server's own process.
"""

import json
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from oncelog.console import text
from oncelog.console.limits import MOST_FAULTS

TAIL_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    at_ms: int  # wall clock
    kind: str  # connections, responses, server, producer, driver, executor
    words: str  # what was done

    def shown(self) -> dict[str, Any]:
        return {"at_ms": self.at_ms, "kind": text.name(self.kind), "words": text.name(self.words)}


class Faults(Protocol):
    def newest(self, most: int) -> tuple[list[Fault], bool]:
        """The last ones, the newest first, and whether there were more."""


class FaultList:
    """Faults in memory, the last ones only."""

    def __init__(self) -> None:
        self._faults: deque[Fault] = deque(maxlen=MOST_FAULTS)
        self._count = 0

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)
        self._count += 1

    def newest(self, most: int) -> tuple[list[Fault], bool]:
        return list(reversed(self._faults))[:most], self._count > min(most, len(self._faults))


class FaultFile:
    """Appended to by one process, read by another. Of a long file only the end is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, fault: Fault) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(fault)) + "\n")

    def newest(self, most: int) -> tuple[list[Fault], bool]:
        try:
            with open(self._path, "rb") as file:
                size_bytes = file.seek(0, 2)
                file.seek(max(0, size_bytes - TAIL_BYTES))
                lines = file.read(TAIL_BYTES).split(b"\n")
        except FileNotFoundError:
            return [], False
        is_cut = size_bytes > TAIL_BYTES
        # Half a line, the one that is being written or the first one of a cut, is no JSON.
        faults = [found for line in reversed(lines) if (found := _read(line)) is not None]
        return faults[:most], is_cut or len(faults) > most


def _read(line: bytes) -> Fault | None:
    try:
        found = json.loads(line)
        return Fault(at_ms=int(found["at_ms"]), kind=str(found["kind"]), words=str(found["words"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def faults_view(faults: Faults) -> dict[str, Any]:
    happened, is_cut = faults.newest(MOST_FAULTS)
    return {"faults": [each.shown() for each in happened], "is_cut": is_cut}
