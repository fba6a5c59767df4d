"""A flow in memory: no broker, no clock, and the same each time. With `crashes` its holders are stopped wherever they
can be, and what is written must be what the functions make of the input once.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar, overload

from oncelog.arguments import check_kind
from oncelog.flow.codecs import raw
from oncelog.flow.program import Program
from oncelog.flow.simulation.duties import Duty, duties_of
from oncelog.flow.simulation.engine import Stopped
from oncelog.flow.simulation.searching import Broken, Search
from oncelog.flow.simulation.topics import Files, Log, Topics
from oncelog.flow.topics import Dead, Sent, Topic
from oncelog.slots import Place
from oncelog.slots.comparing import Headers

__all__ = ["Crashes", "Simulated", "Stopped", "simulate"]

K = TypeVar("K")
V = TypeVar("V")

Crashes = Literal["everywhere"] | bool
SEEDS: Final = range(20)


class Stands(NamedTuple):
    """A record as bytes."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Simulated:
    """The records of each topic at the end of the undisturbed run."""

    def __init__(self, topics: Topics, files: Files, steps: int, crashes: int) -> None:
        self._topics = topics
        self.files: dict[str, dict[str, list[dict[str, Any]]]] = {}  # their rows, by URL and name
        for (url, name), rows in files.items():
            self.files.setdefault(url, {})[name] = rows
        self.steps = steps  # of the undisturbed run
        self.crashes = crashes  # runs with one crash, or more

    def __repr__(self) -> str:
        counts = (f"{name}: {len(records)}" for name, records in self.stands.items())
        return f"<Simulated: records in {', '.join(counts)}>"

    @overload
    def __getitem__(self, topic: Topic[K, V]) -> list[tuple[K, V]]: ...
    @overload
    def __getitem__(self, topic: Dead) -> list[tuple[bytes, bytes | None]]: ...
    def __getitem__(self, topic: Topic[Any, Any] | Dead) -> list[tuple[Any, Any]]:
        """The records of a topic as keys and values, partition by partition."""
        topic = topic.topic if isinstance(topic, Dead) else topic
        check_kind("what was simulated", topic, Topic, "the Topic or Dead that was written")
        decode_key, decode_value = topic.key.decode, topic.value.decode
        return [
            (decode_key(key or b""), None if value is None else decode_value(value))
            for key, value, _ in self.records(topic)
        ]

    @property
    def stands(self) -> dict[str, list[Stands]]:
        """All topics, by their names."""
        names = sorted({place.topic for place in self._topics})
        return {name: self.records(Topic(name, raw, raw)) for name in names}

    def records(self, topic: Topic[Any, Any]) -> list[Stands]:
        """The records of a topic as bytes, with their headers."""
        places = sorted(place for place in self._topics if place.topic == topic.name)
        if not places:
            names = ", ".join(sorted({place.topic for place in self._topics}))
            raise KeyError(f"{topic.name} is no topic of this flow, which has {names}")
        every = [self._topics[place] for place in places]
        found = [log.records(0, log.end) for log in every]
        return [
            Stands(key, value, headers)
            for each in found
            for key, value, headers in zip(each.keys, each.values, each.headers or (), strict=True)
        ]


def simulate(
    program: Program,
    sent: Iterable[Sent],
    end: int | None = None,
    *,
    crashes: Crashes = False,
    seeds: Iterable[int] = SEEDS,
) -> Simulated:
    if crashes not in (False, True, "everywhere"):
        raise ValueError(f'crashes={crashes!r}: False, True or "everywhere" was expected')
    sent, duties = tuple(sent), duties_of(program)
    _check_sent(program, sent)
    search = Search(duties, lambda some: topics_of(duties, program, some), end)
    try:
        calm = search.calm(sent)
        if crashes:
            search.crashes(sent, calm)
        if crashes == "everywhere":
            search.overlaps(sent, calm.turns)
            seeds = list(seeds)
            search.restarts(sent, seeds)
            search.histories(sent, seeds, calm.turns)
    except Broken as broken:
        raise Stopped(search.story(broken)) from None
    topics = {place: log for place, log in calm.topics.items() if place not in _journals(duties)}
    return Simulated(topics, calm.files, calm.turns, search.runs)


def _journals(duties: Sequence[Duty]) -> set[Place]:
    return {duty.stage.journal for duty in duties}


def _sources(program: Program) -> dict[str, Topic[Any, Any]]:
    return {branch.source.name: branch.source for part in program.parts for branch in part.inputs}


def _check_sent(program: Program, sent: Sequence[Sent]) -> None:
    sources = _sources(program)
    for each in sent:
        if not isinstance(each, Sent):
            raise TypeError(f"{each!r} is no record that was sent: make it with `topic.sent(key, value)`")
        read = sources.get(each.topic.name)
        if read is None:
            raise ValueError(
                f"{each.topic.name} is sent to, and flow {program.name} does not read it: it reads "
                f"{', '.join(sorted(sources))}"
            )
        if each.topic.partitions != read.partitions:
            raise ValueError(
                f"{each.topic.name} is sent to as a topic of {each.topic.partitions} partitions, and flow "
                f"{program.name} reads it as one of {read.partitions}: use the same Topic for both"
            )
        if each.at_ms < 0:
            raise ValueError(f"{each.topic.name}: a record is sent at {each.at_ms}: times are milliseconds since 1970")


def topics_of(duties: Sequence[Duty], program: Program, sent: Sequence[Sent]) -> Topics:
    topics = {place: Log() for duty in duties for place in duty.leaders}
    for topic in _sources(program).values():
        for partition in range(topic.partitions):
            topics.setdefault(Place(topic.name, partition), Log())
    for topic, key, value, at_ms, headers in sent:
        partition = 0 if key is None else topic.partition_of(key)
        topics[Place(topic.name, partition)].add([key], [value], [at_ms], [headers])
    return topics
