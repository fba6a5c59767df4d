"""Attacks on a secured server: as somebody without credentials, and as a user who may write one topic.

`./dev fuzz --as stranger --minutes 60`, `./dev fuzz --as writer --minutes 60`.
"""

import hmac
import json
import socket
import ssl
import struct
import time
from base64 import b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol
from uuid import UUID

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.fuzz.campaign import REST_MB, Broken, one_frame, read_whole
from tests.fuzz.entities import Instances
from tests.fuzz.frames import HUGE_LENGTHS, Frame, Frames, resized
from tests.fuzz.secured import (
    GROUP,
    MINE,
    OWNER,
    THEIRS,
    THEIRS_COMPACTED,
    TRANSACTIONAL_ID,
    WRITER,
    Harm,
    SecuredServer,
    Watch,
    watching,
)
from tests.raw import RawConnection, ServerClosed, encode_request, make, message
from tests.raw.sasl import plain

OPEN_TO_STRANGERS = (17, 18, 36)  # SaslHandshake, ApiVersions, SaslAuthenticate
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "ONCELOG-BROKER", "GSSAPI", "", "x" * 300)
HALF_OPEN = 60
ANSWER_S = 0.25
PATIENCE_S = 0.06  # for answers that may rightly be long in coming
WITNESS_EVERY, LOG_EVERY, OTHERS_EVERY = 20, 100, 1500  # acts
WRITERS = 8
INTERNAL = ("__consumer_offsets", "__oncelog_metadata", "__transaction_state")
VIEWS = ("overview", "topics", f"topic?topic={THEIRS}", f"messages?topic={THEIRS}&partition=0", "groups")
NAMES = {
    "topic": (
        THEIRS,
        THEIRS_COMPACTED,
        MINE,
        "__consumer_offsets",
        "__oncelog_metadata",
        "__transaction_state",
        "absent",
    ),
    "group": (GROUP, "group", "", "absent"),
    "transactional": (TRANSACTIONAL_ID, "absent", ""),
    "principal": (f"User:{WRITER}", f"User:{OWNER}", "User:*", "User:x", "x"),
    "user": (OWNER, WRITER, "absent", ""),
    "resource_name": (THEIRS, MINE, GROUP, TRANSACTIONAL_ID, "kafka-cluster", "1", "", "*"),
    "entity_type": ("user", "client-id", "ip", "x"),
    "entity_name": (OWNER, WRITER, "<default>", "127.0.0.1"),
    "host": ("*", "127.0.0.1", "x"),
    "key": ("producer_byte_rate", "request_percentage", "retention.ms", GROUP, TRANSACTIONAL_ID, "x"),
    "name": (THEIRS, MINE, OWNER, WRITER, "retention.ms", "x"),
}
KINDS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 32)  # of resources, patterns, operations, keys


class Attack(Protocol):
    def act(self) -> str:
        """What was done and came of it, in words that are counted."""
        ...

    def close(self) -> None: ...


def run(
    server: SecuredServer,
    attack_of: "Callable[[SecuredServer, Watch, int], Attack]",
    seed: int,
    *,
    acts: int | None = None,
    until: float | None = None,
) -> Harm:
    """Raises Broken, which says after which acts."""
    with watching(server) as watch:
        attack, harm = attack_of(server, watch, seed), watch.harm
        done: deque[str] = deque(maxlen=2 * OTHERS_EVERY)
        try:
            while (acts is None or harm.acts < acts) and (until is None or time.monotonic() < until):
                said = attack.act()
                done.append(said)
                harm.acts += 1
                harm.said[said.partition(":")[0]] += 1
                look(watch)
            watch.look_at_the_end()
        except Broken as broken:
            raise Broken(f"seed {seed}, act {harm.acts}: {broken}\nafter: {' | '.join(list(done)[-40:])}") from broken
        finally:
            attack.close()
        watch.look_at_memory(REST_MB)
        return harm


def look(watch: Watch) -> None:
    acts = watch.harm.acts
    if acts % WITNESS_EVERY == 0:
        watch.look_at_witness()
    if acts % LOG_EVERY == 0:
        watch.look_at_log()
        watch.look_at_memory()
    if acts % OTHERS_EVERY == 0:
        watch.look_at_others()


