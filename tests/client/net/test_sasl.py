"""Who one is: each mechanism's messages, the exchange, and its renewal."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from unittest.mock import patch

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.sasl.mechanism import OAuthBearer, Plain
from oncelog.client.net.sasl.tokens import TokenSource, unsecured_config, unsecured_token
from oncelog.clock import ManualClock
from oncelog.security.scram import LEAST_ITERATIONS
from oncelog.security.scram_client import MOST_ITERATIONS, AuthenticationRefused, Scram
from tests.client.net.fake_broker import Asked, FakeBroker

# --- SCRAM: the example of RFC 7677, section 3

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(name: str = "SCRAM-SHA-256", user: str = "user") -> Scram:
    return Scram(name, user, "pencil", NONCE)


def test_the_example_of_the_rfc() -> None:
    exchange = scram()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.answer(SERVER_FIRST) == CLIENT_FINAL
    assert not exchange.is_proven
    assert exchange.answer(SERVER_FINAL) is None
    assert exchange.is_proven


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    for final in (b"v=" + base64.b64encode(bytes(32)), b"v=", b"x=1", b"v=***"):
        exchange = scram()
        exchange.answer(SERVER_FIRST)
        with pytest.raises(AuthenticationRefused):
            exchange.answer(final)
        assert not exchange.is_proven


def test_a_server_that_says_no_is_heard() -> None:
    exchange = scram()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(AuthenticationRefused, match="invalid-proof"):
        exchange.answer(b"e=invalid-proof")


@pytest.mark.parametrize(
    "first",
    [
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # nothing of its own
        b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=***,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=%d" % (LEAST_ITERATIONS - 1),
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=%d" % (MOST_ITERATIONS + 1),
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=99999999999999999999",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=-1",
        b"m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,r=rOprNGfwEbeRWgbNEkqOy,s=W22Z,i=4096",
        b"",
        b"\xff\xfe",
    ],
)
def test_a_challenge_that_should_not_be_answered_is_not(first: bytes) -> None:
    with pytest.raises(AuthenticationRefused):
        scram().answer(first)


@pytest.mark.parametrize("count", [LEAST_ITERATIONS, MOST_ITERATIONS])
def test_the_bounds_of_the_iterations_are_allowed_themselves(count: int) -> None:
    assert scram().answer(b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=%d" % count)


def test_a_name_with_commas_and_equal_signs_is_escaped() -> None:
    assert scram(user="a,b=c").first() == b"n,,n=a=2Cb=3Dc,r=" + NONCE.encode()


def test_plain_is_name_and_password() -> None:
    assert Plain("ä", "b").first() == "\0ä\0b".encode()


def test_a_token_may_carry_extensions() -> None:
    assert OAuthBearer("tok", {"traceId": "7"}).first() == b"n,,\x01auth=Bearer tok\x01traceId=7\x01\x01"
    for name, value in (("bad name", "x"), ("", "x"), ("ok", "\x01auth=Bearer other")):
        with pytest.raises(AuthenticationRefused):
            OAuthBearer("tok", {name: value})


# --- tokens


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def test_an_unsecured_token_is_what_librdkafka_makes_of_the_same_words() -> None:
    config = unsecured_config("principalClaimName=azp principal=admin scopeClaimName=roles scope=role1,role2 "
                              "lifeSeconds=600 extension_traceId=123")  # fmt: skip
    token = unsecured_token(config, 1000.0)
    assert claims_of(token.value) == {"azp": "admin", "iat": 1000.0, "exp": 1600.0, "roles": ["role1", "role2"]}
    assert token.value.endswith(".")
    assert (token.expires_s, token.extensions) == (1600.0, {"traceId": "123"})


def test_a_token_is_not_issued_in_the_next_millisecond() -> None:
    """Kafka rounds the time to milliseconds, and may look within the one in which the token was made."""
    token = unsecured_token(unsecured_config("principal=admin"), 1795259078.8286)
    assert round(claims_of(token.value)["iat"] * 1000) == 1795259078828


@pytest.mark.parametrize("words", ["", "scope=x", "principal=a lifeSeconds=0", "principal=a lifeSeconds=x", "nonsense"])
def test_words_that_make_no_token_are_refused(words: str) -> None:
    with pytest.raises(KafkaException) as caught:
        unsecured_config(words)
    assert caught.value.error == KafkaError._INVALID_ARG


OAUTH = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "OAUTHBEARER"}


def token_source(clock: ManualClock, **more: Any) -> TokenSource:
    return TokenSource(FakeBroker().settings(**OAUTH, bootstrap_servers="x:1", **more), clock)


def at_s(seconds: int) -> ManualClock:
    return ManualClock(wall_ms=seconds * 1000)


async def test_a_token_is_used_for_four_fifths_of_its_life_and_asked_for_once_by_many() -> None:
    clock, asked = at_s(0), []

    def callback(config: str) -> tuple[str, float]:
        asked.append(config)
        return f"token{len(asked)}", 100 * len(asked)

    source = token_source(clock, oauth_cb=callback, sasl_oauthbearer_config="words")
    tokens = await asyncio.gather(*(source.token() for _ in range(5)))
    assert {token.value for token in tokens} == {"token1"}
    clock.advance(79_000)
    assert (await source.token()).value == "token1"
    clock.advance(2_000)
    assert (await source.token()).value == "token2"
    assert asked == ["words"] * 2


def expired(_: str) -> tuple[str, float]:
    return "token", -1.0


def broken(_: str) -> tuple[str, float]:
    raise ValueError("no such user")


def wordless(_: str) -> Any:
    return "token"


@pytest.mark.parametrize(
    ("callback", "words"), [(expired, "expired already"), (broken, "no such user"), (wordless, "oauth_cb must return")]
)
async def test_a_callback_that_gives_no_token_is_told_and_asked_again(callback: Any, words: str) -> None:
    source = token_source(at_s(0), oauth_cb=callback)
    for _ in range(2):
        with pytest.raises(KafkaException, match=words) as caught:
            await source.token()
        assert caught.value.error == KafkaError._AUTHENTICATION


def test_without_any_source_of_tokens_the_client_is_not_made() -> None:
    with pytest.raises(KafkaException, match="OAUTHBEARER needs tokens"):
        token_source(at_s(0))


class Provider(BaseHTTPRequestHandler):
    answer: tuple[int, bytes] = (200, b"")
    asked: tuple[str, str] = ("", "")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        type(self).asked = (self.headers["Authorization"], body)
        code, answer = type(self).answer
        self.send_response(code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing: the test's output is the test's."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    server = HTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def oidc(url: str, **more: Any) -> TokenSource:
    asked = {
        "sasl_oauthbearer_method": "oidc",
        "sasl_oauthbearer_client_id": "me",
        "sasl_oauthbearer_client_secret": "s3cret",
        "sasl_oauthbearer_token_endpoint_url": url,
    }
    return token_source(at_s(1000), **asked, **more)


async def test_a_provider_is_asked_for_a_token_with_id_and_secret(provider: str) -> None:
    token = unsecured_token(unsecured_config("principal=me"), 1000.0).value
    Provider.answer = (200, json.dumps({"access_token": token}).encode())
    source = oidc(provider, sasl_oauthbearer_scope="a b", sasl_oauthbearer_extensions="traceId=7,x=y")
    found = await source.token()
    assert (found.value, found.expires_s, found.extensions) == (token, 4600.0, {"traceId": "7", "x": "y"})
    basic = base64.b64encode(b"me:s3cret").decode()
    assert Provider.asked == (f"Basic {basic}", "grant_type=client_credentials&scope=a+b")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, b"who?"), "answers 401: who\\?; are client id and secret right\\?"),
        ((200, b"{}"), "without an access_token"),
        ((200, b"[]"), "no JSON object"),
        ((200, b"<html>"), "Expecting value"),
        ((200, b'{"access_token": "abc"}'), "no JWT"),
        ((200, b'{"access_token": "a.bm8.c"}'), "no JWT"),
    ],
)
async def test_a_provider_that_gives_no_token_is_told(provider: str, answer: tuple[int, bytes], words: str) -> None:
    Provider.answer = answer
    with pytest.raises(KafkaException, match=words) as caught:
        await oidc(provider).token()
    assert caught.value.error == KafkaError._AUTHENTICATION


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/token", "file:///etc/passwd"])
async def test_a_provider_that_is_not_there_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(KafkaException, match="no OAUTHBEARER token"):
        await oidc(url).token()


# --- the exchange, with a broker that checks


class SaslBroker(FakeBroker):
    """Knows PLAIN with one password, and SCRAM-SHA-256 by the rules of the RFC."""

    def __init__(self) -> None:
        super().__init__()
        self.lifetime_ms = 0
        self.mechanisms = ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
        self.proofs: list[bytes] = []
        self.answers["sasl_handshake"] = self._handshake
        self.answers["sasl_authenticate"] = self._authenticate
        self._mechanism = ""

    def _handshake(self, asked: Asked) -> Any:
        self._mechanism = asked.request.mechanism
        code = 0 if self._mechanism in self.mechanisms else 33
        return {"error_code": code, "mechanisms": self.mechanisms}

    def _authenticate(self, asked: Asked) -> Any:
        said = bytes(asked.request.auth_bytes)
        self.proofs.append(said)
        done = {"session_lifetime": self.lifetime_ms}
        if self._mechanism == "PLAIN":
            return done if said == b"\0me\0right" else {"error_code": 58, "error_message": "wrong credentials"}
        if self._mechanism == "OAUTHBEARER":
            if said == b"\x01":
                return {"error_code": 58, "error_message": "token refused"}
            return done if b"Bearer good" in said else {"auth_bytes": b'{"status":"invalid_token"}'}
        return self._scram(said, done)

    def _scram(self, said: bytes, done: dict[str, Any]) -> Any:
        if said.startswith(b"n,,"):
            self._bare = said[3:]
            self._first = b"r=" + said.split(b"r=")[1] + b"server,s=" + base64.b64encode(b"salt") + b",i=4096"
            return {"auth_bytes": self._first}
        without_proof, _, _ = said.partition(b",p=")
        message = b",".join((self._bare, self._first, without_proof))
        salted = hashlib.pbkdf2_hmac("sha256", b"right", b"salt", 4096)
        server_key = hmac.new(salted, b"Server Key", "sha256").digest()
        return {**done, "auth_bytes": b"v=" + base64.b64encode(hmac.new(server_key, message, "sha256").digest())}


def credentials(mechanism: str = "PLAIN", password: str = "right") -> dict[str, Any]:
    return {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": mechanism,
        "sasl_username": "me",
        "sasl_password": password,
    }


async def refused(broker: FakeBroker, given: dict[str, Any]) -> str:
    brokers = Brokers(broker.settings(**given))
    with pytest.raises(KafkaException) as caught:
        await brokers.refresh()
    await brokers.close()
    assert caught.value.error == KafkaError._AUTHENTICATION
    assert not caught.value.error.retriable()
    return caught.value.error.str()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_who_knows_the_password_is_let_in(mechanism: str) -> None:
    async with SaslBroker() as broker:
        brokers = Brokers(broker.settings(**credentials(mechanism)))
        await brokers.refresh(["t"])
        names = [each.name for each in broker.asked]
        assert names[:2] == ["api_versions", "sasl_handshake"]
        assert names[-1] == "metadata"
        await brokers.close()


async def test_a_wrong_password_is_told_with_what_to_look_at() -> None:
    async with SaslBroker() as broker:
        words = await refused(broker, credentials(password="wrong"))
        assert "wrong credentials" in words
        assert "`sasl.username` and `sasl.password`" in words


async def test_a_broker_that_does_not_know_the_password_is_not_trusted() -> None:
    async with SaslBroker() as broker:
        assert "does not know the password" in await refused(broker, credentials("SCRAM-SHA-256", "another"))


async def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    async with SaslBroker() as broker:
        assert "PLAIN, SCRAM-SHA-256" in await refused(broker, credentials("SCRAM-SHA-512"))


async def test_a_server_without_sasl_is_told() -> None:
    async with SaslBroker() as broker:
        del broker.versions[17]
        assert "set `security.protocol` to plaintext or ssl" in await refused(broker, credentials())
        broker.versions[17] = (0, 1)
        broker.answers["sasl_handshake"] = lambda asked: {"error_code": 34}
        assert "this listener wants no SASL" in await refused(broker, credentials())


async def test_a_token_that_is_refused_is_told_with_what_the_broker_said() -> None:
    async with SaslBroker() as broker:
        given = {**OAUTH, "oauth_cb": lambda config: ("bad", 1e12)}
        words = await refused(broker, given)
        assert "token refused" in words
        assert "invalid_token" in words
        assert broker.proofs[-1] == b"\x01"


async def test_a_broker_that_never_ends_the_exchange_is_given_up() -> None:
    async with SaslBroker() as broker:
        broker.answers["sasl_authenticate"] = lambda asked: {"auth_bytes": b"more"}
        given = {**OAUTH, "oauth_cb": lambda config: ("bad", 1e12)}
        assert "no end after" in await refused(broker, given)


async def test_the_proof_is_renewed_before_the_brokers_patience_ends_and_requests_wait_meanwhile() -> None:
    async with SaslBroker() as broker:
        broker.lifetime_ms = 50
        may_answer = asyncio.Event()
        handshake = broker.answers["sasl_handshake"]

        async def slowly(asked: Asked) -> Any:
            if len(broker.asked_for("sasl_handshake")) == 2:
                await may_answer.wait()
            return handshake(asked)

        broker.answers["sasl_handshake"] = slowly
        brokers = Brokers(broker.settings(**credentials()))
        connection = await brokers.connection(0)
        await broker.until(lambda: len(broker.asked_for("sasl_handshake")) == 2)
        asked_before = len(broker.asked_for("metadata"))
        waiting = asyncio.create_task(brokers.refresh(["t"]))
        await asyncio.sleep(0)
        may_answer.set()
        await waiting
        names = [each.name for each in broker.asked]
        assert names[-1] == "metadata"
        assert names.index("sasl_authenticate", names.index("sasl_handshake", 2)) < len(names) - 1
        assert len(broker.asked_for("metadata")) == asked_before + 1
        assert await brokers.connection(0) is connection
        await broker.until(lambda: len(broker.proofs) >= 4)  # and again and again
        await brokers.close()


@pytest.mark.parametrize("said", [("good", "soon"), ("good", None), ("good", 1e12, "me", ["no", "mapping"])])
async def test_a_callback_that_answers_nonsense_is_told_so(said: Any) -> None:
    async with SaslBroker() as broker:
        assert "oauth_cb must return" in await refused(broker, {**OAUTH, "oauth_cb": lambda config: said})


async def test_whatever_goes_wrong_with_a_new_proof_nothing_is_held_back_for_ever() -> None:
    async with SaslBroker() as broker:
        broker.lifetime_ms = 20
        brokers = Brokers(broker.settings(**credentials()))
        connection = await brokers.connection(0)
        broker.answers["sasl_handshake"] = lambda asked: {"mechanisms": [], "error_code": 0}
        with patch("oncelog.client.net.sasl.exchange.Plain", side_effect=ArithmeticError("nobody thought of it")):
            await asyncio.wait_for(connection.gone, 20)
        assert connection.lost_by == KafkaError._AUTHENTICATION
        await brokers.close()


async def test_a_proof_that_cannot_be_renewed_ends_the_connection() -> None:
    async with SaslBroker() as broker:
        broker.lifetime_ms = 20
        brokers = Brokers(broker.settings(**credentials()))
        connection = await brokers.connection(0)
        broker.answers["sasl_authenticate"] = lambda asked: {"error_code": 58, "error_message": "dismissed"}
        await connection.gone
        assert connection.lost_by == KafkaError._AUTHENTICATION
        await brokers.close()
