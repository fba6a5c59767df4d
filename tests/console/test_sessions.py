"""Sessions end by themselves, and with what they were proven by; nobody takes all the room there is."""

import pytest

from oncelog.console.sessions import IDLE_MS, LIFETIME_MS, MOST, MOST_OF_A_USER, Sessions

USERS = {"alice": {"key": 1}, "bob": {"key": 2}}


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def test_a_token_stands_for_its_user_and_nothing_else_does(sessions: Sessions) -> None:
    token = sessions.begin("alice", USERS, 0)
    assert sessions.user_of(token, USERS, 1) == "alice"
    assert [sessions.user_of(each, USERS, 1) for each in ("", token[:-1], token + "x", "\ud800")] == [None] * 4
    assert len({sessions.begin("bob", USERS, 0) for _ in range(5)}) == 5


def test_a_session_is_over_after_an_hour_of_silence_and_half_a_day_in_any_case(sessions: Sessions) -> None:
    silent, busy = sessions.begin("alice", USERS, 0), sessions.begin("bob", USERS, 0)
    for now_ms in range(0, LIFETIME_MS, IDLE_MS // 2):
        assert sessions.user_of(busy, USERS, now_ms) == "bob"
    assert sessions.user_of(silent, USERS, IDLE_MS) is None
    assert sessions.user_of(busy, USERS, LIFETIME_MS) is None


@pytest.mark.parametrize("after", [{}, {"alice": {"key": 3}}])
def test_a_session_is_over_with_its_user_or_password(sessions: Sessions, after: dict[str, object]) -> None:
    token = sessions.begin("alice", USERS, 0)
    assert sessions.user_of(token, after, 1) is None
    assert sessions.user_of(token, USERS, 1) is None


def test_who_signs_out_is_out(sessions: Sessions) -> None:
    one, other = sessions.begin("alice", USERS, 0), sessions.begin("alice", USERS, 0)
    sessions.end(one)
    assert [sessions.user_of(each, USERS, 1) for each in (one, other)] == [None, "alice"]


def test_one_user_drives_out_nobody_else(sessions: Sessions) -> None:
    bob = sessions.begin("bob", USERS, 0)
    tokens = [sessions.begin("alice", USERS, 0) for _ in range(MOST + 50)]
    assert sessions.user_of(bob, USERS, 1) == "bob"
    assert len(sessions) == MOST_OF_A_USER + 1
    assert sum(sessions.user_of(each, USERS, 1) is not None for each in tokens) == MOST_OF_A_USER
