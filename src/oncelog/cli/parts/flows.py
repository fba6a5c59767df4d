"""The common part of the commands of `oncelog flow`: a flow found by its name in a cluster, or in Python's modules."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from oncelog.cli.parts.endings import failure, nearest, speaks_to_brokers
from oncelog.cli.parts.options import Connecting

if TYPE_CHECKING:
    from oncelog.flow.backfilling import Target
    from oncelog.flow.program import Program
    from oncelog.flow.register import FlowRegister
    from oncelog.runner.looking import CellLook, Looking
    from oncelog.runner.unread import Unread

P = ParamSpec("P")
T = TypeVar("T")

flow_argument = click.argument("target", metavar="MODULE:FLOW")
name_argument = click.argument("name", metavar="NAME")
damaged_option = click.option(
    "--damaged",
    "with_damaged",
    is_flag=True,
    help="Also where journals cannot be read: you say that no process of the flow is left, halted ones included.",
)


def time_ms(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """The value of an option as milliseconds since 1970."""
    if value is None or (value.isascii() and value.isdigit()):
        return None if value is None else int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value}: expected milliseconds since 1970, or 2026-05-01, or 2026-05-01T12:00", context, parameter
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def speaks_of_flows(body: Callable[P, T]) -> Callable[P, T]:
    """A command's body: why a flow is refused or has failed is said in one line."""

    @wraps(body)
    def run(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            from oncelog.flow.errors import FlowFailed, FlowRefused
            from oncelog.flow.formats import Unreadable
        except ImportError as missing:
            raise failure(str(missing)) from missing
        try:
            return body(*arguments, **keywords)
        except FlowFailed as failed:  # a sentence for each cell
            raise failure(". ".join(each.removesuffix(".") for each in str(failed).split("\n"))) from failed
        except (FlowRefused, Unreadable) as refused:
            raise failure(str(refused)) from refused

    return speaks_to_brokers(run)


def loaded(target: str) -> "Program":
    """The flow that MODULE:FLOW names, with modules of this folder, as `python -m` finds them."""
    from oncelog.flow import Flow

    module, name = _module_of(target, "MODULE:FLOW, such as billing:flow for `flow` in billing.py")
    flows = {each: value.program for each, value in vars(module).items() if isinstance(value, Flow)}
    if name not in flows:
        is_else = hasattr(module, name)
        known = f"its flows are {', '.join(sorted(flows))}" if flows else "no flow is there"
        what = f"{name} in {module.__name__} is no Flow" if is_else else f"there is no {name} in {module.__name__}"
        raise failure(f"{target}: {what}; {known}")
    return flows[name]


def made_calls(flow: "Program", given: Iterable[str]) -> list[str]:
    """The names of those that are made, each NAME or NAME=MODULE:FUNCTION."""
    found = []
    for each in given:
        name, equals, target = each.partition("=")
        if name not in flow.calls:
            known = f"it has {', '.join(flow.calls)}" if flow.calls else "it has none"
            raise failure(f"flow {flow.name} has no call {name}{nearest(name, flow.calls)}; {known}")
        if equals:
            module, attribute = _module_of(target, "MODULE:FUNCTION, such as fakes:rate for `rate` in fakes.py")
            try:
                flow.call_instead(name, getattr(module, attribute, None))
            except ValueError as unfit:
                raise failure(f"--call {each}: {unfit}") from unfit
        found.append(name)
    return found


def _module_of(target: str, expected: str) -> tuple[ModuleType, str]:
    """The module, and the name behind the colon."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise click.UsageError(f"{target}: expected {expected}")
    above, _, file = module_name.rpartition(os.sep)
    if above or file.endswith(".py"):
        place = f" in the folder {above}" if above else ""
        raise click.UsageError(f"{target}: expected a module, not its file: {file.removesuffix('.py')}:{name}{place}")
    try:
        folder = os.getcwd()
    except FileNotFoundError as gone:
        raise failure(f"{target}: the folder that this shell is in was removed. Go to another one") from gone
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(module_name), name
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise failure(f"{target}: {module_name} needs {missing.name}, which is not installed") from missing
        raise failure(
            f"{target}: there is no module {missing.name} in {folder}, nor is it installed: go to its folder, or put "
            "that into PYTHONPATH"
        ) from missing
    except (Exception, SystemExit) as error:
        raise failure(f"{target}: {module_name} cannot be imported: {type(error).__name__}: {error}") from error


def looked(to: Connecting, question: "Callable[[Looking], Awaitable[T]]") -> T:
    """The answer of a look at a cluster."""
    from oncelog.runner.looking import looking

    async def answered() -> T:
        async with looking(to.properties, to.timeout_s) as look:
            return await question(look)

    flows = logging.getLogger("oncelog.flow")
    before = flows.level
    flows.setLevel(logging.ERROR)  # a command says itself what it could not reach
    try:
        return asyncio.run(answered())
    finally:
        flows.setLevel(before)


def reached(to: Connecting) -> None:
    """The cluster answers."""

    async def nothing(_: "Looking") -> None:
        return

    looked(to, nothing)


async def sized(flow: "Program", into: Mapping[str, str], look: "Looking") -> dict["Target", "Target"]:
    """The places that a backfill writes to, by name: a topic of the same kind, with as many partitions as there are."""
    known = (await look.cluster.brokers.refresh()).topics
    written = {sink.name: sink for part in flow.parts for sink in part.sinks}
    return {
        there: replace(topic, name=here, partitions=len(known[here].partitions))
        if (topic := written.get(there)) is not None and here in known
        else here
        for there, here in into.items()
    }


async def register_of(look: "Looking", name: str, *, is_deleted: bool = False) -> "FlowRegister":
    known = await look.flows()
    if name not in known:
        raise failure(f"there is no flow {name}{nearest(name, known)}: `oncelog flow list` lists all")
    register = await look.register(name)
    if register.flow_parts is None and not is_deleted:
        raise failure(f"nothing stands in the register of flow {name} yet: start it first")
    return register


def moment(time_ms: int | None) -> str | None:
    """The time for people."""
    if time_ms is None or time_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):  # far outside of our calendar
        return str(time_ms)


def told_of_cell(flow: str, look: "CellLook") -> dict[str, Any]:
    from oncelog.flow.actions import LATE

    journal = look.journal
    commit, taken = journal.commit, journal.take_over
    return {
        "cell": look.cell,
        "holder": taken
        and {
            "nonce": taken.nonce,
            "started_ms": taken.tenancy.started_ms,
            "attempt": taken.tenancy.attempt,
            "code": taken.code,
            "until_ms": taken.until_ms,
            "has_left": journal.is_left,
            "why": journal.why_left or None,
            "may_be_at_work": look.busy_until_ms > look.looked_at_ms,
        },
        "commit": commit and commit.number,
        "code": commit and commit.code,
        "watermark_ms": commit.watermark_ms if commit and commit.watermark_ms >= 0 else None,
        "inputs": [
            {"topic": each.topic, "next_offset": each.next_offset, "end": each.end, "lag": each.lag}
            for each in look.inputs
        ],
        "outputs": [
            {"topic": each.topic, "partition": each.partition, "slots": each.filled, "next_offset": each.next_offset}
            for each in (commit.outputs if commit else ())
        ],
        "state_entries": len(journal.state),
        "state_bytes": sum(len(key) + len(value) for key, value in journal.state.items()),
        "written": sum(each.filled for each in commit.outputs) if commit else 0,
        "late": int(commit.metrics.get(LATE, 0)) if commit else 0,
        "held": sum(len(each.keys) for each in journal.held),
        "metrics": dict(commit.metrics) if commit else {},
        "damage": f"flow {flow}, stage {look.stage}, cell {look.cell}: {look.damage}" if look.damage else None,
    }


def rows_of_stage(stage: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each input of each cell."""
    return [
        {
            "stage": stage["stage"],
            "cell": cell["cell"],
            "input": each["topic"],
            "next_offset": each["next_offset"],
            "end": each["end"],
            "lag": each["lag"],
            "commit": cell["commit"],
            "watermark": moment(cell["watermark_ms"]),
            "written": cell["written"],
            "late": cell["late"],
            "state": cell["state_entries"],
            "held": cell["held"],
            "code": cell["code"],
            "holder": "not known" if cell["damage"] else _holder(cell["holder"]),
        }
        for cell in stage["cells"]
        for each in cell["inputs"]
    ]


def _holder(holder: dict[str, Any] | None) -> str | None:
    if holder is None:
        return None
    if holder["has_left"]:
        return "stopped" if holder["why"] else "left"
    until = moment(holder["until_ms"])
    return f"until {until}" if holder["may_be_at_work"] else f"over since {until}"


def told_of_unread(flow: str, found: "Unread") -> dict[str, Any]:
    return {
        "stage": found.of.stage,
        "topic": found.of.topic,
        "cells": found.of.cells,
        "partitions": found.partitions,
        "records": found.records,
        "words": found.words(flow),
    }


def told_of_state(stage: str, cell: int, key: bytes, stored: bytes) -> dict[str, Any]:
    """A state for people. Of a step with timers these stand before it, on a line of their own (`flow/stepping.py`)."""
    times, newline, state = stored.partition(b"\n")
    timers = {"timers": _value(times)} if newline else {}
    return {
        "stage": stage,
        "cell": cell,
        "key": key.decode(errors="surrogateescape"),
        "state": _value(state if newline else stored),
        **timers,
    }


def _value(stored: bytes) -> Any:
    """JSON as what it is, anything else as text."""
    try:
        return json.loads(stored)
    except ValueError:
        return stored.decode(errors="surrogateescape")
