"""The cells of a flow, each with what it is told and whose output it reads."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.flow.description import Collect, Input, Limits, OutputPlace, Stage
from oncelog.flow.parts import Part
from oncelog.flow.program import Program
from oncelog.slots import Place

LIMITS: Final = Limits(commit_every_ms=1, retry_backoff_ms=1, wait_ms=5, settle_ms=20, tell_time_every_ms=1)


MOST_COLLECTED_MS: Final = 50


@dataclass(frozen=True, eq=False)
class Duty:
    """A cell that somebody has to hold until its input is read to the end."""

    part: Part
    stage: Stage
    code: str
    before: frozenset[str]  # the parts that write what it reads
    leaders: dict[Place, int | None] = field(default_factory=dict)  # a node for each place

    @property
    def inputs(self) -> list[Place]:
        return [Place(each.topic, self.stage.cell) for each in self.stage.inputs]

    @property
    def tables(self) -> list[Place]:
        return [Place(each.topic, self.stage.cell) for each in self.stage.inputs if each.is_table]


def duties_of(program: Program) -> list[Duty]:
    """All duties; those of a part come behind those that write what it reads."""
    if program.loose or not program.parts:
        raise ValueError(program.loose or f"flow {program.name} writes nothing: end it with `write`")
    return [_duty(program, part, cell) for part in _in_order(program) for cell in range(_cells(part))]


def _cells(part: Part) -> int:
    return part.branches[0].source.partitions


def _in_order(program: Program) -> Iterator[Part]:
    left = list(program.parts)
    while left:
        due = next((part for part in left if not _writers(part, left)), None)
        if due is None:
            names = ", ".join(part.name for part in left)
            raise ValueError(
                f"flow {program.name}: {names} read what they write, in a circle, and would never come to an end: a "
                "circle can run, and cannot be simulated"
            )
        left.remove(due)
        yield due


def _writers(part: Part, among: list[Part]) -> frozenset[str]:
    read = {branch.source.name for branch in part.inputs}
    return frozenset(each.name for each in among if any(sink.name in read for sink in each.sinks))


def _duty(program: Program, part: Part, cell: int) -> Duty:
    journal = Place(f"oncelog.flow.{program.name}.{part.name}", cell)
    outputs = [Place(sink.name, index) for sink in part.sinks for index in range(sink.partitions)]
    stage = Stage(
        flow=program.name,
        name=part.name,
        cell=cell,
        journal=journal,
        inputs=tuple(
            Input(
                branch.source.name,
                "id",
                wait_ms=branch.wait_ms,
                is_derived=branch.is_derived,
                is_table=branch.is_table,
            )
            for branch in part.inputs
        ),
        has_plan=part.has_plan,
        collect=part.collect and Collect(min(part.collect.every_ms, MOST_COLLECTED_MS), part.collect.records),
        tells_time=program.tells_time(part),
        outputs=tuple(OutputPlace(place, "id") for place in outputs),
    )
    leaders: dict[Place, int | None] = {place: node for node, place in enumerate((journal, *outputs))}
    return Duty(part, stage, program.code, _writers(part, program.parts), leaders)
