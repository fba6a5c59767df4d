"""What all partitions may hold together: strangers elsewhere cost memory up to a bound, and no producer its place."""

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from oncelog.clock import ManualClock
from oncelog.producers import Ceilings, Decision, ProducerLimits, ProducerMap
from oncelog.producers import ceilings as module
from oncelog.producers.ceilings import SURE_OF_A_PLACE
from oncelog.producers.kafka_producers import GRACE_MS
from oncelog.producers.markers import NO_TRANSACTION, Marker
from tests.producers.partition import Partition

MOST = 160
PARTITIONS = 20
FIRST_KAFKA = 2**32
APPEND, DUPLICATE, UNKNOWN, FULL = Decision.APPEND, Decision.DUPLICATE, Decision.UNKNOWN_PRODUCER, Decision.FULL


def server(partitions: int = PARTITIONS, *, most: int = MOST) -> list[Partition]:
    ceilings = Ceilings(most, most)
    made = [Partition(ceilings=ceilings) for _ in range(partitions)]
    for each in made:
        each.clock = made[0].clock
    ceilings.belong_to(lambda: ((each.map, each.next_offset) for each in made))
    return made


@pytest.fixture
def granted() -> Iterator[int]:
    return count(1)


def held(partitions: list[Partition]) -> int:
    return sum(each.map.leases_live for each in partitions)


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_producer_that_writes_on_keeps_its_place_whatever_strangers_do_in_all_partitions(
    granted: Iterator[int], batches: int
) -> None:
    partitions = server()
    for place, partition in enumerate(partitions):
        partition.send(next(granted), 0, 0, f"first of {place}")
    mine = next(granted)
    most = 0
    for sequence in range(20):
        assert partitions[3].send(mine, 5, sequence, "mine").decision is APPEND
        for n in range(MOST // 10):
            stranger = next(granted)
            for each in range(batches):
                partitions[n % PARTITIONS].send(stranger, 0, each, "strange")
            most = max(most, held(partitions))
    assert partitions[3].send(mine, 5, 0, "mine").decision is DUPLICATE
    assert most == MOST


def test_those_who_came_once_give_way_first_and_nothing_of_theirs_is_taken_twice(granted: Iterator[int]) -> None:
    partitions = server()
    goes_on = [(partition, next(granted)) for partition in partitions for _ in range(2)]
    for sequence in range(2):
        for partition, pid in goes_on:
            assert partition.send(pid, 0, sequence, "on").decision is APPEND
    once = [(partitions[n % PARTITIONS], next(granted)) for n in range(3 * MOST)]
    for partition, pid in once:
        assert partition.send(pid, 0, 0, "once").decision is APPEND
    assert held(partitions) <= MOST
    for partition, pid in goes_on:
        assert partition.send(pid, 0, 1, "on").decision is DUPLICATE
    answers = [partition.send(pid, 0, 0, "once").decision for partition, pid in once]
    assert set(answers) == {UNKNOWN, DUPLICATE}
    assert answers[-PARTITIONS:] == [DUPLICATE] * PARTITIONS, "the last ones are there"


def test_of_many_who_wrote_on_the_longest_idle_give_way(granted: Iterator[int]) -> None:
    partitions = server(2, most=80)
    idle, active = next(granted), next(granted)
    for sequence in range(2):
        partitions[0].send(idle, 0, sequence, "a")
    for n in range(80):
        partitions[0].send(active, 0, n, "a")
        newcomer = next(granted)
        for sequence in range(2):
            assert partitions[1].send(newcomer, 0, sequence, "b").decision is APPEND
    assert partitions[0].map.highwater(idle) is None
    assert partitions[0].map.highwater(active) == (0, 79)


def test_where_all_go_on_writing_some_lease_again_and_the_bound_holds(granted: Iterator[int]) -> None:
    partitions = server(4, most=64)
    writing: dict[int, int] = {}  # the next sequence of each
    refused = 0
    for _ in range(10):
        for _ in range(10):
            writing[next(granted)] = 0
        for pid, sequence in list(writing.items()):
            for each in (sequence, sequence + 1):
                decision = partitions[pid % 4].send(pid, 0, each, "a").decision
                if decision is UNKNOWN:
                    refused += 1
                    del writing[pid]
                    break
                assert decision is APPEND
                writing[pid] = each + 1
    assert refused
    assert 32 <= held(partitions) <= 64


def test_a_producer_in_the_middle_of_a_run_that_gives_way_is_not_known_any_more(granted: Iterator[int]) -> None:
    """Nothing that its entry lacks may still reach the producer that has the entry then."""
    partitions = server(2, most=32)
    pid, target, now = next(granted), partitions[0].map, partitions[0].clock.now()
    target.accept(pid, 0, 0, 1, 0, 0, now)
    assert target.accept_next(pid, 0, 1, 1, 1, 0, now)
    partitions[0].next_offset = 2
    for _ in range(64):
        stranger = next(granted)
        for sequence in range(2):
            partitions[1].send(stranger, 0, sequence, "a")
    assert not target.accept_next(pid, 0, 2, 1, 2, 0, now)
    assert target.judge(pid, 0, 2, 1, now)[0] is UNKNOWN


def test_what_is_held_already_counts_from_the_start() -> None:
    partitions = [Partition(ceilings=(ceilings := Ceilings(40, 40)))]
    for pid in range(1, 59):
        partitions[0].send(pid, 0, 0, "a")
    ceilings.belong_to(lambda: ((each.map, each.next_offset) for each in partitions))
    assert partitions[0].send(59, 0, 0, "a").decision is APPEND
    assert held(partitions) < 58
    for pid in range(60, 100):
        assert partitions[0].send(pid, 0, 0, "a").decision is APPEND
    assert held(partitions) <= 40


def test_where_all_kafka_pids_are_active_new_ones_are_refused_where_many_are_and_nowhere_else() -> None:
    partitions = server(3, most=200)
    for n in range(200):
        assert partitions[0].send(FIRST_KAFKA + n, 0, 0, "a").decision is APPEND
    assert partitions[0].send(FIRST_KAFKA + 1000, 0, 0, "a").decision is FULL
    for n in range(SURE_OF_A_PLACE):
        assert partitions[1].send(FIRST_KAFKA + 2000 + n, 0, 0, "a").decision is APPEND
    assert partitions[1].send(FIRST_KAFKA + 3000, 0, 0, "a").decision is FULL
    assert partitions[0].send(FIRST_KAFKA, 0, 0, "a").decision is DUPLICATE, "nobody gave way within the grace"
    assert partitions[0].send(FIRST_KAFKA, 0, 1, "b").decision is APPEND
    partitions[0].clock.advance(GRACE_MS)
    assert partitions[0].send(FIRST_KAFKA, 0, 2, "c").decision is APPEND
    assert partitions[1].send(FIRST_KAFKA + 3000, 0, 0, "a").decision is APPEND
    assert partitions[0].send(FIRST_KAFKA, 0, 2, "c").decision is DUPLICATE, "it wrote a moment ago"
    assert sum(each.map.kafka_live for each in partitions) <= 200 + SURE_OF_A_PLACE


def test_leases_and_kafka_pids_take_no_room_from_each_other(granted: Iterator[int]) -> None:
    partitions = server(2, most=100)
    for n in range(100):
        partitions[0].send(FIRST_KAFKA + n, 0, 0, "a")
    pids = [next(granted) for _ in range(100)]
    for pid in pids:
        assert partitions[0].send(pid, 0, 0, "a").decision is APPEND
    for pid in pids:
        assert partitions[0].send(pid, 0, 0, "a").decision is DUPLICATE


def test_in_steps_nothing_is_taken_twice_whatever_comes_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the log does it: `accept_next` first, so that entries lag behind while others give way."""
    monkeypatch.setattr(module, "LOOKED_AT", 16)
    random, clock, ceilings = Random(7), ManualClock(), Ceilings(64, 64)
    maps = [ProducerMap(ceilings=ceilings) for _ in range(8)]
    ends = [0] * 8
    ceilings.belong_to(lambda: zip(maps, ends, strict=True))
    stored: set[tuple[int, int, int]] = set()
    due: dict[tuple[int, int], int] = {}
    newest = most = given_way = 0
    for _ in range(20_000):
        now = clock.advance(1)
        place = random.randrange(8)
        if random.random() < 0.3:
            newest += 1
            pid, sequence = newest, 0
        else:
            pid = max(1, newest - random.choice((0, 1, 5, 40, 400)))
            sequence = due.get((place, pid), 0) - random.choice((0, 0, 0, 1, 2))
            if sequence < 0:
                continue
        target = maps[place]
        if not target.accept_next(pid, 0, sequence, 1, ends[place], 0, now):
            decision, _ = target.judge(pid, 0, sequence, 1, now)
            given_way += decision is UNKNOWN
            if decision is not APPEND:
                continue
            target.accept(pid, 0, sequence, 1, ends[place], 0, now)
        assert (place, pid, sequence) not in stored, "taken twice"
        stored.add((place, pid, sequence))
        due[place, pid] = sequence + 1
        ends[place] += 1
        most = max(most, sum(each.leases_live for each in maps))
    assert 64 <= most <= 64 + 16
    assert given_way > 1000


def ended(partition: Partition, pid: int, first_offset: int = NO_TRANSACTION) -> None:
    marker = Marker(is_commit=False, coordinator_epoch=3, first_offset=first_offset)
    partition.map.end_transaction(pid, 0, marker, partition.next_offset, 0, partition.clock.now())


def test_markers_of_those_who_wrote_nothing_drive_out_nobody_and_take_no_memory() -> None:
    partitions = server(2, most=200)
    for n in range(200):
        assert partitions[0].send(FIRST_KAFKA + n, 0, 0, "a").decision is APPEND
    for n in range(1000):
        for partition in partitions:
            ended(partition, FIRST_KAFKA + 10_000 + n)
    assert partitions[0].send(FIRST_KAFKA, 0, 0, "a").decision is DUPLICATE
    assert sum(each.map.kafka_live for each in partitions) <= 200 + SURE_OF_A_PLACE
    assert len(partitions[0].map.transactions.coordinators) == 0
    assert len(partitions[1].map.transactions.coordinators) == SURE_OF_A_PLACE


def test_in_a_full_partition_too_and_what_is_open_there_is_ended() -> None:
    partition = Partition(limits=ProducerLimits(kafka_entries=10))
    now = partition.clock.now()
    for n in range(9):
        assert partition.send(FIRST_KAFKA + n, 0, 0, "a").decision is APPEND
    partition.map.accept_in_transaction(FIRST_KAFKA + 9, 0, 0, 1, 9, 0, now)
    partition.map.transactions.verify(FIRST_KAFKA + 100, 0)
    for n in range(100):
        ended(partition, FIRST_KAFKA + 100 + n)
    assert partition.send(FIRST_KAFKA, 0, 0, "a").decision is DUPLICATE
    assert partition.map.transactions.open and not partition.map.transactions.verified
    ended(partition, FIRST_KAFKA + 9, 9)
    assert not partition.map.transactions.open
    partition.clock.advance(GRACE_MS)
    ended(partition, FIRST_KAFKA + 100)
    assert partition.map.highwater(FIRST_KAFKA + 100) is not None, "there is room again"
