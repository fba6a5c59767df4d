"""Tables of settings in Markdown. The pages that hold them are made from the code; tests compare."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from oncelog.settings.setting import Setting, text_of

T = TypeVar("T")
Column = tuple[str, Callable[[T], str]]


def table(rows: Iterable[T], *columns: Column[T]) -> Iterator[str]:
    yield "|" + "".join(f" {heading} |" if heading else " |" for heading, _ in columns)
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(cell(row) for _, cell in columns)} |"


def names(given: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in given)


def default_of(setting: Setting) -> str:
    text = text_of(setting.default)
    return setting.default_doc or (f"`{text}`" if text else "")


NAME: Final[Column[Setting]] = ("name", lambda setting: f"`{setting.name}`")
TAKES: Final[Column[Setting]] = ("takes", lambda setting: setting.takes or setting.allowed)
DEFAULT: Final[Column[Setting]] = ("default", default_of)
DOC: Final[Column[Setting]] = ("", lambda setting: setting.doc)
