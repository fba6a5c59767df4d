"""Looks for requests that take long and for memory that stays, not for crashes: `./dev fuzz --slow`.

Requests of every API and version are filled to their limits: arrays of thousands of elements, texts and bytes of up to
the largest size. Each is sent alone. Beside it another client writes, and its longest wait stands with the request.
What the server's memory grew by is told at the end of each round over all APIs.
"""

import math
import struct
import time
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from bench.process import cpu_seconds, resident_mb
from bench.victim import Victim, victim
from oncelog.server.api import apis
from oncelog.server.connection import OTHER_REQUEST_BYTES
from oncelog.wire.bounds import MOST_ELEMENTS
from tests.fuzz.entities import Instances
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, ServerClosed, encode_request, message

ARRAYS = (1, 1, 2, 20, 300, 5_000)
LARGE_TEXTS = (0, 10, 1_000, 32_767)
LARGE_BYTES = (0, 1_000, 1_000_000)
PATIENCE_S = 30
SLOWEST = 12


class Large(Instances):
    """Values that a server must be able to bear: each legal by itself, and very many or very long."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._large = random
        self._made = 0
        self._left = 0

    def of_request(self, entity_type: Any) -> Any:
        self._left = MOST_ELEMENTS
        return self.of(entity_type)

    def count(self) -> int:
        count = min(self._large.choice(ARRAYS), self._left)
        self._left -= count
        return count

    def text(self, name: str, hint: type) -> str:
        self._made += 1
        return f"{self._made}".ljust(self._large.choice(LARGE_TEXTS), "x")

    def blob(self, name: str) -> bytes:
        return bytes(self._large.choice(LARGE_BYTES))


class Slow(NamedTuple):
    wait_ms: float
    processor_ms: float
    what: str
    size_bytes: int


@dataclass
class Found:
    slowest: list[Slow]
    grown_mb: list[float]  # by round

    def __str__(self) -> str:
        lines = [
            f"{each.wait_ms:8.1f} ms another client's wait, {each.processor_ms:6.0f} ms of processor time: "
            f"{each.what}, {each.size_bytes:,} bytes"
            for each in self.slowest
        ]
        grown = ", ".join(f"{each:+.1f}" for each in self.grown_mb)
        return "\n".join([*lines, f"memory by round, in MB: {grown}"])


class SlowCampaign:
    def __init__(self, server: ServerProcess, seed: int) -> None:
        self._server = server
        self._random = Random(seed)
        self._values = Large(self._random)
        self._found: list[Slow] = []
        self._grown: list[float] = []
        with RawConnection(server.port) as connection:
            connection.create_topic("fuzzed", 2)

    def run(self, *, until: float = math.inf, rounds: int = 2**31) -> Found:
        """Whatever ends first; a round is one request of each API."""
        with victim(self._server.port) as other:
            while time.monotonic() < until and len(self._grown) < rounds:
                before_mb = resident_mb(self._server.pid)
                for api in apis().values():
                    if time.monotonic() >= until:
                        break
                    self._ask(api.name, self._random.randint(*api.versions), other)
                self._grown.append(resident_mb(self._server.pid) - before_mb)
        return Found(sorted(self._found, reverse=True)[:SLOWEST], self._grown)

    def _ask(self, name: str, version: int, other: Victim) -> None:
        kind = message(name, version)
        payload = encode_request(kind, self._values.of_request(kind.request), 1, "fuzz")
        if len(payload) > OTHER_REQUEST_BYTES:
            return
        other.waits()
        spent_s = cpu_seconds(self._server.pid)
        with RawConnection(self._server.port, timeout_s=PATIENCE_S) as connection:
            try:
                connection.socket.sendall(struct.pack(">i", len(payload)) + payload)
                connection.receive_bytes()
            except (ServerClosed, BrokenPipeError, ConnectionResetError, TimeoutError):
                pass  # refused, or a poll that waits
        spent_s = cpu_seconds(self._server.pid) - spent_s
        self._found.append(Slow(other.waits().worst_ms, spent_s * 1000, f"{name} v{version}", len(payload)))
