"""What the stream reader answers Spark, asked as Spark asks: without a Spark."""

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, IntegerType, StructType

from oncelog.client.consumer import range_engine, ranges
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.ranges import DataLost, Range
from oncelog.client.door import LATEST
from oncelog.client.types import TopicPartition
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace
from oncelog.spark.option import BadOption
from oncelog.spark.source import group, stream
from oncelog.spark.source.broker_offsets import NoSuchTopic, Planner
from oncelog.spark.source.columns import schema
from oncelog.spark.source.errors import SourceError
from oncelog.spark.source.reader import Reader
from oncelog.spark.source.stream import StreamReader
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.source.filling import WAIT_S, add_partitions, delete_before, new_topic, options, produce
from tests.waiting import until

ALL = ReadAllAvailable()
MakeReader = Callable[..., StreamReader]


@pytest.fixture
def make(server: ServerProcess) -> Iterator[MakeReader]:
    """Readers with quick patience, and from the earliest offsets on, unless a test says otherwise."""
    made: list[StreamReader] = []

    def reader(**more: Any) -> StreamReader:
        kafka = {
            f"kafka.{name.removeprefix('kafka_').replace('_', '.')}": more.pop(name)
            for name in list(more)
            if "kafka_" in name
        }
        quick = {"startingOffsets": "earliest", "fetchOffset.numRetries": 1, "fetchOffset.retryIntervalMs": 10}
        given = options(server, **quick | more | kafka)
        made.append(StreamReader(given, schema(given)))
        return made[-1]

    yield reader
    for each in made:
        each.stop()


