"""Facts that all processes of a flow must agree on: the topic `oncelog.flow.NAME`, as a plan over `slots/register.py`.

Many may write to it; of facts that exclude each other the first counts. A fact's key is its own, since compaction keeps
the last record of a key. A control is the next one of a numbered chain: who asks for a pause says which control it was
that it saw last, so of two that were asked for at once one counts, and the other is told.

Runs come and go for as long as a flow lives. Of each kind of fact that does the newest `MOST_KEPT` stand; who begins a
run removes those before, with all attempts that did not count, so no later one of these counts instead.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Annotated, Final

import msgspec

from oncelog.flow.formats import MOST_PLACES, Count, Entry, Kinds, Name, Nonce
from oncelog.slots.register import Fact, Record, Register, Subject, key_of_attempt

FLOW: Final[Subject] = ("flow",)
MOST_KEPT: Final = 1_000


class FlowParts(Entry, frozen=True, kw_only=True):
    """The flow that has this name: its parts, from topic to topic. Another flow under the same name is refused."""

    nonce: Nonce
    parts: Annotated[list[tuple[Name, Name, Name]], msgspec.Meta(max_length=MOST_PLACES)]  # stage, from, to


class Start(msgspec.Struct, frozen=True, array_like=True):
    topic_id: Name
    offsets: Annotated[list[Count], msgspec.Meta(max_length=MOST_PLACES)]  # by partition


class Cells(Entry, frozen=True, kw_only=True):
    """The number of cells of a stage: for ever, since state and slots are theirs. Of inputs that are not read from
    their beginning it says where the first cells were to begin, by topic."""

    nonce: Nonce
    stage: Name
    cells: Count
    starts: dict[Name, Start] = msgspec.field(default_factory=dict)


class Run(Entry, frozen=True, kw_only=True):
    """A run is begun. With ends it is over where every input is read up to its end, and a retry is the same run. With
    starts what the inputs hold before them is left out."""

    nonce: Nonce
    run: Name
    code: Name
    ends: Annotated[dict[str, list[Count]], msgspec.Meta(max_length=MOST_PLACES)] | None = None  # topic: by partition
    starts: Annotated[dict[str, list[Count]], msgspec.Meta(max_length=MOST_PLACES)] | None = None
    since_ms: int | None = None  # the times that these were asked for
    until_ms: int | None = None
    journals: dict[Name, Name] = msgspec.field(default_factory=dict)  # the id of its topic, by stage


class Finished(Entry, frozen=True, kw_only=True):
    nonce: Nonce
    run: Name


class Stopped(Entry, frozen=True, kw_only=True):
    """All that one start of a run began ends, wherever it is."""

    nonce: Nonce
    start: Name


class Order(Enum):
    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


class Control(Entry, frozen=True, kw_only=True):
    nonce: Nonce
    number: Count  # one behind that of the newest that counts
    order: Order


class Reset(Entry, frozen=True, kw_only=True):
    """Stages begin anew, without state. The journals that they had are removed behind it: where one of them is still
    there, the reset has not come to its end."""

    nonce: Nonce
    journals: dict[Name, Name]  # the id of its topic, by stage
    starts: dict[Name, dict[Name, Start]]  # where its inputs are read from, by stage and topic


FlowEntry = FlowParts | Cells | Run | Finished | Stopped | Control | Reset
_KINDS: Final = Kinds(
    "flow's register",
    "delete the topic, which the next start makes anew, or give the flow another name",
    {b"f": FlowParts, b"n": Cells, b"r": Run, b"e": Finished, b"s": Stopped, b"o": Control, b"a": Reset},
)


def subject_of(entry: FlowEntry) -> Subject:
    """Facts about the same exclude each other."""
    match entry:
        case Cells():
            return "cells", entry.stage
        case Run():
            return "run", entry.run
        case Finished():
            return "finished", entry.run
        case Stopped():
            return "stopped", entry.start
        case Control():
            return "control", entry.number
        case Reset():
            return "reset", entry.nonce  # all count, and the newest one of a stage holds
        case _:
            return FLOW


def encoded(entry: FlowEntry, attempt: int = 1) -> tuple[bytes, bytes]:
    """The entry as key and value. Each attempt to append it has a key of its own."""
    key, value = _KINDS.encoded(entry, entry.nonce.encode())
    return key_of_attempt(key, attempt), value


class FlowRegister(Register):
    def __init__(self, next_offset: int = 0) -> None:
        super().__init__(next_offset)
        self.number = 0  # of the newest control that counts
        self.order = Order.RUN
        self.resets: dict[str, Reset] = {}  # the newest one, by stage
        self.journals: dict[str, str] = {}  # by stage, as the newest run had them, but for those that a reset removed
        self._passing: dict[bytes, Subject] = {}  # what was written of facts that are forgotten some day, by key

    def owns(self, key: bytes) -> bool:
        return _KINDS.knows(key)

    def fact_of(self, record: Record) -> Fact | None:
        if record.key is None or record.value is None:
            return None
        entry = _KINDS.decoded(record.key, record.value, f" at offset {record.offset}")
        assert isinstance(entry, FlowEntry)
        subject = subject_of(entry)
        if not isinstance(entry, FlowParts | Cells):
            self._passing[record.key] = subject
        return Fact(entry, entry.nonce, (subject,))

    def admits(self, fact: Fact, subject: Subject) -> bool:
        """A control follows the newest one; those between may be removed."""
        return not isinstance(fact.content, Control) or fact.content.number > self.number

    def removed(self, key: bytes) -> None:
        subject = self._passing.pop(key, None)
        if subject is not None:
            self.lasting.pop(subject, None)

    def counted(self, fact: Fact, won: Sequence[Subject], offset: int) -> None:
        if isinstance(fact.content, Control):
            self.number, self.order = fact.content.number, fact.content.order
        elif isinstance(fact.content, Reset):
            self.resets |= dict.fromkeys(fact.content.journals, fact.content)
            for stage in fact.content.journals:
                self.journals.pop(stage, None)
        elif isinstance(fact.content, Run):
            self.journals |= fact.content.journals

    # --- questions

    @property
    def flow_parts(self) -> FlowParts | None:
        found = self._content(FLOW)
        return found if isinstance(found, FlowParts) else None

    def cells(self, stage: str) -> int | None:
        found = self._content(("cells", stage))
        return found.cells if isinstance(found, Cells) else None

    def starts(self, stage: str) -> Mapping[str, Start]:
        """The offsets at which a stage's inputs are read by a cell that has committed nothing, for those that begin
        sooner."""
        reset, found = self.resets.get(stage), self._content(("cells", stage))
        if reset is not None:
            return reset.starts[stage]
        return found.starts if isinstance(found, Cells) else {}

    @property
    def stages(self) -> list[Cells]:
        return [fact.content for fact in self.lasting.values() if isinstance(fact.content, Cells)]

    def sources(self, stage: str) -> list[str]:
        """The topics that it reads, in the order of its inputs: the identity has each of them with all that the stage
        writes."""
        own = [] if self.flow_parts is None else [each for each in self.flow_parts.parts if each[0] == stage]
        return [source for _, source, _ in own[:: len({sink for *_, sink in own}) or 1]]

    @property
    def runs(self) -> list[Run]:
        """The runs, in the order in which they were begun."""
        return [fact.content for fact in self.lasting.values() if isinstance(fact.content, Run)]

    def run(self, run: str) -> Run | None:
        """The first of its name: a retry goes on with its ends."""
        found = self._content(("run", run))
        return found if isinstance(found, Run) else None

    def control(self, number: int) -> Control | None:
        found = self._content(("control", number))
        return found if isinstance(found, Control) else None

    def is_finished(self, run: str) -> bool:
        return self._content(("finished", run)) is not None

    @property
    def outdated(self) -> list[bytes]:
        """The keys of what can be removed, in one go."""
        kept: set[Subject] = set()
        for kind in ("run", "stopped", "control", "reset"):
            kept.update([subject for subject in self.lasting if subject[0] == kind][-MOST_KEPT:])
        kept |= {subject_of(reset) for reset in self.resets.values()}
        kept |= {("finished", run) for kind, run in kept if kind == "run"}
        gone = dict.fromkeys(subject for subject in self._passing.values() if subject not in kept)
        now = set(islice(gone, MOST_KEPT))  # each with all its attempts, or one that did not count would from then on
        return [key for key, subject in self._passing.items() if subject in now]

    def is_stopped(self, start: str) -> bool:
        return self._content(("stopped", start)) is not None

    def _content(self, subject: Subject) -> object:
        fact = self.fact(subject)
        return None if fact is None else fact.content
