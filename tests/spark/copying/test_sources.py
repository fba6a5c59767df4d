"""What may stand in a source: transactions, holes, the log's own time, large batches; and what is refused."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer as ConfluentProducer

from oncelog.client import KafkaException
from oncelog.client.admin import Admin
from oncelog.client.admin.values import ConfigResource, ResourceType
from oncelog.client.consumer import range_engine, ranges
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.metadata import Metadata
from oncelog.client.properties import ConsumerSettings, ProducerSettings
from oncelog.client.types import TopicPartition
from oncelog.embedded import Server
from oncelog.records import passing_columns
from oncelog.records.header import headers
from oncelog.spark.copying import copy_planning, moving
from oncelog.spark.copying.copy_planning import Plan
from oncelog.spark.copying.job import CopyRefused
from oncelog.spark.copying.lane import Lane
from oncelog.spark.copying.log import PREFIX
from oncelog.spark.copying.tasks import outcome_of
from oncelog.spark.sink.milestones import FIRST_SEND, RESUMED, SENT
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark import milestones
from tests.spark.copying.support import Copy, Record, records, some, stored, written
from tests.spark.copying.test_moving import Crash, crash_at
from tests.spark.own_server import compact, own_server

KEEP = {"retention.ms": "-1"}


@pytest.fixture
def source(raw: RawConnection, topic: str) -> str:
    assert raw.create_topic(topic, 1, KEEP) == 0
    return topic


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with own_server() as server:
        yield server


@pytest.fixture
def own_raw(own: Server) -> Iterator[RawConnection]:
    with RawConnection(own.bootstrap_servers) as connection:
        yield connection


# --- transactions


def test_only_what_was_committed_is_copied(kafka: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: the second run begins behind the markers of the first."""
    with RawConnection(kafka.port) as raw:
        raw.create_topic(topic, 1, KEEP)
    producer = ConfluentProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    copy = Copy(kafka.bootstrap_servers, topic, f"{topic}-copy")
    for part in range(2):
        for number in range(6):
            producer.begin_transaction()
            for each in range(5):
                producer.produce(topic, f"{part} {number} {each}", headers=[("committed", str(number % 2))])
            if number % 2:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
        end = crash_at(monkeypatch, FIRST_SEND)
        with pytest.raises(Crash):
            copy.run("killed")
        end()
        copy.run()
    wanted = [f"{part} {number} {each}".encode() for part in range(2) for number in (1, 3, 5) for each in range(5)]
    assert [record[1] for record in records(kafka.bootstrap_servers, f"{topic}-copy")] == wanted
    with RawConnection(kafka.port) as raw:
        found = headers(raw.fetch(f"{topic}-copy", 0, 0).records)
        assert not any(header.is_transactional or header.is_control for _, header in found)


def test_a_transaction_that_is_open_is_left_for_the_next_run(kafka: ServerProcess, topic: str) -> None:
    with RawConnection(kafka.port) as raw:
        raw.create_topic(topic, 1, KEEP)
        written(raw, topic, 0, some(0, 10))
        producer = ConfluentProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, "later")
        producer.flush(60)
        written(raw, topic, 0, some(10, 20))
        copy = Copy(kafka.bootstrap_servers, topic, f"{topic}-copy")
        copy.run()
        assert records(kafka.bootstrap_servers, f"{topic}-copy") == some(0, 10)
        producer.commit_transaction(60)
        copy.run()
    values = [record[1] for record in records(kafka.bootstrap_servers, f"{topic}-copy")]
    assert values == [record[1] for record in [*some(0, 10), (None, b"later", (), 0), *some(10, 20)]]


# --- compaction


def keyed(first: int, last: int, keys: int) -> list[Record]:
    return [
        (b"key %d" % (number % keys), b"value %d" % number, (), 1_700_000_000_000 + number)
        for number in range(first, last)
    ]


def test_holes_are_closed_and_written_down(own: Server, own_raw: RawConnection) -> None:
    own_raw.create_topic("holes", 1, {"cleanup.policy": "compact"})
    written(own_raw, "holes", 0, keyed(0, 300, 70), each=11)
    compact(own, "holes")
    written(own_raw, "holes", 0, keyed(300, 340, 9), each=11)
    left = records(own.bootstrap_servers, "holes")
    assert 70 <= len(left) < 300
    copy = Copy(own.bootstrap_servers, "holes", "holes-copy", fetch_bytes=1_000)
    copy.run()
    found = stored(own.bootstrap_servers, "holes-copy")
    assert [each.record for each in found] == left
    assert [each.offset for each in found] == list(range(len(left)))


