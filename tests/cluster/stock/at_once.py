"""Clients that are a tool of the command line: they take records until their input ends, and then say how it went."""

import subprocess
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from tests.cluster.stock.doors import Delivered, Member, OnDelivery

TOOL_S: Final = 60


class ToolSender:
    """`command` of the servers and a codec reads lines of KEY:VALUE. They are sent once somebody asks what became of
    them."""

    def __init__(self, command: Callable[[str, str], Sequence[str]], servers: str, codec: str) -> None:
        self._command = command(servers, codec)
        self._waiting: list[tuple[bytes, bytes, OnDelivery]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.flush(TOOL_S)

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: OnDelivery) -> object:
        self._waiting.append((key, value, on_delivery))
        return None

    def poll(self, timeout: float) -> object:
        return self.flush(timeout)

    def flush(self, timeout: float) -> int:
        some, self._waiting = self._waiting, []
        if some:
            lines = b"".join(b"%b:%b\n" % (key, value) for key, value, _ in some)
            done = subprocess.run(self._command, input=lines, capture_output=True, timeout=TOOL_S, check=False)
            failed = done.stderr.decode(errors="replace")[-600:] if done.returncode else None
            for _, value, on_delivery in some:
                on_delivery(failed, Delivered(value))
        return 0


class ToolMember(Member):
    """`command` of the servers and a group says PARTITION OFFSET VALUE; terminated, it commits and leaves."""

    def __init__(self, command: Callable[[str, str], Sequence[str]], servers: str, group: str) -> None:
        self._command = command(servers, group)
        super().__init__(servers, group)

    def read(self) -> None:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        with self.hearing(process, process.terminate) as said:
            for line in said:
                partition, offset, value = line.split()
                self.take(int(partition), int(offset), value.encode())
