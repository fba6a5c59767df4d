"""Messages as the page lists them: the newest, those before and behind, and whatever stands in the way as a note."""

from typing import Any

import pytest

from oncelog.console.errors import Refused
from oncelog.console.limits import (
    LARGEST_BATCH_BYTES,
    MOST_MESSAGES,
    MOST_TAILED,
    PREVIEW_BYTES,
    READ_BYTES,
    WHOLE_BYTES,
)
from oncelog.console.messages import message_view, messages_view
from tests.console.conftest import Shown
from tests.console.stage import INVALID, MARKUP, MB, SCRIPT
from tests.raw import Rec, batch


def offsets(found: dict[str, Any]) -> list[int]:
    return [row["offset"] for row in found["rows"]]


def test_the_newest_come_first_and_no_more_than_fit(shown: Shown) -> None:
    topic = shown.new_topic()
    for number in range(8):
        shown.stage.send(topic, [b"%d" % (number * 20 + at) for at in range(20)])
    found = shown.view(messages_view, topic=topic, partition=0)
    assert offsets(found) == list(range(159, 159 - MOST_MESSAGES, -1))
    assert (found["start"], found["end"]) == (0, 160)
    assert found["rows"][0]["value"]["text"] == "159"


def test_from_an_offset_on_they_come_in_their_order(shown: Shown) -> None:
    topic = shown.new_topic()
    shown.stage.send(topic, [b"%d" % at for at in range(200)])
    assert offsets(shown.view(messages_view, topic=topic, partition=0, offset=77)) == list(
        range(77, 77 + MOST_MESSAGES)
    )
    assert offsets(shown.view(messages_view, topic=topic, partition=0, offset=190)) == list(range(190, 200))
    assert offsets(shown.view(messages_view, topic=topic, partition=0, offset=9**17)) == []


def test_of_a_whole_topic_the_newest_are_shown_whichever_partition_they_are_in(shown: Shown) -> None:
    topic = shown.new_topic(3)
    for at, partition in enumerate((2, 0, 2, 1)):
        shown.stage.send(topic, [b"%d" % at], partition, timestamp_ms=1_700_000_000_000 + at)
    found = shown.view(messages_view, topic=topic)
    assert [(row["value"]["text"], row["partition"]) for row in found["rows"]] == [
        ("3", 1),
        ("2", 2),
        ("1", 0),
        ("0", 2),
    ]


def test_of_many_partitions_those_written_to_last_are_read(shown: Shown) -> None:
    topic = shown.new_topic(MOST_TAILED + 4)
    for partition in range(MOST_TAILED + 4):
        shown.stage.send(topic, [b"x"], partition, timestamp_ms=1_700_000_000_000 + partition)
    found = shown.view(messages_view, topic=topic)
    assert {row["partition"] for row in found["rows"]} == set(range(4, MOST_TAILED + 4))
    assert (found["tailed"], found["partitions"]) == (MOST_TAILED, MOST_TAILED + 4)


def test_an_empty_topic_has_no_messages(shown: Shown) -> None:
    topic = shown.new_topic(2)
    assert shown.view(messages_view, topic=topic)["rows"] == []
    assert shown.view(messages_view, topic=topic, partition=1)["rows"] == []


def test_a_message_names_the_slot_that_its_producer_filled(shown: Shown) -> None:
    topic = shown.new_topic()
    pid, generation = shown.stage.lease(topic)
    shown.stage.send(topic, [b"a", b"b", b"c"], pid=pid, epoch=generation, sequence=0)
    newest = shown.view(messages_view, topic=topic)["rows"][0]
    assert (newest["pid"], newest["generation"], newest["sequence"]) == (pid, generation, 2)
    shown.stage.send(topic, [b"without a producer"])
    newest = shown.view(messages_view, topic=topic)["rows"][0]
    assert (newest["pid"], newest["sequence"]) == (None, None)


def test_hostile_messages_are_text_and_bounded(shown: Shown) -> None:
    topic = shown.stage.hostile()
    rows = {row["offset"]: row for row in shown.view(messages_view, topic=topic)["rows"]}
    assert rows[0]["value"] == {"kind": "text", "text": SCRIPT, "size_bytes": len(SCRIPT), "is_cut": False}
    assert rows[0]["key"]["text"] == MARKUP
    assert rows[1]["value"]["kind"] == "bytes"
    assert rows[1]["value"]["text"] == "\\xff\\xfe caf\\xe9 \\x00\\x1b[31m"
    assert rows[1]["value"]["size_bytes"] == len(INVALID)
    assert rows[2]["value"]["text"] == "abc\\u202egpj.exe"
    assert (rows[3]["value"]["size_bytes"], rows[4]["value"]["kind"]) == (0, "null")
    assert rows[5]["value"] == {"kind": "text", "text": "A" * PREVIEW_BYTES, "size_bytes": MB, "is_cut": True}


