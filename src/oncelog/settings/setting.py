"""A setting: its kind, its bounds, its words, and how a text becomes its value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from oncelog.settings.syntax import PLAIN, Kind, Syntax

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)
HIDDEN: Final = "(hidden)"  # in the place of a secret, wherever settings are shown

_CASELESS: Final = frozenset({Kind.CHOICE, Kind.FLAGS, Kind.INTEGER})
_BOUNDED: Final = frozenset({Kind.INTEGER, Kind.NUMBER})
_UNITS: Final = {"ms": "milliseconds", "bytes": "bytes", "minutes": "minutes", "hours": "hours"}


class SettingsError(ValueError):
    """The settings as given cannot be used; the text says which, why, and what would do."""


class Why(Enum):
    EMPTY = auto()
    NOT_OF_ITS_KIND = auto()
    OUT_OF_BOUNDS = auto()
    NO_SUCH_WORD = auto()


class Unfit(SettingsError):
    """A text that is no value of the setting. Rooms whose users know it from elsewhere say it in the words of there."""

    def __init__(self, setting: "Setting", text: str, why: Why, value: Any) -> None:
        super().__init__(f"{setting.name}={HIDDEN if setting.is_secret else text}: expected {setting.allowed}")
        self.why = why
        self.value = value  # of all that was written, what is wrong: a word, or a number out of bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    doc: str
    attribute: str | None = None  # where the value goes; None where it is checked and changes nothing
    aliases: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # who takes it; without any, everyone
    low: float | None = None
    high: float | None = None
    words: Mapping[str, Any] = field(default_factory=dict)  # the words it takes, and what they mean
    convert: Callable[[str], Any] | None = None  # of a text; what this raises is for the user
    takes: str = ""  # for the page, where `allowed` says too little
    default_doc: str = ""  # for the page, where the default is no one value
    dynamic: bool = False  # may be changed while the server runs
    is_one_word: bool = False
    is_secret: bool = False

    @property
    def key(self) -> str:
        """The name of its value while settings are read."""
        return self.attribute or self.name

    def is_for(self, role: str) -> bool:
        return not self.roles or role in self.roles

    def parse(self, text: str, syntax: Syntax = PLAIN) -> Any:
        """The value that a text means, or `Unfit`."""
        if self.kind is Kind.TEXT:
            return self._text(text)
        if not text and self.kind is not Kind.LIST:
            raise Unfit(self, text, Why.EMPTY, text)
        if self.kind is Kind.CHOICE:
            return self._word(text, text)
        try:
            value = syntax[self.kind](text)
        except ValueError:
            if text.lower() in self.words:
                return self.words[text.lower()]
            raise Unfit(self, text, Why.NOT_OF_ITS_KIND, text) from None
        if self.words and isinstance(value, tuple):
            return tuple(self._word(text, word) for word in value)
        if self.kind in _BOUNDED and not self._is_in_bounds(value):
            raise Unfit(self, text, Why.OUT_OF_BOUNDS, value)
        return value

    def _text(self, text: str) -> Any:
        if self.is_one_word and (not text or " " in text or "," in text):
            raise Unfit(self, text, Why.NO_SUCH_WORD, text)
        value = self._word(text, text) if self.words else text
        return self.convert(value) if self.convert else value

    def _word(self, text: str, word: str) -> Any:
        known = word.lower() if self.kind in _CASELESS else word
        if known not in self.words:
            raise Unfit(self, text, Why.NO_SUCH_WORD, word)
        return self.words[known]

    def _is_in_bounds(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    @property
    def allowed(self) -> str:
        """The values that it takes, in words."""
        words = ", ".join(word or "(empty)" for word in self.words)
        if self.kind in _BOUNDED:
            return self._numbers + (f", or {words}" if words else "")
        if self.kind in (Kind.LIST, Kind.FLAGS):
            return Kind.LIST.value + (f", of {words}" if words else "")
        if len(self.words) == 1:
            return words
        return f"one of {words}" if words else self.kind.value

    @property
    def _numbers(self) -> str:
        if self.low is None or self.low == LONG_MIN:
            return self.kind.value + self._unit
        if self.low == self.high:
            return f"only {_plain(self.low)}"
        if self.high is None or self.high == LONG_MAX:
            return f"{self.kind.value} of at least {_plain(self.low)}{self._unit}"
        return f"{self.kind.value} from {_plain(self.low)} to {_plain(self.high)}{self._unit}"

    @property
    def _unit(self) -> str:
        unit = _UNITS.get(self.name.rpartition(".")[2])
        return f" ({unit})" if unit else ""


def text_of(value: Any) -> str | None:
    """The value as Kafka's tools show it and as `parse` reads it back."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)
