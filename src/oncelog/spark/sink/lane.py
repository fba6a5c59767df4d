"""The values that a sink keeps and passes on, and their JSON. Pure.

A *lane* is one writer of a sink: task i of a batch writes as lane i, with a producer of its own. What the sink's topic
holds are claims of three kinds, marks, and one state for each batch; `docs/spark-sink.md` has it field by field.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from oncelog.slots import Place
from oncelog.spark.sink.errors import BadState

VERSION: Final = 1
VERSION_KEY: Final = "oncelog.sink"
COLUMNS: Final = ("topic", "key", "value", "headers", "partition", "timestamp")  # that are written
TOPIC_PREFIX: Final = "oncelog.sink."
_KEY: Final = re.compile(rb"(\d{1,18})/([a-z]+)/")

SINK, LANE, TOPIC, MARK, STATE = "sink", "lane", "topic", "mark", "state"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LaneTask:
    """The name of a task. `attempt` tells attempts of one task apart in messages; it decides nothing."""

    query: str
    batch: int
    lane: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class LaneMessage:
    """A task's message to the driver: how far its lane got with this batch. It goes from process to process by
    pickle."""

    sink: str
    query: str
    batch: int
    lane: int
    attempt: int
    rows: int
    order_hash: str
    producer: Json | None  # the saved producer behind these rows; None where the lane had nothing to write
    oldest_ms: Mapping[str, int] = field(default_factory=dict)  # by topic, of the timestamps that rows brought


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane as it stands behind a batch."""

    producer: Json
    rows: int = 0  # of that batch
    order_hash: str = ""
    idle_batches: int = 0  # how many batches, up to this one, had no rows for it


@dataclass(frozen=True, slots=True)
class SinkClaim:
    """A claim to own the sink. The first one in the log stands for as long as the sink does."""

    sink: str
    query: str
    first_batch: int
    nonce: str
    in_transactions: bool = False


@dataclass(frozen=True, slots=True)
class LaneClaim:
    """A lane's identity, taken before it sends anything: a saved producer that has sent nothing, for one topic."""

    batch: int
    lane: int
    producer: Json
    nonce: str
    made_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A lane is about to send something of this batch. Where there is none, it has sent nothing."""

    batch: int
    lane: int
    nonce: str
    ends: Mapping[Place, int] = field(default_factory=dict)  # asked before: no record of the batch lies below the first


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state that is saved with a batch, for all lanes at once."""

    claim: SinkClaim
    batch: int
    lane_count: int  # of this batch's tasks
    lanes: Mapping[int, LaneState]  # all that still count, also those that this batch had no rows for
    topics: Mapping[str, int] = field(default_factory=dict)  # partition counts that the next batch pins
    previous_offset: int = 0  # of the state before this one
    nonce: str = ""
    made_at_ms: int = 0
    rows: int | None = None  # of a batch that is a transaction, whose lanes are not kept


Content = SinkClaim | LaneClaim | Mark | SinkState  # what a record says


def topic_of(sink: str) -> str:
    return TOPIC_PREFIX + sink


# --- keys: they tell the batch, so that what is old can be removed without being read


def key_of(kind: str, batch: int, *rest: object) -> bytes:
    return "/".join((str(batch), kind, *(str(each) for each in rest))).encode()


def batch_of_key(key: bytes | None) -> int | None:
    """None where it is no sink's key."""
    found = _KEY.match(key or b"")
    return None if found is None else int(found[1])


def kind_of_key(key: bytes | None) -> str:
    found = _KEY.match(key or b"")
    return "" if found is None else found[2].decode()


# --- JSON


def encode(kind: str, content: Content) -> bytes:
    value = {VERSION_KEY: VERSION, "kind": kind, **_WRITTEN[kind](content)}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()