def sent(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset after its way through Spark."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
    """By the names of topics: each is read by its id, too."""
    return [replace(each.value, topic_id="") for each in reader.partitions(sent(start), sent(end))]


def offsets_read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Every record of a batch, read as tasks do: by a copy that went through pickle."""
    copy = pickle.loads(pickle.dumps(reader))
    rows: list[tuple[str, int, int]] = []
    for partition in reader.partitions(sent(start), sent(end)):
        for found in copy.read(pickle.loads(pickle.dumps(partition))):
            rows += zip(*(found[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return sorted(rows)


def test_the_first_answer_about_the_beginning_is_remembered(raw: RawConnection, topic: str, make: MakeReader) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    reader = make(subscribe=topic, startingOffsets="latest")
    first = reader.initialOffset()
    produce(raw, topic, 0, 10)
    assert reader.initialOffset() == first
    end = reader.latestOffset(sent(first), ALL)
    assert planned(reader, first, end) == [Range(topic, 0, 10, 20)]


def test_the_first_batch_replays_the_same_after_a_restart(raw: RawConnection, topic: str, make: MakeReader) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    reader = make(subscribe=topic, startingOffsets="latest")
    start = reader.initialOffset()
    produce(raw, topic, 0, 10)
    end = sent(reader.latestOffset(sent(start), ALL))
    produce(raw, topic, 0, 10)
    again = make(subscribe=topic, startingOffsets="latest")
    its_start = again.initialOffset()
    assert its_start[topic] == {"0": 30}
    assert planned(again, its_start, end) == planned(reader, start, end) == [Range(topic, 0, 10, 20)]
    next_end = again.latestOffset(end, ALL)
    assert planned(again, end, next_end) == [Range(topic, 0, 20, 30)]


def test_a_batch_is_planned_alike_with_other_options_and_without_any_broker(
    raw: RawConnection, topic: str, make: MakeReader
) -> None:
    new_topic(raw, topic, 2)
    for partition in range(2):
        produce(raw, topic, partition, 50)
    reader = make(subscribe=topic, minPartitions=5, maxOffsetsPerTrigger=60)
    start = reader.initialOffset()
    end = reader.latestOffset(sent(start), ReadMaxRows(60))
    before = planned(reader, start, end)
    assert len(before) == 6 and sum(each.end - each.start for each in before) == 60
    for more in ({}, {"minPartitions": 9}, {"maxRecordsPerPartition": 3}, {"kafka_bootstrap_servers": "127.0.0.1:1"}):
        assert planned(make(subscribe=topic, **more), start, end) == before


def test_where_nothing_is_new_the_offset_stays_the_same_to_the_letter(
    raw: RawConnection, topic: str, make: MakeReader
) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 5)
    reader = make(subscribe=topic, minPartitions=2)
    end = reader.latestOffset(sent(reader.initialOffset()), ALL)
    assert json.dumps(reader.latestOffset(sent(end), ALL)) == json.dumps(end)


def test_every_record_comes_once_over_batches_of_any_size(raw: RawConnection, topic: str, make: MakeReader) -> None:
    new_topic(raw, topic, 3)
    for partition in range(3):
        produce(raw, topic, partition, 10 + 20 * partition)
    reader = make(subscribe=topic, maxOffsetsPerTrigger=25)
    at, rows, batches = sent(reader.initialOffset()), [], 0
    while (end := sent(reader.latestOffset(at, ReadMaxRows(25)))) != at:
        found = offsets_read(reader, at, end)
        assert len(found) <= 27
        rows += found
        at, batches = end, batches + 1
    assert sorted(rows) == [(topic, index, offset) for index in range(3) for offset in range(10 + 20 * index)]
    assert batches == 4


def test_available_now_ends_where_the_log_ended_when_it_began(raw: RawConnection, topic: str, make: MakeReader) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    reader = make(subscribe=topic, maxOffsetsPerTrigger=6, minOffsetsPerTrigger=5)
    reader.prepareForTriggerAvailableNow()
    at, seen = sent(reader.initialOffset()), []
    while (end := sent(reader.latestOffset(at, reader.getDefaultReadLimit()))) != at:
        seen.append(end[topic]["0"])
        produce(raw, topic, 0, 10)
        at = end
    assert seen == [6, 10]


def test_a_limit_from_below_waits_for_records_or_time(
    raw: RawConnection, topic: str, make: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(stream, "monotonic_s", lambda: now_s[0])
    new_topic(raw, topic)
    reader = make(subscribe=topic, minOffsetsPerTrigger=10, maxTriggerDelay="1m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = sent(reader.latestOffset(sent(reader.initialOffset()), limit))
    produce(raw, topic, 0, 9)
    assert reader.latestOffset(first, limit) == first
    assert reader.latestOffset(first, ALL)[topic] == {"0": 9}, "Spark says when everything is wanted"
    now_s[0] += 60
    second = sent(reader.latestOffset(first, limit))
    assert second[topic] == {"0": 9}
    produce(raw, topic, 0, 10)
    assert reader.latestOffset(second, limit)[topic] == {"0": 19}


def test_new_partitions_and_topics_are_read_from_their_beginning(
    server: ServerProcess, raw: RawConnection, topic: str, make: MakeReader
) -> None:
    new_topic(raw, f"{topic}-a")
    produce(raw, f"{topic}-a", 0, 5)
    reader = make(subscribePattern=f"{topic}-.*", startingOffsets="latest")
    at = sent(reader.latestOffset(sent(reader.initialOffset()), ALL))
    add_partitions(server, raw, f"{topic}-a", 2)
    new_topic(raw, f"{topic}-b")
    new_topic(raw, f"x-{topic}-b")
    for name, partition in ((f"{topic}-a", 1), (f"{topic}-b", 0), (f"x-{topic}-b", 0)):
        produce(raw, name, partition, 3)

    def seen() -> dict[str, Any] | None:
        end = sent(reader.latestOffset(at, ALL))
        return end if end.get(f"{topic}-b") and len(end[f"{topic}-a"]) == 2 else None

    end = until(seen, "the new topic and the new partition")
    assert end is not None
    wanted = [(f"{topic}-a", 1, offset) for offset in range(3)] + [(f"{topic}-b", 0, offset) for offset in range(3)]
    assert offsets_read(reader, at, end) == wanted
    # A restart plans the same, though nobody is asked any more where the partitions begin.
    assert planned(make(subscribe="other"), at, end) == planned(reader, at, end)


def test_a_new_partition_whose_first_records_are_gone_is_a_loss(
    server: ServerProcess, raw: RawConnection, topic: str, make: MakeReader, caplog: pytest.LogCaptureFixture
) -> None:
    new_topic(raw, topic)
    at = sent(make(subscribe=topic).initialOffset())
    add_partitions(server, raw, topic, 2)
    produce(raw, topic, 1, 5)
    delete_before(server, topic, 1, 2)
    with pytest.raises(DataLost, match=rf"Added partition {topic}-1 starts from 2 instead of 0"):
        make(subscribe=topic).latestOffset(at, ALL)
    reader = make(subscribe=topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "oncelog.spark"):
        end = reader.latestOffset(at, ALL)
    assert f"Added partition {topic}-1 starts from 2" in caplog.text
    assert offsets_read(reader, at, end) == [(topic, 1, offset) for offset in (2, 3, 4)]


def test_a_deleted_topic_is_a_loss_or_left_out(raw: RawConnection, topic: str, make: MakeReader) -> None:
    for name in ("a", "b"):
        new_topic(raw, f"{topic}-{name}")
        produce(raw, f"{topic}-{name}", 0, 3)
    both = f"{topic}-a,{topic}-b"
    at = sent(make(subscribe=both).latestOffset(sent(make(subscribe=both).initialOffset()), ALL))
    assert raw.delete_topic(f"{topic}-b") == 0
    produce(raw, f"{topic}-a", 0, 3)
    with pytest.raises(NoSuchTopic, match=f"there is no topic {topic}-b on 127.0.0.1"):
        make(subscribe=both).latestOffset(at, ALL)
    with pytest.raises(DataLost, match=f"{topic}-b-0 are gone"):
        make(subscribePattern=f"{topic}-.").latestOffset(at, ALL)
    for chosen in ({"subscribe": both}, {"subscribePattern": f"{topic}-."}):
        reader = make(failOnDataLoss="false", **chosen)
        end = reader.latestOffset(at, ALL)
        assert offsets_read(reader, at, end) == [(f"{topic}-a", 0, offset) for offset in (3, 4, 5)]


@pytest.mark.parametrize("is_available_now", [False, True])
def test_what_a_broker_that_lags_does_not_know_of_is_not_read_anew(
    is_available_now: bool, raw: RawConnection, topic: str, make: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        new_topic(raw, f"{topic}-{name}")
        produce(raw, f"{topic}-{name}", 0, 3)
    first = make(subscribe=f"{topic}-a,{topic}-b")
    at = sent(first.latestOffset(sent(first.initialOffset()), ALL))
    produce(raw, f"{topic}-b", 0, 2)
    answered = Planner.partitions
    for chosen in ({"subscribe": f"{topic}-a,{topic}-b"}, {"subscribePattern": f"{topic}-."}):
        lacks = [f"{topic}-b"]

        def behind(planner: Planner, *, or_fewer: bool, lacks: list[str] = lacks) -> set[AnyPlace]:
            found = answered(planner, or_fewer=or_fewer)
            unknown = lacks.pop() if lacks else ""
            return {place for place in found if place[0] != unknown}

        monkeypatch.setattr(Planner, "partitions", behind)
        reader = make(failOnDataLoss="false", **chosen)
        if is_available_now:
            reader.prepareForTriggerAvailableNow()
        end = sent(reader.latestOffset(at, ALL))
        assert offsets_read(reader, at, end) == [(f"{topic}-b", 0, 3), (f"{topic}-b", 0, 4)]
        assert offsets_read(reader, end, sent(reader.latestOffset(end, ALL))) == []


def test_a_topic_that_was_made_anew_is_a_loss_or_read_from_its_beginning(
    raw: RawConnection, topic: str, make: MakeReader
) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    at = sent(make(subscribe=topic).latestOffset(sent(make(subscribe=topic).initialOffset()), ALL))
    assert raw.delete_topic(topic) == 0
    until(lambda: raw.create_topic(topic, 1, {}) == 0, "the name to be free again")
    raw.await_leaders(topic, [0])
    produce(raw, topic, 0, 4)
    with pytest.raises(DataLost, match=f"Partition {topic}-0's offset was changed from 10 to 4"):
        make(subscribe=topic).latestOffset(at, ALL)
    produce(raw, topic, 0, 8)
    with pytest.raises(DataLost, match=f"Topic {topic} was deleted and made anew"):
        make(subscribe=topic).latestOffset(at, ALL)
    reader = make(subscribe=topic, failOnDataLoss="false")
    end = reader.latestOffset(at, ALL)
    assert offsets_read(reader, at, end) == [(topic, 0, offset) for offset in range(12)]
    assert planned(make(subscribe="other"), at, end) == [Range(topic, 0, 0, 12)]
    assert reader.latestOffset(sent(end), ALL) == end


def test_a_batch_that_is_run_again_takes_nothing_of_a_topic_that_was_made_anew_since(
    raw: RawConnection, topic: str, make: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "DOUBTS_S", 0.2)
    monkeypatch.setattr(range_engine, "IDLE_S", 0.2)
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    reader = make(subscribe=topic)
    start = reader.initialOffset()
    end = reader.latestOffset(sent(start), ALL)
    assert len(offsets_read(reader, start, end)) == 10
    assert raw.delete_topic(topic) == 0
    until(lambda: raw.create_topic(topic, 1, {}) == 0, "the name to be free again")
    raw.await_leaders(topic, [0])
    produce(raw, topic, 0, 20)
    with pytest.raises(DataLost, match="was deleted and made again"):
        offsets_read(reader, start, end)
    assert offsets_read(make(subscribe=topic, failOnDataLoss="false"), start, end) == []


def made_anew(raw: RawConnection, topic: str, records: int) -> None:
    assert raw.delete_topic(topic) == 0
    until(lambda: raw.create_topic(topic, 1, {"retention.ms": "-1"}) == 0, "the name to be free again")
    raw.await_leaders(topic, [0])
    produce(raw, topic, 0, records)


def test_a_topic_that_is_made_anew_before_the_first_batch_is_a_loss_or_read_from_its_beginning(
    server: ServerProcess, raw: RawConnection, topic: str, make: MakeReader
) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    delete_before(server, topic, 0, 5)
    start = sent(make(subscribe=topic).initialOffset())
    made_anew(raw, topic, 20)
    with pytest.raises(DataLost, match=f"Topic {topic} was deleted and made anew"):
        make(subscribe=topic).latestOffset(start, ALL)
    reader = make(subscribe=topic, failOnDataLoss="false")
    assert planned(reader, start, reader.latestOffset(start, ALL)) == [Range(topic, 0, 0, 20)]


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "batch"])
def test_a_topic_that_is_made_anew_while_a_batch_is_planned_is_read_by_the_id_that_it_had(
    is_stream: bool,
    server: ServerProcess,
    raw: RawConnection,
    topic: str,
    make: MakeReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that does not know the former one is looked for again, and then the new one's end is what is told."""
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    delete_before(server, topic, 0, 5)
    (known,) = raw.call("metadata", 12, topics=[{"topic_id": None, "name": topic}]).topics
    asked, times = Planner.offsets, list[int]()

    def made_anew_meanwhile(planner: Planner, offsets: dict[AnyPlace, int], *more: Any) -> dict[AnyPlace, int]:
        if LATEST in offsets.values() and not times:
            times.append(LATEST)
            made_anew(raw, topic, 20)
            planner.partitions()
        return asked(planner, offsets, *more)

    stream = make(subscribe=topic)
    start = sent(stream.initialOffset())
    monkeypatch.setattr(Planner, "offsets", made_anew_meanwhile)
    if is_stream:
        (task,) = stream.partitions(start, sent(stream.latestOffset(start, ALL)))
    else:
        given = options(server, subscribe=topic)
        (task,) = Reader(given, schema(given)).partitions()
    assert task.value == Range(topic, 0, 5, 20, topic_id=str(known.topic_id))


def test_records_that_retention_took_before_the_task_came_are_a_loss_or_left_out(
    server: ServerProcess, raw: RawConnection, topic: str, make: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_engine, "IDLE_S", 0.05)
    monkeypatch.setattr(ranges, "DOUBTS_S", 0.1)
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    reader = make(subscribe=topic)
    start = reader.initialOffset()
    end = reader.latestOffset(sent(start), ALL)
    delete_before(server, topic, 0, 4)
    with pytest.raises(DataLost, match="offsets 0 to 4 are gone, the log begins at 4"):
        offsets_read(reader, start, end)
    lenient = make(subscribe=topic, failOnDataLoss="false")
    assert offsets_read(lenient, start, end) == [(topic, 0, offset) for offset in range(4, 10)]


def test_where_it_begins_is_what_the_options_say(raw: RawConnection, topic: str, make: MakeReader) -> None:
    new_topic(raw, topic, 2)
    for partition in range(2):
        produce(raw, topic, partition, 10)
    from_json = make(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 3, "1": -1}}))
    found = from_json.initialOffset()
    assert {topic} == found.pop("$topics").keys()
    assert found == {topic: {"0": 3, "1": 10}, "$initial": True}
    assigned = make(assign=json.dumps({topic: [1]}), startingOffsets="earliest")
    assert assigned.initialOffset()[topic] == {"1": 0}
    at_time = make(subscribe=topic, startingTimestamp=1_700_000_004_500)
    assert at_time.initialOffset()[topic] == {"0": 5, "1": 5}
    by_partition = json.dumps({topic: {"0": 1_700_000_004_000, "1": 1_800_000_000_000}})
    with pytest.raises(BadOption, match=f"No offset matched from request of topic-partition {topic}-1"):
        make(subscribe=topic, startingOffsetsByTimestamp=by_partition).initialOffset()
    lenient = make(
        subscribe=topic, startingOffsetsByTimestamp=by_partition, startingOffsetsByTimestampStrategy="latest"
    )
    assert lenient.initialOffset()[topic] == {"0": 4, "1": 10}
    with pytest.raises(BadOption, match="you must specify all TopicPartitions"):
        make(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 3}})).initialOffset()


