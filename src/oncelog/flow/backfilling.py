"""A flow beside itself: the same functions over input that was, and names of its own for what it writes and keeps."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from oncelog.arguments import number_within
from oncelog.flow.parts import EARLIEST, Branch, Node, Part
from oncelog.flow.program import Program
from oncelog.flow.topics import Dead, Topic

Target = Topic[Any, Any] | Dead | str  # a topic, by its name too, or the URL of files


class Moved:
    """The places of a flow's topics, beside it."""

    def __init__(self, program: Program, name: str, into: Mapping[Target, Target]) -> None:
        self._program, self._name = program, name
        self._into = {_name_of(there): here for there, here in into.items()}
        parts = program.parts
        written = {sink.name for part in parts for sink in part.sinks}
        read = {branch.source.name for part in parts for branch in part.inputs}
        self._between = written & read
        urls = {part.files.url for part in parts if part.files is not None}
        due = (written - read) | urls
        flow = f"flow {program.name}, backfill {name}"
        if foreign := ", ".join(sorted(self._into.keys() - due)):
            known = ", ".join(sorted(due))
            raise ValueError(f"{flow}: the flow does not write {foreign}, but {known}. Leave it out of `into`")
        if missing := ", ".join(sorted(due - self._into.keys())):
            raise ValueError(f"{flow}: what the flow writes to {missing} goes where? Say it (`into`)")
        if live := {_name_of(here) for here in self._into.values()} & (written | read | urls):
            raise ValueError(f"{flow}: {', '.join(sorted(live))} is the flow's own. Write into another place")

    def topic(self, topic: Topic[Any, Any]) -> Topic[Any, Any]:
        if topic.name in self._between:
            return replace(topic, name=f"{topic.name}-{self._name}")
        found = self._into.get(topic.name)
        if isinstance(found, Topic):
            if (found.key.name, found.value.name) != (topic.key.name, topic.value.name):
                raise ValueError(
                    f"flow {self._program.name}, backfill {self._name}: {found.name} has other keys or values than "
                    f"{topic.name}. Give it the same codecs"
                )
            return found
        if isinstance(found, Dead):
            return replace(topic, name=found.name, partitions=found.partitions)
        return topic if found is None else replace(topic, name=found)

    def part(self, part: Part) -> Part:
        return replace(
            part,
            flow=name_beside(part.flow, self._name),
            branches=tuple(self._branch(branch) for branch in part.branches),
            root=self._node(part.root),
            files=part.files and part.files._replace(url=_name_of(self._into[part.files.url])),
        )

    def _branch(self, branch: Branch) -> Branch:
        dead = None if branch.otherwise is None else self.topic(branch.otherwise.topic)
        otherwise = None if dead is None else Dead(dead.name, dead.partitions)
        operations = tuple(self._with_table(node) for node in branch.operations)
        return branch._replace(
            source=self.topic(branch.source), operations=operations, otherwise=otherwise, start=EARLIEST
        )

    def _with_table(self, node: Node) -> Node:
        if node.table is None:
            return node
        own = copy(node)
        own.table = self._branch(node.table)
        return own

    def _node(self, node: Node) -> Node:
        own = copy(self._with_table(node))
        own.sinks = [sink._replace(topic=self.topic(sink.topic)) for sink in node.sinks]
        own.children = [self._node(child) for child in node.children]
        return own


def _name_of(place: Target) -> str:
    return place if isinstance(place, str) else place.name


def name_beside(flow: str, name: str) -> str:
    return f"{flow}-{name}"


def beside(
    program: Program,
    name: str,
    into: Mapping[Target, Target],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Program:
    """The topics that it passes `through` are its own, too. `since_ms` and `until_ms` bound its inputs, by the
    times that the log has for them."""
    since_ms = None if since_ms is None else number_within("since_ms", since_ms, 0)
    until_ms = None if until_ms is None else number_within("until_ms", until_ms, 0)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise ValueError(f"flow {program.name}, backfill {name}: nothing is since {since_ms} and before {until_ms}")
    moved, found = Moved(program, name, into), copy(program)
    found.name = name_beside(program.name, name)
    found.become([moved.part(part) for part in program.parts])
    found.since_ms, found.until_ms = since_ms, until_ms
    return found
