"""The output of `oncelog flow try`: for each cell, what would be written otherwise, and how it ends."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from oncelog.flow.trying import Trial
    from oncelog.slots.replay import Output

P = ParamSpec("P")
T = TypeVar("T")

WIDEST = 200


class CannotTry(click.ClickException):
    exit_code = 2


def ends_with_2_where_it_cannot(body: Callable[P, T]) -> Callable[P, T]:
    """A command's body: 1 is for what differs."""

    @wraps(body)
    def run(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return body(*arguments, **keywords)
        except click.UsageError:
            raise
        except click.ClickException as error:
            raise CannotTry(error.message) from error

    return run


def told_of_trial(trial: "Trial", show: int) -> dict[str, Any]:
    found = {name: value for name, value in vars(trial).items() if name not in ("states", "differences")}
    return {
        **found,
        "outputs_differ": trial.outputs_differ,
        "differences": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "commit": each.commit,
                "stands": _told_of_output(each.stands),
                "comes": _told_of_output(each.comes),
            }
            for each in trial.differences[:show]
        ],
        "states": [
            {"step": step.decode(errors="replace"), "key": _text(key), "stands": _text(stands), "comes": _text(comes)}
            for entry, stands, comes in trial.states[:show]
            for step, _, key in [entry.partition(b"\0")]
        ],
    }


def _told_of_output(output: "Output | None") -> dict[str, Any] | None:
    if output is None:
        return None
    headers = {_text(name): _text(value) for name, value in output.headers}
    return {"key": _text(output.key), "value": _text(output.value), "headers": headers}


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="backslashreplace") if isinstance(data, bytes) else data


def lines_of_trial(told: dict[str, Any]) -> Iterator[str]:
    """The differences, for people."""
    where = f"{told['stage']} {told['cell']}"
    if told["failure"]:
        yield f"{where}: the new code stops at {told['failure']}"
    for each in told["differences"]:
        stands, comes = each["stands"], each["comes"]
        place = f"{where}, {each['topic']}-{each['partition']}, commit {each['commit']}"
        if stands is None or comes is None:
            yield f"{place}: {'new' if stands is None else 'gone'} is {_in_words(comes or stands)}"
        else:
            parts = _unlike(stands, comes)
            yield f"{place}: {_in_words(stands, parts)} would be {_in_words(comes, parts)}"
    for each in told["states"]:
        stands, comes = (_short(each[side]) or "none" for side in ("stands", "comes"))
        yield f"{where}, state {each['step']} of {each['key']!a}: {stands} would be {comes}"


def _unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return ["key", *(part for part in ("value", "headers") if one[part] != other[part])]


def _in_words(output: dict[str, Any], parts: list[str] | None = None) -> str:
    return " ".join(_short(output[part]) or "null" for part in parts or ("key", "value"))


def _short(value: Any) -> str | None:
    text = None if value is None else str(value)
    return text if text is None or len(text) <= WIDEST else f"{text[:WIDEST]}... ({len(text)} letters)"
