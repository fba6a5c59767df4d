"""What the records of a sink's topic come to, read in their order. Pure.

Any number of tasks and drivers append, of this run and of former ones, so a record is only an attempt. Which of them
count is decided by the order of the log, alike for every reader:

- of claims of the sink the first;
- of claims of a lane, or for a lane of a further topic or of partitions that a topic has got, the first that was made
  for the batch that is next, where that is not known already;
- of marks of a lane the first that was made for the batch that is next: whoever it is knows that nobody has sent
  anything of this batch before, and all know where the partitions ended then;
- of states the first of the batch that is next, unless a lane has marked the batch that the state does not hold as
  written: the batch then ran with other lanes as well.

Whoever appends reads on up to its own record, and then knows what came of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from oncelog.client import SavedProducer
from oncelog.spark.sink.errors import BadState
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    STATE,
    TOPIC,
    Json,
    LaneClaim,
    LaneState,
    Mark,
    SinkClaim,
    SinkState,
    batch_of_key,
    decode,
    kind_of_key,
    read_lane_claim,
    read_mark,
    read_sink_claim,
    read_state,
)
from oncelog.spark.sink.saved_lanes import moved


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as it stands."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Claims:
    """What was claimed for one batch."""

    lanes: dict[int, LaneClaim] = field(default_factory=dict)
    # Of lanes, further topics, or partitions that were added to one: by the first of the partitions.
    topics: dict[tuple[int, str, int], LaneClaim] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)  # by lane, the first


@dataclass(slots=True)
class Standing:
    next_offset: int = 0  # read up to here
    owner: SinkClaim | None = None
    state: SinkState | None = None
    state_offset: int = -1
    before: SinkState | None = None  # of the batch before, where it was read
    claims: Claims = field(default_factory=Claims)  # for the next batch
    taken_up: Claims = field(default_factory=Claims)  # those that the last state has taken up, where they were read
    keys: dict[bytes, int] = field(default_factory=dict)  # of records that are not removed, with their batch

    @property
    def next_batch(self) -> int | None:
        """The batch whose state is to follow; None while the sink is nobody's."""
        if self.state is not None:
            return self.state.batch + 1
        return None if self.owner is None else self.owner.first_batch

    def lane(self, lane: int) -> LaneState | None:
        """What the lane goes on from: as it was saved, or else as it was claimed."""
        if self.state is not None and lane in self.state.lanes:
            return self.state.lanes[lane]
        claim = self.claims.lanes.get(lane)
        return None if claim is None else LaneState(claim.producer)

    def beginning(self, lane: int) -> SavedProducer | None:
        """What the lane goes on from with the next batch: nothing of the batch lies below its offsets."""
        known = self.lane(lane)
        return None if known is None else _moved(known.producer, self.claims.marks.get(lane))

    def before_batch(self, lane: int) -> list[SavedProducer]:
        """What the lane stood at before the batch that is saved last: as it was saved or claimed, and further
        topics."""
        known = None if self.before is None else self.before.lanes.get(lane)
        claimed = self.taken_up.lanes.get(lane)
        found = [] if known is None else [known.producer]
        found += [] if claimed is None else [claimed.producer]
        found += [claim.producer for (number, *_), claim in self.taken_up.topics.items() if number == lane]
        return [_moved(each, self.taken_up.marks.get(lane)) for each in found]

    def further_topics(self, lane: int) -> list[LaneClaim]:
        """In the order in which they were claimed: partitions behind the topic that they belong to."""
        return [claim for (number, *_), claim in self.claims.topics.items() if number == lane]

    def partitions_of(self, lane: int, topic: str) -> int:
        """How many the lane has of a topic; 0 where it does not know it."""
        known = self.lane(lane)
        producers = [] if known is None else [known.producer]
        producers += [claim.producer for claim in self.further_topics(lane)]
        return max((int(each["topics"][topic]["count"]) for each in producers if topic in each["topics"]), default=0)

    def partition_count(self, topic: str) -> int | None:
        """What the next batch pins for a topic that the sink knows."""
        if self.state is not None and topic in self.state.topics:
            return self.state.topics[topic]
        for claim in (*self.claims.lanes.values(), *self.claims.topics.values()):
            known = claim.producer["topics"].get(topic)
            if known is not None:
                return int(known["count"])
        return None

    # --- reading

    def read(self, entries: Iterable[Entry], *, from_offset: int = 0) -> None:
        """Take in what follows. Below `from_offset` only keys are looked at, so that old records can be removed."""
        for entry in entries:
            if entry.offset < self.next_offset:
                continue
            self._note_key(entry)
            if entry.value is not None and entry.offset >= from_offset:
                try:
                    self._read(entry.value, entry.offset)
                except BadState as error:
                    raise BadState(f"offset {entry.offset} of the sink's topic: {error}") from None
            self.next_offset = entry.offset + 1  # at last: one that cannot be read is met again, not passed over

    def _note_key(self, entry: Entry) -> None:
        batch = batch_of_key(entry.key)
        if entry.key is None or batch is None:
            return
        if entry.value is None:
            self.keys.pop(entry.key, None)
        else:
            self.keys[entry.key] = batch

    def _read(self, value: bytes, offset: int) -> None:
        kind, fields = decode(value)
        if kind == SINK:
            if self.owner is None:
                self.owner = read_sink_claim(fields)
        elif kind == LANE:
            self._claim(read_lane_claim(fields))
        elif kind == TOPIC:
            self._claim_topics(read_lane_claim(fields))
        elif kind == MARK:
            self._mark(read_mark(fields))
        elif kind == STATE:
            self._save(read_state(fields), offset)

    def _claim(self, claim: LaneClaim) -> None:
        if claim.batch == self.next_batch and self.lane(claim.lane) is None:
            self.claims.lanes[claim.lane] = claim
            self.claims.marks[claim.lane] = Mark(claim.batch, claim.lane, claim.nonce)

    def _claim_topics(self, claim: LaneClaim) -> None:
        if claim.batch != self.next_batch or self.lane(claim.lane) is None:
            return
        for topic, value in claim.producer["topics"].items():
            first = min(map(int, value.get("at", ())), default=0)
            if first == self.partitions_of(claim.lane, topic):
                self.claims.topics.setdefault((claim.lane, topic, first), claim)

    def _mark(self, mark: Mark) -> None:
        if mark.batch == self.next_batch:
            self.claims.marks.setdefault(mark.lane, mark)

    def _save(self, state: SinkState, offset: int) -> None:
        if self.owner is not None and state.claim != self.owner:
            return
        is_next = self.owner is None or state.batch == self.next_batch  # without an owner reading begins here
        if not is_next or self.unwritten(state):
            return
        self.before, self.state, self.state_offset = self.state, state, offset
        self.owner = state.claim
        self.taken_up, self.claims = self.claims, Claims()

    def unwritten(self, state: SinkState) -> list[int]:
        """Lanes that have marked the batch and have no part in this state of it."""
        written = {lane for lane, each in state.lanes.items() if not each.idle_batches}
        return sorted(self.claims.marks.keys() - written)


def _moved(producer: Json, mark: Mark | None) -> SavedProducer:
    saved = SavedProducer.from_json(producer)
    return saved if mark is None or not mark.ends else moved(saved, mark.ends)


def start_of(entries: Iterable[Entry], back: int = 0) -> int | None:
    """Where reading must begin for somebody who has these records of the topic's end: at the state before the newest
    one, as that is named in it. The newest one's batch can then have no state that lies before it, unseen. None where
    no state is among them. `back`: so many states before that one.

    It may lie before all of these records, and then there are more to be looked at: a driver that came late may have
    left a state of an old batch at the end, which leads back to before everything that has happened since.
    """
    starts: dict[int, int] = {}
    previous: dict[int, int] = {}
    for entry in entries:
        if entry.value is not None and kind_of_key(entry.key) == STATE:
            state = read_state(decode(entry.value)[1])
            starts[state.batch] = min(state.previous_offset, starts.get(state.batch, state.previous_offset))
            previous[entry.offset] = state.previous_offset
    if not starts:
        return None
    start = starts[max(starts)]
    for _ in range(back):
        start = previous.get(start, start)
    return start
