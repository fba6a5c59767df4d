"""Tokens of an issuer: which of them count, by which keys, and how often keys are read."""

import base64
import hmac
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import time
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.security.scram import Refused
from oncelog.server.aside import Aside
from oncelog.server.errors import ErrorCode
from oncelog.server.mechanisms import check_mechanisms
from oncelog.server.settings import Settings
from oncelog.server.tokens import (
    FAILED_MS,
    MOST_HEAD_BYTES,
    MOST_KEYS,
    UNKNOWN_KEY_MS,
    SignedTokens,
    Unreadable,
    keys_in,
    read_keys,
)
from oncelog.settings import SettingsError
from tests.raw.sasl import say, shake_hands
from tests.server.conftest import Reads
from tests.server.jwks import AUDIENCE, ISSUER, Issuer
from tests.server.sasl_support import Guarded, guarded

REFRESH_MS = 3_600_000
INVALID = '{"status":"invalid_token"}'


def settings(issuer: Issuer, **more: Any) -> Settings:
    given: dict[str, Any] = {
        "sasl_oauthbearer_jwks_endpoint_url": issuer.url,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": (AUDIENCE, "another"),
    }
    return Settings(**{**given, **more})


@pytest.mark.parametrize(("kind", "algorithm"), [("EC", "ES256"), ("RSA", "RS256"), ("RSA", "PS512"), ("OKP", "EdDSA")])
async def test_a_token_of_the_issuer_names_its_user(issuer: Issuer, threads: Aside, kind: str, algorithm: str) -> None:
    issuer.new_key("other", kind)
    issuer.publish()
    bearer = await SignedTokens(settings(issuer), ManualClock(), threads).check(
        issuer.token("other", algorithm, scope="a b", exp=4_000_000_000)
    )
    assert (bearer.name, set(bearer.scopes)) == ("ann", {"a", "b"})
    assert bearer.expires_s == 4_000_000_000


def unsigned(claims: dict[str, Any], algorithm: str = "none") -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': algorithm, 'kid': 'one'})}.{part(claims)}."


