"""The short way for the usual batch does what `judge` and `accept` do, or nothing at all."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from oncelog.clock import ManualClock, Now
from oncelog.producers import APPEND, FIRST_KAFKA_PID, Decision, ProducerLimits, ProducerMap
from oncelog.producers.producer_map import MOST_KEPT_BACK
from oncelog.producers.sequences import SEQUENCE_MASK

LIMITS = ProducerLimits(lease_lifetime_ms=1000, lease_entries=2, kafka_expiration_ms=2000, kafka_entries=2)
PIDS = st.sampled_from([1, 2, FIRST_KAFKA_PID, FIRST_KAFKA_PID + 1, FIRST_KAFKA_PID + 2])
GENERATIONS = st.integers(0, 2)


class ShortWayAgainstTheLongOne(RuleBasedStateMachine):
    """Two maps with one fate. Nothing looks at them but the rules, because whoever looks ends what is put off."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.slow, self.quick = ProducerMap(limits=LIMITS), ProducerMap(limits=LIMITS)
        self.next: dict[int, int] = {}  # what a well-behaved producer sends next
        self.batches = 0
        self.sent: list[tuple[int, int, int]] = []  # pid, generation, and the sequence that was next then

    @rule(
        pid=PIDS,
        generation=GENERATIONS,
        sequence=st.none() | st.sampled_from([0, 1, 3, SEQUENCE_MASK - 1, SEQUENCE_MASK]),
        count=st.integers(1, 4) | st.sampled_from([2**20, 2**30]),
    )
    def a_batch(self, pid: int, generation: int, sequence: int | None, count: int) -> None:
        self.put(pid, generation, self.next.get(pid, 0) if sequence is None else sequence, count)

    @rule(pid=PIDS, generation=GENERATIONS, batches=st.integers(1, 25), count=st.integers(1, 3))
    def a_producer_goes_on(self, pid: int, generation: int, batches: int, count: int) -> None:
        for _ in range(batches):
            self.put(pid, generation, self.next.get(pid, 0), count)

    @rule(back=st.integers(1, 6))
    def a_zombie_goes_on_where_it_was(self, back: int) -> None:
        if back <= len(self.sent):
            self.put(*self.sent[-back], 1)

    @rule(newer=st.integers(1, 2))
    def the_last_one_is_fenced_and_goes_on(self, newer: int) -> None:
        if self.sent:
            pid, generation, sequence = self.sent[-1]
            self.a_fence(pid, generation + newer)
            self.put(pid, generation, sequence, 1)

    @rule(newer=st.integers(1, 2))
    def the_last_one_is_resumed_and_its_zombie_goes_on(self, newer: int) -> None:
        if self.sent:
            pid, generation, sequence = self.sent[-1]
            self.put(pid, generation + newer, 0 if pid >= FIRST_KAFKA_PID else sequence, 1)
            self.put(pid, generation, sequence, 1)

    @rule()
    def the_last_one_gives_way_to_others_and_goes_on(self) -> None:
        if self.sent:
            last = self.sent[-1]
            self.clock.advance(2000)
            for pid in (FIRST_KAFKA_PID + 3, FIRST_KAFKA_PID + 4):
                self.put(pid, 0, self.next.get(pid, 0), 1)
            self.put(*last, 1)

    def put(self, pid: int, generation: int, sequence: int, count: int) -> None:
        now, number = self.clock.now(), self.batches
        batch = pid, generation, sequence, count
        judgement = self.slow.judge(*batch, now)
        if judgement[0] is Decision.APPEND:
            self.slow.accept(*batch, number * 10, number, now)
            self.next[pid] = (sequence + count) & SEQUENCE_MASK
            self.sent.append((pid, generation, self.next[pid]))
        if self.quick.accept_next(*batch, number * 10, number, now):
            assert judgement is APPEND
        else:
            assert self.quick.judge(*batch, now) == judgement
            if judgement[0] is Decision.APPEND:
                self.quick.accept(*batch, number * 10, number, now)
        self.batches += 1

    @rule(ms=st.sampled_from([1, 500, 999, 1000, 2000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def a_chunk_ends(self) -> None:
        self.quick.pass_on_many()
        assert len(self.quick.run.batches) < MOST_KEPT_BACK

    @rule(pid=PIDS, generation=GENERATIONS)
    def a_fence(self, pid: int, generation: int) -> None:
        if self.same("judge_fence", pid, generation, self.clock.now()) is Decision.APPEND:
            self.same("fence", pid, generation, self.clock.now())

    @rule()
    def the_expired_leave(self) -> None:
        self.same("expire", self.clock.now())

    @rule(pid=PIDS)
    def somebody_asks(self, pid: int) -> None:
        self.same("highwater", pid)

    @rule(pid=PIDS, generation=GENERATIONS, back=st.integers(-1, 6))
    def somebody_only_judges(self, pid: int, generation: int, back: int) -> None:
        sequence = (self.next.get(pid, 0) - back) & SEQUENCE_MASK
        self.same("judge", pid, generation, sequence, 1, self.clock.now())

    @rule()
    def somebody_lists_them(self) -> None:
        now = self.clock.now()
        assert list(self.quick.live(now)) == list(self.slow.live(now))

    @rule(forgets=st.booleans())
    def a_restart(self, forgets: bool) -> None:
        """In the same map, as after a failed write; the one is read again, or everything is gone."""
        data = self.same("encode", self.clock.now())
        if forgets:
            self.same("clear")
        else:
            self.same("decode", data, self.clock.now())

    @rule(batches=st.integers(0, 3), pid=PIDS)
    def a_write_fails(self, batches: int, pid: int) -> None:
        """Both go back to where they were before it."""
        data = self.slow.encode(self.clock.now())
        before = dict(self.next)
        for _ in range(batches):
            self.put(pid, 0, self.next.get(pid, 0), 1)
        self.next = before
        self.same("decode", data, self.clock.now())

    def same(self, method: str, *arguments: Any) -> Any:
        answer = getattr(self.slow, method)(*arguments)
        assert getattr(self.quick, method)(*arguments) == answer
        return answer

    def teardown(self) -> None:
        self.same("encode", self.clock.now())


TestShortWay = ShortWayAgainstTheLongOne.TestCase
TestShortWay.settings = settings(stateful_step_count=40, derandomize=True)


def test_the_usual_batch_goes_the_short_way() -> None:
    for pid in (1, FIRST_KAFKA_PID):
        producers, now = ProducerMap(), Now(1, 1)
        producers.accept(pid, 0, 0, 5, 0, 1, now)
        assert producers.accept_next(pid, 0, 5, 5, 5, 1, now)
        assert producers.accept_next(pid, 0, 10, 5, 10, 1, now)
        assert producers.highwater(pid) == (0, 14)
        assert not producers.accept_next(pid, 0, 10, 5, 15, 1, now), "a duplicate is judged"
        assert not producers.accept_next(pid, 0, 16, 5, 15, 1, now), "a gap is judged"
        assert not producers.accept_next(pid, 1, 15, 5, 15, 1, now), "a new generation is judged"
        assert not producers.accept_next(pid + 1, 0, 15, 5, 15, 1, now), "another producer is judged"
        assert producers.accept_next(pid, 0, 15, 5, 15, 1, now)


def test_a_producer_that_went_the_short_way_lives_from_its_last_batch() -> None:
    producers = ProducerMap(limits=ProducerLimits(kafka_expiration_ms=100))
    for ms in range(0, 150, 10):
        batch = FIRST_KAFKA_PID, 0, ms, 10, ms, 1, Now(ms, ms)
        if not producers.accept_next(*batch):
            producers.accept(*batch)
    assert producers.expire(Now(239, 239)) == 0
    assert producers.expire(Now(240, 240)) == 1
    assert not producers.accept_next(FIRST_KAFKA_PID, 0, 150, 10, 150, 1, Now(241, 241)), "nobody is known any more"
