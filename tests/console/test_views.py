"""Topics, producers, groups, Spark's sinks and the overview, as the page gets them."""

import asyncio
from typing import Any

import pytest

from oncelog.console import query, sinks, topics
from oncelog.console.errors import Refused
from oncelog.console.faults import Fault, FaultList
from oncelog.console.groups import group_view, groups_view
from oncelog.console.limits import (
    MOST_PRODUCERS,
    MOST_RING_PLACES,
    MOST_ROWS,
    MOST_SINKS,
    MOST_STATE_BYTES,
    exact,
    in_turns,
)
from oncelog.console.messages import messages_view
from oncelog.console.overview import overview
from oncelog.console.producers import partition_producers_view, producers_view
from oncelog.console.query import Query
from oncelog.console.sinks import sink_view, sinks_view
from oncelog.console.topics import topic_view, topics_view
from oncelog.server.broker import Broker
from oncelog.server.turns import Turns
from oncelog.spark.sink.lane import MARK, Mark, encode, topic_of
from tests.console.conftest import Shown, View
from tests.raw import RawConnection, Rec
from tests.spark.sink.support import Sink, numbers, table

TURNS = Turns(lambda: 0)


def test_topics_have_pages_and_are_found_by_any_part_of_their_names(shown: Shown) -> None:
    shown.stage.topics([f"Paged-{number:03}" for number in range(MOST_ROWS + 3)])
    first = shown.view(topics_view, search="pAgEd")
    assert (first["found"], first["start"], len(first["topics"])) == (MOST_ROWS + 3, 0, MOST_ROWS)
    last = shown.view(topics_view, search="paged", start=MOST_ROWS)
    assert [each["name"] for each in last["topics"]] == [f"Paged-{MOST_ROWS + at}" for at in range(3)]
    assert shown.view(topics_view, search="paged", start=10**9)["start"] == MOST_ROWS
    assert shown.view(topics_view, search="<script>")["topics"] == []


async def test_of_very_many_names_some_are_looked_at_and_internal_ones_come_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query, "MOST_SEARCHED", 10)
    names = ["__a", "a", *(f"b{number}" for number in range(8)), "c"]
    found, about = await query.page_of(TURNS, reversed(names[:10]), query.Query({}), may=bool)
    assert found == [*names[1:10], "__a"]
    assert about == {"found": 10, "start": 0, "page": MOST_ROWS, "is_cut": False}
    _, about = await query.page_of(TURNS, names, query.Query({}), may=bool)
    assert about["is_cut"]


def test_a_topic_adds_up_its_partitions(shown: Shown) -> None:
    topic = shown.new_topic(3, cleanup_policy="compact")
    shown.stage.send(topic, [Rec(b"v", b"k")] * 5, 1)
    shown.stage.send(topic, [Rec(b"v", b"k")] * 2, 2)
    (row,) = shown.view(topics_view, search=topic)["topics"]
    assert (row["partitions"], row["records"], row["cleanup"]) == (3, 7, "compact")
    found = shown.view(topic_view, topic=topic)
    assert [(each["partition"], each["start"], each["end"]) for each in found["rows"]] == [
        (0, 0, 0),
        (1, 0, 5),
        (2, 0, 2),
    ]
    assert found["size_bytes"] == row["size_bytes"] == sum(each["size_bytes"] for each in found["rows"]) > 0
    assert found["configs"] == {"cleanup.policy": "compact"}


def test_damage_is_told_with_its_place(shown: Shown) -> None:
    topic = shown.new_topic(2)
    shown.log(topic).note_damage("0.log is damaged at byte 7")
    rows = shown.view(topic_view, topic=topic)["rows"]
    assert [each["damage"] for each in rows] == ["0.log is damaged at byte 7", None]
    about = shown.run(overview(shown.server.broker, FaultList()))
    assert {"topic": topic, "partition": 0, "why": "0.log is damaged at byte 7"} in about["damaged"]


