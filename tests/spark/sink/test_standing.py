"""What the records of a sink's topic come to, whoever appended them and in whatever order."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.slots import Place
from oncelog.slots.register import Gap, Record
from oncelog.spark.sink.errors import BadState
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    STATE,
    VERSION_KEY,
    Content,
    Json,
    LaneClaim,
    LaneState,
    Mark,
    SinkClaim,
    SinkState,
    batch_of_key,
    decode,
    encode,
    key_of,
    kind_of_key,
)
from oncelog.spark.sink.sink_register import SinkRegister

OWNER = SinkClaim("s", "q", 0, "owner")
PRODUCER: Json = {"topics": {"out": {"count": 2}}}


class Log:
    """A sink's topic."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, kind: str, batch: int, content: Content) -> int:
        offset = len(self.records)
        self.records.append(Record(offset, key_of(kind, batch, offset), encode(kind, content)))
        return offset

    def sink(self, claim: SinkClaim = OWNER) -> int:
        return self.add(SINK, claim.first_batch, claim)

    def claim(self, batch: int, lane: int, nonce: str, producer: Json = PRODUCER) -> int:
        return self.add(LANE, batch, LaneClaim(batch, lane, producer, nonce, 7))

    def mark(self, batch: int, lane: int, nonce: str) -> int:
        return self.add(MARK, batch, Mark(batch, lane, nonce))

    def state(self, batch: int, previous: int, nonce: str = "", *, lanes: int = 1, claim: SinkClaim = OWNER) -> int:
        written = {lane: LaneState(PRODUCER, 5, "hash") for lane in range(lanes)}
        state = SinkState(claim, batch, lanes, written, {"out": 2}, previous, nonce or f"state {batch}")
        return self.add(STATE, batch, state)

    @property
    def register(self) -> SinkRegister:
        found = SinkRegister()
        found.read(self.records)
        return found


def test_the_first_claim_of_a_sink_stands() -> None:
    log = Log()
    log.sink()
    log.sink(SinkClaim("s", "another", 3, "late"))
    assert log.register.owner == OWNER
    assert log.register.next_batch == 0


def test_the_first_claim_and_the_first_mark_of_a_lane_stand() -> None:
    log = Log()
    log.sink()
    log.claim(0, 1, "first")
    log.claim(0, 1, "second")
    log.mark(0, 1, "third")
    log.mark(0, 2, "fourth")
    log.mark(0, 2, "fifth")
    register = log.register
    assert register.open[LANE, 1].nonce == "first"
    assert {lane: register.open[MARK, lane].nonce for lane in register.marked()} == {1: "first", 2: "fourth"}
    assert register.lane(1) == LaneState(PRODUCER)
    assert register.lane(2) is None


def test_claims_and_marks_of_another_batch_than_the_next_do_not_count() -> None:
    log = Log()
    log.sink()
    log.state(0, 0)
    for batch in (0, 2):
        log.claim(batch, 3, "late or early")
        log.mark(batch, 0, "late or early")
    assert not log.register.open


def test_a_lane_that_is_saved_is_not_claimed_again() -> None:
    log = Log()
    log.sink()
    log.state(0, 0)
    log.claim(1, 0, "again", {"topics": {}})
    assert log.register.lane(0) == LaneState(PRODUCER, 5, "hash")


def test_the_first_state_of_the_next_batch_stands() -> None:
    log = Log()
    log.sink()
    first = log.state(0, 0, "one")
    log.state(0, 0, "other")
    log.state(1, first, "foreign", claim=SinkClaim("s", "q2", 0, "x"))
    register = log.register
    assert register.state is not None
    assert (register.state.batch, register.state.nonce) == (0, "one")
    log.state(1, first)
    assert log.register.next_batch == 2
    assert log.register.before is not None and log.register.before.nonce == "one"


def test_a_state_of_a_later_batch_says_that_those_in_between_were_removed() -> None:
    """What was read before is then as old as they are, and would take the first mark of a saved batch for its own."""
    log = Log()
    log.sink()
    first = log.state(0, 0)
    known = log.register
    log.state(2, first)
    with pytest.raises(Gap):
        known.read(log.records)


def test_a_record_that_no_sink_has_written_is_passed_over() -> None:
    log = Log()
    log.sink()
    for key in (None, b"", b"hello", b"x/state/n"):
        log.records.append(Record(len(log.records), key, b"what is this"))
    log.mark(0, 0, "a")
    assert log.register.marked() == {0}
    log.records.append(Record(len(log.records), b"0/mark/damaged", b"what is this"))
    with pytest.raises(BadState, match=r"offset 6 of the sink's topic: the record is no JSON"):
        assert log.register


def test_a_state_without_a_lane_that_has_marked_the_batch_does_not_count() -> None:
    log = Log()
    log.sink()
    log.mark(0, 0, "a")
    log.mark(0, 1, "b")
    log.state(0, 0, lanes=1)
    register = log.register
    assert register.state is None
    log.state(0, 0, "with both", lanes=2)
    register = log.register
    assert register.state is not None and register.state.nonce == "with both"


def test_keys_tell_the_batch_and_the_kind_and_removed_ones_are_forgotten() -> None:
    log = Log()
    log.sink()
    log.mark(0, 0, "a")
    key = log.records[-1].key
    assert (batch_of_key(key), kind_of_key(key)) == (0, MARK)
    assert len(log.register.keys) == 2
    log.records.append(Record(2, key, None))
    assert len(log.register.keys) == 1