def by_the_public_key(issuer: Issuer) -> str:
    """Signed with what everybody may read, as if that were a shared secret."""
    now_s = int(time())
    signed = unsigned({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now_s, "exp": now_s + 600}, "HS256")[:-1]
    signature = hmac.digest(issuer.file.read_bytes(), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "bad",
    [
        {"exp": 1_000_000_000},
        {"exp": None},
        {"iat": None},
        {"exp": "soon"},
        {"exp": 4_000_000_000_000},
        {"exp": 1e300},
        {"exp": 10**400},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"iss": "https://another.example"},
        {"iss": None},
        {"aud": "elsewhere"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"scope": 3},
    ],
    ids=str,
)
async def test_claims_that_do_not_count(issuer: Issuer, threads: Aside, bad: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        await SignedTokens(settings(issuer), ManualClock(), threads).check(issuer.token("one", **bad))


@pytest.mark.parametrize(("audience", "said"), [(None, "is not set, and it has aud"), (("x",), "has not its aud")])
async def test_whom_a_token_is_for_is_expected_or_not_said(
    issuer: Issuer, threads: Aside, audience: tuple[str, ...] | None, said: str
) -> None:
    """As in Kafka: a token for somebody counts nowhere but there."""
    signed = SignedTokens(settings(issuer, sasl_oauthbearer_expected_audience=audience), ManualClock(), threads)
    with pytest.raises(Refused, match=f"sasl.oauthbearer.expected.audience {said}"):
        await signed.check(issuer.token("one"))
    if audience is None:
        assert (await signed.check(issuer.token("one", aud=None))).name == "ann"
    else:
        assert (await signed.check(issuer.token("one", aud=["others", "x"]))).name == "ann"


async def test_signatures_that_do_not_count(issuer: Issuer, threads: Aside) -> None:
    issuer.new_key("stranger")
    good = issuer.token("one")
    head, body, signature = good.split(".")
    signed = SignedTokens(settings(issuer), ManualClock(), threads)
    for token in (
        unsigned({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": int(time()), "exp": int(time()) + 600}),
        by_the_public_key(issuer),
        issuer.token("stranger", headers={"kid": "one"}),
        issuer.token("stranger"),
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{body}.",
        f"{head}.{body}",
        "",
        "a.b.c",
        "x" * 30_000,
        f"{base64.urlsafe_b64encode(b'[' * 20_000).decode()}.{body}.{signature}",
    ):
        with pytest.raises(Refused):
            await signed.check(token)
    assert (await signed.check(good)).name == "ann"


@pytest.mark.parametrize(("sub", "name"), [(" ann\t", "ann"), ("ann\xa0", "ann\xa0"), ("\u2003ann", "\u2003ann")])
async def test_what_stands_around_a_name_makes_it_nobody_elses(
    sub: str, name: str, issuer: Issuer, threads: Aside
) -> None:
    """As in Kafka, where only what Java takes for a space is left out."""
    assert (
        await SignedTokens(settings(issuer), ManualClock(), threads).check(issuer.token("one", sub=sub))
    ).name == name


async def test_a_clock_may_differ_by_so_much(issuer: Issuer, threads: Aside) -> None:
    late = issuer.token("one", exp=int(time()) - 20)
    assert (await SignedTokens(settings(issuer), ManualClock(), threads).check(late)).name == "ann"
    strict = settings(issuer, sasl_oauthbearer_clock_skew_seconds=0)
    with pytest.raises(Refused):
        await SignedTokens(strict, ManualClock(), threads).check(late)


async def test_other_claims_may_name_the_user(issuer: Issuer, threads: Aside) -> None:
    named = settings(issuer, sasl_oauthbearer_sub_claim_name="azp", sasl_oauthbearer_scope_claim_name="roles")
    bearer = await SignedTokens(named, ManualClock(), threads).check(issuer.token("one", azp="bob", roles=["r"]))
    assert (bearer.name, set(bearer.scopes)) == ("bob", {"r"})


async def test_a_token_that_names_no_key_counts_where_there_is_one_alone(issuer: Issuer, threads: Aside) -> None:
    token = issuer.token("one", headers={})
    signed = SignedTokens(settings(issuer), ManualClock(), threads)
    assert (await signed.check(token)).name == "ann"
    issuer.new_key("two")
    issuer.publish()
    with pytest.raises(Refused):
        await SignedTokens(settings(issuer), ManualClock(), threads).check(token)


async def test_a_head_is_bounded_before_it_is_read(issuer: Issuer, threads: Aside, reads: Reads) -> None:
    signed = SignedTokens(settings(issuer), ManualClock(), threads)
    with pytest.raises(Refused, match="too large a head"):
        await signed.check(issuer.token("one", headers={"kid": "one", "x": "x" * MOST_HEAD_BYTES}))
    assert reads.count == 0
    assert (await signed.check(issuer.token("one", headers={"kid": "one", "x": "x" * 5_000}))).name == "ann"


async def test_keys_are_read_at_first_and_from_time_to_time(issuer: Issuer, threads: Aside, reads: Reads) -> None:
    clock = ManualClock()
    signed = SignedTokens(settings(issuer), clock, threads)
    assert reads.count == 0
    for _ in range(3):
        await signed.check(issuer.token("one"))
    clock.advance(REFRESH_MS - 1)
    await signed.check(issuer.token("one"))
    assert reads.count == 1
    clock.advance(1)
    await signed.check(issuer.token("one"))
    await signed.until_read()
    assert reads.count == 2


async def test_an_unknown_key_makes_them_be_read_once_a_minute(issuer: Issuer, threads: Aside, reads: Reads) -> None:
    clock = ManualClock()
    signed = SignedTokens(settings(issuer), clock, threads)
    await signed.check(issuer.token("one"))
    issuer.new_key("two")
    for _ in range(5):
        with pytest.raises(Refused):
            await signed.check(issuer.token("two"))
    assert reads.count == 2
    issuer.publish()
    clock.advance(UNKNOWN_KEY_MS)
    assert (await signed.check(issuer.token("two"))).name == "ann"
    assert reads.count == 3


async def test_keys_that_cannot_be_read_again_still_count(issuer: Issuer, threads: Aside, reads: Reads) -> None:
    clock = ManualClock()
    signed = SignedTokens(settings(issuer), clock, threads)
    await signed.check(issuer.token("one"))
    issuer.file.write_text("no JSON")
    clock.advance(REFRESH_MS)
    await signed.check(issuer.token("one"))
    await signed.until_read()
    await signed.check(issuer.token("one"))
    assert reads.count == 2


async def test_keys_that_were_never_there_are_looked_for_now_and_then(
    issuer: Issuer, threads: Aside, reads: Reads
) -> None:
    clock = ManualClock()
    issuer.file.unlink()
    signed = SignedTokens(settings(issuer), clock, threads)
    for _ in range(3):
        with pytest.raises(Refused):
            await signed.check(issuer.token("one"))
    assert reads.count == 2  # at first, and for a key that is not known
    issuer.publish()
    clock.advance(FAILED_MS)
    assert (await signed.check(issuer.token("one"))).name == "ann"


def test_keys_for_something_else_are_passed_over(issuer: Issuer) -> None:
    issuer.new_key("two", "RSA")
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    other = {"kty": "RSA", "use": "enc", "kid": "enc"}
    broken = {"kty": "RSA", "n": "*", "e": "AQAB", "kid": "broken"}
    unknown = {"kty": "RSA", "alg": "RS1", "kid": "old"}
    issuer.publish(more=(secret, other, broken, unknown))
    assert set(keys_in(json.loads(issuer.file.read_text()))) == {"one", "two"}


@pytest.mark.parametrize(
    "document", [None, [], {}, {"keys": {}}, {"keys": []}, {"keys": [3]}, {"keys": [{"kty": "oct", "k": "x"}]}]
)
def test_what_is_no_jwks(document: Any) -> None:
    with pytest.raises(Unreadable):
        keys_in(document)


def test_a_jwks_is_bounded(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = json.loads(issuer.file.read_text())["keys"]
    with pytest.raises(Unreadable):
        keys_in({"keys": [one] * (MOST_KEYS + 1)})
    issuer.file.write_text(json.dumps({"keys": [one], "x": "x" * 2**20}))
    with pytest.raises(Unreadable):
        read_keys(issuer.url, ManualClock())


# At the start


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "jwks.endpoint.url does not say"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "http://issuer.example/keys"}, "expected https://"),
        (
            {"sasl_oauthbearer_jwks_endpoint_url": "https://me:hunter2@issuer.example/keys"},
            "leave name and password out",
        ),
    ],
)
def test_what_could_never_work_stops_the_start(given: dict[str, Any], words: str) -> None:
    listeners: dict[str, Any] = {"listeners": ("SASL_PLAINTEXT://127.0.0.1:0",), "oncelog_sasl_without_tls": True}
    with pytest.raises(SettingsError, match=words) as refused:
        check_mechanisms(Settings(**listeners, sasl_enabled_mechanisms=("OAUTHBEARER",), **given))
    assert "hunter2" not in str(refused.value)
    check_mechanisms(Settings(sasl_enabled_mechanisms=("OAUTHBEARER",), **given))  # no listener asks for it


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_secrets_do_not_travel_in_the_clear_unless_somebody_says_so(mechanism: str, issuer: Issuer) -> None:
    given: dict[str, Any] = {"listeners": ("SASL_PLAINTEXT://127.0.0.1:0",), "sasl_enabled_mechanisms": (mechanism,)}
    given["sasl_oauthbearer_jwks_endpoint_url"] = issuer.url
    with pytest.raises(SettingsError, match="would travel as they are"):
        check_mechanisms(Settings(**given))
    check_mechanisms(Settings(**given, oncelog_sasl_without_tls=True))


