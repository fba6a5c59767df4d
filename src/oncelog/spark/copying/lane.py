"""The records that a copy keeps of itself, and the state that they give when they are read back. Pure.

One lane copies one partition. A *claim* says under which producer id its slots are filled and where it began; of
several claims to one lane the first in the log counts (`slots/register.py`). A *lane* record says how far it got and
which records fill the slots behind that: all of it facts, true from any writer and however late, so
nobody is kept from writing one.
"""

import json
from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from oncelog.slots import Identity
from oncelog.slots.register import Fact, Record, Register, Subject
from oncelog.spark.copying.mapping import Mapping, Stretch

VERSION: Final = 1
CLAIM, LANE = "claim", "lane"
_CLAIMS, _LANES = f"{CLAIM}/".encode(), f"{LANE}/".encode()


class BadState(ValueError):
    """A record in the copy's topic that no copy writes."""


class Side(NamedTuple):
    """A topic of a cluster, each known by its id as well."""

    cluster_id: str
    topic: str
    topic_id: str


class Start(NamedTuple):
    offset: int  # of the first record that is copied
    end_offset: int  # of the destination then: none of the lane's records lies below


@dataclass(frozen=True, slots=True)
class Claim:
    source: Side
    destination: Side
    pid: int
    epoch: int
    starts: AnyMapping[int, Start]

    @property
    def key(self) -> bytes:
        return f"{CLAIM}/{self.pid}".encode()  # of its own: compaction leaves every claim, and so their order

    def to_json(self) -> bytes:
        starts = {str(index): list(start) for index, start in self.starts.items()}
        return _json(
            CLAIM,
            source=list(self.source),
            destination=list(self.destination),
            pid=self.pid,
            epoch=self.epoch,
            starts=starts,
        )


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition's copy. All slots before `done` are filled, by what lies before `offset` in the source."""

    partition: int
    pid: int
    epoch: int
    done: int
    offset: int
    end_offset: int  # none of the slots from `done` on lies below it in the destination
    mapping: Mapping = field(default_factory=Mapping)  # of the slots from `done` on

    def key(self, author: str) -> bytes:
        """The key of a note: one for each author, so that a late note does not replace a better one of another
        author."""
        return f"{LANE}/{self.partition}/{author}".encode()

    def to_json(self) -> bytes:
        return _json(
            LANE,
            partition=self.partition,
            pid=self.pid,
            epoch=self.epoch,
            done=self.done,
            offset=self.offset,
            end_offset=self.end_offset,
            mapping=self.mapping.to_value(),
        )

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.epoch)

    @property
    def is_at_rest(self) -> bool:
        """Nothing was under way when the note was written."""
        return not self.mapping.stretches

    def with_mapping(self, mapping: Mapping) -> "Lane":
        return replace(self, mapping=mapping)

    def at_rest(self) -> "Lane":
        return replace(self, mapping=Mapping())

    def opened(self) -> "Lane":
        """The lane of a source that is not compacted: its slots follow the source's offsets until a hole is met."""
        return replace(self, mapping=Mapping((Stretch(self.done, self.offset),)))

    def completed(self, other: "Lane") -> "Lane":
        """The lane with the map of another record that is less far, and knows of a hole behind this one. Of two
        attempts the one whose acknowledgements are counted further need not be the one that has sent more."""
        theirs, mine = other.mapping.since(self.done).stretches, self.mapping.stretches
        if not theirs or theirs[0].slot != self.done or theirs[0].offset < self.offset:
            return self
        knows_a_hole = theirs != self.opened().mapping.stretches
        is_as_far = not mine or theirs[-1][:2] >= mine[-1][:2]  # its last slot, or behind as many holes
        return self.with_mapping(Mapping(theirs)) if knows_a_hole and is_as_far else self

    def advanced(self, done: int, offset: int, end_offset: int) -> "Lane":
        """Further by acknowledged records."""
        end_offset = max(self.end_offset, end_offset)
        return replace(self, done=done, offset=offset, end_offset=end_offset, mapping=self.mapping.since(done))


