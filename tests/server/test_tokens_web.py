"""The keys of tokens, read from a web server: whose certificate must be trusted, and who must not send us elsewhere."""

import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from oncelog.clock import ManualClock, SystemClock
from oncelog.server import tokens as tokens_module
from oncelog.server.aside import Aside
from oncelog.server.settings import Settings
from oncelog.server.tokens import SignedTokens, Unreadable, read_keys
from tests.client.net.certificates import Authority
from tests.server.jwks import AUDIENCE, ISSUER, Issuer

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Web:
    """A server of https on this machine, which answers as it is told."""

    port: int = 0
    answer: Answer = field(default=lambda handler: None)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/keys"


def says(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.certificate)


@pytest.fixture
def web(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    found = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.answer(self)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    certificate = authority.signs("web", "DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        found.port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield found
        server.shutdown()
        serving.join()


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
