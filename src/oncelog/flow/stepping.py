"""The states of one step, by the bytes of their keys: as objects while a life lasts, as bytes where they are kept; and
the timers of those keys, where the step has some.

Timers are kept with the state of their key, so they go with it. Which is due next is known beside, from when a life
begins. A run of records can be undone until the next one begins.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from oncelog.flow.codecs import Codec, class_of, foreign_fields
from oncelog.flow.entries import Entries
from oncelog.flow.messages import ColumnChanges, Unworkable
from oncelog.flow.timers import Timer, Timers, check_time

if TYPE_CHECKING:
    from oncelog.flow.numbered import NumberedStates

S = TypeVar("S")
S2 = TypeVar("S2")

MOST_KNOWN: Final = 100_000  # keys whose state is kept as an object
MOST_TIMERS: Final = 1_000  # of one key
SIMPLE: Final = frozenset((int, str))  # which no function changes in place

_encode_times: Final = msgspec.json.Encoder().encode
_decode_times: Final = msgspec.json.Decoder(list[int]).decode


Decode = Callable[[bytes], Any]
Trail = list[tuple[Any, ...]]  # what takes back each thing that was done with a record, and its arguments


@dataclass(frozen=True)
class Upgrade(Generic[S2, S]):
    """A change of a step's state: the name and the state that the step had before, and a function to the new state. The
    state of a key is changed when it is needed, so an upgrade stays in the code as long as there may be old states."""

    name: str
    state: type[S2]
    function: Callable[[S2], S]


class Old(NamedTuple):
    """A state as code before this one kept it: under another name, in another shape."""

    name: str
    codec: Codec[Any]
    upgrade: Callable[[Any], Any]

    @property
    def prefix(self) -> bytes:
        return self.name.encode() + b"\0"


def _parts_of(stored: bytes) -> tuple[list[int], bytes]:
    """The timers of a key, and its state. A step without timers kept its state alone: JSON without a line feed."""
    times, line_feed, state = stored.partition(b"\n")
    return (_decode_times(times), state) if line_feed and times.startswith(b"[") else ([], stored)


def _other_shape(name: str, which: str, error: Exception) -> Unworkable:
    """No record is to blame, and none is dead for it."""
    words = " ".join(str(error).split("\n"))
    return Unworkable(
        f"what the step {name!r} has kept for its key is not of the type {which} ({words}). Run the code that kept it, "
        "or give the step another name and `upgrade=` what stands under this one"
    )


class StepStates:
    def __init__(self, name: str, codec: Codec[Any], trail: Trail | None = None, old: Old | None = None) -> None:
        self.name = name
        self.prefix = name.encode() + b"\0"
        self.codec = codec
        self.old = old
        self.trail = trail
        self.objects: dict[bytes, Any] = {}  # None: there is none
        self.before: dict[bytes, Any] = {}  # as it stood when this run of records began
        self._numbered: NumberedStates | None = None  # the same of runs that come as columns
        self._committed: Mapping[bytes, bytes] = {}
        self._is_of_this_shape = False  # what is kept; until the first is looked at
        self._is_simple = class_of(codec) in SIMPLE

    def begin(self, committed: Mapping[bytes, bytes]) -> None:
        """A life."""
        self._committed = committed

    def begin_run(self) -> None:
        self.before.clear()
        if len(self.objects) > MOST_KNOWN:
            self.objects.clear()
            self._numbered = None  # it may not know what these changed
        elif self._numbered is not None:
            self._numbered.forget_run()

    def numbered(self) -> "NumberedStates":
        """The states for a run as columns, with all that others have changed."""
        from oncelog.flow.numbered import NumberedStates

        if self._numbered is None or len(self._numbered) > MOST_KNOWN:
            self._numbered = NumberedStates(self.prefix, self.load)
        if self.objects:
            self._numbered.read_anew(self.objects)
            self.objects.clear()
        return self._numbered

    def load(self, key: bytes, owner: "NumberedStates | None" = None) -> Any:
        """Load a state that is not among the objects. `owner`: numbers that have not met the key before."""
        if key is None:
            raise ValueError(
                "it has no key, and a step keeps its state by the key: give it one (`through(topic, key=)`)"
            )
        committed, entry = self._committed, self.prefix + key
        if owner is not None and isinstance(committed, Entries):
            stands = committed.unseen(entry, owner)
        else:
            stands = committed.get(entry)
        if stands is not None:
            try:
                return self.decode(stands, self.codec.decode if self._is_of_this_shape else self._first)
            except Exception as error:
                raise _other_shape(self.name, "of its state", error) from error
        stood = None if self.old is None else self._committed.get(self.old.prefix + key)
        return None if stood is None else self.decode(stood, self._upgraded)

    def keep(self, key: bytes, stands: Any) -> None:
        """Keep a state before a function is given it: where the record is dead, that takes back what was changed in
        place, too."""
        if self.trail is not None:
            kept = stands if stands is None or self._is_simple else self.encode(stands)
            self.trail.append((self._put_back, key, kept))

    def _put_back(self, key: bytes, kept: Any) -> None:
        self.objects[key] = kept if kept is None or self._is_simple else self.decode(kept, self.codec.decode)

    def _first(self, stored: bytes) -> Any:
        """Decode the first state of a life: msgspec takes fields with defaults for absent ones, so another type would
        read as an empty one."""
        if foreign := foreign_fields(self.codec, stored):
            raise ValueError(f"it has the fields {', '.join(foreign)}, of which that one has none")
        self._is_of_this_shape = True
        return self.codec.decode(stored)

    def _upgraded(self, stored: bytes) -> Any:
        assert self.old is not None
        try:
            stood = self.old.codec.decode(stored)
        except Exception as error:
            raise _other_shape(self.old.name, "that `upgrade=` names", error) from error
        return self.old.upgrade(stood)

    def column_changes(self) -> ColumnChanges | None:
        """The changes of a run that came as columns; None where they are to be taken one by one."""
        if self._numbered is None or self.old is not None:
            return None
        return self._numbered.column_changes(self.codec)

    def changes(self) -> dict[bytes, bytes | None]:
        prefix, now, encode, numbered = self.prefix, self.objects, self.encode, self._numbered
        if numbered is not None and numbered.distinct:
            keys: Iterable[bytes] = numbered.keys
            found = numbered.changes(encode)
        else:
            keys = self.before
            found = {
                prefix + key: None if stands is None else encode(stands)
                for key, stood in self.before.items()
                if (stands := now[key]) is not None or stood is not None
            }
        if self.old is not None:
            former = (self.old.prefix + key for key in keys)
            found.update((entry, None) for entry in former if entry in self._committed)
        return found

    def undo(self) -> None:
        """The earlier states are read anew: a function may have changed it in place."""
        for key in self.before:
            self.objects.pop(key, None)
        if self.before:
            self._numbered = None  # a run before this one may have changed them, too
        elif self._numbered is not None:
            self._numbered.undo(is_simple=self._is_simple)
        self.before.clear()

    @property
    def encode(self) -> Callable[[Any], bytes]:
        return self.codec.encode

    def decode(self, stored: bytes, decode: Decode) -> Any:
        return decode(stored)


class PlainStates(StepStates):
    """The states of a step without timers. States that it kept while it had some are read without them."""

    def decode(self, stored: bytes, decode: Decode) -> Any:
        return decode(_parts_of(stored)[1])


Timed = tuple[Any, tuple[int, ...]]  # the state of a key, and its timers
Fire = Callable[[bytes, int], object]  # a key's timer


class TimedStates(StepStates):
    """Its objects are `Timed`."""

    def __init__(self, name: str, codec: Codec[Any], trail: Trail | None = None, old: Old | None = None) -> None:
        super().__init__(name, codec, trail, old)
        self.due = Timers()  # some of them may be gone meanwhile
        self.fire: Fire = lambda key, time_ms: None
        self._taken: list[Timer] = []  # in this run

    def begin(self, committed: Mapping[bytes, bytes]) -> None:
        super().begin(committed)
        prefixes = [self.prefix] if self.old is None else [self.prefix, self.old.prefix]
        self.due = Timers()
        for key, stored in committed.items():
            for prefix in prefixes:
                if key.startswith(prefix):
                    for time_ms in _parts_of(stored)[0]:
                        self.due.push(time_ms, key[len(prefix) :])

    def begin_run(self) -> None:
        super().begin_run()
        self._taken.clear()

    def get(self, key: bytes) -> Timed | None:
        if key in self.objects:
            known: Timed | None = self.objects[key]
            return known
        found: Timed | None = self.load(key)
        if found is not None:
            self.objects[key] = found
        return found

    def put(self, key: bytes, before: Timed | None, state: Any, timers: tuple[int, ...]) -> None:
        self.before.setdefault(key, before)
        self.objects[key] = None if state is None else (state, timers)

    def add(self, key: bytes, times: list[int], known: tuple[int, ...]) -> tuple[int, ...]:
        """The timers of a key with these, too."""
        for time_ms in times:
            if time_ms not in known:
                check_time(time_ms)
                known = (*known, time_ms)
                self.due.push(time_ms, key)
            if len(known) > MOST_TIMERS:
                raise ValueError(f"a key has more than {MOST_TIMERS} timers. Set one, and the next one when it fires")
        return known

    def next(self) -> Timer | None:
        """The first that still stands."""
        while (first := self.due.first) is not None:
            time_ms, key = first
            stands = self.get(key)
            if stands is not None and time_ms in stands[1]:
                return first
            self._taken.append(self.due.pop())
        return None

    def take(self) -> Timer:
        """The first one, that `next` has shown: it does not stand any more."""
        time_ms, key = self.due.pop()
        self._taken.append((time_ms, key))
        stands = self.get(key)
        assert stands is not None
        state, timers = stands
        self.put(key, stands, state, tuple(each for each in timers if each != time_ms))
        return time_ms, key

    def undo(self) -> None:
        super().undo()
        for each in self._taken:
            self.due.push(*each)
        self._taken.clear()

    @property
    def encode(self) -> Callable[[Timed], bytes]:
        encode = self.codec.encode
        return lambda timed: _encode_times(timed[1]) + b"\n" + encode(timed[0])

    def decode(self, stored: bytes, decode: Decode) -> Timed:
        times, state = _parts_of(stored)
        return decode(state), tuple(times)
