"""What records of a copy's topic come to, in the order of the log."""

import pytest

from oncelog.slots.register import Record
from oncelog.spark.copying.job import Order
from oncelog.spark.copying.lane import BadState, Claim, CopyRegister, Lane, Side, Start
from oncelog.spark.copying.mapping import Mapping, Stretch
from oncelog.spark.copying.tasks import shared_out

SOURCE, DESTINATION = Side("c1", "in", "i1"), Side("c2", "out", "i2")


def claim(pid: int, *partitions: int) -> Claim:
    return Claim(SOURCE, DESTINATION, pid, 0, {each: Start(10 * pid, 100 * pid) for each in partitions})


def noted(*records: "tuple[Lane, str] | Claim | bytes") -> CopyRegister:
    register = CopyRegister()
    for offset, each in enumerate(records):
        if isinstance(each, bytes):
            register.read([Record(offset, each, None)])
        elif isinstance(each, Claim):
            register.read([Record(offset, each.key, each.to_json())])
        else:
            register.read([Record(offset, each[0].key(each[1]), each[0].to_json())])
    return register


def lane(done: int, pid: int = 1, partition: int = 0, *stretches: Stretch) -> Lane:
    return Lane(partition, pid, 0, done, 10 + done, 100 + done, Mapping(stretches))


def test_the_first_claim_to_a_lane_counts() -> None:
    register = noted(claim(1, 0, 1), claim(2, 1, 2))
    assert {index: each.pid for index, each in register.lanes.items()} == {0: 1, 1: 1, 2: 2}
    assert register.lanes[2] == Lane(2, 2, 0, 0, 20, 200)
    assert register.next_offset == 2


def test_a_lane_is_as_far_as_whoever_is_furthest_says() -> None:
    register = noted(claim(1, 0), (lane(5), "a"), (lane(9), "b"), (lane(7), "a"))
    assert register.lanes[0].done == 9
    assert register.outlived() == [lane(0).key("a")]


def test_of_two_that_are_as_far_the_later_one_counts() -> None:
    later = lane(5, 1, 0, Stretch(5, 40, 3))
    assert noted(claim(1, 0), (lane(5), "a"), (later, "a")).lanes[0] == later


@pytest.mark.parametrize("late", [(), (Stretch(5, 15),)])
def test_a_hole_that_one_has_written_down_is_not_forgotten_for_a_record_that_does_not_know_it(
    late: tuple[Stretch, ...],
) -> None:
    """What was sent behind it would be taken for what lies before it, and the last record be copied again."""
    behind_the_hole = lane(5, 1, 0, Stretch(5, 16))
    register = noted(claim(1, 0), (lane(5), "before"), (behind_the_hole, "sends"), (lane(5, 1, 0, *late), "late"))
    assert register.lanes[0].mapping.offset_of(5) == 16
    assert register.outlived() == [lane(0).key("before")], "both of the others are needed still"
    further = lane(9, 1, 0, Stretch(9, 20))
    assert noted(claim(1, 0), (behind_the_hole, "sends"), (lane(5), "late"), (further, "c")).lanes[0] == further


def test_a_hole_that_one_who_is_less_far_has_written_down_counts_too() -> None:
    less_far = lane(3, 1, 0, Stretch(3, 13, 4), Stretch(7, 18))
    for records in ([(less_far, "a"), (lane(5), "b")], [(lane(5), "b"), (less_far, "a")]):
        register = noted(claim(1, 0), *records)
        assert register.lanes[0] == lane(5, 1, 0, Stretch(5, 15, 2), Stretch(7, 18))
        assert register.outlived() == []


def test_a_hole_is_remembered_while_its_author_writes_it_down_again() -> None:
    one, again = lane(3, 1, 0, Stretch(3, 13, 4), Stretch(7, 18)), lane(4, 1, 0, Stretch(4, 14, 3), Stretch(7, 18))
    register = noted(claim(1, 0), (lane(5), "b"), (one, "a.1"), (again, "a.2"), lane(0).key("a.1"))
    assert register.lanes[0].mapping.offset_of(7) == 18
    assert register.outlived() == []


def test_a_map_of_records_that_are_dealt_with_is_none() -> None:
    """They are gone from the source, as a later attempt found."""
    settled = Lane(0, 1, 0, 5, 40, 105)
    assert noted(claim(1, 0), (lane(5, 1, 0, Stretch(5, 16)), "a"), (settled, "b")).lanes[0] == settled


def test_what_another_producer_says_of_a_lane_is_nothing() -> None:
    assert noted(claim(1, 0), claim(2, 0), (lane(50, pid=2), "b")).lanes[0].done == 0
    assert noted((lane(50), "a")).lanes == {}


def test_what_was_removed_is_no_longer_to_be_removed() -> None:
    register = noted(claim(1, 0), (lane(5), "a"), (lane(9), "b"), lane(0).key("a"))
    assert register.outlived() == []
    assert register.lanes[0].done == 9


def test_records_come_back_as_they_were() -> None:
    one = lane(7, 1, 0, Stretch(7, 30, 2), Stretch(9, 40))
    register = noted(claim(1, 0), (one, "a"))
    assert register.lanes[0] == one
    assert register.claims == [claim(1, 0)]


def test_an_acknowledgement_moves_a_lane_on() -> None:
    one = lane(0, 1, 0, Stretch(0, 10, 5), Stretch(5, 30))
    assert one.advanced(6, 31, 120) == Lane(0, 1, 0, 6, 31, 120, Mapping((Stretch(6, 31),)))
    assert one.advanced(6, 31, -1).end_offset == 100


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"nothing", b'{"version":1,"kind":"state"}', b'{"version":1,"kind":"lane"}', b"\xff"]
)
def test_what_a_copy_did_not_write_is_refused(value: bytes) -> None:
    with pytest.raises(BadState, match="offset 3"):
        CopyRegister().read([Record(3, b"lane/0/a", value)])


def test_what_has_a_key_that_no_copy_writes_is_passed_over() -> None:
    register = noted(claim(1, 0))
    register.read([Record(1, key, b"what is this") for key in (None, b"", b"hello")])
    assert register.lanes.keys() == {0}


def test_a_newer_version_is_told_as_that() -> None:
    with pytest.raises(BadState, match="newer oncelog"):
        CopyRegister().read([Record(3, b"claim/7", b'{"version":2,"kind":"lane"}')])


def test_work_is_shared_out_by_its_size() -> None:
    lanes = {index: lane(0, 1, index) for index in range(5)}
    orders = [Order(index, 10 + size) for index, size in enumerate((100, 10, 60, 50, 0))]
    parts = shared_out(orders, lanes, 2)
    assert [[order.partition for order in part] for part in parts] == [[0, 1, 4], [2, 3]]
    assert len(shared_out(orders, lanes, 99)) == 5
    assert shared_out([], lanes, 2) == []
