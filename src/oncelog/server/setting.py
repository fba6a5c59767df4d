"""What a setting is: its kind, its bounds, and how its text becomes a value. `settings.py` lists them all."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = int | float | bool | str | tuple[str, ...] | None


class Kind(IntEnum):
    """Numbered as in the answer to DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class SettingsError(ValueError):
    """The settings as given cannot be used; the text says which, why, and what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    default: Value
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False  # may be changed while the server runs

    def parse(self, text: str) -> Value:
        """The value that a text means, or SettingsError with a sentence about what is allowed."""
        text = text.strip()
        try:
            value: Value = _readers[self.kind](text)
        except ValueError:
            raise SettingsError(f"{self.name}={text}: expected {self.allowed}") from None
        if self.kind is Kind.LIST:
            unknown = [part for part in _parts(value) if self.choices and part not in self.choices]
            if unknown:
                raise SettingsError(f"{self.name}={text}: expected {self.allowed}")
        elif not self._in_bounds(value):
            raise SettingsError(f"{self.name}={text}: expected {self.allowed}")
        return value

    def _in_bounds(self, value: Value) -> bool:
        if self.choices:
            return value in self.choices
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return True

    @property
    def allowed(self) -> str:
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.kind is Kind.LIST:
            return "a list, separated by commas" + (f", of {', '.join(self.choices)}" if self.choices else "")
        if self.choices:
            return self.choices[0] if len(self.choices) == 1 else "one of " + ", ".join(self.choices)
        if self.kind is Kind.STRING:
            return "a text"
        noun = "a number" if self.kind is Kind.DOUBLE else "a whole number"
        if self.low is not None and self.low == self.high:
            return f"only {_plain(self.low)}"
        if self.low is not None and self.high == LONG_MAX:
            return f"{noun} of at least {_plain(self.low)}{self._unit}"
        if self.low is not None and self.high is not None:
            return f"{noun} from {_plain(self.low)} to {_plain(self.high)}{self._unit}"
        return noun

    @property
    def _unit(self) -> str:
        last = self.name.rpartition(".")[2]
        unit = {"ms": "milliseconds", "bytes": "bytes", "minutes": "minutes", "hours": "hours"}.get(last)
        return f" ({unit})" if unit else ""


def text_of(value: Value) -> str | None:
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


def _parts(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _read_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _read_int(text: str) -> int:
    if len(text) > 20 or not text.lstrip("+-").isascii() or "_" in text:
        raise ValueError(text)
    return int(text)


def _read_float(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _read_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_readers: dict[Kind, Any] = {
    Kind.BOOLEAN: _read_bool,
    Kind.STRING: str,
    Kind.INT: _read_int,
    Kind.LONG: _read_int,
    Kind.DOUBLE: _read_float,
    Kind.LIST: _read_list,
}


# Declarations: each returns a dataclass field, so that `Settings` is the one table and typed attributes too.


def _declare(default: Value, **about: Any) -> Any:
    return field(default=default, metadata={"about": {"default": default, **about}})


def integer(default: int | None, doc: str, low: int = 0, high: int = INT_MAX, dynamic: bool = False) -> Any:
    return _declare(default, kind=Kind.INT, doc=doc, low=low, high=high, dynamic=dynamic)


def long(default: int | None, doc: str, low: int = 0, high: int = LONG_MAX, dynamic: bool = False) -> Any:
    return _declare(default, kind=Kind.LONG, doc=doc, low=low, high=high, dynamic=dynamic)


def ratio(default: float, doc: str, dynamic: bool = False) -> Any:
    return _declare(default, kind=Kind.DOUBLE, doc=doc, low=0, high=1, dynamic=dynamic)


def boolean(default: bool, doc: str, dynamic: bool = False) -> Any:
    return _declare(default, kind=Kind.BOOLEAN, doc=doc, dynamic=dynamic)


def text(default: str | None, doc: str, choices: tuple[str, ...] = (), dynamic: bool = False) -> Any:
    return _declare(default, kind=Kind.STRING, doc=doc, choices=choices, dynamic=dynamic)


def texts(default: tuple[str, ...] | None, doc: str, choices: tuple[str, ...] = (), dynamic: bool = False) -> Any:
    return _declare(default, kind=Kind.LIST, doc=doc, choices=choices, dynamic=dynamic)