def test_the_position_is_committed_to_the_group_and_at_the_end_by_who_hears_of_it(
    server: ServerProcess, raw: RawConnection, topic: str, make: MakeReader
) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    reader = make(subscribe=topic, kafka_group_id=topic)
    first = sent(reader.latestOffset(sent(reader.initialOffset()), ALL))
    with Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": topic}) as asking:

        def committed() -> int:
            return asking.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset

        assert committed() < 0, "what was only planned is not done"
        produce(raw, topic, 0, 5)
        second = sent(reader.latestOffset(first, ALL))
        until(lambda: committed() == 10, "the first batch's end in the group")
        progress = _Progress(second, reader.reportLatestOffset())
        group.commit_end(progress)
        assert committed() == 15
    assert "$group" not in second


class _Source:
    def __init__(self, end: Any, latest: Any) -> None:
        self.endOffset = json.dumps(end)
        self.latestOffset = json.dumps(latest)


class _Progress:
    """As Spark tells it: offsets are texts."""

    def __init__(self, end: Any, latest: Any) -> None:
        self.sources = [_Source(end, latest), _Source({"other": {"0": 1}}, None), _Source(5, "of another source")]


def test_no_such_topic_and_no_such_server_are_told_and_not_waited_for_for_ever(make: MakeReader) -> None:
    with pytest.raises(NoSuchTopic, match=r"there is no topic nowhere on 127\.0\.0\.1:\d+"):
        make(subscribe="nowhere").initialOffset()
    with pytest.raises(NoSuchTopic, match="there is no topic nowhere on"):
        make(assign='{"nowhere":[0]}').initialOffset()
    nobody = make(subscribe="t", kafka_bootstrap_servers="127.0.0.1:1", **{"kafkaConsumer.pollTimeoutMs": 300})
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1 did not answer within 0\.3 s: .*connect failed"):
        nobody.initialOffset()


