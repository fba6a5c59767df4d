"""Values as librdkafka reads them, and its words for refusals: advice that people find by searching is right here,
too."""

import re
from typing import Final

from oncelog.client.errors import KafkaException, invalid_argument
from oncelog.settings import Kind, Setting, Unfit, Why
from oncelog.settings.syntax import PLAIN, Syntax

_INTEGER: Final = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_NUMBER: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_TRUE: Final = frozenset({"true", "t", "1"})
_FALSE: Final = frozenset({"false", "f", "0"})
_CALLED: Final = {Kind.BOOLEAN: "Bool c", Kind.INTEGER: "Integer c", Kind.NUMBER: "Float c"}


def value_of(known: Setting, text: str | None) -> object:
    """The value of a text; None or an empty one asks for the default, which only texts have."""
    written = text or ""
    if known.kind in (Kind.TEXT, Kind.CHOICE) and written:
        written = written.lstrip()
    if known.kind is Kind.TEXT and not written and not known.words and not known.is_one_word:
        return known.default
    try:
        return known.parse(written, _SYNTAX)
    except Unfit as unfit:
        raise _refusal(known, written, unfit) from None


def _refusal(known: Setting, text: str, unfit: Unfit) -> KafkaException:
    named = f'onfiguration property "{known.name}"'
    if known.kind is Kind.TEXT:
        return invalid_argument(f"Invalid value for c{named}: {text or '(null)'}")
    if unfit.why is Why.EMPTY:
        return invalid_argument(f"{_CALLED.get(known.kind, 'C')}{named} cannot be set to empty value")
    if unfit.why is Why.NO_SUCH_WORD:
        return invalid_argument(f'Invalid value "{unfit.value}" for c{named}: {known.allowed}')
    if unfit.why is Why.OUT_OF_BOUNDS:
        form = "g" if known.kind is Kind.NUMBER else ""
        bounds = f"{known.low:{form}}..{known.high:{form}}"
        return invalid_argument(f"C{named} value {unfit.value:{form}} is outside allowed range {bounds}")
    if known.kind is Kind.BOOLEAN:
        return invalid_argument(f'Expected bool value for "{known.name}": true or false')
    return invalid_argument(f"Invalid value for c{named}")


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in _TRUE | _FALSE:
        raise ValueError(text)
    return lower in _TRUE


def _integer(text: str) -> int:
    """An integer as C reads it: 0x is hexadecimal, a leading 0 octal, unless a digit says otherwise."""
    found = _INTEGER.fullmatch(text)
    if not found:
        raise ValueError(text)
    sign, digits = found.groups()
    is_octal = len(digits) > 1 and digits[0] == "0" and not set(digits) & {"8", "9"}
    value = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if is_octal else 10)
    return -value if sign == "-" else value


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


_SYNTAX: Final[Syntax] = {**PLAIN, Kind.BOOLEAN: _boolean, Kind.INTEGER: _integer, Kind.NUMBER: _number}