@given(seed=st.integers(0, 1 << 32))
def test_whoever_reads_only_the_end_finds_the_same_as_who_reads_everything(seed: int) -> None:
    """Late drivers append states of old batches, tasks claims and marks of any; old records are removed."""
    random = Random(seed)
    log = Log()
    log.sink()
    offsets: list[int] = []
    batch = 0
    for _ in range(random.randint(1, 40)):
        what = random.random()
        if what < 0.3:
            offsets.append(log.state(batch, offsets[-1] if offsets else 0, lanes=4))
            batch += 1
        elif what < 0.5 and batch:
            old = random.randrange(batch)
            log.state(old, offsets[old - 1] if old else 0, f"late {old}", lanes=4)
        elif what < 0.75:
            log.claim(random.randint(max(batch - 1, 0), batch), random.randrange(4), f"claim {len(log.records)}")
        else:
            log.mark(random.randint(max(batch - 1, 0), batch), random.randrange(4), f"mark {len(log.records)}")
    whole = log.register
    entries = [entry for entry in log.records if _is_kept(entry, batch - 1, random)]
    at = len(entries)
    while at:
        start = SinkRegister.start_of(entries[at:])
        if start is not None and (at == 0 or entries[at - 1].offset < start):
            break
        at -= 1
    found = SinkRegister()
    found.read(entries[at:], from_offset=SinkRegister.start_of(entries[at:]) or 0)
    assert (found.owner, found.state, found.open) == (whole.owner, whole.state, whole.open)


def _is_kept(entry: Record, last: int, random: Random) -> bool:
    """Drivers remove what is older than the last two batches, and miss some of it."""
    batch = batch_of_key(entry.key)
    assert batch is not None
    return batch >= last - 1 or random.random() < 0.3


@pytest.mark.parametrize("kind", [SINK, LANE, MARK, STATE])
def test_what_is_written_is_read_back_equal(kind: str) -> None:
    claim = LaneClaim(3, 4, PRODUCER, "n", 5)
    lanes = {0: LaneState(PRODUCER, 5, "h"), 7: LaneState(PRODUCER, idle_batches=3)}
    state = SinkState(OWNER, 3, 1, lanes, {"out": 2}, 9, "n", 11)
    values: dict[str, Content] = {
        SINK: OWNER,
        LANE: claim,
        MARK: Mark(3, 4, "n", {Place("out", 0): 5, Place("out", 10): 6, Place("a", 1): 0}),
        STATE: state,
    }
    written = encode(kind, values[kind])
    assert decode(written) == (kind, values[kind])
    fields = json.loads(written)
    for name in fields.keys() - {VERSION_KEY, "kind"}:
        with pytest.raises(BadState, match=f"no {kind}"):
            decode(json.dumps({**fields, name: None}).encode())
            decode(json.dumps({each: cell for each, cell in fields.items() if each != name}).encode())


@pytest.mark.parametrize(
    "key", [b"42", b"7/", b"7/state", b"/state/n", b"9" * 5000 + b"/state/n", b"7/STATE/n", b"\xff"]
)
def test_a_key_that_no_sink_has_made_is_passed_over(key: bytes) -> None:
    log = Log()
    log.sink()
    register = log.register
    register.read([Record(1, key, b"anything")])
    assert register.next_offset == 2 and key not in register.keys
    assert SinkRegister.start_of([*log.records, Record(1, key, b"anything")]) is None


@given(st.data())
def test_a_damaged_record_is_told_as_that_and_by_nothing_else(data: st.DataObject) -> None:
    log = Log()
    log.sink()
    log.claim(0, 0, "first")
    log.mark(0, 1, "m")
    log.state(0, 0)
    damaged = data.draw(st.sampled_from(log.records))
    value = json.loads(damaged.value or b"")
    _spoil(value, data)
    records = [each._replace(value=json.dumps(value).encode()) if each is damaged else each for each in log.records]
    for read in (SinkRegister().read, SinkRegister.start_of):
        try:
            read(records)
        except BadState as error:
            assert f"offset {damaged.offset} of the sink's topic" in str(error)


def _spoil(value: Json, data: st.DataObject) -> None:
    """One field of it, however deep, is gone or another."""
    name = data.draw(st.sampled_from(sorted(value)))
    if isinstance(value[name], dict) and value[name] and data.draw(st.booleans()):
        _spoil(value[name], data)
    elif data.draw(st.booleans()):
        del value[name]
    else:
        value[name] = data.draw(st.sampled_from([None, -1, "x", [], {}, [1], {"a": 1}, float("inf"), 10**30, True]))


def test_a_record_that_cannot_be_read_is_not_passed_over_the_next_time() -> None:
    log = Log()
    log.sink()
    newer = Record(1, b"0/state/newer", b'{"oncelog.sink": 2, "kind": "state"}')
    register = SinkRegister()
    for _ in range(2):
        with pytest.raises(BadState, match=r"offset 1 of the sink's topic: .* newer oncelog"):
            register.read([*log.records, newer])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x00\x01", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[1]", "has no 'oncelog.sink'"),
        (b'{"oncelog.sink": 0}', "has no 'oncelog.sink'"),
        (b'{"oncelog.sink": 2, "kind": "state"}', r"newer oncelog \(format 2, this one knows 1\)"),
    ],
)
def test_what_is_no_sinks_record_is_refused(value: bytes, words: str) -> None:
    with pytest.raises(BadState, match=words):
        decode(value)
