"""The rights that somebody needs, and no more: the rules for a producer, a consumer, a sink, a copy, a flow.

Writing a topic lets one get a producer id, too. Where a topic's settings may be read (DescribeConfigs), what would lose
records is noticed and said; without that right it goes unnoticed, so it belongs to what is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.cli.parts.rules import Given, Target

SINK_TOPIC: Final = "oncelog.sink."
COPY_TOPIC: Final = "oncelog.copy."
FLOW_TOPIC: Final = "oncelog.flow."
OWN: Final = ("Read", "Write", "Create", "DescribeConfigs")  # of a topic that is made where it is missing
READ_BACK: Final = ("Read", "Write", "DescribeConfigs")  # what is written is compared with after a crash


class Part(NamedTuple):
    """Rules about one thing."""

    operations: Sequence[str]
    kind: str
    name: str
    is_prefix: bool = False
    where: str = ""  # the cluster, where there are two

    @property
    def given(self) -> list[Given]:
        return [Given(Target(self.kind, self.name), each) for each in self.operations]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """A user that needs rights, and what for."""

    role: str
    topics: Sequence[str] = ()
    to: Sequence[str] = ()
    through: Sequence[str] = ()
    group: str | None = None
    name: str | None = None
    is_transactional: bool = False

    @property
    def lacks(self) -> str | None:
        """The option without which it cannot be told."""
        if not self.topics:
            return "TOPIC"
        if self.role == "consumer" and self.group is None:
            return "--group"
        if self.role in ("sink", "copy", "flow") and self.name is None:
            return "--name"
        if self.role == "copy" and not self.to:
            return "--to"
        return None


def parts(needs: Needs) -> list[Part]:
    return _ROLES[needs.role](needs)


def _of_topics(operations: Sequence[str], topics: Sequence[str], where: str = "") -> list[Part]:
    return [Part(operations, "TOPIC", each, where=where) for each in dict.fromkeys(topics)]


def _producer(needs: Needs) -> list[Part]:
    return _of_topics(("Write",), needs.topics)


def _saved(needs: Needs) -> list[Part]:
    """The rights for a saved producer: records since the last save are looked for, and read back where they must be
    compared."""
    group = [] if needs.group is None else [_member(needs.group)]
    return [*_of_topics(("Write", "Read"), needs.topics), *group]


def _consumer(needs: Needs) -> list[Part]:
    return [*_of_topics(("Read",), needs.topics), _member(str(needs.group))]


def _member(group: str) -> Part:
    return Part(("Read",), "GROUP", group)


def _sink(needs: Needs) -> list[Part]:
    own = f"{SINK_TOPIC}{needs.name}"
    found = [*_of_topics(READ_BACK, needs.topics), Part(OWN, "TOPIC", own)]
    return [*found, Part(("Write", "Describe"), "TRANSACTIONAL_ID", own)] if needs.is_transactional else found


def _copy(needs: Needs) -> list[Part]:
    here, there = "at the source", "at the destination"
    return [
        *_of_topics(("Read", "DescribeConfigs"), needs.topics, here),
        *_of_topics(OWN, needs.to, there),
        Part(OWN, "TOPIC", f"{COPY_TOPIC}{needs.name}", where=there),
    ]


def _flow(needs: Needs) -> list[Part]:
    """Its journals are topics `oncelog.flow.NAME...`, and its positions are shown as those of groups `NAME....`"""
    return [
        *_of_topics(("Read", "DescribeConfigs"), needs.topics),
        *_of_topics(OWN, needs.through),
        *_of_topics(READ_BACK, needs.to),
        Part(OWN, "TOPIC", f"{FLOW_TOPIC}{needs.name}", is_prefix=True),
        Part(("Read",), "GROUP", f"{needs.name}.", is_prefix=True),
    ]


_ROLES: Final = {
    "producer": _producer,
    "saved-producer": _saved,
    "consumer": _consumer,
    "sink": _sink,
    "copy": _copy,
    "flow": _flow,
}
ROLES: Final = tuple(_ROLES)
