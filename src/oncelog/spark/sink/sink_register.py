"""The state that the records of a sink's topic give, read in their order. Pure.

Any number of tasks and drivers append, of this run and of former ones, so a record is only an attempt. Which of them
count is decided by the order of the log, alike for every reader:

- of claims of the sink the first;
- of claims of a lane, or for a lane of a further topic or of partitions that a topic has got, the first that was made
  for the batch that is next, where that is not known already;
- of marks of a lane the first that was made for the batch that is next: its owner knows that no other attempt has sent
  anything of this batch before, and all know where the partitions ended then;
- of states the first of the batch that is next, unless a lane has marked the batch that the state does not hold as
  written: the batch then ran with other lanes as well.

It is a plan over a register (`slots/register.py`); a batch is a term, and a state closes it.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.client import SavedProducer
from oncelog.slots.register import Fact, Record, Register, Subject
from oncelog.spark.sink.errors import BadState
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    STATE,
    TOPIC,
    Content,
    Json,
    LaneClaim,
    LaneState,
    Mark,
    SinkClaim,
    SinkState,
    batch_of_key,
    decode,
    kind_of_key,
)
from oncelog.spark.sink.saved_lanes import moved

WHOLE: Final[Subject] = (STATE,)  # what a state decides: how its batch ended


class SinkRegister(Register):
    def __init__(self, next_offset: int = 0) -> None:
        super().__init__(next_offset)
        self.owner: SinkClaim | None = None
        self.state: SinkState | None = None
        self.state_offset = -1
        self.before: SinkState | None = None  # of the batch before, where it was read

    @property
    def next_batch(self) -> int | None:
        """The batch whose state is to follow; None while the sink is nobody's."""
        return self.term

    def lane(self, lane: int) -> LaneState | None:
        """The state that the lane goes on from: as it was saved, or else as it was claimed."""
        if self.state is not None and lane in self.state.lanes:
            return self.state.lanes[lane]
        claimed = self.open.get((LANE, lane))
        return None if claimed is None else LaneState(claimed.content.producer)

    def beginning(self, lane: int) -> SavedProducer | None:
        """The producer that the lane begins the next batch with: nothing of the batch lies below its offsets."""
        known = self.lane(lane)
        return None if known is None else _moved(known.producer, self.open.get((MARK, lane)))

    def before_batch(self, lane: int) -> list[SavedProducer]:
        """The producers of the lane before the last saved batch: as it was saved or claimed, and of further
        topics."""
        known = None if self.before is None else self.before.lanes.get(lane)
        claimed = self.closed.get((LANE, lane))
        found = [] if known is None else [known.producer]
        found += [] if claimed is None else [claimed.content.producer]
        found += [claim.producer for claim in _topics(self.closed, lane)]
        return [_moved(each, self.closed.get((MARK, lane))) for each in found]

    def further_topics(self, lane: int) -> list[LaneClaim]:
        """The claims of further topics, in the order in which they were made: partitions behind the topic that they
        belong to."""
        return _topics(self.open, lane)

    def topic_claim(self, lane: int, topic: str, first: int) -> LaneClaim | None:
        """The lane's claim of a topic from partition `first` on."""
        found = self.open.get((TOPIC, lane, topic, first))
        return None if found is None else found.content

    def partitions_of(self, lane: int, topic: str) -> int:
        """The number of the topic's partitions that the lane has; 0 where it does not know the topic."""
        known = self.lane(lane)
        producers = [] if known is None else [known.producer]
        producers += [claim.producer for claim in self.further_topics(lane)]
        return max((int(each["topics"][topic]["count"]) for each in producers if topic in each["topics"]), default=0)

    def partition_count(self, topic: str) -> int | None:
        """The partition count that the next batch pins for a topic that the sink knows."""
        if self.state is not None and topic in self.state.topics:
            return self.state.topics[topic]
        for fact in self.open.values():
            known = fact.content.producer["topics"].get(topic) if isinstance(fact.content, LaneClaim) else None
            if known is not None:
                return int(known["count"])
        return None

    def marked(self) -> set[int]:
        """Lanes that may have sent something of the next batch."""
        return {int(str(subject[1])) for subject in self.open if subject[0] == MARK}

    def unwritten(self, state: SinkState) -> list[int]:
        """Lanes that have marked the batch and have no part in this state of it."""
        return sorted(self.marked() - {lane for lane, each in state.lanes.items() if not each.idle_batches})

    def outlived(self, batch: int) -> list[bytes]:
        """Keys of what nobody needs any more once a state of this batch stands, and also if it should turn out not to
        count: of states the last two and this one stay, of the rest what belongs to this batch and the one before."""
        return [key for key in self.keys if (batch_of_key(key) or 0) < batch - (2 if kind_of_key(key) == STATE else 1)]

    # --- the plan

    def owns(self, key: bytes) -> bool:
        return batch_of_key(key) is not None

    def fact_of(self, record: Record) -> Fact | None:
        return _fact_in(record)

    def belongs(self, fact: Fact) -> bool:
        if isinstance(fact.content, SinkClaim):
            return self.owner is None
        return not isinstance(fact.content, SinkState) or self.owner in (None, fact.content.claim)

    def admits(self, fact: Fact, subject: Subject) -> bool:
        content = fact.content
        if isinstance(content, SinkState):
            return not self.unwritten(content)
        if not isinstance(content, LaneClaim):
            return True
        is_known = self.lane(content.lane) is not None
        match subject:
            case (_, _, str(topic), first):
                return is_known and first == self.partitions_of(content.lane, topic)
        return not is_known

    def counted(self, fact: Fact, won: Sequence[Subject], offset: int) -> None:
        if isinstance(fact.content, SinkClaim):
            self.owner = fact.content
        elif isinstance(fact.content, SinkState):
            self.before, self.state, self.state_offset = self.state, fact.content, offset
            self.owner = fact.content.claim

    @classmethod
    def start_of(cls, tail: Sequence[Record], back: int = 0) -> int | None:
        """At the state before the newest one, as that is named in it: the newest one's batch can then have no state
        that lies before it, unseen. None where no state is among these records. `back`: by how many states earlier.

        It may lie before all of these records, and then there are more to be looked at: a driver that came late may
        have left a state of an old batch at the end, which leads back to before everything that has happened since.
        """
        starts: dict[int, int] = {}
        previous: dict[int, int] = {}
        for record in tail:
            if record.value is not None and kind_of_key(record.key) == STATE:
                fact = _fact_in(record)
                assert fact is not None and isinstance(fact.content, SinkState), "its key says so"
                state = fact.content
                starts[state.batch] = min(state.previous_offset, starts.get(state.batch, state.previous_offset))
                previous[record.offset] = state.previous_offset
        if not starts:
            return None
        start = starts[max(starts)]
        for _ in range(back):
            start = previous.get(start, start)
        return start


