"""A class of settings: each of its fields declares one by a function from here, so that the table has typed attributes
and a value and its description stand in one line."""

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any

from oncelog.settings.setting import INT_MAX, LONG_MAX, Setting
from oncelog.settings.syntax import Kind

_ABOUT = "about"


def text(default: Any, doc: str, words: Iterable[str] = (), **more: Any) -> Any:
    return _declare(Kind.TEXT, default, doc, words={word: word for word in words}, **more)


def texts(default: tuple[str, ...] | None, doc: str, words: Iterable[str] = (), **more: Any) -> Any:
    return _declare(Kind.LIST, default, doc, words={word: word for word in words}, **more)


def boolean(default: bool, doc: str, **more: Any) -> Any:
    return _declare(Kind.BOOLEAN, default, doc, **more)


def integer(default: int | None, doc: str, low: int = 0, high: int = INT_MAX, **more: Any) -> Any:
    return _declare(Kind.INTEGER, default, doc, low=low, high=high, **more)


def long(default: int | None, doc: str, low: int = 0, **more: Any) -> Any:
    return integer(default, doc, low, LONG_MAX, **more)


def number(default: float, doc: str, low: float, high: float, **more: Any) -> Any:
    return _declare(Kind.NUMBER, default, doc, low=low, high=high, **more)


def choice(default: str, doc: str, words: Mapping[str, str] | Iterable[str], **more: Any) -> Any:
    meanings = words if isinstance(words, Mapping) else {word.lower(): word for word in words}
    return _declare(Kind.CHOICE, default, doc, words=meanings, **more)


def callback(doc: str, **more: Any) -> Any:
    return _declare(Kind.CALLABLE, None, doc, **more)


def _declare(kind: Kind, default: Any, doc: str, **more: Any) -> Any:
    about = {"kind": kind, "default": default, "doc": doc, **more}
    return field(default=default, repr=not more.get("is_secret", False), metadata={_ABOUT: about})


def declared(settings: type) -> dict[str, Setting]:
    """The settings by name, which is the attribute's, with dots where it is no function's, unless the declaration says
    another."""
    found = {}
    for each in fields(settings):
        if about := each.metadata.get(_ABOUT):
            name = each.name if about["kind"] is Kind.CALLABLE else each.name.replace("_", ".")
            setting = Setting(attribute=each.name, **{"name": name, **about})
            found[setting.name] = setting
    return found
