"""Fetch and what goes with it: limits, waits, versions, epochs, sessions; ListOffsets; DeleteRecords."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from oncelog.embedded import Server
from oncelog.security.operations import Operation, Resource
from oncelog.server.errors import ErrorCode
from tests.peers import rights
from tests.raw import RawConnection, Rec, batch
from tests.raw.topics import new_topic
from tests.waiting import until

VERSIONS = range(4, 19)
ONE = batch([b"x" * 100])


@pytest.fixture(autouse=True, params=["at once", "in turns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of very many partitions is answered in turns, and to the client that is no difference."""
    if request.param == "in turns":
        monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", 0)
        monkeypatch.setattr("oncelog.server.fetch.ASKED_IN_A_STEP", 1)
        monkeypatch.setattr("oncelog.server.turns.TURN_MS", 1)


def fetch(raw: RawConnection, version: int, topics: list[Any], **more: Any) -> Any:
    values: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, **more}
    values["topics"] = topics
    if version >= 7:
        values = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], **values}
    return raw.call("fetch", version, **values)


def part(offset: int = 0, index: int = 0, max_bytes: int = 1 << 20, **more: Any) -> dict[str, Any]:
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": max_bytes, **more}


def named(server: Server, topic: str, version: int) -> dict[str, Any]:
    found = server.broker.topics.get(topic)
    assert found is not None
    return {"topic_id": found.id} if version >= 13 else {"topic": topic}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_records(server: Server, raw: RawConnection, topic: str, version: int) -> None:
    raw.produce(topic, 0, ONE)
    topics = [{**named(server, topic, version), "partitions": [part()]}]
    found = fetch(raw, version, topics).responses[0].partitions[0]
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 1, 1)
    assert found.records[17:] == ONE[17:]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there_is_unknown_in_every_version(raw: RawConnection, version: int) -> None:
    name = {"topic_id": UUID(int=5)} if version >= 13 else {"topic": "nowhere"}
    found = fetch(raw, version, [{**name, "partitions": [part()]}], max_wait=20_000).responses[0].partitions[0]
    expected = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert found.error_code is expected


def test_read_committed_readers_get_an_empty_list_of_aborted_transactions(raw: RawConnection, topic: str) -> None:
    raw.produce(topic, 0, ONE)
    topics = [{"topic": topic, "partitions": [part()]}]
    committed = fetch(raw, 11, topics, isolation_level=1).responses[0].partitions[0]
    assert (committed.aborted_transactions, committed.records[17:]) == ((), ONE[17:])
    assert fetch(raw, 11, topics).responses[0].partitions[0].aborted_transactions is None


def test_offsets_outside_of_the_log_are_out_of_range(raw: RawConnection, topic: str) -> None:
    raw.produce(topic, 0, ONE)
    for offset in (2, 100, -5):
        assert raw.fetch(topic, 0, offset).error_code is ErrorCode.offset_out_of_range
    assert raw.fetch(topic, 0, 1).error_code is ErrorCode.none


def test_at_least_one_batch_comes_whatever_the_limits(raw: RawConnection, topic: str) -> None:
    raw.produce(topic, 0, ONE)
    raw.produce(topic, 0, ONE)
    assert len(raw.fetch(topic, 0, 0, max_bytes=1, partition_max_bytes=1).records) == len(ONE)
    assert len(raw.fetch(topic, 0, 0, max_bytes=0, partition_max_bytes=0).records) == len(ONE)


def test_max_bytes_holds_over_all_partitions(raw: RawConnection) -> None:
    topic = new_topic(raw, 4)
    for index in range(4):
        for _ in range(10):
            raw.produce(topic, index, ONE)
    topics = [{"topic": topic, "partitions": [part(index=index) for index in range(4)]}]
    limit = len(ONE) * 15
    sizes = [len(each.records or b"") for each in fetch(raw, 11, topics, max_bytes=limit).responses[0].partitions]
    assert sizes == [len(ONE) * 10, len(ONE) * 5, 0, 0]


