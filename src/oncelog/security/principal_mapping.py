"""`ssl.principal.mapping.rules`: how the name in a client's certificate becomes a user's name, as Kafka reads it.

    RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L,DEFAULT

The first rule whose pattern matches the whole name counts. `$1` is a group of the pattern; a number that no group has
is a text. `L` and `U` make small and capital letters of it. Names and rules have bounds, and a repetition within a
repetition is refused: the time of a search must not grow beyond all bounds with the name, which clients bring along.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST_RULES_CHARACTERS: Final = 4096
MOST_NAME_CHARACTERS: Final = 1024
MOST_MAPPED_CHARACTERS: Final = 512  # of a name that a pattern is tried with
MOST_COMMAS: Final = 20  # in such a name: what usual patterns look for, so that the time of a search grows with them
MOST_REPETITIONS: Final = 12

# As Kafka splits them: a backslash hides what follows it from the slashes and commas of the rule's own syntax.
_PART: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<to>{_PART})/(?P<case>[LU]?))\s*(?:,\s*|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)
_JAVA_GROUP: Final = re.compile(r"\(\?<(?![=!])")


class BadRules(ValueError):
    """The rules cannot be read; the text says which."""


class NoRule(ValueError):
    """No rule is about this name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(
            self._replaced, name
        )  # as Java: a pattern that matches nothing does so at the end too
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replaced(self, found: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda each: _referred(each, found), self.replacement)


class PrincipalMapping:
    def __init__(self, rules: str) -> None:
        if len(rules) > MOST_RULES_CHARACTERS:
            raise BadRules(f"they have more than {MOST_RULES_CHARACTERS} characters")
        self._rules = list(_parsed(rules.strip()))
        self._has_patterns = any(rule.pattern is not None for rule in self._rules)

    def user(self, name: str) -> str:
        """Of a name as RFC 2253 has it. Raises `NoRule`."""
        most = MOST_MAPPED_CHARACTERS if self._has_patterns else MOST_NAME_CHARACTERS
        if len(name) > most:
            raise NoRule(f"a name of {len(name)} characters, where {most} are the most")
        if self._has_patterns and name.count(",") > MOST_COMMAS:
            raise NoRule(f"a name with more than {MOST_COMMAS} commas")
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                if not result or len(result) > MOST_NAME_CHARACTERS:
                    raise NoRule(f"{name} becomes a name of {len(result)} characters")
                return result
        raise NoRule(f"no rule is about {name}")


def _parsed(rules: str) -> Iterator[_Rule]:
    at = 0
    while at < len(rules):
        found = _RULE.match(rules, at)
        if found is None:
            raise BadRules(f"{rules[at:]}: expected RULE:pattern/replacement/, with L or U behind it, or DEFAULT")
        if found["default"]:
            yield _Rule(None, "", "")
        else:
            yield _Rule(_pattern(found["pattern"]), found["to"], found["case"])
        at = found.end()
    if not rules:
        yield _Rule(None, "", "")


def _pattern(text: str) -> re.Pattern[str]:
    _check_repetitions(text)
    try:
        return re.compile(_JAVA_GROUP.sub("(?P<", text))
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRules(f"{text}: {error}") from None


def _check_repetitions(pattern: str) -> None:
    """None within another, no choice between alternatives either, and few in all."""
    opened: list[int] = [0]  # of each group that is open: repetitions and choices in it
    total = at = 0
    while at < len(pattern):
        each = pattern[at]
        at += 1
        if each == "\\":
            at += 1
        elif each == "[":
            at = _end_of_class(pattern, at)
        elif each == "(":
            opened.append(0)
            at += pattern[at : at + 1] == "?"
        elif each == ")" and len(opened) > 1:
            inner = opened.pop()
            if inner and pattern[at : at + 1] in ("*", "+", "{"):
                raise BadRules(
                    f"{pattern}: a repetition within a repetition may take for ever, and so may a choice: write [ab] "
                    "for (a|b)"
                )
            opened[-1] += inner
        elif each == "|":
            opened[-1] += len(opened) > 1
        elif each in "*+{":
            opened[-1] += 1
            total += 1
            at += pattern[at : at + 1] in ("?", "+")
    if total > MOST_REPETITIONS:
        raise BadRules(f"{pattern}: it has more than {MOST_REPETITIONS} repetitions")


def _end_of_class(pattern: str, at: int) -> int:
    at += pattern[at : at + 1] == "^"
    at += pattern[at : at + 1] == "]"
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _referred(reference: re.Match[str], found: re.Match[str]) -> str:
    if reference[1] is not None:
        return reference[1]
    digits = reference[2]
    # As Java: as many digits as name a group; the rest is text.
    for length in range(len(digits), 0, -1):
        number = int(digits[:length])
        if number <= found.re.groups:
            return (found[number] or "") + digits[length:]
    return reference[0]
