"""The cleanup job: a topic to which at-least-once writers write, and beside it one that holds each record once."""

from collections.abc import Callable
from typing import TypeVar

from oncelog.flow.flows import Flow
from oncelog.flow.program import MOST_IDS
from oncelog.flow.topics import Dead, Topic

K = TypeVar("K")
V = TypeVar("V")


def cleanup(
    messy: Topic[K, V],
    pristine: Topic[K, V],
    *,
    id: Callable[[V], str] | None = None,
    most: int = MOST_IDS,
    keep_ms: int | None = None,
    name: str = "cleanup",
    version: str = "1",
    otherwise: Dead | None = None,
) -> Flow:
    """A flow that removes duplicates: by an id in the value, as `dedup` does, or by the source offsets that a flow's
    `through` or a copier put into the header `oncelog.source`, as `dedup_offsets` does."""
    flow = Flow(name, version=version, otherwise=otherwise)
    read = flow.read(messy, headers=id is None)
    once = read.dedup_offsets("sources") if id is None else read.dedup("ids", id, most=most, keep_ms=keep_ms)
    once.write(pristine)
    return flow
