"""What clients of ill will may cost: bounded memory, and turns for everybody else."""

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from oncelog.embedded import Server
from oncelog.server import connections as connections_module
from oncelog.server import memory
from oncelog.server.connection import Connection
from oncelog.server.errors import ErrorCode
from oncelog.server.memory import Budget
from oncelog.server.receiver import HELD_BYTES, LEAST_RECEIVED_BYTES
from tests.raw import RawConnection, ServerClosed, batch, encode_request, make, message
from tests.raw.topics import new_topic
from tests.server.sasl_support import TurnedClock
from tests.waiting import until

MEGABYTE = 1 << 20


def frame(name: str, version: int, **values: Any) -> bytes:
    kind = message(name, version)
    payload = encode_request(kind, make(kind.request, values), 1)
    return struct.pack(">i", len(payload)) + payload


def fetch_values(topic: str, partitions: list[int], **more: Any) -> dict[str, Any]:
    wanted = [
        {"partition": index, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
        for index in partitions
    ]
    values = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 30, "session_epoch": -1}
    return values | {"topics": [{"topic": topic, "partitions": wanted}], "forgotten_topics_data": []} | more


@contextmanager
def turned_server(**settings: Any) -> Iterator[tuple[Server, TurnedClock]]:
    """Who has stalled is a matter of its clock, which the test turns: no busy machine makes others stall."""
    with Server(**settings) as server:
        clock = server.broker.clock = TurnedClock()
        yield server, clock


# Answers that nobody takes


def test_answers_of_pipelined_requests_do_not_pile_up(server: Server) -> None:
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    asked = frame("describe_configs", 4, resources=[resource], include_synonyms=True, include_documentation=True)
    with RawConnection(server.bootstrap_servers) as slow:
        slow.socket.sendall(asked * 2000)
        until(lambda: server.broker.memory.unsent.held_bytes > 0, "the server to wait for the client")
        unsent = server.call(lambda: max(each.write_buffer_bytes for each in server.service.connections.each()))
        assert unsent < MEGABYTE


