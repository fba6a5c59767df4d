"""What users' functions and values are like that cannot be worked with, in words."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from oncelog.flow import Flow, Topic, json_of, one_of, optional, text
from oncelog.flow.program import Stream
from oncelog.flow.simulation.engine import Stopped
from oncelog.flow.stepping import Upgrade


@dataclass(frozen=True)
class Owed:
    amount: int = 0


@dataclass(frozen=True)
class Paid:
    amount: int


numbers = Topic("numbers", text, json_of(int))
owed = Topic("owed", text, json_of(Owed))
counts = Topic("counts", text, json_of(int))


def misfit() -> int:
    return 0


def reading() -> Stream[str, Any]:
    return Flow("f", version="1").read(numbers)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda stream: stream.map(lambda: 0), "f: map: <lambda>() cannot be called with (value): too many"),
        (lambda stream: stream.map(None), "f: map: None is no function. Give one that takes (value)"),
        (
            lambda stream: stream.filter(lambda a, b: True),
            "f: filter: <lambda>(a, b) cannot be called with (value): miss",
        ),
        (lambda stream: stream.flat_map(lambda: ()), "f: flat_map: <lambda>() cannot be called with (value)"),
        (lambda stream: stream.call(lambda value: value), "f: call: <lambda>(value) cannot be called with (value, at)"),
        (lambda stream: stream.sum("s", of=None), "f: s: None is no function"),
        (
            lambda stream: stream.step("s", Owed, None),
            "f: s: None is no function. Give one that takes (state, value, at)",
        ),
        (
            lambda stream: stream.step("s", Owed, lambda a, b: 0),
            "f: s: <lambda>(a, b) cannot be called with (state, val",
        ),
        (lambda stream: stream.step("s", lambda: 0, lambda a, b, c: 0), "json_of(<function"),
        (
            lambda stream: stream.step("s", None, lambda a, b, c: 0),
            "f: the state of s is made where there is none, by its type, and None is no type",
        ),
        (lambda stream: stream.step("s", Paid, lambda a, b, c: 0), "f: the state of s begins as Paid(), which"),
        (lambda stream: stream.step("s", Owed, lambda a, b, c: 0, on_timer=max), "no error"),
        (
            lambda stream: stream.step("s", Owed, lambda a, b, c: 0, on_timer=lambda: 0),
            "f: on_timer of s: <lambda>() ca",
        ),
        (
            lambda stream: stream.step("s", Owed, lambda a, b, c: 0, upgrade=Upgrade("o", Paid, cast(Any, misfit))),
            "f: upgrade of",
        ),
        (lambda stream: stream.window("w", Owed, lambda a: a, size_ms=1), "f: w: <lambda>(a) cannot be called with"),
        (lambda stream: stream.dedup("d", lambda: ""), "f: d: <lambda>() cannot be called with (value)"),
        (lambda stream: stream.dedup_offsets("d", lambda a: a), "f: d: <lambda>(a) cannot be called with (value, at)"),
        (lambda stream: stream.through(numbers, None), "f: through numbers: None is no function"),
        (lambda stream: json_of(cast(Any, misfit)), "there is no JSON of it"),
    ],
)
def test_a_function_or_state_that_cannot_be_called_is_refused_when_it_is_given(
    wrong: Callable[[Any], object], said: str
) -> None:
    if said == "no error":
        wrong(reading())
        return
    with pytest.raises(ValueError) as refused:
        wrong(reading())
    assert said in str(refused.value)


def stopped(write: Callable[[Any], object]) -> str:
    flow = Flow("f", version="1")
    write(flow.read(numbers))
    with pytest.raises(Stopped) as found:
        flow.simulate([numbers.sent("a", 1), numbers.sent("a", 2)])
    return str(found.value)


WHERE = "f, stage numbers, cell 0: the record at offset 0 of numbers: TypeError: "


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda stream: stream.map(str).write(owed), "a str where Owed is written. Mend the function or the codec"),
        (lambda stream: stream.map(lambda _: None).write(owed), "a NoneType where Owed is written"),
        (
            lambda stream: stream.map(str).write(Topic("o", text, optional(json_of(Owed)))),
            "a str where Owed is written",
        ),
        (lambda stream: stream.map(str).write(Topic("o", text, one_of(Owed, Paid))), "a str where Owed or Paid is wri"),
        (lambda stream: stream.map(str).write(counts), "a str where int is written"),
        (lambda stream: stream.step("s", Owed, lambda s, v, at: ("x", [])).write(owed), "a str where Owed is written"),
        (
            lambda stream: stream.step("s", Owed, lambda s, v, at: ("x", []), on_timer=lambda s, k, at: 0).write(owed),
            "a str where Owed is written",
        ),
        (
            lambda stream: stream.step("s", Owed, lambda s, v, at: None).write(owed),
            "the step 's' returned None, and not (state, outputs), such as `state, []`",
        ),
        (lambda stream: stream.step("s", Owed, lambda s, v, at: (s, None)).write(owed), "the step 's' returned (Owed("),
        (lambda stream: stream.step("s", Owed, lambda s, v, at: (s, ["x"])).write(owed), "a str where Owed is written"),
        (lambda stream: stream.step("s", Owed, lambda s, v, at: s).write(owed), "the step 's' returned Owed(amount=0)"),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is_written(wrong: Callable[[Any], object], said: str) -> None:
    assert WHERE + said in stopped(wrong)


def test_what_is_as_good_is_written() -> None:
    """Subclasses, whole numbers for fractions, null where that may be."""

    @dataclass(frozen=True)
    class More(Owed):
        pass

    flow = Flow("f", version="1")
    out, half = Topic("out", text, optional(json_of(Owed))), Topic("half", text, json_of(float))

    def more(number: int) -> Owed | None:
        return More(number) if number else None

    def whole(number: int) -> float:
        return number

    flow.read(numbers).map(more).write(out)
    flow.read(numbers, name="again").map(whole).write(half)
    done = flow.simulate([numbers.sent("a", 1), numbers.sent("a", 0)])
    assert done[out] == [("a", Owed(1)), ("a", None)] and done[half] == [("a", 1.0), ("a", 0.0)]


def test_an_exception_of_several_lines_is_told_in_one() -> None:
    def fails(_: int) -> int:
        raise ValueError("not\nthis one")

    flow = Flow("f", version="1")
    flow.read(numbers).map(fails).write(counts)
    with pytest.raises(Stopped, match=r"offset 0 of numbers: ValueError: not this one \(test_functions.py, line \d+\)"):
        flow.simulate([numbers.sent("a", 1)])


def of(flow: Flow) -> Any:
    return flow.read(Topic("in", text, json_of(int)))


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda flow: Flow("f", version=cast(str, 1)), "flow f: its version: expected a text, such as 1, not int"),
    (lambda flow: of(flow).step("s", 0, lambda s, v, at: (s, [])), "and 0 is no type. Give int, or a dataclass"),
    (
        lambda flow: (of(flow).write(Topic("out", text, json_of(int))), flow.simulate([])["out"]),
        "what was simulated: expected the Topic or Dead that was written, not str",
    ),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_is_given_in_the_place_of_another_is_named_with_what_to_give(
    wrong: Callable[[Any], object], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        wrong(Flow("f", version="1"))


def test_a_flow_that_writes_nothing_is_not_simulated() -> None:
    with pytest.raises(ValueError, match="flow f writes nothing: end it with `write`"):
        Flow("f", version="1").simulate([])
