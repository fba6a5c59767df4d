"""The result of a check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # not needed for what was asked, or good to know
    MISSING = "missing"  # what was asked for does not work without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str
    verdict: Verdict
    words: str
    remedy: str = ""  # a command where there is one
    facts: Mapping[str, Any] = field(default_factory=dict)  # for programs

    def to_json(self) -> dict[str, Any]:
        told = {"name": self.name, "verdict": str(self.verdict), "words": self.words, "remedy": self.remedy or None}
        return told | ({"facts": dict(self.facts)} if self.facts else {})


def ok(name: str, words: str, **facts: Any) -> Finding:
    return Finding(name=name, verdict=Verdict.OK, words=words, facts=facts)


def note(name: str, words: str, remedy: str = "", **facts: Any) -> Finding:
    return Finding(name=name, verdict=Verdict.NOTE, words=words, remedy=remedy, facts=facts)


def missing(name: str, words: str, remedy: str, **facts: Any) -> Finding:
    return Finding(name=name, verdict=Verdict.MISSING, words=words, remedy=remedy, facts=facts)