def test_one_message_alone_is_shown_with_all_that_fits(shown: Shown) -> None:
    topic = shown.new_topic()
    headers = tuple((f"h{number}", b"v" * 2000) for number in range(200))
    shown.stage.send(topic, [b"before", Rec(b"A" * (WHOLE_BYTES + 1), b"key", headers), b"behind"])
    found = shown.view(message_view, topic=topic, partition=0, offset=1)
    assert (found["offset"], found["key"]["text"]) == (1, "key")
    assert (len(found["value"]["text"]), found["value"]["size_bytes"]) == (WHOLE_BYTES, WHOLE_BYTES + 1)
    assert (found["header_count"], len(found["headers"])) == (200, 50)
    assert found["headers"][7]["name"]["text"] == "h7"
    assert (found["batch"]["records"], found["batch"]["codec"]) == (3, "none")


def test_what_is_not_there_is_refused(shown: Shown) -> None:
    topic = shown.new_topic()
    for query in ({"topic": "nowhere"}, {"topic": topic, "partition": 1}, {"topic": topic, "partition": "x"}):
        with pytest.raises(Refused):
            shown.view(messages_view, **query)
    with pytest.raises(Refused):
        shown.view(message_view, topic=topic, partition=0, offset=0)


def test_batches_too_large_for_a_list_are_notes_and_can_be_looked_at_alone(shown: Shown) -> None:
    topic = shown.new_topic(max_message_bytes=str(2 * LARGEST_BATCH_BYTES))
    shown.stage.send(topic, [b"A" * (READ_BYTES - 100)])
    shown.stage.send(topic, [b"small"])
    shown.stage.send(topic, [b"B" * (LARGEST_BATCH_BYTES - 100)])
    shown.stage.send(topic, [b"C" * (LARGEST_BATCH_BYTES + 1)])
    rows = shown.view(messages_view, topic=topic, partition=0)["rows"]
    assert [row["offset"] for row in rows] == [3, 2, 1, 0]
    assert "note" in rows[0] and "note" not in rows[1], "the newest that can be read at all is read"
    assert "note" in rows[2] and "note" in rows[3]
    assert shown.view(message_view, topic=topic, partition=0, offset=0)["value"]["text"][:3] == "AAA"
    assert "note" in shown.view(message_view, topic=topic, partition=0, offset=3)


def test_small_batches_are_read_past_a_large_one(shown: Shown) -> None:
    topic = shown.new_topic(max_message_bytes=str(2 * LARGEST_BATCH_BYTES))
    shown.stage.send(topic, [b"old"])
    shown.stage.send(topic, [b"A" * (READ_BYTES + 100)])
    shown.stage.send(topic, [b"new"])
    rows = shown.view(messages_view, topic=topic, partition=0)["rows"]
    assert [row.get("value", {}).get("text") for row in rows] == ["new", None, "old"]


def test_a_topic_of_a_billion_rows_is_a_topic_like_another(shown: Shown) -> None:
    topic = shown.stage.a_billion_rows()
    newest, note = shown.view(messages_view, topic=topic)["rows"]
    assert (newest["offset"], newest["value"]["text"]) == (10**9, "the last one")
    assert "1,000,000 records in one batch" in note["note"]
    assert shown.view(messages_view, topic=topic, partition=0, offset=123_456_789)["rows"][0]["offset"] == 123_456_789


def test_a_fence_stands_there_as_a_note(shown: Shown) -> None:
    topic = shown.new_topic()
    pid, generation = shown.stage.lease(topic)
    shown.stage.send(topic, [b"a"], pid=pid, epoch=generation, sequence=0)
    newer = (generation + 1) % 2**15
    shown.stage.resume(pid, newer, topic)
    note, message = shown.view(messages_view, topic=topic)["rows"]
    assert note["note"] == f"a fence: of pid {pid}, generations before {newer} are refused"
    assert message["value"]["text"] == "a"


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_whose_records_are_none_is_a_note(shown: Shown, codec: int) -> None:
    """Anything may stand there that has the right CRC: this server does not look into batches."""
    topic = shown.new_topic()
    assert shown.stage.raw.produce(topic, 0, batch([b""], codec=codec, payload=b"no records at all")).error_code == 0
    shown.stage.send(topic, [b"fine"])
    rows = shown.view(messages_view, topic=topic)["rows"]
    assert rows[0]["value"]["text"] == "fine"
    assert rows[1]["note"].startswith("not shown: ")


def test_times_beyond_a_browsers_numbers_are_told_as_text(shown: Shown) -> None:
    topic = shown.new_topic(message_timestamp_after_max_ms=str(2**63 - 1))
    shown.stage.send(topic, [b"x"], timestamp_ms=2**63 - 1)
    assert shown.view(messages_view, topic=topic)["rows"][0]["timestamp_ms"] == str(2**63 - 1)


def test_a_partition_that_is_offline_says_why(shown: Shown) -> None:
    topic = shown.new_topic()
    shown.stage.send(topic, [b"x"])
    log = shown.log(topic)
    log.go_offline("the disk is gone", readable=False)
    (note,) = shown.view(messages_view, topic=topic)["rows"]
    assert note["note"] == "the disk is gone"
    shown.stage.raw.delete_topic(topic)
