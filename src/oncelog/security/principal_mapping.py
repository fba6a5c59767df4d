"""`ssl.principal.mapping.rules`: how the name in a client's certificate becomes a user's name, as Kafka reads it.

    RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L,DEFAULT

The first rule whose pattern matches the whole name counts. `$1` is a group of the pattern; a number that no group has
is a text. `L` and `U` make small and capital letters of it. Names and rules have bounds, and the time of a search grows
with the name alone (`patterns.py`): clients bring it along.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.security.patterns import SETTINGS_BYTES, BadPattern, Found, Pattern, compiled

MOST_RULES_CHARACTERS: Final = 4096
MOST_NAME_CHARACTERS: Final = 1024

# As Kafka splits them: a backslash hides what follows it from the slashes and commas of the rule's own syntax.
_PART: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<to>{_PART})/(?P<case>[LU]?))\s*(?:,\s*|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class BadRules(ValueError):
    """The rules cannot be read; the text says which."""


class NoRule(ValueError):
    """No rule is about this name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Pattern | None  # None: DEFAULT
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

    def _replaced(self, found: Found) -> str:
        return _REFERENCE.sub(lambda each: _referred(each, found), self.replacement)


class PrincipalMapping:
    def __init__(self, rules: str) -> None:
        if len(rules) > MOST_RULES_CHARACTERS:
            raise BadRules(f"they have more than {MOST_RULES_CHARACTERS} characters")
        self._rules = list(_parsed(rules.strip()))

    def user(self, name: str) -> str:
        """The user of a name as RFC 2253 has it. Raises `NoRule`."""
        if len(name) > MOST_NAME_CHARACTERS:
            raise NoRule(f"a name of {len(name)} characters, where {MOST_NAME_CHARACTERS} are the most")
        if not _is_text(name):
            raise NoRule("a name that is no Unicode text")
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                if not result or len(result) > MOST_NAME_CHARACTERS:
                    raise NoRule(f"{name} becomes a name of {len(result)} characters")
                return result
        raise NoRule(f"no rule is about {name}")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeError:
        return False
    return True


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


def _pattern(text: str) -> Pattern:
    try:
        return compiled(text, SETTINGS_BYTES)
    except BadPattern as error:
        raise BadRules(f"{text}: {error}") from None


def _referred(reference: re.Match[str], found: Found) -> str:
    if reference[1] is not None:
        return reference[1]
    digits = reference[2]
    # As Java: as many digits as name a group; the rest is text.
    for length in range(len(digits), 0, -1):
        number = int(digits[:length])
        if number <= found.re.groups:
            return (found[number] or "") + digits[length:]
    return reference[0]