def _fact_in(record: Record) -> Fact | None:
    """The fact in a record. Raises where it is not the one that its key names: no sink has written that."""
    try:
        kind, content = decode(record.value or b"")
        if kind != kind_of_key(record.key):
            raise BadState(f"the record is a {kind}, and its key is that of a {kind_of_key(record.key)}")
        fact = None if content is None else fact_about(kind, content)
        if fact is not None and batch_of(fact) != batch_of_key(record.key):
            raise BadState(f"the record is of batch {batch_of(fact)}, and its key of batch {batch_of_key(record.key)}")
        return fact
    except BadState as error:
        raise BadState(f"offset {record.offset} of the sink's topic: {error}") from None


def batch_of(fact: Fact) -> int | None:
    """The one that its key names: of the sink's own claim the first."""
    return fact.opens if fact.term is None else fact.term


def fact_about(kind: str, content: Content) -> Fact:
    """The fact in a record of this kind, with all subjects that it is about."""
    if isinstance(content, SinkClaim):
        return Fact(content, content.nonce, ((SINK,),), opens=content.first_batch)
    if isinstance(content, SinkState):
        return Fact(content, content.nonce, (WHOLE,), content.batch, opens=content.batch + 1)
    subjects: tuple[Subject, ...] = ((MARK, content.lane),)
    if isinstance(content, LaneClaim):
        if kind == LANE:
            subjects = ((LANE, content.lane), *subjects)  # it is the lane's first mark, too
        else:
            topics = content.producer["topics"].items()
            firsts = {name: min(map(int, each.get("at", ())), default=0) for name, each in topics}
            subjects = tuple((TOPIC, content.lane, name, first) for name, first in firsts.items())
    return Fact(content, content.nonce, subjects, content.batch)


def _moved(producer: Json, marked: Fact | None) -> SavedProducer:
    saved = SavedProducer.from_json(producer)
    ends = marked.content.ends if marked is not None and isinstance(marked.content, Mark) else {}
    return moved(saved, ends) if ends else saved


def _topics(facts: dict[Subject, Fact], lane: int) -> list[LaneClaim]:
    return [fact.content for subject, fact in facts.items() if subject[:2] == (TOPIC, lane)]
