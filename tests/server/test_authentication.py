"""Nothing is served before somebody has proven who they are; and how a proof is given, refused, and given again."""

import logging
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.security.gate import API_VERSIONS, MOST_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from oncelog.security.scram_client import Scram
from oncelog.server.errors import ErrorCode
from oncelog.server.guarded_connection import GuardedConnection
from oncelog.server.turns import Turns
from tests.raw import RawConnection, ServerClosed, batch, encode_request, make, message
from tests.raw.sasl import NONCE, plain, prove, say, shake_hands
from tests.raw.topics import new_topic
from tests.server.quotas_support import set_quota
from tests.server.sasl_support import (
    ANN,
    DELAY_MS,
    PASSWORD,
    Guarded,
    assert_closed,
    assert_serves,
    framed,
    guarded,
)
from tests.waiting import until

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
WRONG_PLAIN = "Authentication failed: Invalid username or password"


@pytest.fixture(scope="module")
def at() -> Iterator[Guarded]:
    with guarded() as found:
        yield found


@pytest.fixture(scope="module")
def topic(at: Guarded) -> str:
    with RawConnection(at.open_address) as raw:
        return new_topic(raw)


def versions(raw: RawConnection, version: int = 3) -> Any:
    values = {"client_software_name": "me", "client_software_version": "1"} if version >= 3 else {}
    return raw.call("api_versions", version, **values)


