"""What a script defines, its classes too, is sent to Spark's tasks by value."""

import pickle
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import oncelog.spark.flows  # noqa: F401  as where a flow is started on Spark
from oncelog.flow import Context, Flow, Topic, json_of, text


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
    assert arrived.code == flow.code
    codec: Any = arrived.parts[0].branches[0].source.value
    value = codec.decode(b'{"lines": [{"name": "a", "place": [1]}]}')
    assert (value.lines[0].place.row, value.notes) == (1, [])
    with pytest.raises(ValueError, match="missing required field `lines`"):
        codec.decode(b"{}")
