"""What the log promises to a producer with a leased pid, each as a short story."""

from itertools import count

from oncelog.clock import DAY_MS, HOUR_MS, ManualClock
from oncelog.producers import Decision, ProducerLimits, ProducerMap
from oncelog.producers.kafka_producers import GRACE_MS
from oncelog.producers.leases import END_OF_LEASED_PIDS
from oncelog.producers.sequences import GENERATIONS, SEQUENCES
from tests.producers.granting import Granting, Sequence
from tests.producers.partition import Answer, Granted, Partition

PID = 42
TOP = SEQUENCES - 1
BYTES_A_PRODUCER = 110

APPEND, DUPLICATE, TRIM = Decision.APPEND, Decision.DUPLICATE, Decision.TRIM
OUT_OF_ORDER, UNKNOWN, FENCED, FULL = (
    Decision.OUT_OF_ORDER,
    Decision.UNKNOWN_PRODUCER,
    Decision.FENCED,
    Decision.FULL,
)


def partition_near_the_top_of_the_circle(last_sequence: int) -> Partition:
    """A producer so old that its sequences are about to wrap; made as a follower would, by what the log holds."""
    partition = Partition()
    now = partition.clock.now()
    partition.map.accept(PID, 1, last_sequence - 2, 3, 0, now.wall_ms, now)
    partition.next_offset = 3
    return partition


# Sequences


def test_the_sequence_goes_on_at_zero_after_two_to_the_31() -> None:
    partition = partition_near_the_top_of_the_circle(TOP - 1)
    assert partition.send(PID, 1, TOP, "last") == Answer(APPEND, 3)
    assert partition.send(PID, 1, 0, "first again") == Answer(APPEND, 4)
    assert partition.send(PID, 1, TOP, "last") == Answer(DUPLICATE, 3)
    assert partition.send(PID, 1, 2, "gap").decision is OUT_OF_ORDER


def test_a_batch_may_hold_the_wrap_in_its_middle() -> None:
    partition = partition_near_the_top_of_the_circle(TOP - 2)
    assert partition.send(PID, 1, TOP - 1, "a", "b", "c", "d") == Answer(APPEND, 3)
    assert partition.map.highwater(PID) == (1, 1)
    assert partition.send(PID, 1, TOP - 1, "a", "b", "c", "d") == Answer(DUPLICATE, 3)
    assert partition.send(PID, 1, 0, "c", "d") == Answer(DUPLICATE, 5)
    assert partition.send(PID, 1, TOP, "b", "c", "d", "e", "f") == Answer(TRIM, 4)
    assert partition.values[-2:] == ["e", "f"]


def test_a_batch_that_is_partly_there_loses_just_that_part() -> None:
    partition = Partition()
    partition.send(PID, 1, 0, "a", "b", "c")
    assert partition.send(PID, 1, 1, "b", "c", "d", "e") == Answer(TRIM, 1)
    assert partition.values == ["a", "b", "c", "d", "e"]
    assert partition.send(PID, 1, 0, "a", "b", "c", "d", "e") == Answer(DUPLICATE, 0)


def test_a_duplicate_is_told_its_offset_for_the_last_five_batches_however_it_is_cut() -> None:
    partition = Partition()
    partition.send(77, 1, 0, "another's")
    for n in range(7):
        partition.send(PID, 1, 2 * n, f"{2 * n}", f"{2 * n + 1}")
    assert partition.send(PID, 1, 4, "4", "5") == Answer(DUPLICATE, 5)
    assert partition.send(PID, 1, 7, "7", "8", "9") == Answer(DUPLICATE, 8)
    assert partition.send(PID, 1, 13, "13") == Answer(DUPLICATE, 14)
    assert partition.send(PID, 1, 3, "3", "4") == Answer(DUPLICATE, -1), "its first record is older than that"