@pytest.mark.parametrize("step", [(FIRST_SEND, 1), (SENT, 2), (SENT, 5)], ids=str)
def test_compaction_between_a_kill_and_the_next_run_loses_and_repeats_nothing(
    own: Server, own_raw: RawConnection, monkeypatch: pytest.MonkeyPatch, step: tuple[str, int], topic: str
) -> None:
    """Records that the first run wrote are gone from the source when the second one looks for its place there."""
    own_raw.create_topic(topic, 1, {"cleanup.policy": "compact"})
    first = keyed(0, 200, 1000)
    written(own_raw, topic, 0, first, each=10)
    copy = Copy(own.bootstrap_servers, topic, f"{topic}-copy", fetch_bytes=1_000)
    end = crash_at(monkeypatch, *step)
    with pytest.raises(Crash):
        copy.run("killed")
    end()
    stood = len(records(own.bootstrap_servers, f"{topic}-copy"))
    written(own_raw, topic, 0, keyed(1000, 1100, 100), each=10)  # the keys 0 to 99 once more
    compact(own, topic)
    left = stored(own.bootstrap_servers, topic)
    assert left[0].offset >= 100
    copy.run()
    wanted = first[:stood] + [each.record for each in left if each.offset >= stood]
    assert records(own.bootstrap_servers, f"{topic}-copy") == wanted