def test_a_long_poll_ends_when_a_record_arrives(server: Server, raw: RawConnection, topic: str) -> None:
    raw.socket.settimeout(25)
    ask_and_wait(server, raw, topic, min_bytes=1)
    with RawConnection(server.bootstrap_servers) as other:
        other.produce(topic, 0, ONE)
    assert raw.answer().responses[0].partitions[0].records[17:] == ONE[17:]


def ask_and_wait(
    server: Server, raw: RawConnection, topic: str, *, min_bytes: int, offset: int = 0, **more: Any
) -> None:
    values: dict[str, Any] = {
        "max_wait": 60_000,
        "min_bytes": min_bytes,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "topics": [{"topic": topic, "partitions": [part(offset)]}],
    }
    raw.ask("fetch", 11, **(values | more))
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    until(lambda: len(partition.polls) == 1, "the fetch to wait")


@pytest.mark.parametrize("max_wait", [60_000, 1])
def test_a_long_poll_that_fails_is_answered_and_gives_its_memory_back(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch, max_wait: int
) -> None:
    topic = new_topic(raw, 2)
    raw.produce(topic, 1, ONE)
    fails = server.broker.topics.partition(topic, 1)
    assert fails is not None
    find, finds = fails.log.find, iter([True])

    def found_once(*how: Any, **more: Any) -> Any:
        assert next(finds, False), "something that nobody has thought of"
        return find(*how, **more)

    monkeypatch.setattr(fails.log, "find", found_once)
    unsent = server.broker.memory.unsent
    left_bytes = unsent.left_bytes
    places = [{"topic": topic, "partitions": [part(index=0), part(index=1)]}]
    raw.socket.settimeout(25)
    session: dict[str, Any] = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
    raw.ask("fetch", 11, max_wait=max_wait, min_bytes=len(ONE) + 1, max_bytes=1 << 20, topics=places, **session)
    if max_wait > 1:
        waiting = server.broker.topics.partition(topic, 0)
        assert waiting is not None
        until(lambda: len(waiting.polls) == 1, "the fetch to wait")
        with RawConnection(server.bootstrap_servers) as other:
            other.produce(topic, 0, ONE)
    assert raw.answer().error_code is ErrorCode.unknown_server_error
    assert unsent.left_bytes == left_bytes


def test_a_long_poll_waits_for_as_many_bytes_as_it_asked_for(server: Server, raw: RawConnection, topic: str) -> None:
    raw.produce(topic, 0, ONE)
    ask_and_wait(server, raw, topic, min_bytes=len(ONE) * 3)
    with RawConnection(server.bootstrap_servers) as other:
        other.produce(topic, 0, ONE)
        raw.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            raw.receive_bytes()
        raw.socket.settimeout(25)
        other.produce(topic, 0, ONE)
    assert len(raw.answer().responses[0].partitions[0].records) == len(ONE) * 3


def test_a_long_poll_ends_when_enough_is_appended_though_the_log_has_shrunk(server: Server, raw: RawConnection) -> None:
    topic = new_topic(raw, segment_bytes=str(5 * len(ONE)))
    for _ in range(6):
        raw.produce(topic, 0, ONE)
    raw.socket.settimeout(10)
    ask_and_wait(server, raw, topic, min_bytes=2 * len(ONE), offset=6)
    with RawConnection(server.bootstrap_servers) as other:
        wanted = {"partition_index": 0, "offset": 5}
        other.call("delete_records", 2, topics=[{"name": topic, "partitions": [wanted]}], timeout=1000)
        for _ in range(2):
            other.produce(topic, 0, ONE)
    assert len(raw.answer().responses[0].partitions[0].records) == 2 * len(ONE)


def test_what_is_left_of_a_segment_is_enough_where_another_one_follows(server: Server, raw: RawConnection) -> None:
    """A fetch reads from one segment, so it would wait in vain, as often as a segment ends."""
    topic = new_topic(raw, segment_bytes=str(2 * len(ONE)))
    raw.socket.settimeout(10)
    ask_and_wait(server, raw, topic, min_bytes=3 * len(ONE))
    with RawConnection(server.bootstrap_servers) as other:
        for _ in range(3):
            other.produce(topic, 0, ONE)
    assert len(raw.answer().responses[0].partitions[0].records) == 2 * len(ONE)
    topics = [{"topic": topic, "partitions": [part(1)]}]
    found = fetch(raw, 11, topics, min_bytes=2 * len(ONE), max_wait=60_000).responses[0].partitions[0]
    assert len(found.records) == len(ONE)