def raw_frame(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


# The proof


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_knows_the_password_is_served(at: Guarded, topic: str, mechanism: str, version: int) -> None:
    with at.connected() as raw:
        assert versions(raw).error_code is ErrorCode.none
        answer = prove(raw, ANN, PASSWORD, mechanism, version)
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
        assert_serves(raw)
        assert raw.produce(topic, 0, batch([b"x"])).error_code is ErrorCode.none
        assert principal_of(at) == "User:ann"


def principal_of(at: Guarded) -> str:
    def look() -> set[str]:
        open_now = at.server.service.connections.each()
        return {each.principal for each in open_now if isinstance(each, GuardedConnection)}

    until(lambda: len(at.server.call(look)) == 1, "one connection alone")
    return str(at.server.call(look).pop())


def test_rights_are_those_of_who_has_proven_it(at: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    real = at.server.broker.access.rights

    def rights(principal: str, host: str) -> Any:
        asked.append((principal, host))
        return real(principal, host)

    monkeypatch.setattr(at.server.broker.access, "rights", rights)
    with at.connected() as raw:
        prove(raw, ANN, PASSWORD)
        assert_serves(raw)
    assert asked == [("User:ANONYMOUS", "127.0.0.1"), ("User:ann", "127.0.0.1")]


def test_a_password_itself_is_a_proof(at: Guarded) -> None:
    for authorization in ("", ANN):
        with at.connected() as raw:
            shake_hands(raw, "PLAIN")
            answer = say(raw, plain(ANN, PASSWORD, authorization))
            assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b"")
            assert_serves(raw)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_handshake_of_version_0_is_followed_by_bare_tokens(at: Guarded, mechanism: str) -> None:
    with at.connected() as raw:
        assert shake_hands(raw, mechanism, 0).error_code is ErrorCode.none
        if mechanism == "PLAIN":
            raw.send_bytes(plain(ANN, PASSWORD))
            assert raw.receive_bytes() == b""
        else:
            client = Scram(mechanism, ANN, PASSWORD, NONCE)
            raw.send_bytes(client.first())
            final = client.answer(raw.receive_bytes())
            assert final is not None
            raw.send_bytes(final)
            assert client.answer(raw.receive_bytes()) is None and client.is_proven
        assert_serves(raw)


def test_bare_tokens_may_be_short_and_come_in_any_pieces(at: Guarded) -> None:
    for token in (b"", b"\0", b"\x01"):
        with at.connected() as raw:
            shake_hands(raw, "PLAIN", 0)
            for byte in raw_frame(token):
                raw.socket.sendall(bytes([byte]))
            assert_closed(raw)
    with at.connected() as raw:
        shake_hands(raw, "PLAIN", 0)
        for byte in raw_frame(plain(ANN, PASSWORD)):
            raw.socket.sendall(bytes([byte]))
        assert raw.receive_bytes() == b""


@pytest.mark.parametrize("name", [ANN, "nobody", ""])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_does_not_is_told_the_same_whether_there_is_such_a_user(at: Guarded, mechanism: str, name: str) -> None:
    before = at.metrics
    with at.connected() as raw:
        if mechanism == "PLAIN":
            shake_hands(raw, mechanism)
            answer = say(raw, plain(name, "wrong"))
        else:
            answer = prove(raw, name, "wrong", mechanism)
        told = WRONG_PLAIN if mechanism == "PLAIN" else FAILED.format(mechanism)
        if not name and mechanism == "PLAIN":
            told = "Authentication failed: username not specified"
        assert (answer.error_code, answer.error_message) == (ErrorCode.sasl_authentication_failed, told)
        assert answer.auth_bytes == b""
        assert_closed(raw)
    assert at.metrics[:2] == (before[0], before[1] + 1)


@pytest.mark.parametrize("token", [b"", b"\0", b"garbage", bytes(range(256)), b"n,,n=ann,r=\xff"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_no_message_of_the_mechanism_fails(at: Guarded, mechanism: str, token: bytes) -> None:
    with at.connected() as raw:
        shake_hands(raw, mechanism)
        answer = say(raw, token)
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert answer.error_message in (FAILED.format(mechanism), "Authentication failed: username not specified")
        assert_closed(raw)


def test_a_failure_is_answered_late(at: Guarded) -> None:
    """By the server's own clock: it waits for the rest of the delay, whatever the proof has taken of it."""
    at.clock.ahead_ms += 1  # this test's own millisecond
    with at.connected() as raw:
        shake_hands(raw, "PLAIN")
        before_ms = at.clock.now().monotonic_ms
        say(raw, plain(ANN, "wrong"))
        assert at.clock.now().monotonic_ms - before_ms >= DELAY_MS - 1


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(at: Guarded) -> None:
    with at.connected() as raw:
        answer = shake_hands(raw, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.unsupported_sasl_mechanism, MECHANISMS)
        assert_closed(raw)


def test_a_mechanism_that_is_enabled_is_answered_with_all_of_them(at: Guarded) -> None:
    with at.connected() as raw:
        assert shake_hands(raw, "PLAIN").mechanisms == MECHANISMS


def test_what_is_logged_names_who_is_known_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with guarded() as found:
        for name, password in ((ANN, "secret1"), ("secret2", "secret3")):
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                with found.connected() as raw:
                    if mechanism == "PLAIN":
                        shake_hands(raw, mechanism)
                        say(raw, plain(name, password))
                    else:
                        prove(raw, name, password, mechanism)
    assert "127.0.0.1 did not prove to be 'ann' by PLAIN: a wrong password" in caplog.messages
    assert "127.0.0.1 did not prove who it is by SCRAM-SHA-256: nobody has this name" in caplog.messages
    assert "secret" not in caplog.text


# Before it, and between its messages


def before_anything(raw: RawConnection) -> None:
    """Nothing was said yet."""


def versions_told(raw: RawConnection) -> None:
    versions(raw)


def proving(raw: RawConnection) -> None:
    shake_hands(raw, "SCRAM-SHA-256")


def proving_half_way(raw: RawConnection) -> None:
    shake_hands(raw, "SCRAM-SHA-256")
    say(raw, Scram("SCRAM-SHA-256", ANN, PASSWORD, NONCE).first())


def proven(raw: RawConnection) -> None:
    prove(raw, ANN, PASSWORD)


ASKED: dict[str, Callable[[RawConnection], Any]] = {
    "versions": versions,
    "handshake": lambda raw: shake_hands(raw, "SCRAM-SHA-256"),
    "token": lambda raw: say(raw, Scram("SCRAM-SHA-256", ANN, PASSWORD, NONCE).first()),
    "metadata": lambda raw: raw.call("metadata", 9, topics=[], allow_auto_topic_creation=False),
    "init_producer_id": lambda raw: raw.call(
        "init_producer_id", 4, transaction_timeout=1, producer_id=-1, producer_epoch=-1
    ),
    "produce": lambda raw: raw.produce("t", 0, batch([b"x"])),
    "fetch": lambda raw: raw.fetch("t", 0, 0),
    "create_topics": lambda raw: raw.create_topic("t"),
}
OK, ILLEGAL, SHUT = "answered", "ILLEGAL_SASL_STATE, and closed", "closed"
# What is seen from outside of the table of security/gate.py. Some answers have no place for an error.
SEEN: dict[Callable[[RawConnection], None], dict[str, str]] = {
    before_anything: dict.fromkeys(ASKED, SHUT) | {"versions": OK, "handshake": OK},
    versions_told: dict.fromkeys(ASKED, SHUT) | {"handshake": OK},
    proving: dict.fromkeys(ASKED, SHUT)
    | {"token": OK, "versions": ILLEGAL, "handshake": ILLEGAL, "init_producer_id": ILLEGAL, "fetch": ILLEGAL},
    proving_half_way: dict.fromkeys(ASKED, SHUT)
    | {"versions": ILLEGAL, "handshake": ILLEGAL, "init_producer_id": ILLEGAL, "fetch": ILLEGAL, "token": SHUT},
    proven: dict.fromkeys(ASKED, OK),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("state", SEEN, ids=lambda state: state.__name__)
def test_what_is_answered_when(at: Guarded, state: Callable[[RawConnection], None], asked: str) -> None:
    with at.connected() as raw:
        state(raw)
        if SEEN[state][asked] == OK:
            ASKED[asked](raw)
            return
        if state is proving_half_way and asked == "token":
            assert ASKED[asked](raw).error_code is ErrorCode.sasl_authentication_failed  # no final message
        elif SEEN[state][asked] == ILLEGAL and asked != "fetch":
            assert ASKED[asked](raw).error_code is ErrorCode.illegal_sasl_state
        else:
            with pytest.raises((ServerClosed, IndexError)):  # a Fetch's answer names no partition then
                ASKED[asked](raw)
        assert_closed(raw)


def test_after_a_proof_handshake_and_token_are_refused_as_by_kafka(at: Guarded) -> None:
    words = "SaslAuthenticate request received after successful authentication"
    with at.connected() as proven_one, RawConnection(at.open_address) as open_one:
        prove(proven_one, ANN, PASSWORD)
        for raw in (proven_one, open_one):
            assert shake_hands(raw, "PLAIN").error_code is ErrorCode.illegal_sasl_state
            answer = say(raw, b"x")
            assert (answer.error_code, answer.error_message) == (ErrorCode.illegal_sasl_state, words)
            assert_serves(raw)


def test_versions_that_are_too_new_are_answered_and_may_be_asked_again(at: Guarded) -> None:
    with at.connected() as raw:
        kind = message("api_versions", 3)
        payload = bytearray(encode_request(kind, make(kind.request, {}), 7))
        payload[2:4] = struct.pack(">h", 99)
        raw.send_bytes(bytes(payload))
        assert struct.unpack_from(">ih", raw.receive_bytes()) == (7, ErrorCode.unsupported_version)
        assert versions(raw).error_code is ErrorCode.none
        assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.none


def test_who_asks_for_versions_again_and_again_is_closed(at: Guarded) -> None:
    """Each answer takes a tenth of a millisecond, and a stranger could send thousands of such requests at once."""
    with at.connected() as raw:
        raw.socket.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 99, 7, -1) * 1000)
        for _ in range(MOST_VERSIONS):
            assert struct.unpack_from(">ih", raw.receive_bytes()) == (7, ErrorCode.unsupported_version)
        assert_closed(raw)


def test_what_strangers_ask_takes_turns(at: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def once(self: Turns) -> bool:
        asked.append(True)
        return len(asked) == 1

    with at.connected() as raw, at.connected() as other:
        versions(other)  # which is read aside the first time, and in turns then
        monkeypatch.setattr(Turns, "is_over", once)
        assert versions(raw).error_code is ErrorCode.none
        assert len(asked) > 1, "it had to wait for its turn"
        assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.none


def test_the_gates_own_requests_are_listed(at: Guarded) -> None:
    with at.connected() as raw:
        listed = {each.api_key: (each.min_version, each.max_version) for each in versions(raw).api_keys}
    assert listed[SASL_HANDSHAKE] == (0, 1) and listed[SASL_AUTHENTICATE] == (0, 2) and API_VERSIONS in listed


# What arrives together


def all_at_once(topic: str) -> bytes:
    produced = {"name": topic, "partition_data": [{"index": 0, "records": batch([b"x"])}]}
    return b"".join(
        [
            framed("api_versions", 0, 1),
            framed("sasl_handshake", 1, 2, mechanism="PLAIN"),
            framed("sasl_authenticate", 2, 3, auth_bytes=plain(ANN, PASSWORD)),
            framed("metadata", 9, 4, topics=[], allow_auto_topic_creation=False),
            framed("produce", 9, 5, transactional_id=None, acks=-1, timeout=1000, topic_data=[produced]),
            framed("metadata", 9, 6, topics=[], allow_auto_topic_creation=False),
        ]
    )


@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
def test_what_stands_behind_a_proof_is_served_once_it_is_good(at: Guarded, topic: str, piece_bytes: int) -> None:
    with at.connected() as raw:
        sent = all_at_once(topic)
        for start in range(0, len(sent), piece_bytes):
            raw.socket.sendall(sent[start : start + piece_bytes])
        assert [struct.unpack_from(">i", raw.receive_bytes())[0] for _ in range(6)] == list(range(1, 7))


def test_what_stands_behind_a_proof_that_fails_is_not_served(at: Guarded, topic: str) -> None:
    with RawConnection(at.open_address) as observer, at.connected() as raw:
        before = observer.offset_at(topic, 0, -1).offset
        raw.socket.sendall(all_at_once(topic).replace(PASSWORD.encode(), b"x" * len(PASSWORD)))
        assert [struct.unpack_from(">i", raw.receive_bytes())[0] for _ in range(3)] == [1, 2, 3]
        assert_closed(raw)
        assert observer.offset_at(topic, 0, -1).offset == before


def test_strangers_wait_for_nobodys_quota() -> None:
    with guarded() as found, RawConnection(found.open_address) as other:
        set_quota(other, {"client-id": "stranger"}, request_percentage=1e-6)
        with RawConnection(found.address, client_id="stranger") as raw:
            assert versions(raw).throttle_time.total_seconds() == 0
            prove(raw, ANN, PASSWORD)
            assert raw.call("metadata", 9, topics=[]).throttle_time.total_seconds() > 0


def test_strangers_send_small_frames_and_little_behind_them(at: Guarded) -> None:
    most = at.server.settings.sasl_server_max_receive_size
    for size in (most + 1, 100 << 20, 7, 0, -1):
        with at.connected() as raw:
            raw.socket.sendall(struct.pack(">i", size))
            assert_closed(raw)
    with at.connected() as raw:
        shake_hands(raw, "PLAIN", 0)
        raw.socket.sendall(struct.pack(">i", most) + b"\0me\0" + b"x" * (most - 4))
        assert_closed(raw)  # by the proof
    with at.connected() as raw:
        shake_hands(raw, "PLAIN")
        token = framed("sasl_authenticate", 2, 3, auth_bytes=plain(ANN, "never shown before"))
        raw.socket.sendall(token + bytes(2 * most))
        assert_closed(raw)


def test_a_guesser_that_hangs_up_takes_no_turn(at: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds a second do, and others would wait behind them."""
    turns: list[object] = []
    monkeypatch.setattr(at.server.broker.turns, "wait_first", turns.append)
    go_on = threading.Event()
    guesses = [at.server.broker.proofs.threads.submit(go_on.wait, 30) for _ in range(3)]

    def waiting() -> list[bool]:
        return [each.is_waiting for each in at.server.service.connections.each()]

    try:
        with at.connected() as raw:
            shake_hands(raw, "PLAIN")
            raw.ask("sasl_authenticate", 2, auth_bytes=plain(ANN, "a guess"))
            until(lambda: True in at.server.call(waiting), "it to be looked at")
        until(lambda: not at.server.call(waiting), "its end to be seen")
        assert turns == []
    finally:
        go_on.set()
    assert all(each.result() for each in guesses)


def test_a_frame_as_large_as_allowed_comes_in_pieces(at: Guarded) -> None:
    with at.connected() as raw:
        shake_hands(raw, "PLAIN")
        room = at.server.settings.sasl_server_max_receive_size
        around = len(framed("sasl_authenticate", 2, 3, auth_bytes=plain(ANN, "x" * 20_000))) - 20_000 - 4
        sent = framed("sasl_authenticate", 2, 3, auth_bytes=plain(ANN, "x" * (room - around)))
        assert struct.unpack_from(">i", sent)[0] == room
        for start in range(0, len(sent), 5000):
            raw.socket.sendall(sent[start : start + 5000])
        assert raw.receive_bytes()
        assert_closed(raw)


def test_hosts_that_fail_too_often_are_not_looked_at_for_a_while() -> None:
    with guarded(oncelog_max_failed_authentications_per_minute="2") as found:
        with found.connected() as steady:
            prove(steady, ANN, PASSWORD)
            for _ in range(2):
                with found.connected() as raw:
                    assert prove(raw, ANN, "wrong").error_code is ErrorCode.sasl_authentication_failed
            with found.connected() as raw:
                raw.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
                assert_closed(raw)
            assert_serves(steady)
        assert found.metrics == (1, 2, 1, 0, 0)
        found.clock.ahead_ms += 30_000
        with found.connected() as raw:
            assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.none


# Many of them


def test_three_hundred_that_say_nothing_shut_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with guarded(max_connections="100") as found:
        idle = [found.connected() for _ in range(300)]
        with found.connected() as raw:
            assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.none
            assert_serves(raw)
            more = [found.connected() for _ in range(120)]
            assert_serves(raw)  # who has proven it makes no room
        with RawConnection(found.open_address) as raw:
            assert_serves(raw)
        open_now = found.server.call(lambda: len(found.server.service.connections))
        assert open_now <= 101 and found.metrics[4] >= 300 - 100
        for each in (*idle, *more):
            each.close()


def test_strangers_are_closed_in_time_and_others_stay(at: Guarded) -> None:
    with at.connected() as stranger, at.connected() as half_way, at.connected() as known:
        prove(known, ANN, PASSWORD)
        proving_half_way(half_way)
        versions(stranger)
        strangers = at.server.service.connections.guard.strangers
        at.clock.ahead_ms += 30_000
        at.server.call(lambda: strangers.close_late(at.clock.now().monotonic_ms))
        for raw in (stranger, half_way):
            assert_closed(raw)
        assert_serves(known)
        assert len(strangers) == 0


def test_who_hangs_up_while_it_is_looked_at_leaves_nothing_behind(at: Guarded) -> None:
    for _ in range(20):
        with at.connected() as raw:
            shake_hands(raw, "PLAIN")
            raw.ask("sasl_authenticate", 2, auth_bytes=plain(ANN, "wrong"))
    guard = at.server.service.connections.guard
    until(lambda: at.server.call(lambda: len(guard.strangers)) == 0, "every stranger to be gone")
    with at.connected() as raw:
        assert prove(raw, ANN, PASSWORD).error_code is ErrorCode.none