def test_a_producer_that_only_ever_was_fenced_begins_at_zero() -> None:
    partition = Partition()
    assert partition.fence(PID, 5) == (APPEND, -1)
    assert partition.send(PID, 5, 1, "b").decision is OUT_OF_ORDER
    assert partition.send(PID, 5, TOP, "z").decision is OUT_OF_ORDER
    assert partition.send(PID, 5, 0, "a") == Answer(APPEND, 1)


# Resuming


def test_of_two_resumers_that_race_one_goes_on_and_the_other_is_told() -> None:
    partition = Partition()
    partition.send(PID, 7, 0, "a", "b")
    assert partition.fence(PID, 8) == (APPEND, 1)
    assert partition.fence(PID, 8) == (FENCED, None), "two owners of one generation would not fence each other"
    assert partition.send(PID, 8, 2, "c").decision is APPEND

    # The loser may insist. Then it is the owner, and the slots are filled once all the same.
    assert partition.fence(PID, 9) == (APPEND, 2)
    assert partition.send(PID, 8, 3, "d").decision is FENCED
    assert partition.send(PID, 9, 2, "c") == Answer(DUPLICATE, 3)
    assert partition.send(PID, 9, 3, "d").decision is APPEND
    assert partition.values == ["a", "b", "c", "d"]


def test_whoever_lost_the_answer_of_its_fence_takes_the_next_generation() -> None:
    partition = Partition()
    partition.send(PID, 7, 0, "a")
    partition.fence(PID, 8)  # the answer never arrives
    assert partition.fence(PID, 9) == (APPEND, 0)


def test_a_zombie_that_comes_back_between_the_fence_and_the_first_write_is_refused() -> None:
    partition = Partition()
    partition.send(PID, 7, 0, "a", "b")
    _, highwater = partition.fence(PID, 8)
    assert partition.send(PID, 7, 2, "zombie's c").decision is FENCED
    assert partition.send(PID, 7, 1, "b").decision is FENCED, "even what is there already: it must stop"
    assert highwater == 1, "so what the resumer was told is still true"
    assert partition.send(PID, 8, 2, "c").decision is APPEND
    assert partition.values == ["a", "b", "c"]


def test_a_zombie_cannot_even_write_the_first_batch_of_a_partition_that_was_fenced_before_it_saw_one() -> None:
    partition = Partition()
    partition.fence(PID, 8)
    assert partition.send(PID, 7, 0, "zombie's a").decision is FENCED
    assert partition.send(PID, 8, 0, "a").decision is APPEND


def test_a_producer_resumed_twice_while_one_partition_saw_no_write_goes_on_there_too() -> None:
    """The proposal's "one greater" would lock it out of the quiet partition for ever."""
    busy, quiet = Partition(), Partition()
    for partition in (busy, quiet):
        partition.send(PID, 7, 0, "a")
    for generation in (8, 9):
        busy.send(PID, generation, generation - 7, "more")
    assert quiet.send(PID, 9, 1, "b").decision is APPEND
    assert quiet.send(PID, 8, 2, "zombie's c").decision is FENCED


def test_the_fence_holds_after_a_restart_and_on_a_follower() -> None:
    partition = Partition()
    partition.send(PID, 7, 0, "a")
    partition.fence(PID, 8)
    partition.restart()
    assert partition.send(PID, 7, 1, "zombie's b").decision is FENCED
    assert partition.send(PID, 8, 1, "b").decision is APPEND


def test_generations_wrap_and_still_tell_the_newer_from_the_older() -> None:
    partition = Partition()
    top = GENERATIONS - 1
    partition.send(PID, top, 0, "a")
    assert partition.send(PID, 0, 1, "b").decision is APPEND
    assert partition.send(PID, top, 2, "zombie's c").decision is FENCED
    assert partition.fence(PID, top) == (FENCED, None)
    assert partition.fence(PID, 1) == (APPEND, 1)