def test_a_listener_with_no_mechanism_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="nobody could"):
        check_mechanisms(Settings(listeners=("SASL_PLAINTEXT://127.0.0.1:0",), sasl_enabled_mechanisms=()))


# On a connection


@pytest.fixture
def at(issuer: Issuer) -> Iterator[Guarded]:
    with guarded(
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.url,
        sasl_oauthbearer_expected_audience=AUDIENCE,
    ) as found:
        yield found


def first(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def test_a_token_proves_it_until_it_expires(at: Guarded, issuer: Issuer) -> None:
    with at.connected() as raw:
        shake_hands(raw, "OAUTHBEARER")
        before_s = int(time())
        answer = say(raw, first(issuer.token("one", exp=before_s + 100), "n,a=ann,"))
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b"")
        assert before_s + 100 - time() - 0.1 < answer.session_lifetime.total_seconds() <= 100
        assert raw.call("metadata", 9, topics=[], allow_auto_topic_creation=False).brokers


def test_a_token_does_not_wait_behind_guesses_of_passwords(at: Guarded, issuer: Issuer) -> None:
    go_on = threading.Event()
    guesses = [at.server.broker.proofs.threads.submit(go_on.wait, 30) for _ in range(3)]
    try:
        with at.connected() as raw:
            shake_hands(raw, "OAUTHBEARER")
            assert say(raw, first(issuer.token("one"))).error_code is ErrorCode.none
    finally:
        go_on.set()
    assert all(each.result() for each in guesses)


