"""A server whose clients prove who they are, beside a listener where nobody has to; and a clock that can be turned."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncelog.clock import Now, SystemClock
from oncelog.embedded import Server
from oncelog.server.guarded_connection import GuardedConnection
from oncelog.server.users import add_user
from tests.raw import RawConnection, ServerClosed, encode_request, make, message

ANN, PASSWORD = "ann", "s3cret word"
DELAY_MS = 20


class TurnedClock(SystemClock):
    """The system's, and some more."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def now(self) -> Now:
        now = super().now()
        return Now(now.wall_ms + self.ahead_ms, now.monotonic_ms + self.ahead_ms)


class Guarded:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.open_address, self.address = server.bootstrap_servers.split(",")
        self.clock = TurnedClock()
        server.broker.clock = self.clock
        server.call(add_user, server.broker, ANN, PASSWORD)

    def turn(self, ahead_ms: int) -> None:
        """The clock, and what waits for its time."""

        def run() -> None:
            self.clock.ahead_ms += ahead_ms
            for each in self.server.service.connections.each():
                if isinstance(each, GuardedConnection):
                    each.look_at_end()

        self.server.call(run)

    def pass_unseen(self, ahead_ms: int) -> None:
        """The clock alone, as where the loop has not come to what waits for its time."""

        def run() -> None:
            self.clock.ahead_ms += ahead_ms

        self.server.call(run)

    def connected(self) -> RawConnection:
        return RawConnection(self.address)

    @property
    def metrics(self) -> tuple[int, int, int, int, int]:
        """Good proofs, failed ones, those not looked at, ended sessions, strangers that were closed."""
        found = self.server.broker.metrics
        return (
            found.authentications,
            found.authentications_failed,
            found.authentications_barred,
            found.sessions_ended,
            found.strangers_closed,
        )


@contextmanager
def guarded(**settings: str) -> Iterator[Guarded]:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "oncelog.sasl.without.tls": "true",
        "oncelog.max.failed.authentications.per.minute": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    with Server(settings=given) as server:
        yield Guarded(server)


def assert_closed(raw: RawConnection) -> None:
    with pytest.raises(ServerClosed):
        raw.receive_bytes()


def assert_serves(raw: RawConnection) -> None:
    assert raw.call("metadata", 9, topics=[], allow_auto_topic_creation=False).brokers


def framed(name: str, version: int, correlation_id: int, **values: Any) -> bytes:
    kind = message(name, version)
    payload = encode_request(kind, make(kind.request, values), correlation_id)
    return struct.pack(">i", len(payload)) + payload
