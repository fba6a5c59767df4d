"""The keys of tokens, read from a web server: whose certificate must be trusted, and who must not send us elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.clock import ManualClock, SystemClock
from oncelog.server import tokens as tokens_module
from oncelog.server.aside import Aside
from oncelog.server.settings import Settings
from oncelog.server.tokens import SignedTokens, Unreadable, read_keys
from tests.client.net.certificates import Authority
from tests.server.jwks import AUDIENCE, ISSUER, Answer, Issuer, Web, says, serving


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.certificate)


@pytest.fixture
def web(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    with serving(authority) as found:
        yield found


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    found = Issuer(tmp_path / "keys.json")
    found.new_key("one")
    found.publish()
    return found


def read(web: Web) -> object:
    return read_keys(web.url, SystemClock())


@pytest.mark.usefixtures("trusted")
async def test_a_token_counts_by_keys_of_a_server_that_is_trusted(web: Web, issuer: Issuer) -> None:
    web.answer = says(issuer.file.read_bytes())
    settings = Settings(
        sasl_oauthbearer_jwks_endpoint_url=web.url,
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=(AUDIENCE,),
    )
    threads = Aside("test")
    try:
        assert (await SignedTokens(settings, ManualClock(), threads).check(issuer.token("one"))).name == "ann"
    finally:
        threads.close()


def test_nobody_is_believed_whose_certificate_is_not_trusted(web: Web, issuer: Issuer) -> None:
    web.answer = says(issuer.file.read_bytes())
    with pytest.raises(Unreadable, match="certificate verify failed"):
        read(web)


@pytest.mark.usefixtures("trusted")
def test_nor_who_has_another_name(web: Web, issuer: Issuer) -> None:
    web.answer = says(issuer.file.read_bytes())
    with pytest.raises(Unreadable, match=r"not valid for '127\.0\.0\.1'"):
        read_keys(web.url.replace("localhost", "127.0.0.1"), SystemClock())


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (says(b"", 503), "503"),
        (says(b"", 302, Location="http://localhost:1/keys"), "not https"),
        (says(b"", 302, Location="file:///etc/hostname"), "302"),
        (says(b"x" * (tokens_module.MOST_BYTES + 1)), "more than"),
        (says(b"[" * 100_000), "."),
        (says(b"{}"), "JWKS"),
        (lambda handler: handler.wfile.write(b"nonsense\r\n\r\n") and None, "nonsense"),
        (lambda handler: None, "closed connection"),
    ],
    ids=["an error", "sent on without TLS", "sent on to a file", "too much", "deep", "no keys", "no HTTP", "nothing"],
)
def test_answers_that_do_not_count(web: Web, answer: Answer, words: str) -> None:
    web.answer = answer
    with pytest.raises(Unreadable, match=words):
        read(web)


@pytest.mark.usefixtures("trusted")
def test_who_answers_a_byte_at_a_time_is_not_waited_for(
    web: Web, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "READ_WITHIN_MS", -1)
    web.answer = says(issuer.file.read_bytes())
    with pytest.raises(Unreadable, match="was not there within"):
        read(web)
