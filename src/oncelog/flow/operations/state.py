"""A step with a state for each key, and one with timers, too."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from oncelog.flow.codecs import Codec, check_class, check_classes, class_of, decoded
from oncelog.flow.functions import check_outputs
from oncelog.flow.messages import EMPTY, Records
from oncelog.flow.scope import Context, Make, Push, RunContext, Scope, ToTopic
from oncelog.flow.stepping import Old, StepStates, Timed

if TYPE_CHECKING:
    from oncelog.records.column_types import BytesColumn

Step = Callable[[Any, Any, Context[Any]], tuple[Any, Iterable[Any]]]

_MISSING: Final = object()


def _checked(name: str, kind: type | None, returned: Any) -> tuple[Any, Iterable[Any]]:
    """The state and the outputs that a step has returned."""
    try:
        after, outputs = returned
    except (TypeError, ValueError):
        outputs = None
    if outputs is None:
        raise TypeError(f"the step {name!r} returned {returned!r:.200}, and not (state, outputs), such as `state, []`")
    if type(outputs) is not list:
        check_outputs(f"the step {name!r}", outputs)
    if type(after) is not kind and kind is not None and after is not None:
        check_class(kind, after)
    return after, outputs


def with_state(name: str, state: Callable[[], Any], codec: Codec[Any], function: Step, old: Old | None = None) -> Make:
    def make(then: Push, scope: Scope) -> Push:
        states = scope.states(name, codec, old)
        objects, before, load = states.objects, states.before, states.load
        at: Context[Any] = Context(scope)
        kind = class_of(codec)
        keep = states.keep if states.trail is not None else None

        def push(key: Any, value: Any) -> None:
            entry = scope.key
            stands = objects.get(entry, _MISSING)
            if stands is _MISSING:
                stands = load(entry)
            if entry not in before:
                before[entry] = stands
            if keep is not None:
                keep(entry, stands)
            at.key, at.time_ms = key, scope.time_ms
            objects[entry], outputs = _checked(name, kind, function(state() if stands is None else stands, value, at))
            for output in outputs:
                then(key, output)

        route = scope.only_route(then)
        if route is not None:
            scope.takes_columns(push, _in_columns(states, state, function, scope, route), reads_values=True)
        return push

    return make


def _in_columns(
    states: StepStates, state: Callable[[], Any], function: Step, scope: Scope, route: ToTopic
) -> Callable[[Records], None]:
    at: RunContext[Any] = RunContext(scope)
    kind = class_of(states.codec)

    def run(records: Records) -> None:
        decode_key, decode_value = scope.decodes
        numbered = states.numbered()
        numbers, objects = numbered.number(cast("BytesColumn", records.keys), decode_key), numbered.objects
        at.begin(records, decode_key)
        every, rows, results = [*range(len(numbers))], list[int](), list[Any]()
        add_row, add_result = rows.append, results.append
        for row, number, value in zip(every, numbers, decoded(records.values, decode_value), strict=True):
            at.row, stands = row, objects[number]
            objects[number], outputs = function(state() if stands is None else stands, value, at)
            if type(outputs) is not list:
                check_outputs(f"the step {states.name!r}", outputs)
            for output in outputs:
                add_row(row)
                add_result(output)
        check_classes(kind, numbered.now, takes_null=True)
        if rows == every:  # one each
            route.take(records.keys, results, records.times)
        else:
            keys, times = numbered.keys_of([numbers[row] for row in rows]), records.times
            route.take(keys, results, [times[row] for row in rows])
        at.begin(EMPTY, decode_key)  # nothing of them is kept

    return run


def with_timers(
    name: str,
    state: Callable[[], Any],
    codec: Codec[Any],
    of_key: Codec[Any],
    function: Step,
    on_timer: Step,
    old: Old | None = None,
) -> Make:
    def make(then: Push, scope: Scope) -> Push:
        states = scope.timed(name, codec, old)
        at: Context[Any] = Context(scope)
        kind = class_of(codec)

        def run(entry: bytes, key: Any, called: Step, stands: Timed | None, about: Any) -> None:
            states.keep(entry, stands)
            held, timers = stands or (None, ())
            at.key, at.time_ms, at.timers = key, scope.time_ms, []
            after, outputs = _checked(name, kind, called(state() if held is None else held, about, at))
            if at.timers:
                timers = states.add(entry, at.timers, timers)
            states.put(entry, stands, after, timers)
            for output in outputs:
                then(key, output)

        def push(key: Any, value: Any) -> None:
            run(scope.key, key, function, states.get(scope.key), value)

        def fire(entry: bytes, time_ms: int) -> None:
            key = of_key.decode(entry)
            scope.begin_timer(entry, key, time_ms)
            run(entry, key, on_timer, states.get(entry), key)
            if any(each <= time_ms for each in at.timers):
                raise ValueError(f"on_timer at {time_ms} sets a timer for {min(at.timers)}: set a later one")

        states.fire = fire
        return push

    return make