def test_one_connection_gives_others_turns_between_its_requests(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever one chunk of bytes asks for, only so much of it is served in one turn of the loop."""
    served_at: list[int] = []
    requests = server.broker.metrics.requests
    serve = Connection.serve

    def counted(self: Any, *arguments: Any) -> None:
        before = requests[18]
        serve(self, *arguments)
        served_at.append(requests[18] - before)

    monkeypatch.setattr(Connection, "serve", counted)
    with RawConnection(server.bootstrap_servers) as busy:
        busy.socket.sendall(frame("api_versions", 0) * 1000)
        for _ in range(1000):
            busy.receive_bytes()
    until(lambda: sum(served_at) == 1000, "the last ones to be counted")  # they are answered a moment before
    assert max(served_at) <= 64


UNUSUAL = {"forgotten_topics_data": [{"topic": "n" * 200, "partitions": [0]}] * 50}


@pytest.mark.parametrize("more", [{}, UNUSUAL, {"min_bytes": 1 << 30, "max_wait": 300}], ids=["now", "aside", "poll"])
def test_slow_readers_together_stay_below_the_bound(monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    """Also where many answers are due in the same round of the loop, and none is sent when the next one is read."""
    monkeypatch.setattr(memory, "UNSENT_BYTES", 24 * MEGABYTE)
    with Server(message_max_bytes=9 * MEGABYTE) as server, RawConnection(server.bootstrap_servers) as raw:
        unsent, opened = server.broker.memory.unsent, server.service.connections.each
        topic = new_topic(raw)
        assert raw.produce(topic, 0, batch([b"x" * 8 * MEGABYTE])).error_code is ErrorCode.none
        slow = [RawConnection(server.bootstrap_servers) for _ in range(20)]
        asked = frame("fetch", 11, **fetch_values(topic, [0], **more))
        for each in slow:
            each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.socket.sendall(asked)
        until(lambda: unsent.held_bytes > 0, "an answer that is not taken")
        until(lambda: not any(each.is_waiting for each in server.call(opened)), "all to be answered")
        assert 0 < unsent.held_bytes <= 24 * MEGABYTE + 9 * MEGABYTE
        for each in slow:
            each.close()
        until(lambda: unsent.held_bytes == 0, "the bound to be free again")
        assert len(raw.fetch(topic, 0, 0).records) > 8 * MEGABYTE


def test_a_client_that_takes_none_of_its_answers_loses_its_connection_when_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "UNSENT_BYTES", 4 * MEGABYTE)
    monkeypatch.setattr(connections_module, "STALLED_LOOK_S", 0.02)
    with (
        turned_server(message_max_bytes=9 * MEGABYTE) as (server, clock),
        RawConnection(server.bootstrap_servers) as raw,
    ):
        topic = new_topic(raw)
        assert raw.produce(topic, 0, batch([b"x" * 8 * MEGABYTE])).error_code is ErrorCode.none
        with RawConnection(server.bootstrap_servers) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.ask("fetch", 11, **fetch_values(topic, [0]))
            until(lambda: server.broker.memory.unsent.held_bytes > 0, "the answer to be held for it")
            clock.ahead_ms += connections_module.STALLED_READER_MS
            until(lambda: len(raw.fetch(topic, 0, 0).records or b"") > 8 * MEGABYTE, "another reader to be served")
            assert server.broker.metrics.connections_refused == 1


def test_a_fetch_answers_no_more_than_the_server_allows() -> None:
    with Server(fetch_max_bytes=MEGABYTE) as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        for _ in range(5):
            raw.produce(topic, 0, batch([b"x" * 300_000]))
        answer = raw.call("fetch", 11, **fetch_values(topic, [0]))
        assert 0 < len(answer.responses[0].partitions[0].records) <= MEGABYTE


def test_one_connection_does_not_take_all_the_memory_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "UNSENT_BYTES", 24 * MEGABYTE)
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        for _ in range(20):
            raw.produce(topic, 0, batch([b"x" * 900_000]))
        answer = raw.call("fetch", 11, **fetch_values(topic, [0]))
        assert 0 < len(answer.responses[0].partitions[0].records) <= 6 * MEGABYTE


# Asking for the same thing many times


def test_a_fetch_takes_each_partition_once(server: Server, raw: RawConnection, topic: str) -> None:
    raw.produce(topic, 0, batch([b"x"]))
    answer = raw.call("fetch", 11, **fetch_values(topic, [0] * 1000))
    assert len(answer.responses[0].partitions) == 1
    values = fetch_values(topic, [0])
    answer = raw.call("fetch", 11, **(values | {"topics": values["topics"] * 1000}))
    assert sum(len(each.partitions) for each in answer.responses) == 1


def test_each_thing_that_is_named_many_times_is_described_once(raw: RawConnection, topic: str) -> None:
    many = 50
    metadata = raw.call("metadata", 9, topics=[{"name": topic}] * many, allow_auto_topic_creation=False)
    assert [each.name for each in metadata.topics] == [topic]
    producers = raw.call("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0] * many}] * many)
    assert [len(each.partitions) for each in producers.topics] == [1]
    groups = raw.call("describe_groups", 5, groups=["nobody"] * many, include_authorized_operations=False)
    assert len(groups.groups) == 1
    offsets = raw.call("offset_fetch", 8, groups=[{"group_id": "g", "topics": None}] * many, require_stable=False)
    assert len(offsets.groups) == 1
    wanted = [{"name": topic, "partition_indexes": [0] * many}] * many
    offsets = raw.call("offset_fetch", 7, group_id="g", topics=wanted, require_stable=False)
    assert [len(each.partitions) for each in offsets.topics] == [1]
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    configs = raw.call(
        "describe_configs", 4, resources=[resource] * many, include_synonyms=True, include_documentation=True
    )
    assert len(configs.results) == 1
    folders = raw.call("describe_log_dirs", 1, topics=[{"topic": topic, "partitions": [0]}] * many)
    assert len(folders.results[0].topics) == 1


def test_offsets_asked_for_twice_are_refused_as_in_kafka(raw: RawConnection, topic: str) -> None:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    answer = raw.call(
        "list_offsets", 8, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": [wanted] * 3}]
    )
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.invalid_request]


def test_an_answer_that_grows_too_large_costs_the_connection(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(raw, 500)
    monkeypatch.setattr("oncelog.server.call.ANSWER_BYTES", 10_000)
    with RawConnection(server.bootstrap_servers) as greedy, pytest.raises(ServerClosed):
        greedy.call("metadata", 9, topics=None, allow_auto_topic_creation=False)
    assert raw.call("metadata", 9, topics=[], allow_auto_topic_creation=False).brokers


# Frames that are announced and never sent


def limit_unserved(server: Server, size_bytes: int) -> None:
    """Less than the settings allow, so that little has to be sent."""
    server.call(setattr, server.broker.memory.unserved, "limit_bytes", size_bytes)


def announce(server: Server, size_bytes: int, sent_bytes: int = 0) -> RawConnection:
    connection = RawConnection(server.bootstrap_servers)
    connection.socket.sendall(struct.pack(">ihhi", size_bytes, 0, 9, 1) + bytes(sent_bytes))
    return connection


def test_frames_that_are_only_announced_hold_no_memory_from_others() -> None:
    """However many they are: nobody waits, and nobody has to be cut for it."""
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        limit_unserved(server, 2 * MEGABYTE)
        topic = new_topic(raw)
        refused = server.broker.metrics.connections_refused
        strangers = [announce(server, 100 * MEGABYTE, sent_bytes=1000) for _ in range(50)]
        open_ones = server.service.connections.each
        until(lambda: server.call(lambda: sum(bool(one.kept_bytes) for one in open_ones())) == 50, "all to be heard")
        assert server.broker.memory.unserved.held_bytes == 0
        assert raw.produce(topic, 0, batch([b"x" * 900_000])).error_code is ErrorCode.none
        assert server.broker.metrics.connections_refused == refused
        for each in strangers:
            each.close()


def test_a_frame_takes_of_the_memory_in_proportion_to_what_arrived() -> None:
    with Server() as server:
        budget = server.broker.memory.unserved
        stranger = announce(server, 100 * MEGABYTE, sent_bytes=70_000)
        until(lambda: budget.held_bytes > 0, "it to have a buffer of its own")
        assert budget.held_bytes <= 4 * 71_000
        stranger.close()
        until(lambda: budget.held_bytes == 0, "the memory to be given back")


def test_no_crowd_keeps_somebody_from_memory_whether_it_came_before_or_after() -> None:
    budget, fed = Budget(1), []
    budget.take(1)
    for number in range(6):

        def feed(number: int = number) -> None:
            fed.append(number)
            budget.take(1)

        budget.wait(feed)
    for _ in range(6):
        budget.give_back(1)
    assert fed == [0, 5, 1, 4, 2, 3]


def test_one_at_a_time_is_let_in_although_nothing_is_left_and_up_to_half_as_much_again() -> None:
    budget, fed = Budget(100), []
    budget.take(100)
    for number in range(6):

        def feed(number: int = number) -> None:
            if budget.take(20):
                fed.append(number)
            else:
                budget.wait(feed)

        feed()
    for count in (1, 2, 3, 3):
        budget.let_in()
        assert (len(fed), budget.held_bytes <= budget.most_bytes + 20) == (count, True)
    assert budget.waiting == 3


def test_one_that_has_got_on_is_let_in_before_those_who_only_begin() -> None:
    budget, fed = Budget(100), []
    budget.take(100)
    budget.take_more(10, "stands still")
    assert not budget.take_more(10, "gets on") and not budget.take(10)
    budget.wait_for_more(lambda: fed.append(("gets on", budget.take_more(10, "gets on"))))
    budget.wait(lambda: fed.append(("begins", budget.take(10))))
    budget.let_in()
    assert fed == [("gets on", True), ("begins", True)]


def test_the_only_one_that_waits_is_let_in_without_a_look_for_those_that_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "STALLED_LOOK_S", 3600)
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        limit_unserved(server, 8 * MEGABYTE)
        server.call(server.broker.memory.unserved.hold, 8 * MEGABYTE)
        assert raw.produce(new_topic(raw), 0, batch([b"x" * 900_000])).error_code is ErrorCode.none


def test_a_frame_that_is_all_there_waits_for_none_that_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "STALLED_MS", 3_600_000)
    monkeypatch.setattr(connections_module, "STALLED_LOOK_S", 3600)
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        limit_unserved(server, 8 * MEGABYTE)
        topic = new_topic(raw)
        strangers = [announce(server, 100 * MEGABYTE, sent_bytes=100_000) for _ in range(24)]
        until(lambda: server.broker.memory.unserved.left_bytes == 0, "the budget to be used up")
        for _ in range(3):
            assert raw.produce(topic, 0, batch([b"x" * 400_000])).error_code is ErrorCode.none
        for each in strangers:
            each.close()


def test_a_frame_that_stalls_loses_its_connection_when_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "STALLED_LOOK_S", 0.02)
    with turned_server() as (server, clock), RawConnection(server.bootstrap_servers) as raw:
        limit_unserved(server, 2 * MEGABYTE)
        topic = new_topic(raw)
        strangers = [announce(server, 100 * MEGABYTE, sent_bytes=MEGABYTE) for _ in range(5)]
        until(lambda: server.broker.memory.unserved.left_bytes == 0, "the budget to be used up")
        clock.ahead_ms += connections_module.STALLED_MS
        assert raw.produce(topic, 0, batch([b"x" * 900_000])).error_code is ErrorCode.none
        for each in strangers:
            each.close()


def test_nobody_is_cut_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "STALLED_MS", 0)
    monkeypatch.setattr(connections_module, "STALLED_LOOK_S", 0.01)
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        sent = frame(
            "produce",
            9,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch([b"x" * 900_000])}]}],
        )
        with RawConnection(server.bootstrap_servers) as slow:
            slow.socket.sendall(sent[:100_000])
            for _ in range(20):
                raw.produce(topic, 0, batch([b"y" * 100_000]))
            slow.socket.sendall(sent[100_000:])
            assert slow.receive_bytes()


def test_large_frames_all_arrive_where_memory_is_for_few() -> None:
    """All of them need more than there is; they get it one after the other."""
    with Server(message_max_bytes=6 * MEGABYTE) as server, RawConnection(server.bootstrap_servers) as raw:
        limit_unserved(server, 2 * MEGABYTE)
        topic = new_topic(raw)
        payload = batch([b"x" * 5 * MEGABYTE])
        sent = frame(
            "produce",
            9,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": payload}]}],
        )
        clients = [RawConnection(server.bootstrap_servers) for _ in range(5)]
        at = [0] * len(clients)
        for each in clients:
            each.socket.setblocking(False)
        highest_bytes = 0

        def push() -> bool:
            nonlocal highest_bytes
            for number, each in enumerate(clients):
                try:
                    at[number] += each.socket.send(sent[at[number] : at[number] + 300_000])
                except BlockingIOError:
                    continue
            highest_bytes = max(highest_bytes, server.call(lambda: server.broker.memory.unserved.held_bytes))
            return all(each == len(sent) for each in at)

        until(push, "all frames to be sent")
        for each in clients:
            each.socket.setblocking(True)
            each.socket.settimeout(20)
            assert each.receive_bytes()
            each.close()
        assert highest_bytes <= server.broker.memory.unserved.most_bytes + len(sent) + 4096
        assert server.call(lambda: server.broker.memory.unserved.held_bytes) == 0


# Requests behind one that waits


def test_a_connection_that_waits_takes_in_little(server: Server, topic: str) -> None:
    with RawConnection(server.bootstrap_servers) as waiting:
        waiting.ask("fetch", 11, **fetch_values(topic, [0], max_wait=60_000))
        until(lambda: any(each.is_waiting for each in list(server.service.connections.each())), "the fetch to wait")
        (held,) = [each for each in server.service.connections.each() if each.is_waiting]
        assert server.call(lambda: len(cast(memoryview, cast("Connection", held).get_buffer(-1)))) <= HELD_BYTES
        waiting.socket.setblocking(False)
        waiting.socket.send(frame("api_versions", 0) * 50_000)
        until(lambda: not held.is_reading, "it to stop reading")
        assert server.call(lambda: held.kept_bytes) < HELD_BYTES + LEAST_RECEIVED_BYTES


# Groups


def test_a_member_with_more_metadata_than_can_be_stored_is_refused(raw: RawConnection) -> None:
    def join(size_bytes: int) -> Any:
        return raw.call(
            "join_group",
            1,
            group_id=f"large-{size_bytes}",
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"x" * size_bytes}],
        ).error_code

    assert join(2 * MEGABYTE) is ErrorCode.invalid_request
    assert join(100_000) is ErrorCode.none


def test_all_groups_together_hold_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.server.groups.coordinator.MEMBERS_BYTES", MEGABYTE)
    with (
        Server(group_initial_rebalance_delay_ms=0) as server,
        RawConnection(server.bootstrap_servers) as raw,
    ):

        def join(group_id: str) -> Any:
            return raw.call(
                "join_group",
                1,
                group_id=group_id,
                session_timeout=60_000,
                rebalance_timeout=60_000,
                member_id="",
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"x" * 300_000}],
            )

        joined = [join(f"g{number}") for number in range(3)]
        assert [each.error_code for each in joined] == [ErrorCode.none] * 3
        assert join("g3").error_code is ErrorCode.coordinator_not_available
        raw.call("leave_group", 0, group_id="g0", member_id=joined[0].member_id)
        assert join("g3").error_code is ErrorCode.none


# Open files


def test_connections_leave_handles_for_the_logs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(connections_module, "FEWEST_CONNECTIONS", 1)
    monkeypatch.setattr(connections_module, "open_files_limit", lambda: connections_module.RESERVED_FILES + 2)
    with Server() as server:
        with RawConnection(server.bootstrap_servers) as first, RawConnection(server.bootstrap_servers) as second:
            for each in (first, second):
                each.call("metadata", 9, topics=[], allow_auto_topic_creation=False)
            with RawConnection(server.bootstrap_servers) as third, pytest.raises(ServerClosed):
                third.receive_bytes()
        told = [record.getMessage() for record in caplog.records if "open files" in record.getMessage()]
        assert len(told) >= 1
