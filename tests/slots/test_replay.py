"""The first n outputs are dropped when they equal what stands there, and the first difference ends it all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.errors import KafkaException
from oncelog.client.saving.errors import in_words
from oncelog.slots import Identity
from oncelog.slots.errors import CannotTell
from oncelog.slots.replay import Output, PartitionReplay, Slot, check_equal

IDENTITY = Identity(4711, 3)


def output(number: int) -> Output:
    return Output(b"key-%d" % number, b"value-%d" % number, [("h", b"%d" % number)], 1_000 + number, number)


def slot(number: int) -> Slot:
    headers = ((b"h", b"%d" % number),)
    return Slot(IDENTITY, 50 + number, 900 + number, b"key-%d" % number, b"value-%d" % number, headers, 1_000 + number)


@given(st.data(), st.integers(0, 12))
def test_in_whatever_order_both_streams_come_each_output_meets_its_own_slot(data: st.DataObject, records: int) -> None:
    replay = PartitionReplay("out", 0, records)
    outputs = slots = 0
    found: list[tuple[object, int]] = []
    while not replay.is_over:
        if outputs < records and (slots == records or data.draw(st.booleans())):
            assert replay.takes
            replay.offer(output(outputs))
            outputs += 1
        else:
            more = data.draw(st.integers(1, 4))
            replay.stands([slot(number) for number in range(slots, slots + more)])  # the log may hold more than n
            slots = min(records, slots + more)
        found += [(each.output.payload, each.slot.offset) for each in replay.dropped()]
    assert found == [(number, 900 + number) for number in range(records)]
    assert not replay.takes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": b"other"}, "the key is b'key-1' where b'other' stands"),
        ({"key": None}, "the key is b'key-1' where None stands"),
        ({"value": b"other"}, "the value is b'value-1' where b'other' stands"),
        ({"headers": ()}, "the headers are"),
        ({"timestamp_ms": 5}, "the timestamp is 1001 where 5 stands"),
    ],
)
def test_the_first_difference_names_topic_partition_sequence_and_offset(change: dict[str, object], words: str) -> None:
    replay = PartitionReplay("out", 7, 3)
    replay.stands([slot(0), slot(1)._replace(**change), slot(2)])  # type: ignore[arg-type]
    replay.offer(output(0))
    assert [each.slot.offset for each in replay.dropped()] == [900]
    replay.offer(output(1))
    with pytest.raises(KafkaException) as raised, in_words():
        replay.dropped()
    said = raised.value.error.str()
    assert words in said
    assert "out-7, sequence 51 of producer 4711 (generation 3), offset 901" in said
    assert raised.value.error.fatal()


def test_a_timestamp_that_the_user_did_not_set_is_not_compared() -> None:
    check_equal("out", 0, output(1)._replace(timestamp_ms=None), slot(1)._replace(timestamp_ms=5))


def test_the_brokers_own_timestamps_are_not_compared() -> None:
    check_equal("out", 0, output(1), slot(1)._replace(timestamp_ms=5, is_append_time=True))


def test_headers_given_as_text_equal_their_bytes() -> None:
    given_headers = [("a", "ä"), ("b", None)]
    check_equal(
        "out",
        0,
        output(1)._replace(headers=given_headers),
        slot(1)._replace(headers=((b"a", "ä".encode()), (b"b", None))),
    )


def test_slots_that_cannot_be_read_back_stop_the_replay() -> None:
    replay = PartitionReplay("out", 0, 3)
    replay.stands([slot(0)])
    with pytest.raises(CannotTell, match="2 of 3 records"):
        replay.ended()
