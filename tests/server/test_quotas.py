"""Who takes too much is told how long to wait, and stands still; nobody else does."""

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.embedded import Server
from oncelog.security.documents import Kind
from oncelog.server import throttle
from tests.depth import deeper, scaled
from tests.raw import RawConnection, ServerClosed, batch
from tests.raw.topics import new_topic
from tests.server.quotas_support import Names, alter, described, entry, set_quota, stop_the_clock
from tests.waiting import until

RAW: Names = {"client-id": "raw"}
SLOW = {"producer_byte_rate": 1000.0}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def clock(server: Server, raw: RawConnection) -> ManualClock:
    return stop_the_clock(server)


@pytest.fixture
def other(server: Server) -> Iterator[RawConnection]:
    with RawConnection(server.bootstrap_servers, client_id="other") as connection:
        yield connection


def produced(connection: RawConnection, topic: str, records: bytes, version: int = 9) -> int:
    """How long the answer says to wait."""
    connection.ask_produce(topic, 0, records, version=version)
    return throttle_ms(connection.answer())


def throttle_ms(answer: Any) -> int:
    return int(answer.throttle_time.total_seconds() * 1000)


def is_muted(server: Server) -> bool:
    """One connection: nothing else stops reading here."""
    return sum(not each.is_reading for each in server.service.connections.each()) == 1


# Produce


@pytest.mark.parametrize("version", [3, 7, 8, 9, 11])
def test_a_produce_answer_says_how_long_to_wait(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock, version: int
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, **SLOW)
    assert produced(raw, topic, batch([b"x" * 900]), version) == 0
    told = produced(raw, topic, batch([b"x" * 20_000]), version)
    assert 10_000 < told < 12_500  # some 21,100 bytes in ten seconds, at 1,000 a second
    until(lambda: is_muted(server), "nothing more is read")
    assert produced(other, topic, batch([b"x" * 100_000]), version) == 0


def test_a_producer_that_is_recognised_is_told_too(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, producer_byte_rate=10_000.0)
    waits = [produced(raw, topic, batch([b"x" * 9_000])) for _ in range(11)]
    assert waits[:10] == [0] * 10
    assert waits[10] > 0


def test_of_requests_that_arrive_together_those_behind_wait(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, **SLOW)
    with raw.in_one_piece():
        for _ in range(3):
            raw.ask_produce(topic, 0, batch([b"x" * 8_000]))
    assert throttle_ms(raw.answer()) == 0
    assert throttle_ms(raw.answer()) > 0
    assert other.fetch(topic, 0, 0).high_watermark == 2
    set_quota(other, RAW, producer_byte_rate=None)  # and at once it goes on
    assert throttle_ms(raw.answer()) == 0
    assert other.fetch(topic, 0, 0).high_watermark == 3


def test_a_producer_that_wants_no_answers_stands_still_too(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, **SLOW)
    raw.ask_produce(topic, 0, batch([b"x" * 20_000]), acks=0)
    until(lambda: is_muted(server), "nothing more is read")


def test_nothing_is_read_from_who_stands_still_and_nothing_is_kept(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, **SLOW)
    assert produced(raw, topic, batch([b"x" * 20_000])) > 0
    before = server.broker.metrics.bytes_received
    raw.ask_produce(topic, 0, batch([b"y" * 50_000]))
    assert other.fetch(topic, 0, 0).high_watermark == 1
    assert server.broker.metrics.bytes_received - before < 1_000  # of `other`
    assert sum(each.kept_bytes for each in server.service.connections.each()) == 0


def test_when_the_time_is_over_it_goes_on(server: Server, raw: RawConnection, other: RawConnection) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, producer_byte_rate=1_000_000.0)
    waits = 0
    while not waits:
        waits = produced(raw, topic, batch([b"x" * 900_000]))
    assert produced(raw, topic, batch([b"x"])) < 5_000
    assert server.broker.metrics.throttled["produce"] >= 1
    assert server.broker.metrics.throttled_ms["produce"] >= waits


def test_who_stands_still_is_idle_and_closed_like_any_other(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, producer_byte_rate=1.0)
    assert produced(raw, topic, batch([b"x" * 10_000])) > 1_000_000
    clock.advance(server.settings.connections_max_idle_ms + 1)
    server.call(server.service.connections.close_idle)
    with pytest.raises(ServerClosed):
        raw.receive_bytes()


