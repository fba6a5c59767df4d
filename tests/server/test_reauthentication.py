"""A proof is given again before its time is over; and what becomes of connections where it is not."""

import asyncio
import gc
import logging
import struct
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.security.scram_client import Scram
from oncelog.server.errors import ErrorCode
from oncelog.server.guarded_connection import GuardedConnection
from oncelog.server.proofs import ScramProof
from oncelog.server.users import add_user
from tests.raw import RawConnection, ServerClosed
from tests.raw.sasl import NONCE, prove, shake_hands
from tests.server.sasl_support import ANN, PASSWORD, Guarded, assert_closed, assert_serves, framed, guarded
from tests.server.test_authentication import FAILED
from tests.waiting import until


def guarded_ones(at: Guarded) -> list[GuardedConnection]:
    return [each for each in at.server.service.connections.each() if isinstance(each, GuardedConnection)]


@pytest.fixture(scope="module")
def at() -> Iterator[Guarded]:
    with guarded() as found:
        yield found


@pytest.fixture(scope="module")
def brief() -> Iterator[Guarded]:
    """Where a proof lasts an hour."""
    with guarded(connections_max_reauth_ms="3600000", group_initial_rebalance_delay_ms="300") as found:
        yield found


def test_a_proof_is_told_how_long_it_counts(brief: Guarded, at: Guarded) -> None:
    for where, lifetime_s in ((brief, 3600), (at, 0)):
        with where.connected() as raw:
            assert prove(raw, ANN, PASSWORD).session_lifetime.total_seconds() == lifetime_s


def test_who_proves_it_again_in_time_goes_on(brief: Guarded) -> None:
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        for _ in range(3):
            brief.turn(3_000_000)
            assert_serves(raw)
            answer = prove(raw, ANN, PASSWORD)
            assert (answer.error_code, answer.session_lifetime.total_seconds()) == (ErrorCode.none, 3600)
        assert_serves(raw)


def test_a_proof_that_is_over_ends_the_connection_with_its_next_request(brief: Guarded) -> None:
    before = brief.metrics
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        brief.turn(3_600_000)
        raw.ask("metadata", 9, topics=[], allow_auto_topic_creation=False)
        assert_closed(raw)
    assert brief.metrics[3] == before[3] + 1

    assert brief.metrics[1] == before[1], "an end is no failure"


@pytest.mark.parametrize(
    ("request_name", "version", "values"),
    [
        ("metadata", 9, {"topics": [], "allow_auto_topic_creation": False}),
        ("api_versions", 3, {"client_software_name": "x", "client_software_version": "1"}),
        ("sasl_authenticate", 2, {"auth_bytes": b""}),
    ],
)
def test_a_request_that_comes_before_the_loop_looks_at_the_end_is_no_accident(
    brief: Guarded, caplog: pytest.LogCaptureFixture, request_name: str, version: int, values: dict[str, Any]
) -> None:
    before = brief.metrics
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        brief.pass_unseen(3_600_000)
        raw.ask(request_name, version, **values)
        assert_closed(raw)
    assert brief.metrics[3] == before[3] + 1
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_that_holds_for_a_large_request_too(brief: Guarded) -> None:
    before = brief.metrics
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        brief.turn(3_600_000)
        raw.ask_produce("t", 0, bytes(100_000))
        assert_closed(raw)
    assert brief.metrics[3] == before[3] + 1


@pytest.mark.parametrize("partitions", [1, 501])
def test_a_fetch_that_waits_ends_with_the_proof(brief: Guarded, partitions: int) -> None:
    """It may wait for weeks; more than 500 partitions are answered in turns."""
    before, topic = brief.metrics, f"awaited-{partitions}"
    with RawConnection(brief.open_address) as writer, brief.connected() as raw:
        writer.create_topic(topic, partitions)
        prove(raw, ANN, PASSWORD)
        wanted = [{"partition": at, "partition_max_bytes": 1000} for at in range(partitions)]
        topics = [{"topic": topic, "partitions": wanted}]
        raw.ask("fetch", 11, max_wait=60_000, min_bytes=1, max_bytes=1000, topics=topics)
        until(lambda: brief.server.call(lambda: brief.server.broker.looks.awaited) == partitions, "it to wait")
        brief.turn(3_000_000)
        assert brief.server.call(lambda: brief.server.broker.looks.awaited) == partitions
        brief.turn(600_000)
        assert_closed(raw)
        until(lambda: brief.server.call(lambda: brief.server.broker.looks.awaited) == 0, "nothing to be kept of it")
    assert brief.metrics[3] == before[3] + 1


