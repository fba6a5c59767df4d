"""A server whose clients prove who they are, beside a listener where nobody has to; and a clock that can be turned."""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.clock import Now, SystemClock
from oncelog.embedded import Server
from oncelog.server.users import add_user
from tests.raw import RawConnection

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