def test_a_server_that_stops_waits_for_nobody_who_stands_still(raw: RawConnection, server: Server) -> None:
    topic = new_topic(raw)
    set_quota(raw, RAW, producer_byte_rate=1.0)
    assert produced(raw, topic, batch([b"x" * 10_000])) > 1_000_000
    server.close()
    with pytest.raises(ServerClosed):
        raw.receive_bytes()


# Fetch


def test_a_fetch_that_is_too_much_is_answered_without_records(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    for _ in range(10):
        other.produce(topic, 0, batch([b"x" * 5_000]))
    set_quota(other, RAW, consumer_byte_rate=1000.0)
    first = raw.fetch(topic, 0, 0)
    assert 5_000 < len(first.records) < 10_100  # what fits into the quota of all windows
    raw.ask("fetch", 11, **fetching(topic, 2))
    told = raw.answer()
    assert (told.responses, told.error_code) == ((), 0)
    assert throttle_ms(told) > 0
    assert server.broker.metrics.throttled == {"fetch": 1}


def test_a_session_is_over_whose_reader_was_told_nothing(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    """What it holds to be told would be wrong."""
    topic = new_topic(other)
    for _ in range(10):
        other.produce(topic, 0, batch([b"x" * 5_000]))
    set_quota(other, RAW, consumer_byte_rate=1000.0)
    opened = raw.call("fetch", 11, **(fetching(topic, 0) | {"session_epoch": 0}))
    assert opened.session_id and len(server.broker.fetch_sessions) == 1
    within = {"session_id": opened.session_id, "session_epoch": 1}
    told = raw.call("fetch", 11, **(fetching(topic, 2) | within))
    assert throttle_ms(told) > 0
    assert (told.session_id, told.responses, len(server.broker.fetch_sessions)) == (0, (), 0)


def test_a_batch_that_is_larger_than_all_windows_comes_at_last(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    """Kafka would answer that nothing is there, for ever."""
    topic = new_topic(other)
    other.produce(topic, 0, batch([b"x" * 500_000]))
    set_quota(other, RAW, consumer_byte_rate=10.0)
    assert len(raw.fetch(topic, 0, 0).records) > 500_000


def test_a_fetch_that_waits_is_judged_when_it_is_answered(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    other.produce(topic, 0, batch([b"x" * 9_000]))
    set_quota(other, RAW, consumer_byte_rate=1000.0)
    assert len(raw.fetch(topic, 0, 0).records) > 9_000
    raw.ask("fetch", 11, **fetching(topic, 1, max_wait=30_000))
    other.produce(topic, 0, batch([b"x" * 5_000]))
    told = raw.answer()
    assert told.responses == ()
    assert throttle_ms(told) > 0


def fetching(topic: str, offset: int, max_wait: int = 0) -> dict[str, Any]:
    wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
    }


# Time


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the server's watch every look at it takes 30 ms: a request of any kind takes 3 % of a second, at the least."""
    readings = iter(range(0, 10**15, 30_000_000))
    monkeypatch.setattr(throttle, "monotonic_ns", lambda: next(readings))
    monkeypatch.setattr("oncelog.server.call.monotonic_ns", lambda: next(readings))


def test_time_is_a_share_of_the_one_thread(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock, costly: None
) -> None:
    set_quota(other, RAW, request_percentage=1.0)
    asked = {"topics": [], "allow_auto_topic_creation": False}
    waits = [throttle_ms(raw.call("metadata", 9, **asked)) for _ in range(2)]
    assert waits == [0, 1000]  # 6 and 12 % of one second in ten; a window is the longest wait
    assert server.broker.metrics.throttled == {"request": 1}
    assert throttle_ms(other.call("metadata", 9, **asked)) == 0


def test_time_spent_on_producing_counts(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock, costly: None
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, request_percentage=1.0)
    waits = [produced(raw, topic, batch([b"x"])) for _ in range(3)]
    assert waits[-1] == 1000


@pytest.mark.parametrize(
    ("name", "version"), [("metadata", 0), ("metadata", 12), ("list_groups", 4), ("api_versions", 3)]
)
def test_answers_of_every_shape_say_it_where_they_can(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock, costly: None, name: str, version: int
) -> None:
    set_quota(other, RAW, request_percentage=0.001)
    values: dict[str, dict[str, Any]] = {
        "metadata": {"topics": []},
        "list_groups": {"states_filter": []},
        "api_versions": {"client_software_name": "a", "client_software_version": "1"},
    }
    told = raw.call(name, version, **values[name])
    assert not hasattr(told, "throttle_time") or throttle_ms(told) == 1000
    until(lambda: is_muted(server), "nothing more is read")


def test_a_large_answer_that_was_packed_by_a_thread_says_it_too(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock, costly: None
) -> None:
    for _ in range(3):
        other.create_topic(f"wide-{_}", 200, wait=False)
    set_quota(other, RAW, request_percentage=0.001)
    told = raw.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
    assert len(told.topics) == 3
    assert throttle_ms(told) == 1000


# Changes


def test_a_change_frees_who_stands_still(
    server: Server, raw: RawConnection, other: RawConnection, clock: ManualClock
) -> None:
    topic = new_topic(other)
    set_quota(other, RAW, **SLOW)
    assert produced(raw, topic, batch([b"x" * 20_000])) > 10_000
    raw.ask_produce(topic, 0, batch([b"x"]))
    set_quota(other, RAW, producer_byte_rate=1_000_000.0)
    assert throttle_ms(raw.answer()) == 0


def test_quotas_outlive_the_server(tmp_path: Any) -> None:
    for _ in range(2):
        with Server(data_dir=str(tmp_path)) as server, RawConnection(server.bootstrap_servers) as raw:
            if not _:
                set_quota(raw, {"user": "a", "client-id": None}, producer_byte_rate=5.0, request_percentage=7.5)
            assert described(raw) == [
                ({"client-id": None, "user": "a"}, {"producer_byte_rate": 5.0, "request_percentage": 7.5})
            ]


def test_what_is_only_tried_changes_nothing(raw: RawConnection) -> None:
    assert alter(raw, entry(RAW, **SLOW), validate_only=True) == [("none", None)]
    assert described(raw) == []


def test_more_than_there_is_room_for_is_refused_and_the_rest_stays(server: Server, raw: RawConnection) -> None:
    set_quota(raw, RAW, **SLOW)
    many = [entry({"user": f"{'x' * 200}{number}"}, **SLOW) for number in range(4_500)]
    answers = alter(raw, *many)
    assert {code for code, _ in answers} == {"policy_violation"}
    assert described(raw) == [(RAW, SLOW)]


# Very many


def test_client_ids_without_a_quota_are_not_remembered(server: Server, raw: RawConnection) -> None:
    set_quota(raw, {"user": "somebody"}, **SLOW)
    for number in range(100):
        raw.client_id = f"c{number}"
        raw.call("metadata", 9, topics=[], allow_auto_topic_creation=False)
    assert server.broker.quotas.tracked == 0


@deeper
def test_a_million_client_ids_leave_the_others_and_the_memory_alone(server: Server, raw: RawConnection) -> None:
    set_quota(raw, {"client-id": None}, **SLOW)
    set_quota(raw, {"user": "named"}, **SLOW)
    quotas = server.broker.quotas
    assert quotas.produced_ms("named", "c", 20_000, 0) > 0
    for number in range(scaled(100_000)):
        quotas.produced_ms("ANONYMOUS", f"c{number}", 1, 0)
    assert quotas.tracked == 10_001
    assert quotas.produced_ms("named", "c", 0, 0) > 0


# Connections


def test_connections_of_one_address_are_refused_above_their_rate(server: Server, raw: RawConnection) -> None:
    stop_the_clock(server)
    set_quota(raw, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
    opened = [RawConnection(server.bootstrap_servers) for _ in range(12)]
    with pytest.raises(ServerClosed):
        opened[-1].call("metadata", 9, topics=[], allow_auto_topic_creation=False)
    assert opened[0].call("metadata", 9, topics=[], allow_auto_topic_creation=False).brokers
    assert server.broker.metrics.throttled["connection"] == 2
    for each in opened:
        each.close()


def test_the_document_says_what_is_kept(server: Server, raw: RawConnection) -> None:
    set_quota(raw, {"user": None}, controller_mutation_rate=0.5)
    assert server.broker.topics.document(Kind.QUOTAS) == {"user=<default>": {"controller_mutation_rate": 0.5}}
