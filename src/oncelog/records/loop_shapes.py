"""The arguments of a loop, so that others than numba can call its machine code."""

from collections.abc import Iterator
from typing import Final, NamedTuple

KINDS: Final = ("?", "u1", "i4", "u4", "i8", "u8")  # numpy's names


class Argument(NamedTuple):
    kind: str
    dimensions: int  # 0: a number
    is_written: bool


class Shape(NamedTuple):
    arguments: tuple[Argument | tuple[Argument, ...], ...]
    results: int  # numbers that it returns

    @property
    def flat(self) -> Iterator[Argument]:
        for each in self.arguments:
            if isinstance(each, Argument):
                yield each
            else:
                yield from each


def shape(*arguments: str | tuple[str, ...], results: int = 0) -> Shape:
    """`i8` is a number, `i8[]` an array that is read, `i8[!]` one that is written, `i8[,]` one of two dimensions."""
    made = [_argument(each) if isinstance(each, str) else tuple(map(_argument, each)) for each in arguments]
    return Shape(tuple(made), results)


def _argument(text: str) -> Argument:
    kind, bracket, rest = text.partition("[")
    if kind not in KINDS:
        raise ValueError(f"{text}: one of {', '.join(KINDS)} is wanted")
    return Argument(kind, rest.count(",") + 1 if bracket else 0, "!" in rest)


# A loop that only says where its arrays are.
PROBE: Final = "probe"
PROBE_SHAPE: Final = shape("u1[]", "i8[,!]", "i4", results=5)
