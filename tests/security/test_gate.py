"""What may be asked when: the whole table, and how a connection goes through it."""

import pytest

from oncelog.security.gate import (
    AGAIN_MS,
    API_VERSIONS,
    MOST_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TABLE,
    Asked,
    Gate,
    State,
    Verdict,
    lifetime_ms,
    other_principal,
)

METADATA = 3
ORDER = (Asked.VERSIONS, Asked.HANDSHAKE, Asked.TOKEN, Asked.OTHER)
# As Kafka's SaslServerAuthenticator does it; what it closes without a word is closed here, too.
ROWS = """
BEGUN            SERVE   SERVE   CLOSE   CLOSE
VERSIONS_TOLD    CLOSE   SERVE   CLOSE   CLOSE
PROVING          REFUSE  REFUSE  SERVE   REFUSE
PROVING_RAW      TOKEN   TOKEN   TOKEN   TOKEN
OTHER_MECHANISM  CLOSE   CLOSE   CLOSE   CLOSE
OPEN             SERVE   SERVE   SERVE   SERVE
ENDED            CLOSE   AGAIN   CLOSE   CLOSE
FAILED           CLOSE   CLOSE   CLOSE   CLOSE
"""


def test_the_table() -> None:
    told = {
        State[row[0]]: dict(zip(ORDER, (Verdict[each] for each in row[1:]), strict=True))
        for row in (line.split() for line in ROWS.split("\n") if line)
    }
    assert {state: dict(verdicts) for state, verdicts in TABLE.items()} == told


def gate_in(state: State) -> Gate:
    """By what happens to a connection, at the time 10,000 ms."""
    gate = Gate()
    if state is State.VERSIONS_TOLD:
        gate.versions_told()
    elif state in (State.PROVING, State.PROVING_RAW):
        gate.begin("PLAIN", 1 if state is State.PROVING else 0)
    elif state is State.FAILED:
        gate.fail()
    elif state in (State.OPEN, State.ENDED, State.OTHER_MECHANISM):
        gate.begin("PLAIN", 1)
        gate.open("User:ann", 10_000 if state is State.ENDED else 20_000)
    if state is State.OTHER_MECHANISM:
        gate.begin_again(9_000)
        assert not gate.begin("SCRAM-SHA-256", 1)
    return gate


@pytest.mark.parametrize("state", State)
def test_every_state_is_reached_and_judges_by_its_row(state: State) -> None:
    gate = gate_in(state)
    assert gate.state(10_000) is state
    for asked, keys in {
        Asked.VERSIONS: (API_VERSIONS,),
        Asked.HANDSHAKE: (SASL_HANDSHAKE,),
        Asked.TOKEN: (SASL_AUTHENTICATE,),
        Asked.OTHER: (0, 1, METADATA, 22, 999, -1),
    }.items():
        for key in keys:
            assert gate.verdict(key, 10_000) is TABLE[state][asked], key
    assert gate.is_open(10_000) is (state is State.OPEN)


def test_a_proof_is_given_again_once_a_second_and_by_the_same_mechanism() -> None:
    gate = gate_in(State.OPEN)
    assert gate.begins_again(SASL_HANDSHAKE, 11_000) and not gate.begins_again(METADATA, 11_000)
    gate.begin_again(11_000)
    assert not gate.is_open(11_000) and gate.verdict(METADATA, 11_000) is Verdict.CLOSE
    assert gate.begin("PLAIN", 1)
    gate.open("User:ann", 11_500)
    assert not gate.begins_again(SASL_HANDSHAKE, 11_000 + AGAIN_MS - 1)
    assert gate.verdict(SASL_HANDSHAKE, 11_000 + AGAIN_MS - 1) is Verdict.CLOSE  # its time was over
    assert gate.verdict(SASL_HANDSHAKE, 11_000 + AGAIN_MS) is Verdict.AGAIN


def test_versions_are_asked_for_a_few_times_at_the_most() -> None:
    gate = Gate()
    for _ in range(MOST_VERSIONS):
        assert gate.verdict(API_VERSIONS, 0) is Verdict.SERVE
        gate.versions_asked()  # of a version that is not there: they are not told
    assert gate.verdict(API_VERSIONS, 0) is Verdict.CLOSE
    assert gate.verdict(SASL_HANDSHAKE, 0) is Verdict.SERVE


def test_where_proofs_do_not_end_none_is_given_again() -> None:
    gate = Gate()
    gate.begin("PLAIN", 1)
    gate.open("User:ann", None)
    assert not gate.begins_again(SASL_HANDSHAKE, 10**9) and gate.is_open(10**9)


@pytest.mark.parametrize(
    ("most_ms", "expires_in_ms", "found"),
    [(0, None, None), (5, None, 5), (0, 7, 7), (5, 7, 5), (9, 7, 7), (0, -1, 0), (9, -1, 0)],
)
def test_a_proof_lasts_until_the_first_of_its_ends(most_ms: int, expires_in_ms: int | None, found: int | None) -> None:
    assert lifetime_ms(most_ms, expires_in_ms) == found


def test_another_principal_is_told_as_by_kafka() -> None:
    words = "Cannot change principals during re-authentication from User.ann: User.b:c"
    assert other_principal("User:ann", "User:b:c") == words