def test_who_has_shown_a_token_before_waits_behind_nobody_who_shows_others(at: Guarded, issuer: Issuer) -> None:
    token, go_on = issuer.token("one"), threading.Event()

    def get_in() -> ErrorCode:
        with at.connected() as raw:
            shake_hands(raw, "OAUTHBEARER")
            code: ErrorCode = say(raw, first(token)).error_code
            return code

    assert get_in() is ErrorCode.none
    others = [at.server.broker.at_tokens.threads.submit(go_on.wait, 30) for _ in range(3)]
    try:
        assert get_in() is ErrorCode.none
        assert not any(each.done() for each in others)
    finally:
        go_on.set()
    assert all(each.result() for each in others)


def test_a_token_that_does_not_count_is_refused_in_two_steps(at: Guarded, issuer: Issuer) -> None:
    with at.connected() as raw:
        shake_hands(raw, "OAUTHBEARER")
        answer = say(raw, first(issuer.token("one", aud="elsewhere")))
        assert (answer.error_code, answer.auth_bytes.decode()) == (ErrorCode.none, INVALID)
        answer = say(raw, b"\x01")
        assert (answer.error_code, answer.error_message) == (ErrorCode.sasl_authentication_failed, INVALID)


def test_who_wants_to_be_somebody_else_is_refused(at: Guarded, issuer: Issuer) -> None:
    with at.connected() as raw:
        shake_hands(raw, "OAUTHBEARER")
        answer = say(raw, first(issuer.token("one"), "n,a=bob,"))
        words = (
            "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
            "principal name (ann)"
        )
        assert (answer.error_code, answer.error_message) == (ErrorCode.sasl_authentication_failed, words)


def test_refused_tokens_are_counted_once_against_their_host(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    with guarded(
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.url,
        oncelog_max_failed_authentications_per_minute="2",
    ) as found:
        monkeypatch.setattr(found.server.broker, "clock", ManualClock())
        for number in range(2):
            with found.connected() as raw:
                shake_hands(raw, "OAUTHBEARER")
                say(raw, first("a.b.c"))
                if number == 0:
                    say(raw, b"\x01")
        failures, now_ms = found.server.broker.failures, found.server.broker.clock.now().monotonic_ms
        assert failures.is_barred("127.0.0.1", now_ms) and failures.failures("127.0.0.1", now_ms) == 2


def test_many_tokens_at_once_read_the_keys_once(at: Guarded, issuer: Issuer, reads: Reads) -> None:
    def proves(number: int) -> bool:
        with at.connected() as raw:
            shake_hands(raw, "OAUTHBEARER")
            return say(raw, first(issuer.token("one"))).error_code is ErrorCode.none

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(proves, range(16)))
    assert reads.count == 1
