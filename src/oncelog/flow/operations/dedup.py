"""Records that came before are left out: by an id, or by the offsets that a copier wrote into them."""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final

from oncelog.arguments import number_within
from oncelog.flow.codecs import Codec
from oncelog.flow.formats import SOURCE
from oncelog.flow.scope import Context, Make, Push, Scope
from oncelog.flow.stepping import StepStates

_MISSING: Final = object()


class Ids(StepStates):
    """The ids of one cell, each with the time of the record that brought it. The oldest go first: where there are more
    than `most`, and where they are older than the newest by more than `keep_ms`. An id stays although its record is
    dead."""

    def __init__(self, name: str, codec: Codec[int], most: int, keep_ms: int | None) -> None:
        super().__init__(name, codec)
        self.most, self.keep_ms = most, keep_ms
        self.ages: list[tuple[int, bytes]] = []  # a heap. Some of them may be gone meanwhile
        self.newest_ms = 0
        self.known = 0
        self._stood = (0, 0)
        self._popped: list[tuple[int, bytes]] = []  # in this run

    def begin(self, committed: Mapping[bytes, bytes]) -> None:
        super().begin(committed)
        prefix, size = self.prefix, len(self.prefix)
        self.ages = [
            (self.codec.decode(stored), key[size:]) for key, stored in committed.items() if key.startswith(prefix)
        ]
        heapify(self.ages)
        self.newest_ms, self.known = max(self.ages)[0] if self.ages else 0, len(self.ages)

    def begin_run(self) -> None:
        super().begin_run()
        self._popped.clear()
        self._stood = self.newest_ms, self.known

    def undo(self) -> None:
        super().undo()
        self.newest_ms, self.known = self._stood
        for each in self._popped:
            heappush(self.ages, each)
        self._popped.clear()

    def get(self, id: bytes) -> int | None:
        found = self.objects.get(id, _MISSING)
        time_ms: int | None = self.load(id) if found is _MISSING else found
        return time_ms

    def put(self, id: bytes, before: int | None, time_ms: int | None) -> None:
        self.before.setdefault(id, before)
        self.objects[id] = time_ms

    def is_new(self, id: bytes, time_ms: int) -> bool:
        if self.get(id) is not None:
            return False
        self.put(id, None, time_ms)
        heappush(self.ages, (time_ms, id))
        self.known += 1
        self.newest_ms = max(self.newest_ms, time_ms)
        oldest_ms = -1 if self.keep_ms is None else self.newest_ms - self.keep_ms
        while self.known > self.most or self.ages[0][0] < oldest_ms:
            self._forget_the_oldest()
        return True

    def _forget_the_oldest(self) -> None:
        time_ms, id = heappop(self.ages)
        self._popped.append((time_ms, id))
        if self.get(id) == time_ms:
            self.put(id, time_ms, None)
            self.known -= 1


def without_known_ids(
    name: str, id_of: Callable[[Any], str], codec: Codec[int], most: int, keep_ms: int | None
) -> Make:
    most = number_within(f"{name}: most", most, 1)
    if keep_ms is not None:
        keep_ms = number_within(f"{name}: keep_ms", keep_ms, 0)

    def make(then: Push, scope: Scope) -> Push:
        ids = scope.add_states(Ids(name, codec, most, keep_ms))

        def push(key: Any, value: Any) -> None:
            id = id_of(value)
            if not isinstance(id, str):
                raise TypeError(f"the id for {name!r} is {id!r:.200}, and not a text, such as `str(id)`")
            if ids.is_new(id.encode(), scope.time_ms):
                then(key, value)

        return push

    return make


def in_header(_: Any, at: Context[Any]) -> tuple[str, int]:
    """The source of a record that a flow wrote through a topic, and the offset there."""
    stamped = next((value for name, value in at.headers if name == SOURCE), None)
    if stamped is None:
        raise ValueError(f"it has no header {SOURCE.decode()}: say where it comes from (`source=`)")
    source, _, offset = stamped.decode().rpartition("/")
    return source, int(offset)


def _source(name: str, said: object) -> tuple[str, int]:
    match said:
        case (str(source), int(offset)):
            return source, offset
    raise TypeError(f"the source for {name!r} is {said!r:.200}, and not (text, whole number)")


def without_lower_offsets(name: str, source_of: Callable[[Any, Any], tuple[str, int]], codec: Codec[int]) -> Make:
    def make(then: Push, scope: Scope) -> Push:
        states = scope.states(name, codec)
        objects, before, trail = states.objects, states.before, states.trail
        at: Context[Any] = Context(scope)

        def push(key: Any, value: Any) -> None:
            at.key, at.time_ms = key, scope.time_ms
            source, offset = _source(name, source_of(value, at))
            entry = source.encode()
            stands = objects.get(entry, _MISSING)
            if stands is _MISSING:
                stands = objects[entry] = states.load(entry)
            if stands is not None and offset <= stands:
                return
            before.setdefault(entry, stands)
            if trail is not None:
                trail.append((objects.__setitem__, entry, stands))
            objects[entry] = offset
            then(key, value)

        return push

    return make
