"""What a copy writes down of itself, and what it comes to when it is read back. Pure.

One lane copies one partition. A *claim* says under which producer id its slots are filled and where it began; of
several claims to one lane the first in the log counts. A *lane* record says how far it got and which records fill the
slots behind that: all of it facts, true whoever wrote them and however late, so nobody is kept from writing one.
"""

import json
from collections.abc import Iterable
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from oncelog.spark.copying.mapping import Mapping, Stretch

VERSION: Final = 1
CLAIM, LANE = "claim", "lane"


class BadState(ValueError):
    """What stands in the copy's topic is not what a copy writes."""


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
        """One for each that writes: what one writes late must not take the place of what another knows better."""
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
    def is_settled(self) -> bool:
        """Nothing was under way when it was written down."""
        return not self.mapping.stretches

    def with_mapping(self, mapping: Mapping) -> "Lane":
        return replace(self, mapping=mapping)

    def settled(self) -> "Lane":
        return replace(self, mapping=Mapping())

    def opened(self) -> "Lane":
        """Of a source that is not compacted: its slots follow the source's offsets until a hole is met."""
        return replace(self, mapping=Mapping((Stretch(self.done, self.offset),)))

    def completed(self, other: "Lane") -> "Lane":
        """With the map of another record that is less far, and knows of a hole behind this one. Of two attempts the one
        whose acknowledgements are counted further need not be the one that has sent more."""
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


class Noted(NamedTuple):
    """A record of the copy's topic."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Standing:
    """What the records read so far come to."""

    claims: list[Claim] = field(default_factory=list)  # those that count for a lane at least
    lanes: dict[int, Lane] = field(default_factory=dict)
    authors: dict[int, set[str]] = field(default_factory=dict)  # who left a record of a lane
    writers: dict[int, set[str]] = field(default_factory=dict)  # of what stands in `lanes`
    next_offset: int = 0

    def read(self, records: Iterable[Noted]) -> list[tuple[str, Lane]]:
        """In the order of the log. The answer is every lane's record that counts, with its author."""
        found = []
        for each in records:
            self.next_offset = max(self.next_offset, each.offset + 1)
            if each.value is None:
                self._removed(each.key)
                continue
            kind, value = _parsed(each)
            if kind == CLAIM:
                self._claimed(value)
            else:
                lane, author = value, each.key.decode().rpartition("/")[2]
                if self._noted(lane, author):
                    found.append((author, lane))
        return found

    def claim_of(self, partition: int) -> Claim | None:
        return next((claim for claim in self.claims if partition in claim.starts), None)

    def _claimed(self, claim: Claim) -> None:
        fresh = {index: start for index, start in claim.starts.items() if self.claim_of(index) is None}
        if fresh:
            self.claims.append(replace(claim, starts=fresh))
            for index, start in fresh.items():
                self.lanes.setdefault(index, Lane(index, claim.pid, claim.epoch, 0, *start))

    def _noted(self, lane: Lane, author: str) -> bool:
        claim = self.claim_of(lane.partition)
        if claim is None or (claim.pid, claim.epoch) != (lane.pid, lane.epoch):
            return False
        self.authors.setdefault(lane.partition, set()).add(author)
        known, writers = self.lanes[lane.partition], self.writers.setdefault(lane.partition, set())
        if lane.done < known.done:
            known, lane = lane, known
        else:
            self.writers[lane.partition] = {author}
        self.lanes[lane.partition] = lane.completed(known)
        if self.lanes[lane.partition] is not lane:
            self.writers[lane.partition] |= writers | {author}
        return True

    def _removed(self, key: bytes) -> None:
        """Whoever removes a record has seen a better one."""
        kind, _, rest = key.decode(errors="replace").partition("/")
        partition, _, author = rest.partition("/")
        if kind == LANE and partition.isdigit():
            self.authors.get(int(partition), set()).discard(author)

    def outlived(self) -> list[bytes]:
        """Keys of records that say less than what stands."""
        return [
            self.lanes[partition].key(author)
            for partition, authors in sorted(self.authors.items())
            for author in sorted(authors)
            if author not in self.writers[partition]
        ]


def _parsed(record: Noted) -> tuple[str, Any]:
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