def test_polls_that_lack_much_cost_an_append_nothing_and_are_called_when_they_have_it(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come in any of the partitions: a poll is called when one of them has grown by its part of it."""
    looks: list[object] = []
    add = server.broker.looks.add

    def counted(look: Callable[[], None]) -> None:
        looks.append(look)
        add(look)

    monkeypatch.setattr(server.broker.looks, "add", counted)
    topic, size_bytes = new_topic(raw, 2), len(ONE)
    topics = [{"topic": topic, "partitions": [part(), part(index=1)]}]
    with RawConnection(server.bootstrap_servers) as reader:
        more: dict[str, Any] = {"session_epoch": -1, "forgotten_topics_data": [], "max_bytes": 1 << 20}
        reader.ask("fetch", 11, max_wait=60_000, min_bytes=10 * size_bytes, topics=topics, **more)
        partition = server.broker.topics.partition(topic, 1)
        assert partition is not None
        until(lambda: len(partition.polls) == 1, "the poll to wait")
        for _ in range(9):
            raw.produce(topic, 1, ONE)
        assert len(looks) <= 4  # at 5, 8 and 9 of 10; each produce may be answered before its look
        raw.produce(topic, 0, ONE)
        answered = reader.answer().responses[0].partitions
    assert sum(len(each.records) for each in answered) == 10 * size_bytes


def test_a_long_poll_begins_outside_of_a_task(raw: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `wait_for` fails from Python 3.12 on."""
    monkeypatch.setattr("asyncio.wait_for", None)
    answer = fetch(raw, 11, [{"topic": topic, "partitions": [part()]}], max_wait=1, min_bytes=1)
    assert answer.error_code.name == "none"


def test_a_long_poll_ends_empty_when_its_time_is_over(raw: RawConnection, topic: str) -> None:
    assert raw.fetch(topic, 0, 0, max_wait_ms=50).records == b""


def test_a_long_poll_ends_when_its_topic_is_deleted(server: Server, raw: RawConnection, topic: str) -> None:
    ask_and_wait(server, raw, topic, min_bytes=1)
    with RawConnection(server.bootstrap_servers) as other:
        other.delete_topic(topic)
    assert raw.answer().responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def test_a_reader_that_hangs_up_leaves_no_waiter_behind(server: Server, raw: RawConnection, topic: str) -> None:
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    with RawConnection(server.bootstrap_servers) as reader:
        ask_and_wait(server, reader, topic, min_bytes=1)
    until(lambda: not partition.polls, "the waiter to be gone")
    assert raw.produce(topic, 0, ONE).base_offset == 0


def test_many_waiting_readers_are_all_woken(server: Server, raw: RawConnection, topic: str) -> None:
    readers = [RawConnection(server.bootstrap_servers) for _ in range(20)]
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    results: list[int] = []

    def read(reader: RawConnection) -> None:
        results.append(reader.fetch(topic, 0, 0, max_wait_ms=60_000).high_watermark)

    threads = [threading.Thread(target=read, args=[reader]) for reader in readers]
    for thread in threads:
        thread.start()
    until(lambda: len(partition.polls) == 20, "all readers to wait")
    raw.produce(topic, 0, ONE)
    for thread in threads:
        thread.join()
    assert results == [1] * 20
    for reader in readers:
        reader.close()


def test_leader_epochs_are_checked(server: Server, raw: RawConnection, topic: str) -> None:
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    epoch = partition.log.leader_epoch

    def with_epoch(believed: int) -> ErrorCode:
        topics = [{"topic": topic, "partitions": [part(current_leader_epoch=believed)]}]
        code: ErrorCode = fetch(raw, 11, topics).responses[0].partitions[0].error_code
        return code

    assert with_epoch(epoch) is ErrorCode.none
    assert with_epoch(epoch + 1) is ErrorCode.unknown_leader_epoch
    server.call(partition.log.begin_epoch, epoch + 1)
    assert with_epoch(epoch) is ErrorCode.fenced_leader_epoch


def test_a_session_says_only_what_has_changed(server: Server, raw: RawConnection, topic: str) -> None:
    topics = [{"topic": topic, "partitions": [part()]}]
    opened = fetch(raw, 11, topics, session_epoch=0)
    assert opened.session_id > 0 and len(opened.responses) == 1
    within = {"session_id": opened.session_id}
    assert fetch(raw, 11, [], session_epoch=1, **within).responses == ()
    ask_and_wait(server, raw, topic, min_bytes=1, topics=[], session_epoch=2, **within)
    with RawConnection(server.bootstrap_servers) as other:
        other.produce(topic, 0, ONE)
    told = raw.answer()
    assert (told.session_id, told.responses[0].partitions[0].records[17:]) == (opened.session_id, ONE[17:])
    claimed = fetch(raw, 11, [], session_epoch=2, **within)
    assert (claimed.error_code, claimed.responses) == (ErrorCode.invalid_fetch_session_epoch, ())
    fetch(raw, 11, [], session_epoch=-1, **within)
    claimed = fetch(raw, 11, [], session_epoch=3, **within)
    assert (claimed.error_code, claimed.responses) == (ErrorCode.fetch_session_id_not_found, ())


def test_rights_are_asked_for_at_each_fetch_of_a_session() -> None:
    with Server(settings=rights.SETTINGS) as server, RawConnection(server.bootstrap_servers) as admin:
        rights.open_to_one_host(admin)
        admin.create_topic("orders")
        found = server.broker.topics.get("orders")
        assert found is not None
        given = [rights.rule(Resource.TOPIC, Operation.READ, name="orders")]
        rights.give(admin, given)
        for version, name in ((11, {"topic": "orders"}), (17, {"topic_id": found.id})):
            with RawConnection(server.bootstrap_servers, from_host=rights.THERE) as other:
                opened = fetch(other, version, [{**name, "partitions": [part()]}], session_epoch=0)
                within = {"session_id": opened.session_id}
                assert fetch(other, version, [], session_epoch=1, **within).responses == ()
                rights.take_back(admin)
                told = fetch(other, version, [], session_epoch=2, **within).responses[0].partitions[0]
                assert (told.error_code, told.high_watermark) == (ErrorCode.topic_authorization_failed, -1)
                rights.give(admin, given)
                told = fetch(other, version, [], session_epoch=3, **within).responses[0].partitions[0]
                assert (told.error_code, told.high_watermark) == (ErrorCode.none, 0)


def test_a_fetch_of_nothing_is_answered_at_once(raw: RawConnection) -> None:
    assert fetch(raw, 11, [], max_wait=60_000).responses == ()


# ListOffsets


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_found_by_time_in_every_version(raw: RawConnection, version: int) -> None:
    topic = new_topic(raw)
    for time_ms in (1000, 3000, 2000):
        raw.produce(topic, 0, batch([b"x", Rec(b"y", timestamp_delta_ms=5)], timestamp_ms=time_ms))

    def at(time_ms: int) -> tuple[int, int]:
        wanted = {"partition_index": 0, "timestamp": time_ms}
        values: dict[str, Any] = {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}
        if version >= 2:
            values["isolation_level"] = 0
        if version >= 10:
            values["timeout"] = 1000
        found = raw.call("list_offsets", version, **values).topics[0].partitions[0]
        assert found.error_code is ErrorCode.none
        return found.timestamp, found.offset

    assert at(-1) == (-1, 6)
    assert at(-2) == (-1, 0)
    assert at(0) == (1000, 0)
    assert at(1001) == (1005, 1)
    assert at(2500) == (3000, 2)
    assert at(9999) == (-1, -1)
    if version >= 7:
        assert at(-3) == (3005, 3)
    if version >= 8:
        assert at(-4) == (-1, 0)
    if version >= 9:
        assert at(-5) == (-1, -1)


def test_a_kind_of_offset_that_a_version_does_not_know_is_refused(raw: RawConnection, topic: str) -> None:
    assert raw.offset_at(topic, 0, -3, version=6).error_code is ErrorCode.unsupported_version
    assert raw.offset_at(topic, 0, -99).error_code is ErrorCode.unsupported_version
    assert raw.offset_at("nowhere", 0, -1).error_code is ErrorCode.unknown_topic_or_partition
    assert raw.offset_at(topic, 3, -1).error_code is ErrorCode.unknown_topic_or_partition


def test_the_earliest_offset_comes_with_the_epoch_that_it_was_written_in(
    server: Server, raw: RawConnection, topic: str
) -> None:
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    first_epoch = partition.log.leader_epoch
    raw.produce(topic, 0, batch([b"x"]))
    server.call(partition.log.begin_epoch, first_epoch + 1)
    raw.produce(topic, 0, batch([b"y"]))
    assert raw.offset_at(topic, 0, -2).leader_epoch == first_epoch
    assert raw.offset_at(topic, 0, -1).leader_epoch == first_epoch + 1


def test_a_partition_that_could_not_be_opened_does_not_pass_for_an_empty_one(
    server: Server, raw: RawConnection, topic: str
) -> None:
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    partition.log.go_offline("damaged, for this test", readable=False)
    storage_error = ErrorCode.kafka_storage_error
    assert raw.fetch(topic, 0, 0).error_code is storage_error
    assert [raw.offset_at(topic, 0, which).error_code for which in (-1, -2, 1000)] == [storage_error] * 3
    assert raw.describe_producers(topic, 0).error_code is storage_error


# DeleteRecords and OffsetForLeaderEpoch


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone_for_readers(raw: RawConnection, topic: str, version: int) -> None:
    for _ in range(5):
        raw.produce(topic, 0, ONE)

    def delete(offset: int, name: str = topic) -> tuple[ErrorCode, int]:
        wanted = {"partition_index": 0, "offset": offset}
        topics = [{"name": name, "partitions": [wanted]}]
        found = raw.call("delete_records", version, topics=topics, timeout=1000).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert delete(2) == (ErrorCode.none, 2)
    assert raw.fetch(topic, 0, 1).error_code is ErrorCode.offset_out_of_range
    assert raw.fetch(topic, 0, 2).error_code is ErrorCode.none
    assert raw.offset_at(topic, 0, -2).offset == 2
    assert delete(9) == (ErrorCode.offset_out_of_range, -1)
    assert delete(-1) == (ErrorCode.none, 5)
    assert delete(0, "nowhere") == (ErrorCode.unknown_topic_or_partition, -1)


def test_of_a_partition_that_is_named_again_the_last_offset_counts(raw: RawConnection, topic: str) -> None:
    for _ in range(5):
        raw.produce(topic, 0, ONE)
    offsets = [[3, 1], [4, 2]]
    topics = [
        {"name": topic, "partitions": [{"partition_index": 0, "offset": offset} for offset in each]} for each in offsets
    ]
    (told,) = raw.call("delete_records", 2, topics=topics, timeout=1000).topics
    assert [(each.error_code, each.low_watermark) for each in told.partitions] == [(ErrorCode.none, 2)]


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_an_epoch_is_told(server: Server, raw: RawConnection, topic: str, version: int) -> None:
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    raw.produce(topic, 0, ONE)
    first = partition.log.leader_epoch
    server.call(partition.log.begin_epoch, first + 3)
    raw.produce(topic, 0, ONE)

    def end_of(epoch: int) -> tuple[int, int]:
        wanted = {"partition": 0, "leader_epoch": epoch}
        values: dict[str, Any] = {"replica_id": -1} if version >= 3 else {}
        topics = [{"topic": topic, "partitions": [wanted]}]
        found = raw.call("offset_for_leader_epoch", version, topics=topics, **values).topics[0].partitions[0]
        assert found.error_code is ErrorCode.none
        return found.leader_epoch, found.end_offset

    assert end_of(first) == (first, 1)
    assert end_of(first + 1) == (first, 1)
    assert end_of(first + 3) == (first + 3, 2)
    assert end_of(first + 4) == (-1, -1)