def test_other_requests_that_wait_are_answered_though_the_proof_is_over_meanwhile(brief: Guarded) -> None:
    """As in Kafka: a member that waits for its group to settle would lose its place."""
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        join: dict[str, Any] = {
            "group_id": "slow",
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "member_id": "x",
        }
        raw.ask("join_group", 3, **join, protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}])
        brief.turn(3_600_000)
        raw.answer()


def test_a_client_that_is_gone_when_its_proof_is_good_is_not_kept_until_the_end_of_it(
    brief: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ScramProof.evaluate
    kept: list[weakref.ref[GuardedConnection]] = []

    async def evaluate_and_hang_up(self: ScramProof, message: bytes) -> bytes:
        answer = await evaluate(self, message)
        if self.is_over:
            (connection,) = guarded_ones(brief)
            kept.append(weakref.ref(connection))
            connection.abort()
            while connection in brief.server.service.connections.each():
                await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(brief.server.broker.turns, "wait_first", lambda callback: None)  # it is told too late
    monkeypatch.setattr(ScramProof, "evaluate", evaluate_and_hang_up)
    with brief.connected() as raw, pytest.raises(ServerClosed):
        prove(raw, ANN, PASSWORD)
    until(lambda: gc.collect() >= 0 and kept[0]() is None, "nothing to keep it")


def test_it_may_be_given_again_when_it_is_over_already(brief: Guarded) -> None:
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        brief.turn(4_000_000)
        assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.none
        assert_serves(raw)


def test_requests_that_arrive_with_a_new_proof_are_judged_one_after_the_other(brief: Guarded) -> None:
    """Behind a handshake stands the next message of the proof, and nothing is served by the old one."""
    asked = framed("metadata", 9, 1, topics=[], allow_auto_topic_creation=False)
    hands = framed("sasl_handshake", 1, 2, mechanism="SCRAM-SHA-256")
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        raw.socket.sendall(asked + hands + asked)
        assert [struct.unpack_from(">i", raw.receive_bytes())[0] for _ in range(2)] == [1, 2]
        assert_closed(raw)
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        first = Scram("SCRAM-SHA-256", ANN, PASSWORD, NONCE).first()
        raw.socket.sendall(asked + hands + framed("sasl_authenticate", 2, 3, auth_bytes=first))
        assert [struct.unpack_from(">i", raw.receive_bytes())[0] for _ in range(3)] == [1, 2, 3]


def test_nobody_becomes_somebody_else(brief: Guarded) -> None:
    brief.server.call(add_user, brief.server.broker, "bob", "b")
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        answer = prove(raw, "bob", "b")
        words = "Cannot change principals during re-authentication from User.ann: User.bob"
        assert (answer.error_code, answer.error_message) == (ErrorCode.sasl_authentication_failed, words)
        assert_closed(raw)


def test_a_new_proof_that_fails_is_told_as_such(brief: Guarded) -> None:
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        answer = prove(raw, ANN, "wrong")
        assert answer.error_message == FAILED.format("SCRAM-SHA-256").replace(
            "authentication due", "re-authentication due"
        )
        assert_closed(raw)


def test_a_new_proof_is_by_the_same_mechanism(brief: Guarded) -> None:
    with brief.connected() as raw:
        prove(raw, ANN, PASSWORD)
        assert shake_hands(raw, "SCRAM-SHA-512").error_code is ErrorCode.none
        raw.ask("sasl_authenticate", 2, auth_bytes=b"x")
        assert_closed(raw)


def test_a_proof_is_given_again_once_a_second_at_the_most(brief: Guarded) -> None:
    with brief.connected() as raw:
        for _ in range(2):
            prove(raw, ANN, PASSWORD)
        assert shake_hands(raw, "SCRAM-SHA-256").error_code is ErrorCode.illegal_sasl_state
        brief.turn(1000)
        prove(raw, ANN, PASSWORD)


def test_another_password_counts_from_the_next_proof_on() -> None:
    with (
        guarded(connections_max_reauth_ms="3600000", group_initial_rebalance_delay_ms="300") as found,
        found.connected() as raw,
    ):
        prove(raw, ANN, PASSWORD)
        found.server.call(add_user, found.server.broker, ANN, "another")
        assert_serves(raw)
        assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.sasl_authentication_failed
        with found.connected() as again:
            assert prove(again, ANN, "another").error_code is ErrorCode.none
