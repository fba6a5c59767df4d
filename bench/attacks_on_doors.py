"""Attacks by those who have not been let in, on a server with TLS, passwords and rights, and on what it keeps of those
who have. Each is made as those in `attacks.py` are."""

import socket
import ssl
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from bench import attacks
from bench.attacks import PATIENCE_S, Row, Said, counted, frame, said_to
from oncelog.chaos.life import free_ports
from tests.console.served import Served
from tests.peers.oncelog_process import SOURCES
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, ServerClosed
from tests.raw.sasl import plain, prove, say, shake_hands
from tests.server.tls_keys import KeysByHand
from tests.server.tls_support import World, new_world

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SHAKERS, GUESSERS, GUESSES = 400, 100, 20
RULES, USERS, QUOTAS = 4_000, 900, 4_000


class Guarded(Served):
    """The victim's listener is open to this machine; another wants TLS and passwords."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, sources: Path = SOURCES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, settings, sources=sources)
        self.world: World = new_world(folder)
        (self.door,) = free_ports(1)
        self.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_SSL://127.0.0.1:{self.door}",
            "ssl.keystore.location": self.world.keystore,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }

    def knock(self, stack: ExitStack) -> RawConnection:
        return stack.enter_context(RawConnection(self.door, timeout_s=PATIENCE_S, tls=self.world.context()))


ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS, served=Guarded)


def guarded(server: ServerProcess) -> Guarded:
    assert isinstance(server, Guarded)
    return server


def at_once(count: int, each: Any) -> Said:
    """What became of as many, each in a thread of its own."""
    said: Counter[str] = Counter()

    def run() -> None:
        with suppress(ServerClosed, OSError):
            said.update(each())
            return
        said["closed"] += 1

    threads = [Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counted(said)


@row(f"{SHAKERS} handshakes of TLS at once, and again")
def handshakes(server: ServerProcess) -> Generator[None, None, Said]:
    door, context = guarded(server).door, guarded(server).world.context()

    def shake() -> Counter[str]:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", door), PATIENCE_S) as sock:
                context.wrap_socket(sock, server_hostname="localhost").close()
        return Counter({"let in, twice": 1})

    yield
    return at_once(SHAKERS, shake)


@row("2,000 connections that begin a handshake of TLS and go no further")
def half_handshakes(server: ServerProcess) -> Generator[None, None, Said]:
    outgoing = ssl.MemoryBIO()
    hello = guarded(server).world.context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    sent = outgoing.read()
    yield
    with ExitStack() as stack:
        for _ in range(2_000):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", guarded(server).door), PATIENCE_S))
            with suppress(OSError):
                sock.sendall(sent)
        time.sleep(3)
    return "the oldest are closed"


@row("new keys of TLS (KeyUpdate), 20,000 on each of ten connections")
def new_keys(server: ServerProcess) -> Generator[None, None, Said]:
    door = guarded(server)
    clients = [
        KeysByHand(("127.0.0.1", door.door), door.world.context(), door.folder / f"secrets-{number}")
        for number in range(10)
    ]
    floods = [b"".join(client.new_keys(asks=True) for _ in range(20_000)) for client in clients]
    yield
    said: Counter[str] = Counter()
    for client, flood in zip(clients, floods, strict=True):
        with suppress(OSError), client.socket:
            client.socket.sendall(flood)
            client.receive(1)
        said["closed"] += 1
    return counted(said)


@row("200,000 records of TLS with one byte each, of a stranger")
def small_records(server: ServerProcess) -> Generator[None, None, Said]:
    door = guarded(server)
    client = KeysByHand(("127.0.0.1", door.door), door.world.context(), door.folder / "secrets")
    asked = frame("api_versions", 3) * (200_000 // 30)
    flood = b"".join(client.record(asked[at : at + 1]) for at in range(len(asked)))
    yield
    with suppress(OSError), client.socket:
        client.socket.sendall(flood)
        client.receive(1)
    return "closed"


def guessed(door: Guarded, mechanism: str) -> Counter[str]:
    said: Counter[str] = Counter()
    with ExitStack() as stack:
        for number in range(GUESSES):
            raw = door.knock(stack)
            if mechanism == "PLAIN":
                shake_hands(raw, "PLAIN")
                answer = say(raw, plain("victim", f"guess {number}"))
            else:
                answer = prove(raw, "victim", f"guess {number}", mechanism)
            said[answer.error_code.name] += 1
    return said


def guesses(mechanism: str) -> attacks.Attack:
    def attack(server: ServerProcess) -> Generator[None, None, Said]:
        yield
        return at_once(GUESSERS, lambda: guessed(guarded(server), mechanism))

    attack.__name__ = f"{mechanism.lower().replace('-', '_')}_guesses"
    return attack


for each in ("SCRAM-SHA-256", "PLAIN"):
    row(f"{GUESSERS} connections that guess passwords by {each}, {GUESSES} times each")(guesses(each))


@row("20,000 requests to ApiVersions of a version that there is not, of strangers")
def versions_of_strangers(server: ServerProcess) -> Generator[None, None, Said]:
    asked = b"".join([frame("api_versions", 3)[:6] + b"\x7f\xff" + frame("api_versions", 3)[8:]] * 1_000)
    yield
    said: Counter[str] = Counter()
    with ExitStack() as stack:
        for _ in range(20):
            raw = guarded(server).knock(stack)
            with suppress(OSError):
                raw.socket.sendall(asked)
                while raw.socket.recv(1 << 16):
                    pass
            said["closed"] += 1
    return counted(said)


def rule(number: int) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": f"topic-{number}",
        "resource_pattern_type": 4 if number % 2 else 3,
        "principal": f"User:user-{number % 50}",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


@row(f"{RULES:,} access rules in four requests, and all deleted by one", restart=True)
def many_rules(server: ServerProcess) -> Generator[None, None, Said]:
    size = RULES // 4
    made = [
        frame("create_acls", 3, creations=[rule(number) for number in range(first, first + size)])
        for first in range(0, RULES, size)
    ]
    every = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield
    return counted(said_to(server.port, [*made, frame("delete_acls", 3, filters=[every]), *made]))


@row(f"{USERS} users in one request, three times", restart=True)
def many_users(server: ServerProcess) -> Generator[None, None, Said]:
    users = [
        {"name": f"user-{number}", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
        for number in range(USERS)
    ]
    asked = frame("alter_user_scram_credentials", 0, deletions=[], upsertions=users)
    yield
    return counted(said_to(server.port, [asked] * 3))


@row(f"quotas of {QUOTAS:,} users in one request, and 10,000 client ids that write", restart=True)
def many_quotas(server: ServerProcess) -> Generator[None, None, Said]:
    entries = [
        {
            "entity": [{"entity_type": "user", "entity_name": f"user-{number}"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
        }
        for number in range(QUOTAS - 1)
    ]
    default = {"entity": [{"entity_type": "client-id", "entity_name": None}], "ops": entries[0]["ops"]}
    asked = frame("alter_client_quotas", 1, entries=[*entries, default], validate_only=False)
    others = [frame("metadata", 9, client_id=f"client-{number}", topics=[]) for number in range(10_000)]
    yield
    return counted(said_to(server.port, [asked, *others], at_once=1))
