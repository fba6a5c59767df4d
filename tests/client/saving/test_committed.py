"""The saved producer in OffsetCommit's metadata: bounded, whole or refused, and beside what users wrote there."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.register.entry import Entry
from oncelog.client.saving import BadSavedProducer, SavedProducer
from oncelog.client.saving.committed import Committed, put_in, take_out
from oncelog.slots import Identity
from tests.client.saving.values import saved_producer

LIMIT_BYTES = 4_096
INPUTS = [Entry("in", 0, 1_000, "mine", 3), Entry("in", 1, 2_000, "", -1)]


def taken(entries: Iterable[Entry]) -> Committed[SavedProducer]:
    return take_out(entries, SavedProducer.from_json)


def stored(*commits: list[Entry]) -> list[Entry]:
    """What a group holds after these commits: the newest entry of each partition."""
    held = {(entry.topic, entry.partition): entry for commit in commits for entry in commit}
    return list(held.values())


@given(
    partitions=st.integers(1, 400),
    inputs=st.lists(st.text(max_size=200), min_size=1, max_size=4),
    limit_bytes=st.integers(1_200, 5_000),
    save=st.integers(1, 10**12),
)
def test_positions_and_producer_come_back_and_no_entry_is_over_the_limit(
    partitions: int, inputs: list[str], limit_bytes: int, save: int
) -> None:
    saved = saved_producer(partitions)
    positions = [Entry("in", at, 17 * at, text) for at, text in enumerate(inputs)]
    entries = put_in(positions, saved, save, limit_bytes=limit_bytes)
    assert all(len(entry.metadata.encode()) <= limit_bytes for entry in entries)
    held = taken(reversed(entries))
    assert held.saved == saved
    assert held.save == save
    assert sorted(held.positions) == positions


def test_a_hundred_partitions_fit_beside_one_input_partition() -> None:
    entries = put_in(INPUTS[:1], saved_producer(100), 1, limit_bytes=LIMIT_BYTES)
    assert [(entry.topic, entry.partition) for entry in entries] == [("in", 0)]


def test_what_does_not_fit_goes_to_entries_of_the_output_partitions() -> None:
    saved = saved_producer(100)
    entries = put_in(INPUTS, saved, 1, limit_bytes=300)
    added = entries[len(INPUTS) :]
    assert added
    assert {entry.topic for entry in added} == {"out"}
    assert all(entry.offset == saved.topics["out"].partitions[entry.partition].next_offset for entry in added)
    assert taken(entries).saved == saved
    assert sorted(taken(entries).positions) == INPUTS, "the added entries are no positions"


def test_an_input_partition_that_is_an_output_too_has_one_entry() -> None:
    positions = [Entry("out", 0, 5)]
    entries = put_in(positions, saved_producer(100), 1, limit_bytes=400)
    places = [(entry.topic, entry.partition) for entry in entries]
    assert len(places) == len(set(places))
    assert entries[0].offset == 5
    assert taken(entries).positions == (Entry("out", 0, 5),)


def test_what_cannot_fit_is_refused_by_the_name_of_the_limit() -> None:
    with pytest.raises(BadSavedProducer, match=r"are left over.*offset\.metadata\.max\.bytes"):
        put_in(INPUTS, saved_producer(3), 1, limit_bytes=60)
    with pytest.raises(BadSavedProducer, match=r"in-0 leaves no room.*offset\.metadata\.max\.bytes"):
        put_in([Entry("in", 0, 0, "x" * 4_090)], saved_producer(), 1, limit_bytes=LIMIT_BYTES)


def test_users_metadata_is_kept_even_where_it_looks_like_ours() -> None:
    strange = "a|oncelog1|b|oncelog1|1|0|1|i|cafe|"
    entries = put_in([Entry("in", 0, 0, strange)], saved_producer(), 9, limit_bytes=LIMIT_BYTES)
    assert taken(entries).positions[0].metadata == strange


def test_a_group_without_a_producer_has_positions_alone() -> None:
    held = taken(INPUTS)
    assert (held.saved, held.save, held.positions) == (None, 0, tuple(INPUTS))


def test_a_later_save_with_fewer_entries_wins_over_what_is_left_of_the_former() -> None:
    first = put_in(INPUTS, saved_producer(100), 1, limit_bytes=300)
    later = saved_producer(2, identity=Identity(1, 1))
    second = put_in(INPUTS, later, 2, limit_bytes=300)
    assert len(second) < len(first)
    assert taken(stored(first, second)).saved == later


def test_a_mix_of_two_saves_is_found() -> None:
    first = put_in(INPUTS, saved_producer(100), 1, limit_bytes=300)
    second = put_in(INPUTS, saved_producer(100, identity=Identity(1, 1)), 2, limit_bytes=300)
    for missing in range(len(second)):
        partly = second[:missing] + second[missing + 1 :]
        with pytest.raises(BadSavedProducer, match="save 2 is not whole"):
            taken(stored(first, partly))


def test_two_saves_of_one_number_are_not_put_together() -> None:
    first = put_in(INPUTS, saved_producer(100), 1, limit_bytes=300)
    second = put_in(INPUTS, saved_producer(100, identity=Identity(1, 1)), 1, limit_bytes=300)
    with pytest.raises(BadSavedProducer, match=r"two saves are mixed|checksum"):
        taken(stored(first, second[:1]))


def test_a_commit_of_somebody_who_knows_no_producer_is_found_while_a_chunk_is_left() -> None:
    entries = put_in(INPUTS, saved_producer(), 1, limit_bytes=LIMIT_BYTES)
    with pytest.raises(BadSavedProducer, match="not whole"):
        taken(stored(entries, [Entry("in", 0, 1_500)]))


def test_every_changed_letter_of_a_chunk_is_found() -> None:
    (entry,) = put_in(INPUTS[:1], saved_producer(), 1, limit_bytes=LIMIT_BYTES)
    begin = entry.metadata.rindex("|") + 1
    for at in range(begin, len(entry.metadata)):
        other = "A" if entry.metadata[at] != "A" else "B"
        with pytest.raises(BadSavedProducer):
            taken([entry._replace(metadata=entry.metadata[:at] + other + entry.metadata[at + 1 :])])
    for end in range(begin, len(entry.metadata)):
        with pytest.raises(BadSavedProducer):
            taken([entry._replace(metadata=entry.metadata[:end])])


@pytest.mark.parametrize("count", ["999999999999999999", "9" * 5_000])
def test_an_absurd_number_of_chunks_costs_nothing(count: str) -> None:
    entry = Entry("in", 0, 5, f"mine|oncelog1|1|0|{count}|i|abc|data")
    with pytest.raises(BadSavedProducer, match=r"not whole|cut short"):
        taken([entry])


def test_a_chunk_that_is_no_ascii_is_found() -> None:
    with pytest.raises(BadSavedProducer, match="checksum"):
        taken([Entry("in", 0, 5, "|oncelog1|1|0|1|i|abc|\ud800")])


def test_a_lone_chunk_that_is_cut_short_anywhere_behind_its_marker_is_no_group_without_a_producer() -> None:
    (entry,) = put_in(INPUTS[:1], saved_producer(), 12, limit_bytes=LIMIT_BYTES)
    for end in range(len("mine|oncelog1|"), len(entry.metadata)):
        with pytest.raises(BadSavedProducer):
            taken([entry._replace(metadata=entry.metadata[:end])])