def test_many_partitions_come_in_pages(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = shown.new_topic(320)
    found = shown.view(topic_view, topic=topic, start=300)
    assert (found["partitions"], found["summed"], found["start"], len(found["rows"])) == (320, 320, 300, 20)
    monkeypatch.setattr(topics, "MOST_SUMMED", 300)
    (row,) = shown.view(topics_view, search=topic)["topics"]
    assert (row["partitions"], row["summed"]) == (320, 300), "the sums say over how many partitions they are"


async def overview_of_all(broker: Broker, asked: Query) -> dict[str, Any]:
    return await overview(broker, FaultList())


@pytest.mark.parametrize(
    ("view", "asked"),
    [
        (overview_of_all, {}),
        (topics_view, {"search": "crowd"}),
        (topic_view, {"topic": "crowd"}),
        (messages_view, {"topic": "crowd"}),
        (producers_view, {"search": "crowd"}),
        (groups_view, {"search": "crowd"}),
        (group_view, {"group": "crowd-0"}),
    ],
)
def test_others_are_served_between_any_two_things_that_a_view_looks_at(
    shown: Shown, crowd: int, monkeypatch: pytest.MonkeyPatch, view: View, asked: dict[str, str]
) -> None:
    monkeypatch.setattr("oncelog.server.turns.TURN_MS", 0)

    async def rounds() -> int:
        """Of the loop, while the view is made."""
        count, is_over = 0, False

        async def other() -> None:
            nonlocal count
            while not is_over:
                count += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        await view(shown.server.broker, Query(asked))
        is_over = True
        await task
        return count

    assert shown.run(rounds()) >= crowd


@pytest.fixture(scope="module")
def crowd(shown: Shown) -> int:
    """So many partitions of a topic, and as many groups."""
    shown.stage.topic("crowd", MOST_ROWS)
    for number in range(MOST_ROWS):
        shown.stage.group(f"crowd-{number}", "crowd", dict.fromkeys(range(1 if number else MOST_ROWS), 0))
    return MOST_ROWS


def test_the_producers_of_a_partition_with_their_highwater_and_their_ring(shown: Shown) -> None:
    topic = shown.new_topic()
    leases = [shown.stage.lease(topic) for _ in range(3)]
    for at, (pid, generation) in enumerate(leases):
        shown.stage.send(topic, [b"x"] * (at + 1), pid=pid, epoch=generation, sequence=0)
    kafka_pid, epoch = shown.stage.raw.init_producer_id()
    shown.stage.send(topic, [b"x"] * 9, pid=kafka_pid, epoch=epoch, sequence=0)
    shown.stage.send(topic, [b"x"], pid=leases[0][0], epoch=leases[0][1], sequence=0)  # again
    found = shown.view(partition_producers_view, topic=topic, partition=0)
    told = [(each["pid"], each["generation"], each["highwater"], each["last_offset"]) for each in found["producers"]]
    wanted = [(pid, generation, at, [0, 2, 5][at]) for at, (pid, generation) in enumerate(leases)]
    assert told == [*reversed(wanted), (kafka_pid, epoch, 8, 14)]
    lifetime_ms = found["lifetime_ms"]
    assert all(0 < each["lease_left_ms"] <= lifetime_ms for each in found["producers"][:3])
    assert [each["is_leased"] for each in found["producers"]] == [True, True, True, False]
    assert found["counts"]["duplicates"] == 1
    assert [each["pid"] for each in found["ring"]["places"]] == [pid for pid, _ in leases]
    assert (found["ring"]["live"], found["ring"]["capacity"]) == (3, 65_536)


def test_of_many_producers_the_newest_are_told_and_the_ring_is_thinned_out(shown: Shown) -> None:
    topic = shown.new_topic()
    log = shown.log(topic)
    now = shown.server.broker.clock.now()
    for pid in range(1, 1001):
        shown.server.call(log.producers.accept, pid, 1, 0, 1, pid, 1, now)
    found = shown.view(partition_producers_view, topic=topic, partition=0)
    assert [each["pid"] for each in found["producers"]] == list(range(1000, 1000 - MOST_PRODUCERS, -1))
    places = [each["pid"] for each in found["ring"]["places"]]
    assert len(places) == MOST_RING_PLACES and places == sorted(places)
    assert places[0] == 1 and places[-1] > 990


def test_fenced_and_trimmed_batches_are_counted(shown: Shown) -> None:
    shown.stage.quarrel("quarrel")
    (row,) = shown.view(producers_view, search="quarrel")["rows"]
    assert row["leased"] == 40
    assert row["counts"] == {"duplicates": 14, "trimmed": 1, "fenced": 1, "out_of_order": 0, "unknown": 0, "full": 0}


def test_partitions_without_producers_are_left_out(shown: Shown) -> None:
    topic = shown.new_topic(5)
    shown.stage.send(topic, [b"x"], 4)
    assert shown.view(producers_view, search=topic)["rows"] == []


def test_groups_and_their_lag(shown: Shown) -> None:
    topic = shown.new_topic(2)
    shown.stage.send(topic, [b"x"] * 10, 0)
    shown.stage.send(topic, [b"x"] * 10, 1)
    shown.stage.group("behind", topic, {0: 3, 1: 10})
    (row,) = shown.view(groups_view, search="behind")["groups"]
    assert (row["group"], row["state"], row["members"], row["lag"], row["partitions"]) == ("behind", "Empty", 0, 7, 2)
    found = shown.view(group_view, group="behind")
    told = [
        (each["topic"], each["partition"], each["committed"], each["end"], each["lag"]) for each in found["offsets"]
    ]
    assert told == [(topic, 0, 3, 10, 7), (topic, 1, 10, 10, 0)]
    assert found["member_rows"] == []


def test_the_members_of_a_group(shown: Shown) -> None:
    with RawConnection(shown.server.bootstrap_servers, client_id="a\u202eb") as raw:
        raw.call(
            "join_group",
            3,
            group_id="joined",
            session_timeout=10_000,
            rebalance_timeout=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        found = shown.view(group_view, group="joined")
    (member,) = found["member_rows"]
    assert (member["client"], member["is_leader"], found["members"]) == ("a\\u202eb", True, 1)


def test_a_group_that_nobody_knows_is_refused(shown: Shown) -> None:
    with pytest.raises(Refused):
        shown.view(group_view, group="nobody")


def test_a_spark_query_and_its_lanes(shown: Shown) -> None:
    topic = shown.stage.sink("totals-query", lanes=3, batches=4, out="totals")
    (row,) = shown.view(sinks_view, search="totals-query")["sinks"]
    assert (row["sink"], row["batch"], row["next_batch"], row["lanes_used"], row["rows"]) == (
        "totals-query",
        3,
        4,
        3,
        1500,
    )
    assert (row["sending"], row["topics"], row["trouble"]) == (1, ["totals"], None)
    found = shown.view(sink_view, topic=topic)
    assert [(each["lane"], each["rows"], each["is_saved"], each["is_sending"]) for each in found["lanes"]] == [
        (0, 500, True, False),
        (1, 500, True, True),
        (2, 500, True, False),
    ]
    assert found["lanes"][2]["places"] == [
        {
            "topic": "totals",
            "partition": 2,
            "pid": 2**32 + 42,
            "generation": 0,
            "next_sequence": 2000,
            "next_offset": 2000,
        }
    ]


def test_sinks_come_in_pages(shown: Shown) -> None:
    shown.stage.topics([topic_of(f"paged-{number:03}") for number in range(MOST_SINKS + 2)])
    assert len(shown.view(sinks_view, search="paged-")["sinks"]) == MOST_SINKS
    last = shown.view(sinks_view, search="paged-", start=MOST_SINKS)
    assert [each["sink"] for each in last["sinks"]] == [f"paged-{MOST_SINKS + at:03}" for at in range(2)]


def test_of_a_long_life_of_a_query_the_end_is_enough(shown: Shown) -> None:
    shown.stage.sink("long", lanes=2, batches=300)
    (row,) = shown.view(sinks_view, search="long")["sinks"]
    assert (row["batch"], row["rows"], row["trouble"]) == (299, 1000, None)


def test_marks_of_many_lanes_do_not_hide_the_last_state(shown: Shown) -> None:
    topic = shown.stage.sink("marked", lanes=150, batches=2, marks=150)
    shown.stage.send(topic, [Rec(mark(2, lane), b"2/mark/%d" % lane) for lane in range(150)])
    found = shown.view(sink_view, topic=topic, start=100)
    assert (found["batch"], found["sending"], found["found"], found["trouble"]) == (1, 150, 150, None)
    assert [each["lane"] for each in found["lanes"]] == list(range(100, 150))


def test_a_sink_whose_state_lies_too_far_back_says_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "TAILS", (10, 20))
    topic = shown.stage.sink("far", lanes=3, batches=1)
    for lane in range(20):
        shown.stage.send(topic, [Rec(mark(1, lane), b"1/mark/%d" % lane)])
    assert shown.view(sink_view, topic=topic)["trouble"] == "no state is among its last 2,000 records"


def mark(batch: int, lane: int) -> bytes:
    return encode(MARK, Mark(batch, lane, "m"))


@pytest.mark.parametrize(
    "value", [b"\xff", b"{}", b'{"oncelog.sink": 99}', b"[" * 100_000, b'{"oncelog.sink": 1, "kind": "state"}']
)
def test_what_no_sink_has_written_is_told_as_such(shown: Shown, value: bytes) -> None:
    topic = shown.stage.topic(topic_of(f"strange-{len(value)}"))
    shown.stage.send(topic, [Rec(value, b"0/state/nonce")])
    assert shown.view(sink_view, topic=topic)["trouble"]


def test_what_takes_long_to_parse_is_not_read(shown: Shown) -> None:
    """Such a thread would let nobody else work."""
    topic = shown.stage.topic(topic_of("large"))
    shown.stage.send(topic, [Rec(b"[" + b"[]," * MOST_STATE_BYTES + b"[]]", b"0/state/nonce")], codec=4)
    trouble = shown.view(sink_view, topic=topic)["trouble"]
    assert trouble == "a record of 3,145,732 bytes is among its last ones, more than is read for this page"


def test_a_sink_of_which_nothing_is_known_yet(shown: Shown) -> None:
    topic = shown.stage.topic(topic_of("new"))
    found = shown.view(sink_view, topic=topic)
    assert (found["batch"], found["lanes"], found["trouble"]) == (None, [], None)


def test_the_overview_adds_up_and_marks_faults(shown: Shown) -> None:
    faults = FaultList()
    faults.add(Fault(at_ms=7, kind="server", words="killed"))
    before: Any = shown.run(overview(shown.server.broker, faults))
    topic = shown.new_topic(2)
    shown.stage.send(topic, [b"x"] * 10, 1)
    after: Any = shown.run(overview(shown.server.broker, faults))
    assert after["sums"]["records"] - before["sums"]["records"] == 10
    assert after["partitions"] - before["partitions"] == 2
    assert after["faults"] == [{"at_ms": 7, "kind": "server", "words": "killed"}]
    assert after["offline"] == []


def test_numbers_that_a_browser_would_round_are_told_as_text() -> None:
    assert exact(2**53 - 1) == 2**53 - 1
    assert exact(2**53) == str(2**53)
    assert exact(-(2**63)) == str(-(2**63))


async def test_turns_bring_every_item() -> None:
    assert [each async for each in in_turns(TURNS, range(200))] == list(range(200))


def test_a_query_as_the_sink_itself_writes_it(shown: Shown) -> None:
    """With the sink's own code for tasks and driver; only Spark is left out."""
    topic = shown.new_topic(4)
    sink = Sink(shown.server, topic, query="real")
    for batch in range(3):
        sink.run(batch, [numbers(batch * 100, batch * 100 + 60), numbers(batch * 100 + 60, batch * 100 + 100)])
    sink.lane(3, 1, [table(numbers(300, 340))])
    found = shown.view(sink_view, topic=topic_of("real"))
    assert (found["query"], found["batch"], found["next_batch"], found["lanes_used"], found["rows"]) == (
        "real",
        2,
        3,
        2,
        100,
    )
    assert (found["topics"], found["trouble"], found["sending"]) == ([topic], None, 1)
    assert [(each["lane"], each["rows"], each["is_sending"]) for each in found["lanes"]] == [
        (0, 60, False),
        (1, 40, True),
    ]
    sequences = [sum(place["next_sequence"] for place in each["places"]) for each in found["lanes"]]
    assert sequences == [180, 120], "what the lanes have sent with the batches that are whole"
