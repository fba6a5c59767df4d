"""The saved value: it comes back equal, and anything else than what was saved is refused with a reason."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.errors import KafkaException
from oncelog.client.saving import BadSavedProducer, SavedPartition, SavedProducer, SavedTopic
from oncelog.slots import Identity, Span
from tests.client.saving.values import TOPIC_ID, saved_producer

identities = st.builds(
    Identity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.one_of(st.just(-1), st.integers(0, 2**63 - 1))
)
sequences = st.integers(0, 2**31 - 1)
closed_spans = st.lists(st.builds(Span, identities, sequences, st.integers(0, 2**63 - 1)), max_size=3)
partitions = st.builds(
    lambda next_offset, closed, identity, sequence: SavedPartition(
        next_offset=next_offset, spans=(*closed, Span(identity, sequence))
    ),
    st.integers(0, 2**63 - 1),
    closed_spans,
    identities,
    sequences,
)
topics = st.builds(
    SavedTopic,
    topic_id=st.text(),
    partition_count=st.just(64),
    keyless_counter=st.integers(0, 2**63 - 1),
    partitions=st.dictionaries(st.integers(0, 63), partitions, max_size=4),
)
producers = st.builds(
    SavedProducer,
    cluster_id=st.text(),
    made_at_ms=st.integers(0, 2**63 - 1),
    partitioner=st.text(),
    keyless_run=st.integers(1, 2**31 - 1),
    topics=st.dictionaries(st.text(min_size=1), topics, max_size=3),
)


def tampered(**changes: Any) -> dict[str, Any]:
    """A value that somebody changed, with a checksum that fits what he made of it."""
    value = saved_producer().to_value() | changes
    length = len(value.pop("checksum"))
    spelled = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return value | {"checksum": sha256(spelled.encode()).hexdigest()[:length]}


def with_row(row: Any, at: Any = "0") -> dict[str, Any]:
    return tampered(topics={"out": {"id": TOPIC_ID, "count": 3, "keyless": 0, "at": {at: row}}})


@given(producers)
def test_whatever_is_saved_comes_back_equal(saved: SavedProducer) -> None:
    assert SavedProducer.from_json(saved.to_json()) == saved
    assert SavedProducer.from_json(json.loads(saved.to_json())) == saved
    assert SavedProducer.from_json(saved.to_json().encode()) == saved


def test_the_text_says_its_version_and_lists_an_identity_once() -> None:
    value = json.loads(saved_producer(100).to_json())
    assert value["oncelog.saved"] == 1
    assert value["identities"] == [[4711, 7, -1]]
    assert len(saved_producer(100).to_json()) < 4_000, "it is to be small"


def test_every_single_changed_digit_is_noticed() -> None:
    text = saved_producer().to_json()
    changed = 0
    for at, letter in enumerate(text):
        if letter.isdigit():
            other = text[:at] + ("1" if letter == "0" else "0" if letter == "1" else "1") + text[at + 1 :]
            with pytest.raises(BadSavedProducer):
                SavedProducer.from_json(other)
            changed += 1
    assert changed > 50


def test_whatever_is_cut_short_is_refused() -> None:
    text = saved_producer().to_json()
    for end in range(len(text)):
        with pytest.raises(BadSavedProducer):
            SavedProducer.from_json(text[:end])


def test_a_future_version_is_told_before_anything_else() -> None:
    future = {"oncelog.saved": 2, "checksum": "made in a way that nobody here knows"}
    with pytest.raises(BadSavedProducer, match=r"saved by a newer oncelog \(format 2"):
        SavedProducer.from_json(future)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "cut short or not JSON"),
        ("[1]", "JSON object"),
        ("{}", "no 'oncelog.saved'"),
        ({"oncelog.saved": True}, "version number"),
        ({"oncelog.saved": 0}, "version number"),
        ("[" * 100_000, "not JSON"),
        (17, "text, bytes or a dictionary"),
        (tampered(identities=[[-1, 0, -1]]), "a pid is -1"),
        (tampered(identities=[[1 << 63, 0, -1]]), "a pid is"),
        (tampered(identities=[[1, 32_768, -1]]), "a generation is 32768"),
        (tampered(identities=[[1, 0]]), "an identity is"),
        (tampered(identities=[]), "identity of out-0 is 0"),
        (tampered(made_at_ms=-5), "made_at_ms is -5"),
        (tampered(made_at_ms=1.5), "made_at_ms is 1.5"),
        (tampered(made_at_ms=True), "made_at_ms is True"),
        (tampered(cluster=None), "'cluster' is None"),
        (tampered(topics=[]), "'topics' is"),
        (with_row([0, 0, 1 << 31]), "sequence of out-0"),
        (with_row([-1, 0, 0]), "offset of out-0"),
        (with_row([0, 1, 0]), "identity of out-0"),
        (with_row([0, 0]), "which is not"),
        (with_row([0, 0, 0, 4]), "which is not"),
        (with_row([0, 0, 0, -4, 0, 0]), "records of out-0"),
        (with_row([0, 0, 0], at="3"), "none of them"),
        (with_row([0, 0, 0], at="00"), "none of them"),
        (with_row([0, 0, 0], at="x"), "none of them"),
        (with_row([0, 0, 0], at="9" * 5_000), "none of them"),
        (with_row([0, 0, 0], at=0), "no texts"),
        ({"oncelog.saved": 10**5_000}, "version number"),
    ],
)
def test_impossible_values_are_refused_with_a_reason(value: Any, words: str) -> None:
    with pytest.raises(BadSavedProducer, match=words):
        SavedProducer.from_json(value)


def test_a_refusal_can_be_caught_as_clients_errors_are_and_as_a_value_error() -> None:
    with pytest.raises(KafkaException):
        SavedProducer.from_json("{")
    with pytest.raises(ValueError, match="cut short"):
        SavedProducer.from_json("{")


def test_another_cluster_is_refused_by_name() -> None:
    saved_producer().check_cluster("b25jZWxvZw")
    with pytest.raises(BadSavedProducer, match="'b25jZWxvZw', and this is cluster 'other'"):
        saved_producer().check_cluster("other")


def test_a_topic_made_again_under_the_same_name_is_refused() -> None:
    saved = saved_producer()
    saved.check_topic("out", TOPIC_ID, 3)
    saved.check_topic("out", TOPIC_ID, 12)  # partitions were added: the old count stays pinned
    with pytest.raises(BadSavedProducer, match="deleted and made again"):
        saved.check_topic("out", TOPIC_ID.replace("7", "8"), 3)
    with pytest.raises(BadSavedProducer, match="had 3 partitions"):
        saved.check_topic("out", TOPIC_ID, 2)


def test_a_broker_that_knows_no_topic_ids_is_not_held_against_them() -> None:
    saved_producer().check_topic("out", "00000000-0000-0000-0000-000000000000", 3)


def test_another_way_of_placing_is_refused_since_a_replay_would_go_elsewhere() -> None:
    with pytest.raises(BadSavedProducer, match="saved with partitioner=murmur2, and is started with"):
        replace(saved_producer(), partitioner="murmur2").check_placing("consistent_random", 1)
    with pytest.raises(BadSavedProducer, match=r"oncelog\.keyless\.run=500, and is started with oncelog"):
        replace(saved_producer(), keyless_run=500).check_placing("consistent_random", 1)


def test_a_value_that_was_saved_before_there_were_runs_goes_on_without() -> None:
    assert "keyless_run" not in saved_producer().to_value()
    assert saved_producer().keyless_run == 1
    with pytest.raises(BadSavedProducer, match="keyless_run is 0"):
        SavedProducer.from_json(tampered(keyless_run=0))
