"""A save names exactly the boundary at which it was asked for, however late the answers come."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.saving import CannotResume, SavedPartition
from oncelog.client.saving.book import Book, Save
from oncelog.slots import Identity, Place, Span

OURS, NEXT = Identity(7, 1), Identity(8, 1)
PLACES = [Place("out", at) for at in range(3)]


def book(spans: tuple[Span, ...] = (Span(OURS, 0),)) -> Book:
    found = Book("cluster", "murmur2")
    found.pin("out", "id", 3)
    for place in PLACES:
        found.open(place, SavedPartition(next_offset=0, spans=spans))
    return found


@dataclass
class Model:
    """What a save must say: the counts at the moment that it was asked for."""

    taken: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    under_way: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))


@given(st.lists(st.tuples(st.sampled_from(["take", "store", "save"]), st.integers(0, 2), st.integers(1, 5))))
def test_every_save_names_the_boundary_of_its_beginning(steps: list[tuple[str, int, int]]) -> None:
    ours, model = book(), Model()
    saves: list[tuple[Save, dict[Place, int]]] = []
    for what, at, count in [*steps, *(("store", at, 5) for at in range(3) for _ in steps)]:
        place = PLACES[at]
        if what == "take":
            ours.taken(place, count)
            model.taken[place] += count
            model.under_way[place] += count
        elif what == "save":
            saves.append((ours.begin_save(), dict(model.taken)))
        elif stored := min(count, model.under_way[place]):  # batches need not end where a save begins
            ours.stored(place, stored, 0)
            model.under_way[place] -= stored
    for begun, boundary in saves:
        value = ours.value(begun, 5)
        found = {place: value.topics["out"].partitions[place.partition].last.next_sequence for place in PLACES}
        assert found == boundary


def test_a_save_waits_for_what_was_produced_before_it_and_for_nothing_else() -> None:
    ours = book()
    ours.taken(PLACES[0], 4)
    save = ours.begin_save()
    ours.taken(PLACES[0], 3)
    assert not save.is_complete
    assert ours.stored(PLACES[0], 4, 104) == [save]
    ours.stored(PLACES[0], 3, 107)
    partition = ours.value(save, 5).topics["out"].partitions[0]
    assert (partition.last.next_sequence, partition.next_offset) == (4, 104)


def test_the_keyless_counter_is_that_of_the_boundary() -> None:
    ours = book()
    assert [ours.keyless("out").choose(3) for _ in range(4)] == [0, 1, 2, 0]
    save = ours.begin_save()
    ours.keyless("out").choose(3)
    assert ours.value(save, 5).topics["out"].keyless_counter == 4


def test_a_chain_is_used_up_from_its_front_and_goes_on_under_its_last_identity() -> None:
    ours = book((Span(OURS, 10, 3), Span(NEXT, 0)))
    place = PLACES[0]
    seen = []
    for _ in range(5):
        ours.taken(place)
        ours.stored(place, 1, 0)
        seen.append(ours.partitions[place].spans)
    assert seen == [
        (Span(OURS, 11, 2), Span(NEXT, 0)),
        (Span(OURS, 12, 1), Span(NEXT, 0)),
        (Span(NEXT, 0),),
        (Span(NEXT, 1),),
        (Span(NEXT, 2),),
    ]


def test_one_step_may_reach_over_a_whole_chain_and_over_the_wrap() -> None:
    ours = book((Span(OURS, 10, 3), Span(OURS, 50, 2), Span(NEXT, (1 << 31) - 1)))
    ours.taken(PLACES[0], 7)
    ours.stored(PLACES[0], 7, 0)
    assert ours.partitions[PLACES[0]].spans == (Span(NEXT, 1),)


def test_a_chain_without_an_open_end_is_a_defect_and_never_sent_on() -> None:
    ours = book((Span(OURS, 10, 1),))
    ours.taken(PLACES[0], 1)
    with pytest.raises(CannotResume, match="no open span"):
        ours.stored(PLACES[0], 1, 0)


def test_an_identity_that_changes_behind_the_boundary_leaves_a_closed_span_in_the_save() -> None:
    ours = book()
    place = PLACES[0]
    ours.taken(place, 4)
    save = ours.begin_save()
    ours.taken(place, 3)
    ours.stored(place, 4, 104)
    ours.stored(place, 3, 107)
    for each in PLACES:
        ours.change_identity(save, each, NEXT)
    value = ours.value(save, 5).topics["out"].partitions
    assert value[0].spans == (Span(OURS, 4, 3), Span(NEXT, 0))
    assert value[1].spans == (Span(NEXT, 0),)
    assert ours.partitions[place].spans == (Span(NEXT, 0),)


def test_what_was_handed_over_and_not_counted_yet_belongs_to_the_save() -> None:
    ours = book()
    save = ours.begin_save(lambda place: 2 if place == PLACES[1] else 0)
    ours.taken(PLACES[1], 2)
    assert ours.stored(PLACES[1], 2, 12) == [save]