def test_a_copy_that_is_compacted_too_is_gone_on_with(
    own: Server, own_raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_raw.create_topic("both", 1, {"cleanup.policy": "compact"})
    written(own_raw, "both", 0, keyed(0, 200, 20), each=10)
    copy = Copy(own.bootstrap_servers, "both", "both-copy", fetch_bytes=1_000)
    end = crash_at(monkeypatch, SENT, 4)
    with pytest.raises(Crash):
        copy.run("killed")
    end()
    compact(own, "both-copy")
    copy.run()
    compact(own, "both-copy")
    compact(own, "both")
    assert records(own.bootstrap_servers, "both-copy") == records(own.bootstrap_servers, "both")


@pytest.mark.thorough
def test_a_copy_goes_on_though_its_state_is_compacted_at_every_step(
    own: Server, own_raw: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four runs that are killed, and one that is not; tombstones go at once."""
    monkeypatch.setattr(passing_columns, "SMALL_BYTES", 0)
    monkeypatch.setattr(moving, "NOTE_BYTES", 1_000)
    monkeypatch.setattr(copy_planning, "MOST_OUTLIVED", 3)
    own_raw.create_topic(topic, 1, KEEP)
    written(own_raw, topic, 0, some(0, 1_600))
    copy = Copy(own.bootstrap_servers, topic, f"{topic}-copy", fetch_bytes=2_000, batch_size=1_000)
    state = PREFIX + copy.spec.name
    own_raw.create_topic(state, 1, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
    monkeypatch.setattr(milestones, "reached", lambda step, facts: compact(own, state))
    for number in range(4):
        left = itertools.count(2 + number % 3, -1)

        def reached(step: str, left: Iterator[int] = left, **facts: Any) -> None:
            compact(own, state)
            if step == SENT and next(left) == 1:
                raise Crash

        with monkeypatch.context() as killing:
            killing.setattr(moving, "reached", reached)
            with pytest.raises(Crash):
                copy.run(f"run {number}")
    copy.run("last")
    assert records(own.bootstrap_servers, f"{topic}-copy") == some(0, 1_600)
    kept = stored(own.bootstrap_servers, state)
    assert len(kept) < kept[-1].offset + 1, "something was removed"


# --- times and sizes


def test_the_logs_own_time_becomes_the_records_time(server: ServerProcess, raw: RawConnection, topic: str) -> None:
    raw.create_topic(topic, 1, KEEP | {"message.timestamp.type": "LogAppendTime"})
    for first in range(0, 100, 20):
        written(raw, topic, 0, some(first, first + 20))
    Copy(server.bootstrap_servers, topic, f"{topic}-copy").run()
    wanted = records(server.bootstrap_servers, topic)
    assert wanted != some(0, 100)
    assert records(server.bootstrap_servers, f"{topic}-copy") == wanted


def test_batches_that_are_too_large_for_the_destination_are_cut(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    written(raw, source, 0, some(0, 1_000), each=500)
    raw.create_topic(f"{source}-copy", 1, KEEP | {"max.message.bytes": "4000"})
    Copy(server.bootstrap_servers, source, f"{source}-copy").run()
    assert records(server.bootstrap_servers, f"{source}-copy") == some(0, 1_000)
    assert max(header.size_bytes for _, header in headers(raw.fetch(f"{source}-copy", 0, 0).records)) <= 4_000


# --- the destination


def test_the_destination_is_made_like_the_source(server: ServerProcess, raw: RawConnection, topic: str) -> None:
    own_configs = {"retention.ms": "-1", "max.message.bytes": "2000000", "cleanup.policy": "compact,delete"}
    raw.create_topic(topic, 3, own_configs | {"message.timestamp.type": "LogAppendTime"})
    Copy(server.bootstrap_servers, topic, f"{topic}-copy").run()
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        resource = ConfigResource(ResourceType.TOPIC, f"{topic}-copy")
        configs: Any = admin.describe_configs([resource])[resource].result()
        assert {name: configs[name].value for name in own_configs} == own_configs
        assert configs["message.timestamp.type"].value == "CreateTime"
        assert len(admin.list_topics(f"{topic}-copy").topics[f"{topic}-copy"].partitions) == 3


def test_a_destination_with_more_partitions_is_taken_and_one_with_fewer_refused(
    server: ServerProcess, raw: RawConnection, topic: str
) -> None:
    raw.create_topic(topic, 2, KEEP)
    raw.create_topic(f"{topic}-more", 3, KEEP)
    raw.create_topic(f"{topic}-fewer", 1, KEEP)
    written(raw, topic, 1, some(0, 10))
    Copy(server.bootstrap_servers, topic, f"{topic}-more").run()
    assert [len(records(server.bootstrap_servers, f"{topic}-more", each)) for each in range(3)] == [0, 10, 0]
    with pytest.raises(CopyRefused, match=r"has 1 partitions, and .* has 2: .* --partitions 2"):
        Copy(server.bootstrap_servers, topic, f"{topic}-fewer").run()


def test_what_stands_in_the_destination_already_stays_and_others_may_write_there_too(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    raw.create_topic(f"{source}-copy", 1, KEEP)
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    for number in range(3):
        written(raw, f"{source}-copy", 0, some(9000 + number, 9001 + number))
        written(raw, source, 0, some(number * 10, number * 10 + 10))
        copy.run()
    wanted = [
        each
        for number in range(3)
        for each in (*some(9000 + number, 9001 + number), *some(number * 10, number * 10 + 10))
    ]
    assert records(server.bootstrap_servers, f"{source}-copy") == wanted


def test_what_the_destination_would_do_to_the_copy_is_told_before(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    written(raw, source, 0, some(0, 10))
    day = {"retention.ms": "86400000"}
    raw.create_topic(f"{source}-copy", 1, day)
    raw.create_topic(f"{source}-stamped", 1, day | {"message.timestamp.type": "LogAppendTime"})

    def told(destination: str) -> list[str]:
        with Plan(Copy(server.bootstrap_servers, source, destination).spec) as plan:
            return plan.warnings(plan.job())

    (age,) = told(f"{source}-copy")
    assert "keeps records for 1 days" in age
    (time,) = told(f"{source}-stamped")  # which keeps them by its own time, so their age does not matter
    assert "the source's timestamps are not kept" in time
    assert told(f"{source}-other") == []


# --- refusals


def test_a_topic_is_not_copied_onto_itself(server: ServerProcess, source: str) -> None:
    with pytest.raises(CopyRefused, match="onto itself"):
        Copy(server.bootstrap_servers, source, source).run()


def test_a_source_that_is_not_there_is_told_and_nothing_is_made(
    server: ServerProcess, raw: RawConnection, topic: str
) -> None:
    with pytest.raises(CopyRefused, match=f"there is no topic {topic} on {server.bootstrap_servers}"):
        Copy(server.bootstrap_servers, topic, f"{topic}-copy").run()
    names = {each.name for each in raw.call("metadata", 9, topics=None).topics}
    assert not names & {topic, f"{topic}-copy", f"oncelog.copy.{topic}-{topic}-copy"}


def test_a_broker_that_has_not_heard_of_a_topic_does_not_end_a_copy_that_follows(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh, unheard = Brokers.refresh, list[str]()
    is_hidden_from: list[type] = [ConsumerSettings]

    async def behind(brokers: Brokers, topics: Iterable[str | UUID] | None = None) -> Metadata:
        found = await refresh(brokers, topics)
        if not unheard or not isinstance(brokers.settings, is_hidden_from[0]):
            return found
        brokers.forget({unheard.pop()})
        return brokers.metadata

    monkeypatch.setattr(Brokers, "refresh", behind)
    written(raw, source, 0, some(0, 10))
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    with Plan(copy.spec) as plan:
        job = plan.job()
        unheard += [source] * 2
        assert not plan.has_grown(job)
        unheard += [source] * 2
        assert plan.job() == job
    (task,) = copy.tasks()
    is_hidden_from[:] = [ProducerSettings]
    unheard.append(f"{source}-copy")
    missed = outcome_of(task)
    assert missed.may_pass and "is not there any more" in missed.failure
    assert not unheard and not outcome_of(task).failure
    assert records(server.bootstrap_servers, f"{source}-copy") == some(0, 10)


def test_a_destination_that_is_away_for_longer_than_records_wait_does_not_end_a_copy_that_follows(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(raw, source, 0, some(0, 10))
    with own_server() as destination:
        servers = destination.bootstrap_servers
        copy = Copy(server.bootstrap_servers, source, source, destination_servers=servers, message_timeout_ms=500)
        (task,) = copy.tasks()

        def reached(step: str, **facts: Any) -> None:
            if step == FIRST_SEND:
                destination.close()

        monkeypatch.setattr(moving, "reached", reached)
        missed = outcome_of(task)
        assert missed.failure and missed.may_pass, missed


@pytest.mark.parametrize("which", ["SOURCE", "DEST"])
def test_a_topic_that_was_deleted_and_made_again_is_another_one(
    server: ServerProcess, raw: RawConnection, source: str, which: str
) -> None:
    written(raw, source, 0, some(0, 10))
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    copy.run()
    gone = source if which == "SOURCE" else f"{source}-copy"
    assert raw.delete_topic(gone) == 0
    assert raw.create_topic(gone, 1, KEEP) == 0
    with pytest.raises(CopyRefused, match=f"has another {which}"):
        copy.run()


@pytest.mark.parametrize("which", ["SOURCE", "DEST"])
def test_no_record_of_a_topic_that_is_made_again_meanwhile_is_taken_for_one_of_the_former(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """It has more of them than the former had."""
    monkeypatch.setattr(passing_columns, "SMALL_BYTES", 0)
    written(raw, source, 0, some(0, 400))
    made = itertools.count()

    def reached(step: str, **facts: Any) -> None:
        if step == RESUMED and not next(made):
            gone = source if which == "SOURCE" else f"{source}-copy"
            assert raw.delete_topic(gone) == 0
            assert raw.create_topic(gone, 1, KEEP) == 0
            written(raw, gone, 0, some(1000, 1600))

    monkeypatch.setattr(moving, "reached", reached)
    monkeypatch.setattr(ranges, "DOUBTS_S", 0.2)
    monkeypatch.setattr(range_engine, "IDLE_S", 0.2)
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy", fetch_bytes=2_000)
    with pytest.raises((CopyRefused, KafkaException), match="was deleted and made again"):
        copy.run()
    wanted = some(1000, 1600) if which == "DEST" else []
    assert records(server.bootstrap_servers, f"{source}-copy") == wanted


def test_a_name_belongs_to_one_source_and_one_destination(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    raw.create_topic(f"{source}-other", 1, KEEP)
    Copy(server.bootstrap_servers, source, f"{source}-copy", name=source).run()
    with pytest.raises(CopyRefused, match="has another SOURCE"):
        Copy(server.bootstrap_servers, f"{source}-other", f"{source}-copy", name=source).run()


def test_records_that_are_gone_before_they_were_copied_are_told(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    written(raw, source, 0, some(0, 100))
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    copy.run()
    written(raw, source, 0, some(100, 200))
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for future in admin.delete_records([TopicPartition(source, 0, 150)]).values():
            future.result()
    with pytest.raises(CopyRefused, match=r"offsets 100 to 150 .* --skip-lost"):
        copy.run()
    ((only,),) = [Copy(server.bootstrap_servers, source, f"{source}-copy", skips_lost=True).run()]
    assert only.records == 50
    assert "offsets 100 to 150" in only.lost[0]
    assert records(server.bootstrap_servers, f"{source}-copy") == some(0, 100) + some(150, 200)


# --- the destination's memory


def test_after_retention_took_all_of_the_copy_it_goes_on(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, too, with records under way that nobody wrote down: the broker still knows how many those were."""
    written(raw, source, 0, some(0, 100))
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    copy.run()
    written(raw, source, 0, some(100, 200))
    end = crash_at(monkeypatch, "acknowledged")
    with pytest.raises(Crash):
        copy.run("killed")
    end()
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for future in admin.delete_records([TopicPartition(f"{source}-copy", 0, 200)]).values():
            future.result()
    written(raw, source, 0, some(200, 250))
    copy.run()
    assert records(server.bootstrap_servers, f"{source}-copy") == some(200, 250)


def test_a_lanes_record_is_settled_where_nothing_is_under_way(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    written(raw, source, 0, some(0, 10))
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    copy.run()
    written(raw, source, 0, some(10, 11))
    (task,) = copy.tasks()
    lane: Lane = task.register.lanes[0]
    assert (lane.done, lane.offset, lane.end_offset, lane.is_at_rest) == (10, 10, 10, True)
    assert moving.run(task, "a")[0].records == 1
