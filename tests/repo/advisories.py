"""Whether anything is known against the locked packages: `./dev audit`, which is part of CI.

pip-audit asks PyPI about each of them. Ends with 0 where nothing is known, with 1 where something is, and with 3 where
that could not be asked, which is said: it is no verdict.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.repo.tree import ROOT

CLEAN, KNOWN, NOT_ASKED = 0, 1, 3
ASKED_FIRST: Final = "uv.txt"  # one package: where nobody answers, the others are not asked about
NOT_PACKAGES: Final = "pins.txt"
FIRST_WITHIN_S, ALL_WITHIN_S, SILENCE_S = 30, 80, 10  # CI waits no longer
# Advisory -> why it does no harm here. Where a fixed version is there, `./dev lock --upgrade` is the remedy.
ACCEPTED: Final[Mapping[str, str]] = {}


class Verdict(NamedTuple):
    code: int
    lines: tuple[str, ...]


def locks() -> list[Path]:
    return sorted(path for path in (ROOT / "requirements").glob("*.txt") if path.name != NOT_PACKAGES)


def command(of: Iterable[Path]) -> list[str]:
    asks = ["--format", "json", "--progress-spinner", "off", "--timeout", str(SILENCE_S)]
    of_locks = ["--disable-pip", "--require-hashes", *(word for path in of for word in ("-r", str(path)))]
    return [sys.executable, "-m", "pip_audit", *asks, *of_locks]


def verdict(said: str, errors: str) -> Verdict:
    """By what pip-audit has printed; it ends with 1 for what is known, and for what went wrong."""
    try:
        dependencies = json.loads(said)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return not_asked(last_line(errors))
    known = tuple(line for each in dependencies for line in _known(each))
    unasked = tuple(f"{each['name']}: {each['skip_reason']}" for each in dependencies if "skip_reason" in each)
    if known:
        return Verdict(KNOWN, (*known, *unasked))
    if unasked and len(unasked) == len(dependencies):
        return not_asked(unasked[0])
    if unasked:
        return Verdict(NOT_ASKED, (*unasked, "NOT AUDITED: of these packages nothing could be asked"))
    return Verdict(CLEAN, (f"nothing is known against {len(dependencies)} locked packages",))


def _known(dependency: Mapping[str, Any]) -> Iterator[str]:
    for each in dependency.get("vulns", ()):
        if ACCEPTED.keys().isdisjoint((each["id"], *each["aliases"])):
            fixed = ", ".join(each["fix_versions"]) or "no version"
            yield f"{dependency['name']} {dependency['version']}: {each['id']}, fixed in {fixed}"


def not_asked(why: str) -> Verdict:
    return Verdict(NOT_ASKED, (f"NOT AUDITED: the database of known vulnerabilities could not be asked ({why})",))


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "pip-audit said nothing"


def asked(of: Iterable[Path], within_s: int) -> Verdict:
    try:
        done = subprocess.run(command(of), cwd=ROOT, capture_output=True, text=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired:
        return not_asked(f"no answer within {within_s} s")
    return verdict(done.stdout, done.stderr)


def main() -> int:
    found = asked([ROOT / "requirements" / ASKED_FIRST], FIRST_WITHIN_S)
    if found.code != NOT_ASKED:
        found = asked(locks(), ALL_WITHIN_S)
    for line in found.lines:
        print(f"audit: {line}")
    return found.code


if __name__ == "__main__":
    sys.exit(main())
