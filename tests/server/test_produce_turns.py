"""A Produce request for very many partitions is staged in turns, and answered as if it had been at once."""

import asyncio
from collections.abc import Iterable
from select import POLLIN, poll
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.log.errors import LogStorageError
from oncelog.server import produce
from oncelog.server.connection import Connection
from oncelog.server.errors import ErrorCode
from oncelog.server.produce import Producing
from oncelog.server.produced import Outcome
from oncelog.server.topics import Partition
from oncelog.wire.hot import Produced
from tests.raw import RawConnection, ServerClosed, batch
from tests.raw.topics import new_topic
from tests.server.test_connection_bounds import frame
from tests.server.test_turns import most_in_one_turn
from tests.waiting import until


@pytest.fixture
def in_turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened in which order, where each partition of two or more has a turn of its own."""
    happened: list[str] = []
    part = Producing.commit_part

    def watched(self: Producing, *arguments: Any) -> Any:
        happened.append("look")
        asyncio.get_running_loop().call_soon(happened.append, "turn")
        return part(self, *arguments)

    monkeypatch.setattr("oncelog.server.turns.TURN_MS", 0)
    monkeypatch.setattr("oncelog.server.produce_turns.AT_ONCE", 1)
    monkeypatch.setattr("oncelog.server.produce_turns.PARTITIONS_IN_A_STEP", 1)
    monkeypatch.setattr(Producing, "commit_part", watched)
    return happened


def produce_frame(topic: str, partitions: Iterable[int], acks: int = -1, size_bytes: int = 10, **more: Any) -> Any:
    data = [{"index": index, "records": batch([b"x" * size_bytes], **more)} for index in partitions]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


@pytest.mark.parametrize("size_bytes", [10, 50_000], ids=["in the shared buffer", "in its own"])
def test_others_have_turns_while_a_request_for_many_partitions_is_staged(
    server: Server, in_turns: list[str], size_bytes: int
) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=5)
        for round_ in range(2):
            in_turns.clear()
            with raw.in_one_piece():  # what stands behind it waits
                raw.ask("produce", 9, **produce_frame(topic, [0, 1, 7, 2, 3, 4], size_bytes=size_bytes))
                raw.ask_produce(topic, 0, batch([b"behind"]))
            answers = raw.answer().responses[0].partition_responses
            assert [each.error_code for each in answers] == [0, 0, 3, 0, 0, 0]
            assert [each.base_offset for each in answers if each.error_code == 0] == [2 * round_, *([round_] * 4)]
            assert raw.produce_answer().base_offset == 2 * round_ + 1
            assert in_turns.count("look") == 6
            assert most_in_one_turn(in_turns) <= 2


def test_others_have_turns_while_a_request_of_many_bytes_is_staged(
    server: Server, in_turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.server.produce_turns.AT_ONCE", 200)
    monkeypatch.setattr("oncelog.server.produce_turns.PARTITIONS_IN_A_STEP", 50)
    monkeypatch.setattr("oncelog.server.produce_turns.AT_ONCE_BYTES", 100_000)
    monkeypatch.setattr("oncelog.server.produce_turns.BYTES_IN_A_STEP", 40_000)
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=6)
        for partitions, size_bytes, steps in ((range(6), 10_000, 0), (range(6), 20_000, 3), (range(1), 120_000, 0)):
            in_turns.clear()
            answer = raw.call("produce", 9, **produce_frame(topic, partitions, size_bytes=size_bytes))
            assert {each.error_code for each in answer.responses[0].partition_responses} == {0}
            assert in_turns.count("look") == steps
            assert most_in_one_turn(in_turns) <= 2


def test_a_request_in_turns_waits_for_room_before_each_step(
    server: Server, in_turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the loop itself would flush what is too far behind."""
    housekeeping = server.broker.housekeeping
    asked: list[int] = []

    def has_room(size_bytes: int) -> bool:
        asked.append(size_bytes)
        in_turns.append("room" if len(asked) % 2 == 0 else "none")
        return len(asked) % 2 == 0

    monkeypatch.setattr(housekeeping, "has_room", has_room)
    monkeypatch.setattr(housekeeping, "wait_for_room", lambda call: asyncio.get_running_loop().call_soon(call))
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=3)
        in_turns.clear()
        raw.call("produce", 9, **produce_frame(topic, range(3)))
    assert [each for each in in_turns if each != "turn"] == ["none", "room", "look"] * 3
    assert asked == [len(batch([b"x" * 10]))] * 6


