"""What a script defines, its classes too, is sent to Spark's tasks by value."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import pytest

import oncelog.spark.flows
from oncelog.flow import Context, Flow, FlowRefused, Topic, json_of, text
from tests.repo.tree import ROOT


def sent_over(program: Flow) -> Flow:
    cloudpickle: Any = import_module("pyspark.cloudpickle")
    found: Flow = pickle.loads(cloudpickle.dumps(program))
    return found


def test_a_flow_arrives_with_its_classes(tmp_path: Path) -> None:
    class Place(NamedTuple):
        row: int

    @dataclass(frozen=True)
    class Page:
        name: str

    @dataclass(frozen=True)
    class Line:
        name: str
        place: Place | None = None

    @dataclass(frozen=True)
    class Order:
        lines: list[Line]
        notes: list[str] = field(default_factory=list)

    def count(so_far: int, order: Order, at: Context[str]) -> tuple[int, list[Order]]:
        return so_far + 1, [order]

    orders, seen = Topic("orders", text, json_of(Order)), Topic("seen", text, json_of(Order))
    flow = Flow("f", version="1")
    read = flow.read(orders)
    read.step("n", int, count).write(seen)
    flow.read(Topic("pages", text, json_of(Page))).files(str(tmp_path))

    arrived = sent_over(flow)
    assert arrived.program.code == flow.program.code
    codec: Any = arrived.program.parts[0].branches[0].source.value
    value = codec.decode(b'{"lines": [{"name": "a", "place": [1]}]}')
    assert (value.lines[0].place.row, value.notes) == (1, [])
    with pytest.raises(ValueError, match="missing required field `lines`"):
        codec.decode(b"{}")


@pytest.mark.parametrize("begin", [oncelog.spark.flows.start, oncelog.spark.flows.stream])
def test_what_cannot_be_sent_is_refused_at_once(begin: Callable[..., object]) -> None:
    lock = Lock()

    def locked(line: str) -> str:
        with lock:
            return line

    lines, seen = Topic("lines", text, text), Topic("seen", text, text)
    flow = Flow("f", version="1")
    flow.read(lines).map(locked).write(seen)
    with pytest.raises(FlowRefused, match=r"flow f cannot be sent to Spark's tasks: .*lock.* Let its functions make"):
        begin(flow.program, {"bootstrap.servers": "nowhere:1"}, spark=None, tasks=1)


@pytest.mark.thorough
def test_a_script_runs_in_sparks_tasks() -> None:
    command = [sys.executable, str(ROOT / "examples/flows/timers.py"), "--spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert sorted(done.stdout.splitlines()) == [
        "reminders.reminders: bert Reminder(amount=7)",
        "reminders.reminders: carla Reminder(amount=1)",
    ], done.stderr
