"""Flows: pipelines from topics to topics, with state for each key. `Flow` and `Topic` are the beginning; `Cell` and the
values around it are the pure core that runs below them."""

from oncelog.flow.cell import Cell
from oncelog.flow.cleanup_job import cleanup
from oncelog.flow.codecs import Codec, json_of, msgpack_of, one_of, optional, raw, text
from oncelog.flow.description import Holder, Input, Limits, OutputPlace, Stage
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.flow.flows import Flow, Run
from oncelog.flow.operations.windows import Window
from oncelog.flow.scope import Context
from oncelog.flow.simulating import Stopped
from oncelog.flow.stepping import Upgrade
from oncelog.flow.topics import Dead, Sent, Topic

__all__ = [
    "Cell",
    "Codec",
    "Context",
    "Dead",
    "Flow",
    "FlowFailed",
    "FlowRefused",
    "Holder",
    "Input",
    "Limits",
    "OutputPlace",
    "Run",
    "Sent",
    "Stage",
    "Stopped",
    "Topic",
    "Upgrade",
    "Window",
    "cleanup",
    "json_of",
    "msgpack_of",
    "one_of",
    "optional",
    "raw",
    "text",
]