def _json(kind: str, **values: Any) -> bytes:
    return json.dumps({"version": VERSION, "kind": kind} | values, separators=(",", ":")).encode()


class Note(NamedTuple):
    """A lane's record, with who wrote it."""

    key: bytes
    lane: Lane

    @property
    def author(self) -> str:
        return self.key.decode().rpartition("/")[2]


class CopyRegister(Register):
    """The plan: claims exclude each other, and what lanes wrote down does not."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[Claim] = []  # those that count for a lane at least
        self.lanes: dict[int, Lane] = {}
        self.heard: list[Note] = []  # those that count, since somebody took them from here
        self._needed: dict[int, set[bytes]] = {}  # keys of what `lanes` is made of

    def claim_of(self, partition: int) -> Claim | None:
        return next((claim for claim in self.claims if partition in claim.starts), None)

    def taken(self) -> list[Note]:
        """Lanes' records that were read since this was asked last."""
        found, self.heard = self.heard, []
        return found

    def outlived(self) -> list[bytes]:
        """Keys of records that say less than what stands."""
        needed = set().union(*self._needed.values())
        return [key for key in self.keys if key.startswith(_LANES) and key not in needed]

    # --- the plan

    def owns(self, key: bytes) -> bool:
        return key.startswith((_CLAIMS, _LANES))

    def fact_of(self, record: Record) -> Fact | None:
        kind, value = _parsed(record)
        if kind == CLAIM:
            return Fact(value, value.pid, tuple((LANE, partition) for partition in value.starts))
        return Fact(Note(record.key or b"", value))

    def belongs(self, fact: Fact) -> bool:
        """Records under another producer than the lane's are not about the lane."""
        if isinstance(fact.content, Claim):
            return True
        lane = fact.content.lane
        claim = self.claim_of(lane.partition)
        return claim is not None and (claim.pid, claim.epoch) == (lane.pid, lane.epoch)

    def counted(self, fact: Fact, won: Sequence[Subject], offset: int) -> None:
        if isinstance(fact.content, Claim):
            self._claimed(fact.content, [partition for partition in fact.content.starts if (LANE, partition) in won])
        else:
            self.heard.append(fact.content)
            self._noted(*fact.content)

    def _claimed(self, claim: Claim, partitions: list[int]) -> None:
        self.claims.append(replace(claim, starts={each: claim.starts[each] for each in partitions}))
        for each in partitions:
            self.lanes[each] = Lane(each, claim.pid, claim.epoch, 0, *claim.starts[each])

    def _noted(self, key: bytes, lane: Lane) -> None:
        known, needed = self.lanes[lane.partition], self._needed.get(lane.partition, set())
        is_further = lane.done >= known.done
        further, other = (lane, known) if is_further else (known, lane)
        completed = self.lanes[lane.partition] = further.completed(other)
        if completed is not further:
            self._needed[lane.partition] = needed | {key}
        elif is_further:
            self._needed[lane.partition] = {key}


def _parsed(record: Record) -> tuple[str, Any]:
    try:
        value = json.loads(record.value or b"")
        kind, version = value["kind"], value["version"]
        if version != VERSION:
            raise BadState(
                f"offset {record.offset}: written by a newer oncelog (version {version}, this one knows {VERSION})"
            )
        if kind == CLAIM:
            return kind, _claim(value)
        if kind == LANE:
            return kind, _lane(value)
    except BadState:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadState(f"offset {record.offset} is not a copy's record: {error!r}") from None
    raise BadState(f"offset {record.offset} is not a copy's record, but of kind {kind!r}")


def _claim(value: dict[str, Any]) -> Claim:
    starts = {int(index): Start(*map(int, start)) for index, start in value["starts"].items()}
    source, destination = (Side(*map(str, value[name])) for name in ("source", "destination"))
    return Claim(source, destination, int(value["pid"]), int(value["epoch"]), starts)


def _lane(value: dict[str, Any]) -> Lane:
    names = ("partition", "pid", "epoch", "done", "offset", "end_offset")
    return Lane(**{name: int(value[name]) for name in names}, mapping=Mapping.from_value(value["mapping"]))
