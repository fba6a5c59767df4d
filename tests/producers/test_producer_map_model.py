"""The producer map against a dumb dictionary that remembers every sequence it ever accepted.

The dictionary knows no ring, no rows, no circle halves and no shortcuts. Sequences start near the top of the circle, so
that most runs go over the wrap, and so do generations and pids.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oncelog.clock import ManualClock, Now
from oncelog.producers import FIRST_KAFKA_PID, Decision, ProducerLimits, ProducerMap
from oncelog.producers.kafka_producers import GRACE_MS
from oncelog.producers.sequences import GENERATIONS, SEQUENCES

LIFETIME_MS = 1_000_000
KAFKA_MS = 900_000
CAPACITY = 6
LIMITS = ProducerLimits(
    lease_lifetime_ms=LIFETIME_MS, lease_entries=CAPACITY, kafka_expiration_ms=KAFKA_MS, kafka_entries=CAPACITY
)
LEASED_PIDS = [2**32 - 4, 2**32 - 3, 2**32 - 2, 2**32 - 1, 1, 2, 3, 4]  # in the order of their grants
KAFKA_PIDS = [FIRST_KAFKA_PID + n for n in (0, 1, 2, 500, 10**12, 10**12 + 1, 2**62, 7)]
COUNTS = st.integers(1, 4)


@dataclass
class Dumb:
    generation: int
    seen_ms: int
    last_offset: int = -1  # of the last batch: who has the lowest is idle for the longest
    position: int | None = None  # of the last record, counted without any wrap
    first_position: int = 0
    offsets: dict[int, int] = field(default_factory=dict)  # position -> offset
    batches: list[tuple[int, int]] = field(default_factory=list)  # (first position, records), of this epoch


class GrantsUntil:
    def __init__(self) -> None:
        self.granted_ms = dict.fromkeys(LEASED_PIDS, 0)

    def may_be_new(self, pid: int, now: Now) -> bool:
        return now.monotonic_ms - self.granted_ms[pid] < 2 * LIFETIME_MS


class MapAgainstDictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.grants = GrantsUntil()
        self.map = ProducerMap(self.grants, LIMITS)
        self.dumb: dict[int, Dumb] = {}
        self.accepted: set[int] = set()  # leased pids of which a first record was ever appended, in this grant
        self.floor: tuple[int, int] | None = None  # as a place in LEASED_PIDS, and since when
        self.next_offset = 0

    # Leased pids

    @rule(pid=st.sampled_from(LEASED_PIDS), newer=st.integers(-2, 2), step=st.integers(-6, 3), count=COUNTS)
    def a_leased_batch(self, pid: int, newer: int, step: int, count: int) -> None:
        held = self.dumb.get(pid)
        start = 0 if held is None or held.position is None else held.position + 1
        generation = (GENERATIONS - 2 + pid if held is None else held.generation + newer) % GENERATIONS
        position = start + step
        decision, detail = self.map.judge(pid, generation, position % SEQUENCES, count, self.clock.now())
        assert (decision, detail) == self.expected_leased(pid, held, newer, position, count)
        if decision in (Decision.APPEND, Decision.TRIM):
            self.append(pid, generation, position + detail, count - detail)

    def expected_leased(
        self, pid: int, held: Dumb | None, newer: int, position: int, count: int
    ) -> tuple[Decision, int]:
        if held is None:
            if position != 0 or not self.may_be_new(pid):
                return Decision.UNKNOWN_PRODUCER, 0
            return Decision.APPEND, 0
        if newer < 0:
            return Decision.FENCED, 0
        last = -1 if held.position is None else held.position
        if position == last + 1:
            return Decision.APPEND, 0
        if position > last + 1 or held.position is None:
            return Decision.OUT_OF_ORDER, 0
        if position + count - 1 <= last:
            remembered = [at for first, records in held.batches[-5:] for at in range(first, first + records)]
            return Decision.DUPLICATE, held.offsets[position] if position in remembered else -1
        return Decision.TRIM, last + 1 - position

    @rule(pid=st.sampled_from(LEASED_PIDS), newer=st.integers(-1, 2))
    def a_fence(self, pid: int, newer: int) -> None:
        held = self.dumb.get(pid)
        now = self.clock.now()
        generation = ((5 if held is None else held.generation) + newer) % GENERATIONS
        if held is not None:
            expected = Decision.APPEND if newer > 0 else Decision.FENCED
        else:
            expected = Decision.APPEND if self.may_be_new(pid) else Decision.UNKNOWN_PRODUCER
        assert self.map.judge_fence(pid, generation, now) is expected
        if expected is Decision.APPEND:
            if held is None:
                self.make_room(pid)
                held = self.dumb[pid] = Dumb(generation, now.monotonic_ms)
            held.generation = generation
            self.map.fence(pid, generation, now)

    # Kafka pids

    @rule(
        pid=st.sampled_from(KAFKA_PIDS),
        epoch=st.integers(-1, 1),
        step=st.integers(-22, 2),
        count=COUNTS,
        zero=st.booleans(),
    )
    def a_kafka_batch(self, pid: int, epoch: int, step: int, count: int, zero: bool) -> None:
        held = self.dumb.get(pid)
        if held is None:
            position, generation = SEQUENCES - 9, 3
        else:
            assert held.position is not None
            generation = held.generation + epoch
            # Where an epoch begins anew it does so at a multiple of the circle, which is sequence 0.
            position = (held.position // SEQUENCES + 1) * SEQUENCES if zero and epoch else held.position + 1 + step
        self.kafka(pid, held, generation, position, count)

    @rule(pid=st.sampled_from(KAFKA_PIDS), back=st.integers(0, 7))
    def an_earlier_kafka_batch_again(self, pid: int, back: int) -> None:
        held = self.dumb.get(pid)
        if held is not None and back < len(held.batches):
            first, count = held.batches[-1 - back]
            self.kafka(pid, held, held.generation, first, count)

    def kafka(self, pid: int, held: Dumb | None, generation: int, position: int, count: int) -> None:
        answer = self.map.judge(pid, generation, position % SEQUENCES, count, self.clock.now())
        assert answer == self.expected_kafka(held, generation, position, count)
        if answer[0] is Decision.APPEND:
            self.append(pid, generation, position, count)

    def expected_kafka(self, held: Dumb | None, generation: int, position: int, count: int) -> tuple[Decision, int]:
        if held is None:
            return (Decision.FULL, 0) if self.is_full_of_kafka() else (Decision.APPEND, 0)
        assert held.position is not None
        if generation < held.generation:
            return Decision.FENCED, 0
        if generation > held.generation:
            return (Decision.APPEND if position % SEQUENCES == 0 else Decision.OUT_OF_ORDER), 0
        if (position, count) in held.batches[-5:]:
            return Decision.DUPLICATE, held.offsets[position]
        if position == held.position + 1:
            return Decision.APPEND, 0
        older_than_five = position + count <= held.batches[-5:][0][0]
        if held.first_position <= position and older_than_five:
            return Decision.DUPLICATE_FORGOTTEN, 0
        return Decision.OUT_OF_ORDER, 0

    # Time, restarts

    @rule(steps=st.integers(1, 9), less_ms=st.integers(0, 1))
    def time_passes(self, steps: int, less_ms: int) -> None:
        """In steps that meet the ends of grace and life often, and often by a hair not."""
        self.clock.advance(100_000 * steps - less_ms)

    @rule()
    def the_expired_leave(self) -> None:
        self.map.expire(self.clock.now())
        self.expire()

    @rule(pid=st.sampled_from(LEASED_PIDS))
    def a_pid_is_granted_again(self, pid: int) -> None:
        """2^32 grants later, or so it seems to the map."""
        if pid not in self.dumb and not self.grants.may_be_new(pid, self.clock.now()):
            self.grants.granted_ms[pid] = self.clock.now().monotonic_ms
            self.accepted.discard(pid)

    @rule()
    def it_goes_through_a_snapshot(self) -> None:
        data = self.map.encode(self.clock.now())
        self.map = ProducerMap(self.grants, LIMITS)
        self.map.decode(data, self.clock.now())
        assert self.map.encode(self.clock.now()) == data

    @invariant()
    def both_hold_the_same_highwater_marks(self) -> None:
        for pid in LEASED_PIDS + KAFKA_PIDS:
            held = self.dumb.get(pid)
            position = -1 if held is None or held.position is None else held.position % SEQUENCES
            assert self.map.highwater(pid) == (None if held is None else (held.generation, position)), pid

    # The dictionary's own work

    def append(self, pid: int, generation: int, position: int, count: int) -> None:
        now = self.clock.now()
        if pid < FIRST_KAFKA_PID and position == 0:
            assert pid not in self.accepted, "its first record is there twice"
            self.accepted.add(pid)
        self.map.accept(pid, generation, position % SEQUENCES, count, self.next_offset, now.wall_ms, now)
        held = self.dumb.get(pid)
        if held is None:
            self.make_room(pid)
            held = self.dumb[pid] = Dumb(generation, now.monotonic_ms, first_position=position)
        elif pid >= FIRST_KAFKA_PID and generation != held.generation:
            held.batches, held.first_position = [], position
        held.generation = generation
        held.offsets.update({position + n: self.next_offset + n for n in range(count)})
        held.batches.append((position, count))
        held.position = position + count - 1
        held.last_offset = self.next_offset
        if pid >= FIRST_KAFKA_PID:
            held.seen_ms = now.monotonic_ms
        self.next_offset += count

    def leases(self) -> list[int]:
        return [pid for pid in LEASED_PIDS if pid in self.dumb]

    def may_be_new(self, pid: int) -> bool:
        now = self.clock.now()
        is_below = self.floor is not None and (
            LEASED_PIDS.index(pid) <= self.floor[0] and now.monotonic_ms - self.floor[1] < 2 * LIFETIME_MS
        )
        return not is_below and self.grants.may_be_new(pid, now)

    def make_room_for_a_lease(self) -> None:
        once = [pid for pid in self.leases() if len(self.dumb[pid].batches) <= 1]
        if len(once) > CAPACITY // 4:
            gone = min(once[: CAPACITY // 4 + 1], key=lambda pid: self.dumb[pid].seen_ms)
        else:
            gone = min(set(self.leases()) - set(once), key=lambda pid: self.dumb[pid].last_offset)
        del self.dumb[gone]
        now_ms = self.clock.now().monotonic_ms
        place = LEASED_PIDS.index(gone)
        if self.floor is not None and now_ms - self.floor[1] < 2 * LIFETIME_MS:
            place = max(place, self.floor[0])
        self.floor = place, now_ms

    def is_full_of_kafka(self) -> bool:
        held = self.kafka_pids()
        return len(held) >= CAPACITY and not self.may_give_way(held[0])

    def kafka_pids(self) -> list[int]:
        """The longest idle first."""
        return sorted((pid for pid in KAFKA_PIDS if pid in self.dumb), key=lambda pid: self.dumb[pid].last_offset)

    def may_give_way(self, pid: int) -> bool:
        return self.clock.now().monotonic_ms - self.dumb[pid].seen_ms >= GRACE_MS

    def is_over(self, pid: int) -> bool:
        kept_ms = KAFKA_MS if pid >= FIRST_KAFKA_PID else 2 * LIFETIME_MS
        return self.clock.now().monotonic_ms - self.dumb[pid].seen_ms >= kept_ms

    def make_room(self, pid: int) -> None:
        if pid >= FIRST_KAFKA_PID:
            while len(held := self.kafka_pids()) >= CAPACITY and self.may_give_way(held[0]):
                del self.dumb[held[0]]
        elif len(self.leases()) >= CAPACITY:
            self.expire_leases()
            if len(self.leases()) >= CAPACITY:
                self.make_room_for_a_lease()

    def expire(self) -> None:
        self.expire_leases()
        for pid in [one for one in self.kafka_pids() if self.is_over(one)]:
            del self.dumb[pid]

    def expire_leases(self) -> None:
        while (held := self.leases()) and self.is_over(held[0]):  # from the old end only
            del self.dumb[held[0]]


TestProducerMap = MapAgainstDictionary.TestCase
TestProducerMap.settings = settings(stateful_step_count=60, derandomize=True)
