"""Windows of event time: a state for each key and window, which goes when the watermark has passed the window's end."""

from collections.abc import Callable
from dataclasses import dataclass
from struct import pack
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog.arguments import number_within
from oncelog.flow.codecs import Codec, check_class, class_of
from oncelog.flow.scope import Make, Push, Scope

S = TypeVar("S")

MOST_WINDOWS: Final = 1_000  # that one record is in
START: Final = ">q"
START_BYTES: Final = 8


@dataclass(frozen=True)
class Window(Generic[S]):
    start_ms: int
    end_ms: int
    state: S


class Late(NamedTuple):
    """A value whose windows were all closed already."""

    value: Any


def windows(
    name: str,
    state: Callable[[], Any],
    codec: Codec[Any],
    of_key: Codec[Any],
    add: Callable[[Any, Any], Any],
    size_ms: int,
    every_ms: int | None,
) -> Make:
    size_ms = number_within(f"{name}: size_ms", size_ms, 1)
    hop_ms = number_within(f"{name}: every_ms", size_ms if every_ms is None else every_ms, 1)
    if hop_ms > size_ms:
        raise ValueError(
            f"{name}: windows of {size_ms} ms, one every {hop_ms} ms, leave out what comes between: have `every_ms` "
            "at most `size_ms`"
        )
    if size_ms > hop_ms * MOST_WINDOWS:
        raise ValueError(
            f"{name}: windows of {size_ms} ms, one every {hop_ms} ms. A record is in at most {MOST_WINDOWS} windows"
        )

    def make(then: Push, scope: Scope) -> Push:
        states = scope.timed(name, codec)
        kind = class_of(codec)

        def push(key: Any, value: Any) -> None:
            time_ms, watermark_ms = scope.time_ms, scope.watermark_ms
            start_ms = time_ms - time_ms % hop_ms
            is_late = True
            while start_ms > time_ms - size_ms:
                end_ms = start_ms + size_ms
                if end_ms > watermark_ms:
                    is_late = False
                    entry = pack(START, start_ms) + scope.key
                    stands = states.get(entry)
                    states.keep(entry, stands)
                    held, timers = stands or (None, ())
                    held = add(state() if held is None else held, value)
                    if held is None:
                        raise TypeError(f"add of {name!r} returned None, and not the state of the window")
                    if type(held) is not kind and kind is not None:
                        check_class(kind, held)
                    states.put(entry, stands, held, timers or states.add(entry, [end_ms], ()))
                start_ms -= hop_ms
            if is_late:
                scope.count_late()
                then(key, Late(value))

        def fire(entry: bytes, end_ms: int) -> None:
            raw = entry[START_BYTES:]
            key = of_key.decode(raw)
            stands = states.get(entry)
            assert stands is not None
            states.put(entry, stands, None, ())
            scope.begin_timer(raw, key, end_ms)
            then(key, Window(end_ms - size_ms, end_ms, stands[0]))

        states.fire = fire
        return push

    return make


def late(then: Push, scope: Scope) -> Push:
    return lambda key, value: then(key, value.value) if isinstance(value, Late) else None


def in_time(then: Push, scope: Scope) -> Push:
    return lambda key, value: None if isinstance(value, Late) else then(key, value)
