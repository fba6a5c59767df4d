"""Sends frames to a live server and watches what must not happen: a crash, a hang, another client that notices."""

import re
import selectors
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kio.serial.errors import OutOfBoundValue

from oncelog.server.aside import THREADS
from tests.fuzz.frames import Frame, Frames
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, batch
from tests.waiting import ASK_AGAIN_SECONDS

AT_ONCE = 32
PATIENCE_S = 0.03  # for answers that may rightly be long in coming: long polls and joins
WITNESS_S = 10
GROWTH_MB = 160  # one frame and one batch may be held for each of the connections that are open at once
LOOKS_MB = THREADS * 72  # what threads unfold meanwhile: no batch here is sound and of 64 MiB, so none is held twice
REST_MB = 64  # what may stay of it once nothing is under way: modules, what the allocator keeps, topics and groups
NO_TIME = struct.pack(">q", -1)

UNEXPECTED = re.compile(r"Traceback|failed unexpectedly|MemoryError|RecursionError|Segmentation")


class Broken(AssertionError):
    """The server did what it must not; the message says after which frames."""


@dataclass
class Report:
    cases: int = 0
    answered: int = 0
    closed: int = 0
    waiting: int = 0
    whole_but_closed: Counter[str] = field(default_factory=Counter)
    peak_mb: float = 0.0
    rest_mb: float = 0.0

    def __str__(self) -> str:
        refused = ", ".join(f"{what} ({count})" for what, count in self.whole_but_closed.most_common(8))
        return (
            f"{self.cases} cases: {self.answered} answered, {self.closed} closed, {self.waiting} still waiting; "
            f"most memory {self.peak_mb:.0f} MB, at rest {self.rest_mb:.0f}; "
            f"whole requests that lost their connection: {refused or 'none'}"
        )


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise Broken("the server is gone")


class Witness:
    """Another client: what it writes, it reads back, whatever happens on other connections."""

    TOPIC = "witness-of-the-fuzz"

    def __init__(self, port: int) -> None:
        self._connection = RawConnection(port, timeout_s=WITNESS_S)
        self._connection.create_topic(self.TOPIC)
        self._offset = 0

    def look(self) -> None:
        value = f"still here {self._offset}".encode()
        answer = self._connection.produce(self.TOPIC, 0, batch([value]))
        if answer.error_code or answer.base_offset != self._offset:
            raise Broken(f"the witness was answered {answer.error_code.name} at {answer.base_offset}")
        stored = self._connection.fetch(self.TOPIC, 0, self._offset)
        if stored.error_code or value not in stored.records:
            raise Broken(f"the witness did not read back offset {self._offset}: {stored.error_code.name}")
        self._offset += 1

    def close(self) -> None:
        self._connection.close()


class Campaign:
    def __init__(self, server: ServerProcess, seed: int) -> None:
        self._server = server
        self._frames = Frames(seed)
        self._log_read = 0
        self.report = Report()
        with RawConnection(server.port) as connection:
            connection.create_topic("fuzzed", 2)
            connection.create_topic("fuzzed-compacted", 1, {"cleanup.policy": "compact"})
        self._witness = Witness(server.port)
        self._witness.look()
        self._baseline_mb = resident_mb(server.pid)

    def run(self, *, cases: int | None = None, until: float | None = None) -> Report:
        try:
            while (cases is None or self.report.cases < cases) and (until is None or time.monotonic() < until):
                together = [self._frames.next() for _ in range(AT_ONCE)]
                try:
                    self._send(together)
                    self._watch()
                except (Broken, OSError, EOFError) as broken:
                    sent = "\n".join(f"  {frame.what}: {frame.data[:200].hex()}" for frame in together)
                    sent += f"\nthe server said:\n{self._server.log_text()[-12000:]}"
                    raise Broken(f"{type(broken).__name__}: {broken}\nafter these frames:\n{sent}") from broken
            self.report.rest_mb = self._watch_memory(REST_MB)
        finally:
            self._witness.close()
        return self.report

    def _send(self, together: list[Frame]) -> None:
        waiting: dict[socket.socket, Frame] = {}
        with selectors.DefaultSelector() as selector:
            for frame in together:
                sock = socket.create_connection(("127.0.0.1", self._server.port), timeout=WITNESS_S)
                try:
                    sock.sendall(frame.data)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # closed before all of it was sent, which is one of the right answers
                selector.register(sock, selectors.EVENT_READ, data=sock)
                waiting[sock] = frame
            self._witness.look()  # once that is answered, the server has had its turn, however busy the machine is
            give_up = time.monotonic() + PATIENCE_S
            while waiting and time.monotonic() < give_up:
                for key, _ in selector.select(max(0.0, give_up - time.monotonic())):
                    ready: socket.socket = key.data
                    selector.unregister(ready)
                    self._take(ready, waiting.pop(ready))
        self.report.cases += len(together)
        self.report.waiting += len(waiting)
        for sock in waiting:
            sock.close()

    def _take(self, sock: socket.socket, frame: Frame) -> None:
        with sock:
            try:
                data = one_frame(sock)
            except (ConnectionResetError, TimeoutError):
                data = b""
        if not data:
            self.report.closed += 1
            if frame.answer is not None:
                self.report.whole_but_closed[frame.what] += 1
            return
        self.report.answered += 1
        if frame.answer is not None:
            read_whole(frame, data)

    def _watch(self) -> None:
        if not self._server.is_running:
            raise Broken("the server is gone")
        self._witness.look()
        self._watch_memory(GROWTH_MB)
        with open(self._server.log, errors="replace") as log:
            log.seek(self._log_read)
            text = log.read()
            self._log_read = log.tell()
        if found := UNEXPECTED.search(text):
            raise Broken(f"the server's log says:\n{text[max(0, found.start() - 300) : found.start() + 2500]}")

    def _watch_memory(self, growth_mb: float) -> float:
        """What is resident once that is within the bound: of a client that has gone, a thread may still unfold much."""
        give_up = time.monotonic() + WITNESS_S
        while True:
            now_mb = resident_mb(self._server.pid)
            self.report.peak_mb = max(self.report.peak_mb, now_mb)
            if now_mb <= self._baseline_mb + growth_mb:
                return now_mb
            if now_mb > self._baseline_mb + GROWTH_MB + LOOKS_MB or time.monotonic() > give_up:
                raise Broken(f"memory grew from {self._baseline_mb:.0f} to {now_mb:.0f} MB")
            time.sleep(ASK_AGAIN_SECONDS)


def one_frame(sock: socket.socket) -> bytes:
    sock.settimeout(1)
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        got = sock.recv(1 << 16)
        if not got:
            break
        data += got
    return bytes(data[4:])


def read_whole(frame: Frame, data: bytes) -> None:
    """An unmutated request was answered: the answer must be one of its own version and id."""
    kind = frame.answer
    header, at = kind.read_header(data, 0)
    if header.correlation_id != frame.correlation_id:
        raise Broken(f"{frame.what} asked as {frame.correlation_id} was answered as {header.correlation_id}")
    try:
        _, length = kind.read_response(data, at)
    except OutOfBoundValue:
        if kind.name == "describe_transactions" and NO_TIME in data:
            return  # a transactional id without a transaction began at no time, which Kafka calls -1 and kio refuses
        raise
    if at + length != len(data):
        raise Broken(f"{frame.what}: an answer of {len(data)} bytes, of which {at + length} were read")
