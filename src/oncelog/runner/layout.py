"""A flow as it stands in a cluster: its stages, their topics, who feeds whom. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from crc32c import crc32c

from oncelog.flow.description import Input, OutputPlace, Stage
from oncelog.flow.errors import FlowRefused
from oncelog.flow.parts import Part
from oncelog.flow.program import Program
from oncelog.flow.register import Start
from oncelog.slots import AnyPlace, Place

PREFIX: Final = "oncelog.flow."
MOST_LETTERS: Final = 249  # of a topic's name
# Keys, which may have slashes, but no port; and settings that stand behind a question mark.
_SECRET: Final = re.compile(r"(?<=://)[^:/?]*:(?!\d+/).*@|\?.*", re.DOTALL)
_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def without_secrets(url: str) -> str:
    return _SECRET.sub("", url) if "://" in url else url


def named(place: str) -> str:
    """A topic, or where files go, as it stands in the register: without keys of a store, which change."""
    shown = without_secrets(place)
    return shown if len(shown) <= MOST_LETTERS else f"{shown[:200]}~{crc32c(shown.encode()):08x}"


@dataclass(frozen=True)
class StageLayout:
    part: Part
    journal: str
    tells_time: bool

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def cells(self) -> int:
        return self.part.branches[0].source.partitions

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(branch.source.name for branch in self.part.inputs)

    def stage(self, flow: str, cell: int, ids: "TopicIds", *, until_end: bool = False) -> Stage:
        places = [Place(sink.name, index) for sink in self.part.sinks for index in range(sink.partitions)]
        return Stage(
            flow=flow,
            name=self.name,
            cell=cell,
            journal=Place(self.journal, cell),
            inputs=tuple(
                Input(
                    branch.source.name,
                    ids.id_of(branch.source.name),
                    (ids.begins if branch.is_table else ids.log_starts).get((branch.source.name, cell), 0),
                    wait_ms=branch.wait_ms,
                    is_derived=branch.is_derived,
                    is_table=branch.is_table,
                )
                for branch in self.part.inputs
            ),
            outputs=tuple(OutputPlace(place, ids.id_of(place.topic)) for place in places),
            journal_id=ids.id_of(self.journal),
            has_plan=self.part.has_plan,
            collect=self.part.collect and (replace(self.part.collect, every_ms=0) if until_end else self.part.collect),
            tells_time=self.tells_time,
        )


@dataclass
class TopicIds:
    """The facts about topics that a cluster tells."""

    ids: dict[str, str] = field(default_factory=dict)
    log_starts: dict[AnyPlace, int] = field(default_factory=dict)  # or where inputs begin that begin later
    begins: dict[AnyPlace, int] = field(default_factory=dict)  # where tables do: all rows count

    def id_of(self, topic: str) -> str:
        return self.ids.get(topic, "")

    def after(self, starts: Mapping[str, Start]) -> "TopicIds":
        """The ids for a stage whose inputs are read from later on than they begin."""
        return self.since(
            {topic: start.offsets for topic, start in starts.items() if start.topic_id == self.id_of(topic)}
        )

    def since(self, starts: Mapping[str, Sequence[int]]) -> "TopicIds":
        """The ids with these later starts, by topic and partition."""
        later = {
            (topic, cell): max(offset, self.log_starts.get((topic, cell), 0))
            for topic, offsets in starts.items()
            for cell, offset in enumerate(offsets)
        }
        return TopicIds(self.ids, self.log_starts | later, self.begins)


class Layout:
    def __init__(self, program: Program) -> None:
        self.flow = program.name
        self.code = program.code
        self.since_ms, self.until_ms = program.since_ms, program.until_ms
        self.register = PREFIX + program.name
        self.stages = [
            StageLayout(part, f"{self.register}.{part.name}", program.tells_time(part)) for part in program.parts
        ]
        self.partitions: dict[str, int] = {}  # of every topic of users'
        every = [branch for stage in self.stages for branch in stage.part.inputs]
        self.tables = {branch.source.name for branch in every if branch.is_table}
        self._check(program.loose)
        fed = {sink.name for stage in self.stages for sink in stage.part.sinks}
        read = {name for stage in self.stages for name in stage.inputs}
        self.sources = read - fed
        self.between = read & fed  # from stage to stage: they are made where they are missing
        self.targets = fed - read

    @property
    def parts(self) -> list[tuple[str, str, str]]:
        """The parts of the flow for the register: stage, from, to."""
        return [
            (stage.name, source, sink)
            for stage in self.stages
            for source in stage.inputs
            for sink in (
                *(each.name for each in stage.part.sinks),
                *([named(stage.part.files.url)] if stage.part.files else ()),
            )
        ]

    def feeding(self, topic: str) -> list[StageLayout]:
        return [stage for stage in self.stages if topic in {sink.name for sink in stage.part.sinks}]

    def _check(self, loose: str) -> None:
        if loose or not self.stages:
            raise FlowRefused(loose or f"flow {self.flow} writes nothing: end it with `write`")
        sinks = (sink.name for stage in self.stages for sink in stage.part.sinks)
        for name in (self.flow, *(stage.name for stage in self.stages), *sinks):
            if not name or not _ALLOWED.issuperset(name):
                raise FlowRefused(
                    f"flow {self.flow}: {name!r} is or becomes part of a topic's name, so it has only letters, digits, "
                    "dots, hyphens and underscores. Give it another name"
                )
        if "." in self.flow:
            raise FlowRefused(f"flow {self.flow}: a dot stands before the name of a stage. Give the flow another name")
        for stage in self.stages:
            own = next((sink.name for sink in stage.part.sinks if sink.name in self.tables), None)
            if own is not None:
                raise FlowRefused(
                    f"flow {self.flow} writes topic {own} and reads it as a table. Join with it in another flow"
                )
            if len(stage.journal) > MOST_LETTERS:
                raise FlowRefused(
                    f"the name of topic {stage.journal} is longer than {MOST_LETTERS} letters: shorten it"
                )
            topics = [*(branch.source for branch in stage.part.inputs), *stage.part.sinks]
            for topic in topics:
                known = self.partitions.setdefault(topic.name, topic.partitions)
                if known != topic.partitions:
                    raise FlowRefused(
                        f"flow {self.flow} says that topic {topic.name} has {known} partitions and {topic.partitions} "
                        "partitions: say the same in both places"
                    )

    def check_ends(self) -> None:
        """Refuse a flow that feeds itself: it comes to no end."""
        for stage in self.stages:
            if stage.name in {each.name for each in self._upstream(stage.inputs)}:
                raise FlowRefused(
                    f"flow {self.flow}, stage {stage.name} reads what comes of its own outputs, so it comes to no end. "
                    'Run it without `until="end"`'
                )

    def _upstream(self, topics: Iterable[str]) -> Sequence[StageLayout]:
        found: dict[str, StageLayout] = {}
        due = list(topics)
        while due:
            for stage in self.feeding(due.pop()):
                if stage.name not in found:
                    found[stage.name] = stage
                    due += stage.inputs
        return list(found.values())
