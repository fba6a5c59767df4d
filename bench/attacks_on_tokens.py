"""Attacks by tokens, on a server that lets in who shows a good one. Nobody is shut out for failures here, as where each
comes from another host; another client who shows a good token, again and again, is timed meanwhile."""

import hmac
import json
import multiprocessing
import ssl
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from kio.schema.errors import ErrorCode

from bench import attacks
from bench.attacks import PATIENCE_S, Row, Said, counted
from bench.attacks_on_doors import Guarded, at_once
from tests.peers.oncelog_process import SOURCES
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.raw.sasl import say, shake_hands
from tests.server.jwks import AUDIENCE, Issuer, says, serving

CROWD, SHOWN, KEYS = 100, 20, 1_000
LARGE_BYTES = 23_000  # as base64 nearly the 32 KiB that strangers may send
PAUSE_S = 0.02
SLOW_S = 30


class Tokened(Guarded):
    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, sources: Path = SOURCES) -> None:
        super().__init__(folder, settings, sources=sources)
        self.issuer = Issuer(folder / "keys.json")
        self.issuer.new_key("one", "RSA")
        self.issuer.publish()
        self.settings |= {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "oncelog.max.failed.authentications.per.minute": "0",
        }

    def good(self) -> str:
        return self.issuer.token("one", "RS256")


class ByWeb(Tokened):
    """The keys come from a web server."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, sources: Path = SOURCES) -> None:
        super().__init__(folder, settings, sources=sources)
        self.is_over = Event()
        self._stack = ExitStack()
        self.web = self._stack.enter_context(serving(self.world.authority))
        self.settings["sasl.oauthbearer.jwks.endpoint.url"] = self.web.url
        self._variables = {"SSL_CERT_FILE": self.world.authority.certificate, "no_proxy": "*"}

    def __exit__(self, *about: Any) -> None:
        super().__exit__(*about)
        self.is_over.set()
        self._stack.close()


ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS, served=Tokened)


def tokened(server: ServerProcess) -> Tokened:
    assert isinstance(server, Tokened)
    return server


def show(raw: RawConnection, token: str) -> str:
    """What it is told, after it has heard that it is refused, where it is."""
    shake_hands(raw, "OAUTHBEARER")
    answer = say(raw, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    if answer.error_code is ErrorCode.none and answer.auth_bytes:
        answer = say(raw, b"\x01")
    name: str = answer.error_code.name
    return name


def live(port: int, authority: str, token: str, orders: Connection) -> None:
    """Who has a good token, in a process of its own: comes, is let in, and goes, and tells what that took."""
    context = ssl.create_default_context(cafile=authority)
    took_ms: list[float] = []
    while not took_ms or not orders.poll(PAUSE_S):
        begun = time.perf_counter()
        with RawConnection(port, timeout_s=PATIENCE_S, tls=context) as raw:
            assert show(raw, token) == "none"
        took_ms.append((time.perf_counter() - begun) * 1000)
        if len(took_ms) == 1:
            orders.send("ready")
    orders.send(took_ms)


@contextmanager
def honest(door: Tokened) -> Iterator[Connection]:
    here, there = multiprocessing.Pipe()
    given = (door.door, door.world.authority.certificate, door.good(), there)
    process = multiprocessing.get_context("spawn").Process(target=live, args=given, daemon=True)
    process.start()
    here.recv()
    try:
        yield here
    finally:
        process.join(PATIENCE_S)


def flood(door: Tokened, tokens: list[str]) -> Said:
    turns = cycle(tokens)

    def each() -> Counter[str]:
        said: Counter[str] = Counter()
        for _ in range(SHOWN):
            with ExitStack() as stack:
                said[show(door.knock(stack), next(turns))] += 1
        return said

    with honest(door) as orders:
        said = at_once(CROWD, each)
        orders.send("tell")
        took_ms = sorted(orders.recv())
    middle, worst = (f"{took_ms[at]:,.0f}" for at in (len(took_ms) // 2, -1))
    return f"{said}; who has a good one gets in within {middle} ms, {worst} at worst"


def part(of: bytes) -> str:
    return urlsafe_b64encode(of).rstrip(b"=").decode()


def forged(header: dict[str, Any] | bytes, claims: bytes = b'{"sub":"ann"}', signature: bytes = b"s" * 256) -> str:
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    return ".".join(map(part, (written, claims, signature)))


def by_public_key(door: Tokened) -> str:
    """As if the key that everybody may read were a password."""
    public = door.issuer.keys["one"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = forged({"alg": "HS256", "kid": "one"}).rpartition(".")[0]
    return f"{signed}.{part(hmac.digest(public, signed.encode(), 'sha256'))}"


@row(f"{CROWD} connections that each show {SHOWN} bad tokens: unsigned, signed by others, or with another algorithm")
def bad_tokens(server: ServerProcess) -> Generator[None, None, Said]:
    door = tokened(server)
    good = door.good()
    other = Issuer(door.folder / "others.json")
    other.new_key("one", "RSA")
    own = other.keys["one"].public_key().public_numbers()
    jwk = {"kty": "RSA", "n": part(own.n.to_bytes(256)), "e": "AQAB"}
    tokens = [
        f"{good[:-8]}AAAAAAAA",
        forged({"alg": "none", "kid": "one"}, signature=b""),
        by_public_key(door),
        other.token("one", "RS256"),
        other.token("one", "RS256", headers={"kid": "one", "jwk": jwk}),
        door.issuer.token("one", "RS256", exp=1),
        forged({"alg": "RS256", "kid": "one", "jku": "https://127.0.0.1:1/keys", "crit": ["x"]}),
    ]
    yield
    return flood(door, tokens)


@row(f"{CROWD} connections that show {SHOWN} tokens each of 31 KB")
def large_tokens(server: ServerProcess) -> Generator[None, None, Said]:
    head = {"alg": "RS256", "kid": "one"}
    tokens = [
        forged(head, b'{"sub":[' + b"1," * (LARGE_BYTES // 2) + b"1]}"),
        forged(head, b'{"sub":' + b"[" * LARGE_BYTES),
        forged(head, b'{"sub":1.' + b"7" * LARGE_BYTES + b"}"),
        forged(head, signature=b"s" * LARGE_BYTES),
        forged(b'{"alg":"RS256","kid":"one","x":[' + b"{}," * (LARGE_BYTES // 3) + b"{}]}"),
        forged(b'{"alg":"RS256","kid":"one","x":"' + b"\\u0041" * (LARGE_BYTES // 6) + b'"}'),
        "." * LARGE_BYTES,
    ]
    yield
    return flood(tokened(server), tokens)


@row(f"tokens that name {KEYS:,} unknown keys, while the server of the keys hangs", served=ByWeb)
def unknown_keys(server: ServerProcess) -> Generator[None, None, Said]:
    door = tokened(server)
    assert isinstance(door, ByWeb)
    asked: Counter[str] = Counter()

    def once(handler: BaseHTTPRequestHandler) -> None:
        asked["times asked for keys"] += 1
        if asked.total() > 1:
            door.is_over.wait(SLOW_S)
        with suppress(OSError):  # who asked has not waited so long
            says(door.issuer.file.read_bytes())(handler)

    door.web.answer = once
    tokens = [forged({"alg": "RS256", "kid": f"key {number}"}) for number in range(KEYS)]
    yield
    return f"{flood(door, tokens)}; {counted(asked)}"
