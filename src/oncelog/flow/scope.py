"""What operations see of the record that is worked on, and what users' functions do."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from oncelog.flow.codecs import Codec
from oncelog.flow.stepping import StepStates, TimedStates

K = TypeVar("K")

Push = Callable[[Any, Any], object]  # takes a key and a value a step further


class Context(Generic[K]):
    """What is known of a record beside its value. One object serves all records: what is to be kept is taken out."""

    __slots__ = ("key", "time_ms", "timers")

    key: K
    time_ms: int  # event time
    timers: list[int]

    def timer(self, at_ms: int) -> None:
        """When the watermark gets there, `on_timer` is called for this key. Timers go with the state of their key."""
        self.timers.append(at_ms)


class Scope(Protocol):
    key: bytes  # of the record, as it came
    time_ms: int
    watermark_ms: int

    def states(self, name: str, codec: Codec[Any]) -> StepStates: ...
    def timed(self, name: str, codec: Codec[Any]) -> TimedStates: ...

    def begin_timer(self, key: bytes, item: object, time_ms: int) -> None:
        """What follows is caused by a timer of this key."""


Make = Callable[[Push, Scope], Push]  # of what follows, what precedes it