def test_what_a_disk_refuses_of_a_request_for_many_partitions_is_told_for_its_partition_alone(
    server: Server, in_turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=4)
        found = server.broker.topics.get(topic)
        assert found is not None

        def fail() -> None:
            raise LogStorageError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(found.partitions[2].log, "commit", fail)
            answers = raw.call("produce", 9, **produce_frame(topic, range(4))).responses[0].partition_responses
        assert [each.error_code for each in answers] == [0, 0, ErrorCode.kafka_storage_error, 0]


def test_a_request_for_many_partitions_that_wants_no_answer_closes_where_one_was_refused(
    server: Server, in_turns: list[str]
) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=3)
        raw.ask("produce", 9, answered=False, **produce_frame(topic, range(3), acks=0))
        assert raw.produce(topic, 2, batch([b"behind"])).base_offset == 1
        raw.ask("produce", 9, answered=False, **produce_frame(topic, range(4), acks=0))
        with pytest.raises(ServerClosed):
            raw.receive_bytes()


def test_of_a_request_for_many_partitions_whose_client_hangs_up_nothing_stays_staged(
    server: Server, in_turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=50)
        found = server.broker.topics.get(topic)
        assert found is not None
        part, serve = Producing.commit_part, Connection.serve
        served: list[Connection] = []

        def noted(self: Connection, *arguments: Any) -> None:
            served.append(self)
            serve(self, *arguments)

        def hangs_up(self: Producing, *arguments: Any) -> Any:
            served[-1].abort()
            return part(self, *arguments)

        with RawConnection(server.bootstrap_servers) as gone, monkeypatch.context() as patch:
            patch.setattr(Connection, "serve", noted)
            patch.setattr(Producing, "commit_part", hangs_up)
            gone.ask("produce", 9, **produce_frame(topic, range(50)))
            with pytest.raises(ServerClosed):
                gone.answer()
    ends = [each.log.next_offset for each in found.partitions]
    assert 1 <= sum(ends) < 50 and not any(each.log.has_staged for each in found.partitions)
    with RawConnection(server.bootstrap_servers) as raw:
        answers = raw.call("produce", 9, **produce_frame(topic, range(50))).responses[0].partition_responses
    assert [each.base_offset for each in answers] == ends


def test_a_request_for_many_partitions_is_answered_when_all_of_it_is_on_the_disk(
    in_turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(oncelog_flush="every") as server, RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=2)
        wanted: list[Partition] = []
        request = server.broker.flusher.request
        monkeypatch.setattr(server.broker.flusher, "request", wanted.append)
        raw.ask("produce", 9, **produce_frame(topic, [0, 1, 7]))
        until(lambda: in_turns.count("look") == 3 and len(wanted) == 2, "all of it to be staged")
        for _ in range(3):
            server.call(len, wanted)  # a round of its loop
        looked = poll()  # select() knows no descriptor above 1,023
        looked.register(raw.socket, POLLIN)
        assert not looked.poll(0)
        for partition in wanted:
            server.call(request, partition)
        assert [each.error_code for each in raw.answer().responses[0].partition_responses] == [0, 0, 3]


def test_others_have_turns_between_many_requests_that_arrived_together(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of small ones fit into a chunk: where each costs much, some are answered first."""
    monkeypatch.setattr(produce, "TURN_MS", 0)
    monkeypatch.setattr(produce, "CLOCK_REQUESTS", 4)
    committed: list[int] = []
    commit = Producing.commit

    def counted(self: Producing) -> Any:
        done = commit(self)
        committed.append(len(done.requests))
        return done

    monkeypatch.setattr(Producing, "commit", counted)
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw)
        raw.socket.sendall(frame("produce", 9, **produce_frame(topic, [0])) * 30)
        for _ in range(30):
            raw.receive_bytes()
    assert sum(committed) == 30
    assert max(committed) == 4


def test_others_have_turns_while_the_answer_for_many_partitions_is_made(
    server: Server, in_turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Produced.__new__

    def watched(kind: type[Produced], *arguments: Any, **keywords: Any) -> Produced:
        in_turns.append("made")
        return made(kind, *arguments, **keywords)

    monkeypatch.setattr(Produced, "__new__", watched)
    with RawConnection(server.bootstrap_servers) as raw:
        topic = new_topic(raw, partitions=9)
        in_turns.clear()
        raw.call("produce", 9, **produce_frame(topic, range(9)))
    assert in_turns.count("made") == 9
    assert max(len(each) for each in "".join(one[0] for one in in_turns).split("t")) <= 4


def test_what_could_not_be_stored_after_all_is_told_although_its_answer_was_made() -> None:
    outcome = Outcome(7, None, None)
    outcome.make()
    assert outcome.produced().error_code == ErrorCode.none
    outcome.fail("the disk is gone")
    found = outcome.produced()
    assert (found.partition_index, found.error_code, found.error_message) == (
        7,
        ErrorCode.kafka_storage_error,
        "the disk is gone",
    )
