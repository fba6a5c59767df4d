"""Prometheus text, whatever it is that tells: families of samples, line by line."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

Sample = tuple[str, float] | None  # the labels as text, and the value; None for a look that found nothing to tell
Labels = str

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Callable[[T], Iterable[Sample]]


def lines_of(families: Iterable[Family[T]], teller: T) -> Iterator[str]:
    """An empty line is the moment in which others may be served, also where very many have nothing to tell."""
    for family in families:
        yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
        for sample in family.samples(teller):
            yield "" if sample is None else f"{family.name}{sample[0]} {_number(sample[1])}\n"


def labels(**pairs: object) -> Labels:
    inside = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs.items())
    return f"{{{inside}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