class OfOthers(Instances):
    """Well-formed bodies that name what others have."""

    def __init__(self, random: Random, topic_ids: list[UUID], pid: int) -> None:
        super().__init__(random)
        self._chance = random
        self._topic_ids, self._pid = topic_ids, pid

    def text(self, name: str, hint: type) -> str:
        if hint.__name__ == "TopicName":
            return self._chance.choice(NAMES["topic"])
        found = next((names for part, names in NAMES.items() if part in name), None)
        if found is None or self._chance.random() < 0.05:
            return super().text(name, hint)
        return self._chance.choice(found)

    def _number(self, name: str, hint: type) -> int:
        if "producer_id" in name and self._chance.random() < 0.7:
            return self._pid
        if name.endswith(("type", "filter", "operation", "mechanism")):
            return self._chance.choice(KINDS)
        if name == "iterations":
            return self._chance.choice((4096, 16_384, 0, -1))
        return super()._number(name, hint)

    def _makers(self) -> dict[type, Callable[[str, type], Any]]:
        return {**super()._makers(), UUID: lambda name, hint: self._chance.choice(self._topic_ids)}


# --- a user who may write one topic -----------------------------------------------------------------------------------


class Writer:
    def __init__(self, server: SecuredServer, watch: Watch, seed: int) -> None:
        self._server, self._watch = server, watch
        self._random = Random(seed)
        ids, pid = watch.owner.topic_ids, watch.owner.pid
        self._frames = Frames(seed, lambda random: OfOthers(random, ids, pid))
        self._open: list[RawConnection] = []
        self._asked: deque[tuple[RawConnection, Frame]] = deque()

    def close(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()

    def act(self) -> str:
        """Some requests are under way at a time, each on a connection of its own."""
        if len(self._open) < WRITERS:
            raw = self._server.enter(WRITER)
            self._watch.let_in += 1
            self._open.append(raw)
        else:
            raw, asked = self._asked.popleft()
            said = self._taken(raw, asked)
            if said is not None:
                self._open.remove(raw)
                raw.close()
                return said
        frame = self._frames.next_whole()
        if self._random.random() < 0.1:
            frame = self._frames.mutated(frame)
        with suppress(OSError):
            raw.socket.sendall(frame.data)
        self._asked.append((raw, frame))
        return f"asked: {frame.what}"

    def _taken(self, raw: RawConnection, asked: Frame) -> str | None:
        """What came of it where the connection cannot go on."""
        raw.socket.settimeout(PATIENCE_S)
        try:
            data = raw.receive_bytes()
        except TimeoutError:
            return f"waiting: {asked.what}"
        except (ServerClosed, OSError, ValueError):
            return f"closed though whole: {asked.what}" if asked.answer is not None else f"closed: {asked.what}"
        self._watch.answered(data, asked.what)
        if asked.answer is None:
            return f"answered though changed: {asked.what}"  # what else is on its way nobody knows
        read_whole(asked, data)
        return None


# --- somebody without credentials -------------------------------------------------------------------------------------


class Stranger:
    def __init__(self, server: SecuredServer, watch: Watch, seed: int) -> None:
        self._server, self._watch = server, watch
        self._random = Random(seed)
        ids, pid = watch.owner.topic_ids, watch.owner.pid
        self._frames = Frames(seed, lambda random: OfOthers(random, ids, pid))
        self._half_open: deque[socket.socket] = deque()
        self._context = server.context()
        self._hello = hello(self._context)
        self._tokens = Forged(server, self._random)
        self._acts = (
            self.garbage_at_tls,
            self.broken_hello,
            self.half_handshake,
            self.plain_at_tls,
            self.frames_in_tls,
            self.frames_in_tls,
            self.proof,
            self.proof,
            self.proof,
            self.raw_proof,
            self.huge_in_tls,
            self.as_nobody,
            self.as_nobody,
            self.at_metrics,
            self.at_page,
        )

    def act(self) -> str:
        chosen = self._random.choice(self._acts)
        try:
            came = chosen()
        except (ServerClosed, TimeoutError, OSError) as closed:
            came = "closed" if not isinstance(closed, TimeoutError) else "waiting"
        return f"{chosen.__name__.replace('_', ' ')}, {came}"

    def close(self) -> None:
        while self._half_open:
            self._half_open.popleft().close()

    def _host(self) -> str:
        return f"127.0.0.{self._random.randrange(2, 250)}"

    def _knock(self, port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S, source_address=(self._host(), 0))

    def _enter(self) -> RawConnection:
        return RawConnection(self._server.door, timeout_s=4 * ANSWER_S, from_host=self._host(), tls=self._context)

    def _sent(self, sock: socket.socket, data: bytes, what: str) -> str:
        with sock:
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
            try:
                answer = sock.recv(1 << 16)
            except TimeoutError:
                return "waiting"
            except OSError:
                return "closed"
            self._watch.answered(answer, what)
            return "answered" if answer else "closed"

    # The listener

    def garbage_at_tls(self) -> str:
        data = self._random.randbytes(self._random.choice((1, 5, 300, 20_000)))
        return self._sent(self._knock(self._server.door), data, "garbage")

    def broken_hello(self) -> str:
        data = bytearray(self._hello)
        for _ in range(self._random.choice((1, 1, 3, 20))):
            data[self._random.randrange(len(data))] = self._random.randrange(256)
        return self._sent(self._knock(self._server.door), bytes(data), "a hello")

    def half_handshake(self) -> str:
        """Of many that stay open, the oldest goes."""
        if len(self._half_open) >= HALF_OPEN:
            self._half_open.popleft().close()
        sock = self._knock(self._server.door)
        sock.sendall(self._hello[: self._random.randrange(len(self._hello) + 1)])
        self._half_open.append(sock)
        return "left open"

    def plain_at_tls(self) -> str:
        return self._sent(self._knock(self._server.door), self._frames.next().data, "plain frames")

    def frames_in_tls(self) -> str:
        with self._enter() as raw:
            frames = [self._frames.next() for _ in range(self._random.choice((1, 1, 1, 3)))]
            raw.socket.sendall(b"".join(each.data for each in frames))
            data = one_frame(raw.socket)
        self._watch.answered(data, frames[0].what)
        (key,) = struct.unpack_from(">h", frames[0].data, 4) if len(frames[0].data) > 5 else (-1,)
        if data and len(frames) == 1 and frames[0].answer is not None and key not in OPEN_TO_STRANGERS:
            raise Broken(f"a stranger was answered to {frames[0].what}: {data[:200]!r}")
        return "answered" if data else "closed"

    def huge_in_tls(self) -> str:
        with self._enter() as raw:
            size = self._random.choice((*HUGE_LENGTHS, 600_000, 50_000))
            return self._sent(raw.socket, struct.pack(">i", size) + self._random.randbytes(40_000), "a huge frame")

    def proof(self) -> str:
        mechanism = self._random.choice(MECHANISMS)
        with self._enter() as raw:
            answer = raw.call("sasl_handshake", self._random.choice((0, 1)), mechanism=mechanism)
            came = str(answer.error_code.name)
            for _ in range(self._random.choice((1, 2, 3))):
                kind = message("sasl_authenticate", self._random.choice((0, 1, 2)))
                body = make(kind.request, {"auth_bytes": self._message(mechanism)})
                raw.socket.sendall(resized(bytes(4) + encode_request(kind, body, 5)))
                data = raw.receive_bytes()
                self._watch.answered(data, f"a proof by {mechanism}")
        return f"{came}, answered"

    def raw_proof(self) -> str:
        mechanism = self._random.choice(MECHANISMS[:4])
        with self._enter() as raw:
            raw.call("sasl_handshake", 0, mechanism=mechanism)
            raw.send_bytes(self._message(mechanism))
            data = raw.receive_bytes()
            self._watch.answered(data, f"a raw proof by {mechanism}")
        return "answered"

    def _message(self, mechanism: str) -> bytes:
        random, user = self._random, self._random.choice((OWNER, WRITER, "nobody", "", "a,b=c", "x" * 3000))
        if random.random() < 0.15:
            return random.randbytes(random.choice((0, 1, 30, 5000)))
        if mechanism == "PLAIN":
            made = plain(user, random.choice(("guess", "", "é" * 200)), random.choice(("", OWNER)))
        elif mechanism == "OAUTHBEARER":
            made = f"n,,\x01auth=Bearer {self._tokens.next()}\x01\x01".encode()
        else:
            name = user.replace("=", "=3D").replace(",", "=2C")
            made = random.choice((f"n,,n={name},r=abcdef".encode(), b"c=biws,r=abcdef,p=" + b64encode(bytes(32))))
        if random.random() < 0.3 and made:
            changed = bytearray(made)
            changed[random.randrange(len(changed))] = random.randrange(256)
            return bytes(changed)
        return made

    def as_nobody(self) -> str:
        frame = self._frames.next()
        return self._sent(self._knock(self._server.port), frame.data, frame.what)

    # The metrics and the page

    def at_metrics(self) -> str:
        guess = b64encode(f"{OWNER}:guess".encode()).decode()
        said = self._random.choice((f"Basic {guess}", f"Bearer {self._tokens.next()}", "Basic !", "x" * 9000, ""))
        asked = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {said}\r\n\r\n".encode()
        return self._by_http(self._server.metrics_port, asked)

    def at_page(self) -> str:
        random = self._random
        path, session = random.choice(VIEWS), random.randbytes(20).hex()
        cookie = random.choice(("", f"__Host-oncelog-{self._server.console_port}={session}", "x" * 5000))
        asked = f"GET /api/{path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()
        if random.random() < 0.5:
            body = random.choice((json.dumps({"user": OWNER, "password": "guess"}), "[" * 3000, '{"user":3}', "{" * 10))
            asked = (
                f"POST /api/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}"
            ).encode()
        return self._by_http(self._server.console_port, asked)

    def _by_http(self, port: int, asked: bytes) -> str:
        sent = bytearray(asked)
        if self._random.random() < 0.4:
            sent[self._random.randrange(len(sent))] = self._random.randrange(256)
        with self._context.wrap_socket(self._knock(port), server_hostname="localhost") as sock:
            sock.settimeout(4 * ANSWER_S)
            sock.sendall(bytes(sent))
            data = sock.recv(1 << 16)
        self._watch.answered(data, asked[:60].decode(errors="replace"))
        status = data.split(b" ")[1:2]
        if status == [b"200"]:
            raise Broken(f"a stranger was answered: {bytes(sent)!r}: {data[:300]!r}")
        return f"told {status[0].decode(errors='replace')[:3]}" if status else "closed"


class Forged:
    """Tokens that must not count."""

    def __init__(self, server: SecuredServer, random: Random) -> None:
        self._random = random
        issuer = server.issuer
        good = issuer.token("one", "RS256", sub=OWNER, exp=1)  # its time is over
        head, body, _ = good.split(".")
        lasting = issuer.token("one", "RS256", sub=OWNER).split(".")[1]
        public = issuer.keys["one"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        symmetric = f"{part({'alg': 'HS256', 'kid': 'one'})}.{lasting}"
        signed = urlsafe_b64encode(hmac.digest(public, symmetric.encode(), "sha256")).decode().rstrip("=")
        self._bad = (
            good,
            f"{head}.{lasting}.{'A' * 342}",
            f"{part({'alg': 'none', 'kid': 'one'})}.{lasting}.",
            f"{symmetric}.{signed}",
            issuer.token("one", "RS256", sub=OWNER, aud="others"),
            f"{part({'alg': 'RS256', 'kid': 'x' * 3000})}.{lasting}.AAAA",
            "a.b.c",
            ".." * 500,
            f"{part({'alg': 'RS256', 'kid': 'one', 'jwk': {'kty': 'oct', 'k': 'AAAA'}})}.{body}.AAAA",
        )

    def next(self) -> str:
        return self._random.choice(self._bad)


def part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    begun = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    return outgoing.read()


ATTACKS: dict[str, Callable[[SecuredServer, Watch, int], Attack]] = {"stranger": Stranger, "writer": Writer}