def test_a_pid_of_init_producer_id_cannot_be_resumed_by_a_fence() -> None:
    partition = Partition()
    kafka_pid = 2**32
    partition.send(kafka_pid, 0, 0, "a")
    assert partition.fence(kafka_pid, 1) == (UNKNOWN, None)
    assert partition.fence(0, 1) == (UNKNOWN, None)


# Leases


def test_a_lease_that_expires_with_a_batch_in_flight_still_gets_its_answer() -> None:
    """The client stops using the lease, but what is under way is retried under the old pid until it is acknowledged."""
    grants = Granted({PID: 0})
    partition = Partition(grants)
    partition.send(PID, 7, 0, "a")
    partition.clock.advance(23 * HOUR_MS)
    partition.send(PID, 7, 1, "b")  # the answer is lost; the lease ends
    partition.map.expire(partition.clock.advance(4 * HOUR_MS))
    assert partition.send(PID, 7, 1, "b") == Answer(DUPLICATE, 1)
    assert partition.send(PID, 7, 2, "c").decision is APPEND, "the rest of what was in flight"


def test_a_first_batch_sent_again_after_its_entry_has_gone_is_refused_and_never_taken_for_new() -> None:
    grants = Granted({PID: 0})
    partition = Partition(grants)
    partition.clock.advance(DAY_MS)
    partition.send(PID, 7, 0, "a")  # as late as a lease allows
    for hours in range(24, 120):
        partition.map.expire(partition.clock.now())
        assert partition.send(PID, 7, 0, "a").decision in (DUPLICATE, UNKNOWN), f"{hours} hours after the grant"
        partition.clock.advance(HOUR_MS)
    assert partition.map.highwater(PID) is None, "it has gone in the end"
    assert partition.values == ["a"]


def test_a_pid_that_was_never_granted_or_long_ago_writes_nothing() -> None:
    partition = Partition(Granted({PID: 0}))
    assert partition.send(PID + 1, 0, 0, "a").decision is UNKNOWN
    assert partition.fence(PID + 1, 0) == (UNKNOWN, None)
    assert partition.send(PID, 0, 1, "b").decision is UNKNOWN, "it never wrote here, so it begins at 0"
    partition.clock.advance(2 * DAY_MS)
    assert partition.send(PID, 0, 0, "a").decision is UNKNOWN
    assert partition.values == []


def test_use_does_not_renew_a_lease() -> None:
    partition = Partition(Granted({PID: 0}))
    for sequence in range(48):
        assert partition.send(PID, 7, sequence, "a").decision is APPEND
        partition.map.expire(partition.clock.advance(HOUR_MS))
    assert partition.map.highwater(PID) is None


# A full ring


def full_ring(entries: int = 16) -> Partition:
    """Of strangers who wrote once."""
    partition = Partition(limits=ProducerLimits(lease_entries=entries))
    for pid in range(1, entries + 1):
        assert partition.send(pid, 0, 0, f"{pid}").decision is APPEND
        partition.clock.advance(1)
    return partition


def test_in_a_full_ring_those_who_came_once_give_way_and_nothing_of_theirs_is_taken_twice() -> None:
    partition = full_ring()
    assert partition.send(17, 0, 0, "17").decision is APPEND
    for pid in (1, 2):
        assert partition.map.highwater(pid) is None
        assert partition.send(pid, 0, 0, f"{pid}").decision is UNKNOWN
        assert partition.send(pid, 0, 1, "more").decision is UNKNOWN
        assert partition.fence(pid, 1) == (UNKNOWN, None)
    for pid in range(3, 18):
        assert partition.send(pid, 0, 0, f"{pid}").decision is DUPLICATE


def test_whoever_writes_on_keeps_a_place_beside_any_number_of_strangers_and_so_does_the_next_lease() -> None:
    partition = full_ring(64)
    granted = count(1000)
    for _ in range(10):
        lease = next(granted)
        for sequence in range(20):
            assert partition.send(lease, 5, sequence, "mine").decision is APPEND
            for _ in range(7):
                assert partition.send(next(granted), 0, 0, "once").decision is APPEND
                partition.clock.advance(1)
        assert partition.send(lease, 5, 0, "mine").decision is DUPLICATE
    assert partition.map.leases_live <= 64
    assert len([value for value in partition.values if value == "mine"]) == 200