def decode(value: bytes) -> tuple[str, Content | None]:
    """The kind, and what the record says; None where that is a kind of which nothing is to be known."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadState(f"the record is no JSON, so no sink has written it: {error}") from None
    version = found.get(VERSION_KEY) if isinstance(found, dict) else None
    if not isinstance(version, int) or version < 1:
        raise BadState(f"the record has no {VERSION_KEY!r}, so no sink has written it")
    if version > VERSION:
        raise BadState(
            f"the sink was written by a newer oncelog (format {version}, this one knows {VERSION}): update this one"
        )
    kind = str(found.get("kind"))
    try:
        return kind, _READ[kind](found) if kind in _READ else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadState(f"the record is no {kind}: {type(error).__name__} {error}") from None


def _written_owner(claim: SinkClaim) -> Json:
    more = {"transactions": True} if claim.in_transactions else {}
    return {"sink": claim.sink, "query": claim.query, "first_batch": claim.first_batch, "owner": claim.nonce, **more}


def _read_owner(fields: Json) -> SinkClaim:
    return SinkClaim(
        str(fields["sink"]),
        str(fields["query"]),
        int(fields["first_batch"]),
        str(fields["owner"]),
        bool(fields.get("transactions", False)),
    )


def _read_claim(fields: Json) -> LaneClaim:
    return LaneClaim(
        int(fields["batch"]),
        int(fields["lane"]),
        _read_producer(fields),
        str(fields["nonce"]),
        int(fields["made_at_ms"]),
    )


def _read_producer(fields: Json) -> Json:
    """The producer, checked as far as is needed to know what counts; a task that goes on as this lane reads all of
    it."""
    producer = dict(fields["producer"])
    for topic in producer["topics"].values():
        int(topic["count"]), [int(at) for at in topic.get("at", ())]
    return producer


def _written_mark(mark: Mark) -> Json:
    ends: dict[str, dict[str, int]] = {}
    for place, offset in sorted(mark.ends.items()):
        ends.setdefault(place.topic, {})[str(place.partition)] = offset
    return {"batch": mark.batch, "lane": mark.lane, "nonce": mark.nonce, "ends": ends}


def _read_mark(fields: Json) -> Mark:
    ends = {
        Place(topic, int(at)): int(offset)
        for topic, offsets in fields.get("ends", {}).items()
        for at, offset in offsets.items()
    }
    return Mark(int(fields["batch"]), int(fields["lane"]), str(fields["nonce"]), ends)


def _written_state(state: SinkState) -> Json:
    more = {} if state.rows is None else {"rows": state.rows}
    return {
        **_written_owner(state.claim),
        "batch": state.batch,
        "lane_count": state.lane_count,
        "lanes": {str(lane): _written_lane(each) for lane, each in sorted(state.lanes.items())},
        "topics": dict(sorted(state.topics.items())),
        "previous_offset": state.previous_offset,
        "nonce": state.nonce,
        "made_at_ms": state.made_at_ms,
        **more,
    }


def _read_state(fields: Json) -> SinkState:
    return SinkState(
        _read_owner(fields),
        int(fields["batch"]),
        int(fields["lane_count"]),
        {int(lane): _read_lane(each) for lane, each in fields["lanes"].items()},
        {str(name): int(count) for name, count in fields["topics"].items()},
        int(fields["previous_offset"]),
        str(fields["nonce"]),
        int(fields["made_at_ms"]),
        int(fields["rows"]) if "rows" in fields else None,
    )


def _written_lane(lane: LaneState) -> Json:
    fields: Json = {"producer": lane.producer}
    if lane.idle_batches:
        return fields | {"idle": lane.idle_batches}
    return fields | {"rows": lane.rows, "hash": lane.order_hash}


def _read_lane(fields: Json) -> LaneState:
    producer = _read_producer(fields)
    idle_batches = int(fields.get("idle", 0))
    if idle_batches:
        return LaneState(producer, idle_batches=idle_batches)
    return LaneState(producer, int(fields["rows"]), str(fields["hash"]))


_WRITTEN: Final[dict[str, Callable[[Any], Json]]] = {
    SINK: _written_owner,
    LANE: asdict,
    TOPIC: asdict,
    MARK: _written_mark,
    STATE: _written_state,
}
_READ: Final[dict[str, Callable[[Json], Content]]] = {
    SINK: _read_owner,
    LANE: _read_claim,
    TOPIC: _read_claim,
    MARK: _read_mark,
    STATE: _read_state,
}
