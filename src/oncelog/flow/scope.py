"""The surroundings of the record that is worked on, for operations and for users' functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from oncelog.flow.codecs import Codec
from oncelog.flow.messages import Records
from oncelog.flow.stepping import Old, StepStates, TimedStates, Trail

K = TypeVar("K")
Kept = TypeVar("Kept", bound=StepStates)

PlainHeaders = tuple[tuple[bytes, bytes | None], ...]
Push = Callable[[Any, Any], object]  # takes a key and a value a step further


class ToTopic(Protocol):
    """The only way that results take."""

    def take(self, keys: Sequence[bytes | None], values: Sequence[Any], times: Sequence[int]) -> None:
        """Take all of these, or none where a value cannot be encoded."""


class Tells(Protocol):
    """Totals that are told at commits."""

    @property
    def time_key(self) -> bytes: ...
    @property
    def codec(self) -> Codec[Any]: ...
    def told(self, changes: Mapping[bytes, bytes | None]) -> tuple[list[bytes], list[bytes]]: ...
    def decode_key(self, key: bytes, /) -> Any: ...


class Context(Generic[K]):
    """A record's key, time and surroundings. One object serves all records: copy out the values that you keep."""

    __slots__ = ("_scope", "key", "time_ms", "timers")

    key: K
    time_ms: int  # event time
    timers: list[int]

    def __init__(self, scope: "Scope") -> None:
        self._scope = scope

    @property
    def offset(self) -> int:
        return self._scope.offset

    @property
    def headers(self) -> PlainHeaders:
        """The headers of the record, of a topic that was read with `headers=True`."""
        return self._scope.headers

    @property
    def id(self) -> str:
        """The same for the same work, also after a crash: a service recognises by it what it has done already."""
        return self._scope.origin

    def timer(self, at_ms: int) -> None:
        """Call `on_timer` for this key when the watermark gets there. Timers go with the state of their key."""
        try:
            self.timers.append(at_ms)
        except AttributeError:  # only the context of a step with `on_timer` has a list of them
            raise ValueError("at.timer: no function is given for timers: `step(..., on_timer=)` takes one") from None


class RunContext(Context[K]):
    """The context of a run of records as columns: what is asked about one of them is looked up then."""

    __slots__ = ("_decode_key", "_keys", "_records", "row")

    row: int

    def begin(self, records: Records, decode_key: Callable[[bytes], K]) -> None:
        self._records, self._decode_key = records, decode_key
        self._keys: list[K] | None = None

    @property
    def key(self) -> K:  # type: ignore[override]
        if self._keys is None:
            self._keys = [*map(self._decode_key, cast(Sequence[bytes], self._records.keys))]
        return self._keys[self.row]

    @property
    def time_ms(self) -> int:  # type: ignore[override]
        return self._records.times[self.row]

    @property
    def offset(self) -> int:
        return self._records.offsets[self.row]

    @property
    def headers(self) -> PlainHeaders:
        self._scope.offset = self.offset
        return self._scope.headers

    @property
    def id(self) -> str:
        self._scope.offset = self.offset
        return self._scope.origin


class Scope(Protocol):
    cell: int
    key: bytes  # of the record, as it came
    time_ms: int
    watermark_ms: int
    offset: int
    within: str  # which of the calls that a record comes to is under way

    @property
    def origin(self) -> str:
        """The record or the timer that is worked on, and the calls that led here, as one text."""

    @property
    def headers(self) -> PlainHeaders: ...

    def states(self, name: str, codec: Codec[Any], old: Old | None = None) -> StepStates: ...
    def add_states(self, states: Kept) -> Kept: ...
    def timed(self, name: str, codec: Codec[Any], old: Old | None = None) -> TimedStates: ...

    @property
    def trail(self) -> Trail | None: ...
    def tells_at_commits(self, totals: "Tells", then: Push) -> None: ...
    @property
    def decodes(self) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        """A key of the only input, and a value."""

    def takes_columns(self, push: Push, run: Callable[[Records], None], *, reads_values: bool) -> None:
        """Instead of one record after the other."""

    def only_route(self, push: Push) -> ToTopic | None:
        """The one topic that all of this goes to, under the keys of its records; None where there are others."""

    def attempt(self, work: Callable[[], object]) -> None:
        """Do the work. If it raises, its changes are undone, and the record goes to the dead letters, or the cell
        stops."""

    def count_late(self) -> None:
        """Count the record that is worked on as late for something."""

    def number(self, name: str) -> int:
        """The number of earlier questions of this name about the same record or timer."""

    def begin_timer(self, key: bytes, item: object, time_ms: int) -> None:
        """The work that follows is caused by a timer of this key."""


Make = Callable[[Push, Scope], Push]  # of what follows, what precedes it