def test_a_column_that_is_not_there_or_of_another_type_is_refused(server: ServerProcess) -> None:
    given = options(server, subscribe="t")
    with pytest.raises(BadOption, match="There is no column 'values'; there are key, value, topic"):
        StreamReader(given, StructType().add("values", BinaryType()))
    with pytest.raises(BadOption, match="Column 'offset' is of type bigint, not int"):
        StreamReader(given, StructType().add("offset", IntegerType()))


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_topic_that_is_deleted_between_two_questions_is_told_at_once(
    is_strict: bool, raw: RawConnection, topic: str, make: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        new_topic(raw, f"{topic}-{name}")
        produce(raw, f"{topic}-{name}", 0, 5)
    reader = make(subscribe=f"{topic}-a,{topic}-b", failOnDataLoss=is_strict)
    begin = sent(reader.initialOffset())

    def with_both() -> dict[str, Any] | None:
        """A Kafka that is busy tells of topics that are this young later, and by now and then of none of them."""
        found = reader.latestOffset(begin, ALL)
        return found if len(offsets_read(reader, begin, found)) == 10 else None

    start = until(with_both, "both to be told of")
    assert start is not None
    asked, deleted = Planner.partitions, list[int]()

    def then_deleted(planner: Planner, *, or_fewer: bool) -> set[tuple[str, int]]:
        found = asked(planner, or_fewer=or_fewer)
        if not deleted:
            deleted.append(raw.delete_topic(f"{topic}-b"))
            until(lambda: raw.offset_at(f"{topic}-b", 0, -1).error_code, "the broker to have heard of it")
        return found

    monkeypatch.setattr(Planner, "partitions", then_deleted)
    began_s = monotonic_s()
    if is_strict:
        with pytest.raises(NoSuchTopic, match=f"there is no topic {topic}-b on"):
            reader.latestOffset(sent(start), ALL)
    else:
        end = reader.latestOffset(sent(start), ALL)
        assert offsets_read(reader, start, end) == []
    assert deleted == [0]
    assert monotonic_s() - began_s < WAIT_S, "not only after the patience for what passes"