def test_of_many_who_write_on_the_longest_idle_give_way() -> None:
    partition = Partition(limits=ProducerLimits(lease_entries=16))
    for sequence in range(2):
        for pid in range(1, 17):
            partition.send(pid, 0, sequence, "a")
    partition.send(1, 0, 2, "a")
    assert partition.send(17, 0, 0, "17").decision is APPEND
    assert [pid for pid in range(1, 18) if partition.map.highwater(pid) is None] == [2, 3]


def test_a_pid_older_than_those_that_gave_way_is_not_new_any_more() -> None:
    """It may have been here, and nobody can tell: it is refused rather than doubled, and another is leased."""
    partition = Partition(limits=ProducerLimits(lease_entries=16))
    for pid in range(10, 10 + 2 * 17, 2):
        partition.send(pid, 0, 0, f"{pid}")
    assert partition.map.highwater(12) is None
    assert partition.send(11, 0, 0, "comes late").decision is UNKNOWN
    assert partition.fence(9, 0) == (UNKNOWN, None)
    assert partition.send(13, 0, 0, "above all that gave way").decision is APPEND


def test_who_gave_way_stays_known_as_such_through_snapshots_and_restarts() -> None:
    partition = full_ring()
    partition.send(17, 0, 0, "17")
    data = partition.map.encode(partition.clock.now())
    for is_from_snapshot in (True, False):
        if is_from_snapshot:
            partition.map = ProducerMap(limits=partition.limits)
            partition.map.decode(data, partition.clock.advance(HOUR_MS))
        else:
            partition.restart()
        assert partition.send(1, 0, 0, "1").decision is UNKNOWN
        assert partition.send(17, 0, 0, "17").decision is DUPLICATE


def test_the_floor_is_gone_after_two_lifetimes_when_no_pid_below_it_can_be_new() -> None:
    partition = full_ring()
    partition.send(17, 0, 0, "17")
    data = partition.map.encode(partition.clock.now())
    partition.map.decode(data, partition.clock.now())
    partition.clock.advance(2 * DAY_MS - 1)
    assert partition.send(1, 0, 0, "1").decision is UNKNOWN
    partition.clock.advance(1)
    assert partition.send(1, 0, 0, "granted anew, 2^32 grants later").decision is APPEND


def test_a_full_table_of_kafka_pids_refuses_a_new_one_while_all_may_have_batches_under_way() -> None:
    partition = Partition(limits=ProducerLimits(kafka_entries=16))
    first = 2**32
    for pid in range(first, first + 16):
        assert partition.send(pid, 0, 0, "a").decision is APPEND
    partition.clock.advance(GRACE_MS - 1)
    assert partition.send(first + 16, 0, 0, "a").decision is FULL
    for pid in range(first, first + 16):
        assert partition.send(pid, 0, 0, "a").decision is DUPLICATE


