"""Keys, a JWKS of their public halves, tokens signed by them, and a web server that has the JWKS."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.client.net.certificates import Authority

_ALGORITHMS = {
    "RS256": rsa.RSAPublicKey,
    "ES256": ec.EllipticCurvePublicKey,
    "EdDSA": ed25519.Ed25519PublicKey,
}
ISSUER, AUDIENCE = "https://issuer.example", "oncelog"


@dataclass
class Issuer:
    file: Path
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.file.as_uri()

    def new_key(self, key_id: str, kind: str = "EC") -> None:
        makers = {
            "EC": lambda: ec.generate_private_key(ec.SECP256R1()),
            "RSA": lambda: rsa.generate_private_key(65537, 2048),
            "OKP": ed25519.Ed25519PrivateKey.generate,
        }
        self.keys[key_id] = makers[kind]()

    def publish(self, *key_ids: str, more: tuple[dict[str, Any], ...] = ()) -> None:
        listed = []
        for key_id in key_ids or self.keys:
            public = self.keys[key_id].public_key()
            algorithm = next(name for name, kind in _ALGORITHMS.items() if isinstance(public, kind))
            written = jwt.get_algorithm_by_name(algorithm).to_jwk(public, as_dict=True)
            listed.append({**written, "kid": key_id, "use": "sig"})
        self.file.write_text(json.dumps({"keys": [*more, *listed]}))

    def token(
        self, key_id: str, algorithm: str = "ES256", *, headers: dict[str, Any] | None = None, **more: Any
    ) -> str:
        now_s = int(time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now_s, "exp": now_s + 600, **more}
        written = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(
            written, self.keys[key_id], algorithm, headers={"kid": key_id} if headers is None else headers
        )


# On the web

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


@contextmanager
def serving(authority: Authority) -> Iterator[Web]:
    found = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.answer(self)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            found.answer(self)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    certificate = authority.signs("web", "DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()
