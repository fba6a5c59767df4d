"""What one property is: its names, what it takes, its default; and how a text becomes its value.

Refusals use librdkafka's words, so that what people find by searching for them is right here too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from oncelog.client.errors import KafkaException, invalid_argument

INT_MAX: Final = 2**31 - 1
PRODUCER: Final = "P"
CONSUMER: Final = "C"
EVERY: Final = "*"

_INTEGER: Final = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_NUMBER: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_SEVERAL: Final = re.compile(r"^$|[ ,]")
_TRUE: Final = frozenset({"true", "t", "1"})
_FALSE: Final = frozenset({"false", "f", "0"})


class Kind(Enum):
    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "one of"
    FLAGS = "any of"
    CALLABLE = "callable"
    OBJECT = "object"


Value = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Property:
    """One property. `attribute` is None where it is read and checked but changes nothing here."""

    name: str
    kind: Kind
    default: Any
    doc: str
    scope: str = EVERY
    attribute: str | None = None
    aliases: tuple[str, ...] = ()
    low: float = 0
    high: float = INT_MAX
    words: Mapping[str, Any] = field(default_factory=dict)  # the words it takes and what they mean
    is_one_word: bool = False
    convert: Callable[[str], Any] | None = None
    is_secret: bool = False

    @property
    def key(self) -> str:
        """What its value goes by while settings are read."""
        return self.attribute or self.name

    def parse(self, text: str | None) -> Any:
        """The value of a text; None or an empty one asks for the default, which only texts have."""
        if self.kind is Kind.TEXT:
            return self._text(text)
        if not text:
            raise invalid_argument(_NOT_EMPTY[self.kind].format(name=self.name))
        return _PARSERS[self.kind](self, text)

    def refuse(self, text: str) -> KafkaException:
        return invalid_argument(f'Invalid value for configuration property "{self.name}": {text}')

    def _text(self, text: str | None) -> Any:
        stripped = (text or "").lstrip()
        is_refused = bool(self.words) and stripped not in self.words
        if is_refused or (self.is_one_word and _SEVERAL.search(stripped)):
            raise self.refuse(stripped or "(null)")
        if not stripped:
            return self.default
        return self.convert(stripped) if self.convert else stripped


_NOT_EMPTY: Final = {
    Kind.BOOLEAN: 'Bool configuration property "{name}" cannot be set to empty value',
    Kind.INTEGER: 'Integer configuration property "{name}" cannot be set to empty value',
    Kind.NUMBER: 'Float configuration property "{name}" cannot be set to empty value',
    Kind.CHOICE: 'Configuration property "{name}" cannot be set to empty value',
    Kind.FLAGS: 'Configuration property "{name}" cannot be set to empty value',
}


def _boolean(known: Property, text: str) -> bool:
    lower = text.lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    raise invalid_argument(f'Expected bool value for "{known.name}": true or false')


def _integer(known: Property, text: str) -> int:
    found = _INTEGER.fullmatch(text)
    if found:
        sign, digits = found.groups()
        value = _digits(digits)
        value = -value if sign == "-" else value
    elif text.lower() in known.words:
        value = known.words[text.lower()]
    else:
        raise invalid_argument(f'Invalid value for configuration property "{known.name}"')
    _check_range(known, value)
    return value


def _digits(digits: str) -> int:
    """As C reads them: 0x is hexadecimal, a leading 0 octal, unless a digit says otherwise."""
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    is_octal = len(digits) > 1 and digits[0] == "0" and not set(digits) & {"8", "9"}
    return int(digits, 8 if is_octal else 10)


def _number(known: Property, text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise invalid_argument(f'Invalid value for configuration property "{known.name}"')
    value = float(text)
    _check_range(known, value)
    return value


def _check_range(known: Property, value: float) -> None:
    if not known.low <= value <= known.high:
        raise invalid_argument(
            f'Configuration property "{known.name}" value {value:g} is outside allowed range '
            f"{known.low:g}..{known.high:g}"
            if known.kind is Kind.NUMBER
            else f'Configuration property "{known.name}" value {value} is outside allowed range '
            f"{known.low}..{known.high}"
        )


def _choice(known: Property, text: str) -> Any:
    word = text.lstrip()
    if word.lower() not in known.words:
        raise invalid_argument(f'Invalid value "{word}" for configuration property "{known.name}"')
    return known.words[word.lower()]


def _flags(known: Property, text: str) -> tuple[str, ...]:
    """Words with commas between; a sign before one adds it or takes it away."""
    chosen: list[str] = []
    for part in text.split(","):
        word = part.strip()
        takes_away = word.startswith("-")
        word = word.lstrip("+-")
        if not word:
            continue
        if word.lower() not in known.words:
            raise invalid_argument(f'Invalid value "{word}" for configuration property "{known.name}"')
        if takes_away:
            chosen = [other for other in chosen if other != word.lower()]
        else:
            chosen.append(word.lower())
    return tuple(chosen)


_PARSERS: Final[Mapping[Kind, Callable[[Property, str], Any]]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.CHOICE: _choice,
    Kind.FLAGS: _flags,
}


# A settings class declares an attribute by one of these; the property's name is the attribute's with dots, or `name`.


def text(default: str | None, doc: str, **more: Any) -> Any:
    return _declare(Kind.TEXT, default, doc, more)


def boolean(default: bool | None, doc: str, **more: Any) -> Any:
    return _declare(Kind.BOOLEAN, default, doc, more)


def integer(default: int | None, low: int, high: int, doc: str, **more: Any) -> Any:
    return _declare(Kind.INTEGER, default, doc, {"low": low, "high": high, **more})


def number(default: float, low: float, high: float, doc: str, **more: Any) -> Any:
    return _declare(Kind.NUMBER, default, doc, {"low": low, "high": high, **more})


def choice(default: str, words: Mapping[str, str] | tuple[str, ...], doc: str, **more: Any) -> Any:
    meanings = words if isinstance(words, Mapping) else {word.lower(): word for word in words}
    return _declare(Kind.CHOICE, default, doc, {"words": meanings, **more})


def callback(doc: str, **more: Any) -> Any:
    return _declare(Kind.CALLABLE, None, doc, {"keeps_name": True, **more})


def converted(default: Any, convert: Callable[[str], Any], doc: str, **more: Any) -> Any:
    return _declare(Kind.TEXT, default, doc, {"convert": convert, **more})


def _declare(kind: Kind, default: Any, doc: str, more: dict[str, Any]) -> Any:
    is_shown = not more.get("is_secret", False)
    return field(
        default=default, repr=is_shown, metadata={"about": {"kind": kind, "default": default, "doc": doc, **more}}
    )