def test_in_a_full_table_of_kafka_pids_the_longest_idle_gives_way_to_a_new_one() -> None:
    partition = Partition(limits=ProducerLimits(kafka_entries=16))
    first = 2**32
    for pid in range(first, first + 16):
        partition.send(pid, 0, 0, "a")
    partition.clock.advance(GRACE_MS // 2)
    for pid in range(first, first + 14):
        partition.send(pid, 0, 1, "b")
    partition.clock.advance(GRACE_MS // 2)
    for new in (first + 16, first + 17):
        assert partition.send(new, 0, 0, "a").decision is APPEND
    assert partition.send(first + 18, 0, 0, "a").decision is FULL, "all the others were active within their grace"
    assert partition.map.highwater(first + 14) is None
    assert partition.map.highwater(first + 15) is None
    for pid in range(first, first + 14):
        assert partition.send(pid, 0, 1, "b").decision is DUPLICATE
    assert partition.map.kafka_live == 16


def test_a_producer_that_gave_way_goes_on_where_it_was_as_on_kafka_after_its_expiry() -> None:
    partition = Partition(limits=ProducerLimits(kafka_entries=1))
    partition.send(2**32, 3, 0, "a")
    partition.clock.advance(GRACE_MS)
    partition.send(2**32 + 1, 0, 0, "another's")
    partition.clock.advance(GRACE_MS)
    assert partition.send(2**32, 3, 1, "b").decision is APPEND
    assert partition.send(2**32, 3, 1, "b").decision is DUPLICATE


def test_made_up_kafka_pids_take_the_place_of_no_lease() -> None:
    partition = Partition(limits=ProducerLimits(lease_entries=16, kafka_entries=16))
    for pid in range(1, 17):
        partition.send(pid, 0, 0, "a")
    for n in range(100):
        partition.clock.advance(GRACE_MS // 16)
        assert partition.send(2**40 + n, 0, 0, "junk").decision is APPEND
    for pid in range(1, 17):
        assert partition.send(pid, 0, 0, "a").decision is DUPLICATE


def test_a_replayed_table_keeps_those_that_wrote_last_and_not_those_that_came_last() -> None:
    """A replay happens all at one moment, so that only the order of the batches tells who is idle for the longest."""
    partition = Partition(limits=ProducerLimits(kafka_entries=16))
    now = partition.clock.now()
    first = 2**32
    for n in range(100):
        partition.map.accept(first, 0, n, 1, 2 * n, 0, now)
        partition.map.accept(first + 1 + n, 0, 0, 1, 2 * n + 1, 0, now)
    assert partition.map.highwater(first) == (0, 99)
    assert [one.pid for one in partition.map.live(now)] == [*range(first + 70, first + 100), first, first + 100]


def test_who_gives_way_first_is_the_same_after_a_restart_from_a_snapshot() -> None:
    partition = Partition(limits=ProducerLimits(kafka_entries=3))
    first = 2**32
    for pid in (first + 2, first, first + 1):
        partition.send(pid, 0, 0, "a")
        partition.clock.advance(1)
    partition.send(first + 2, 0, 1, "b")
    data = partition.map.encode(partition.clock.now())
    partition.map = ProducerMap(limits=partition.limits)
    partition.map.decode(data, partition.clock.now())
    partition.clock.advance(GRACE_MS)
    partition.send(first + 3, 0, 0, "a")
    assert [one.pid for one in partition.map.live(partition.clock.now())] == [first + 1, first + 2, first + 3]


def test_replay_never_refuses_and_takes_nothing_twice_where_the_leaders_ring_was_larger() -> None:
    leader = Partition(limits=ProducerLimits(lease_entries=32, kafka_entries=32))
    for n in range(32):
        leader.send(n + 1, 0, 0, "a")
        leader.send(2**32 + n, 0, 0, "a")
    leader.limits = ProducerLimits(lease_entries=16, kafka_entries=16)
    leader.restart()
    for n in range(32):
        assert leader.send(n + 1, 0, 0, "a").decision in (UNKNOWN, DUPLICATE)
        assert leader.send(2**32 + n, 0, 0, "a").decision is DUPLICATE
    assert leader.map.leases_live <= 16
    assert leader.send(33, 0, 0, "a").decision is APPEND
    assert leader.send(2**32 + 32, 0, 0, "a").decision is FULL


def test_memory_stays_bounded_however_many_producers_a_replayed_log_names() -> None:
    partition = Partition(limits=ProducerLimits(lease_entries=16, kafka_entries=16))
    now = partition.clock.now()
    most_bytes = 0
    for n in range(1, 5000):
        partition.map.accept(n, 0, 0, 1, n, 0, now)
        partition.map.accept(2**32 + n, 0, 0, 1, n, 0, now)
        most_bytes = max(most_bytes, partition.map.size_bytes())
    assert most_bytes <= (1 + 2) * 16 * BYTES_A_PRODUCER, "leases at their setting, Kafka's pids at twice theirs"
    assert partition.map.leases_live in (15, 16)
    assert partition.map.kafka_live == 32
    assert partition.map.highwater(4999) == (0, 0), "the newest are those that stay"
    assert partition.map.highwater(2**32 + 4999) == (0, 0)


def test_a_new_producer_inherits_nothing_from_the_one_whose_memory_it_gets() -> None:
    partition = Partition(limits=ProducerLimits(lease_entries=1, kafka_entries=1))
    for n in range(9):
        partition.send(1, 5, n, "a")
        partition.send(2**32, 5, n, "a")
    partition.map.expire(partition.clock.advance(2 * DAY_MS))
    partition.fence(2, 6)
    partition.send(2**32 + 1, 0, 0, "b")
    assert list(partition.map.live(partition.clock.now())) == [
        (2, 6, -1, -1, -1, DAY_MS, -1, -1),
        (2**32 + 1, 0, 0, partition.clock.now().wall_ms, partition.next_offset - 1, -1, -1, -1),
    ]
    assert partition.send(2**32 + 1, 0, 2**31 - 1, "c").decision is OUT_OF_ORDER


def test_a_partition_without_producers_takes_next_to_no_memory() -> None:
    partition = Partition()
    partition.send(-1, -1, -1, "a")
    partition.send(0, 0, 7, "b")
    assert partition.map.size_bytes() == 0


def test_a_pid_of_nobody_is_not_looked_at() -> None:
    partition = Partition()
    for pid in (-1, 0):
        for _ in range(2):
            assert partition.send(pid, 3, 9, "a").decision is APPEND
    assert len(partition.values) == 4


def test_the_refusals_are_counted() -> None:
    partition = Partition(Granted({PID: 0}))
    partition.send(PID, 7, 0, "a", "b")
    partition.send(PID, 7, 0, "a", "b")
    partition.send(PID, 7, 1, "b", "c")
    partition.send(PID, 7, 9, "gap")
    partition.send(PID, 6, 3, "zombie")
    partition.fence(PID, 6)
    partition.send(PID + 1, 0, 0, "never granted")
    counted = partition.map
    assert (counted.duplicates, counted.trimmed, counted.out_of_order, counted.fenced, counted.unknown) == (
        *(1, 1, 1),
        *(2, 1),
    )


def test_a_pid_can_be_leased_again_once_the_numbers_have_gone_round() -> None:
    """2^32 grants later, the entries of the first time are long gone and the new pids are the younger ones."""
    broker = Granting(Sequence(END_OF_LEASED_PIDS - 100), ManualClock())
    partition = Partition(broker)
    for _ in range(150):
        assert partition.send(broker.grant(), 7, 0, "a").decision is APPEND
    assert [one.pid for one in partition.map.live(partition.clock.now())] == [
        *range(2**32 - 100, 2**32),
        *range(1, 51),
    ]


def test_what_is_left_of_a_lease_is_counted_from_its_first_message_and_is_never_less_than_nothing() -> None:
    partition = Partition(Granted({PID: 0}))

    def left_ms() -> list[int]:
        return [one.lease_left_ms for one in partition.map.live(partition.clock.now())]

    partition.clock.advance(HOUR_MS)
    partition.send(PID, 7, 0, "a")
    assert left_ms() == [DAY_MS]
    partition.clock.advance(HOUR_MS)
    partition.send(PID, 7, 1, "b")
    assert left_ms() == [DAY_MS - HOUR_MS]
    partition.clock.advance(DAY_MS)
    assert left_ms() == [0]
    assert (partition.map.lease_capacity, partition.map.lease_lifetime_ms) == (65_536, DAY_MS)
