"""A client in another language: a program that is told what to do by lines, and says by lines what came of it.

PROGRAM create SERVERS TOPIC PARTITIONS
PROGRAM send SERVERS TOPIC [CODEC]    produces each line of the input, KEY VALUE: "ok VALUE" or "failed VALUE WHY"
PROGRAM read SERVERS TOPIC GROUP      until the input ends: "read PARTITION OFFSET VALUE", "has PARTITION ...",
                                      "anew WHY" (it has left and joins again), "error WHY"
PROGRAM copy SERVERS FROM TO NAME     for ever, in transactions, as the member and the producer of that name
"""

import subprocess
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from tests.cluster.stock.doors import JOIN_S, TOPIC, Delivered, Member, OnDelivery


def _start(program: Sequence[str], *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


class LineSender:
    """`codec` is left out where it is empty: the program's own choice."""

    def __init__(self, program: Sequence[str], servers: str, codec: str = "") -> None:
        self._order = (program, "send", servers, TOPIC, *([codec] if codec else []))
        self._waiting: dict[str, OnDelivery] = {}
        self._listening = threading.Thread(target=self._listen, name=program[-1])

    def __enter__(self) -> Self:
        program, *words = self._order
        self._process = _start(program, *map(str, words))
        self._listening.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(JOIN_S)
        finally:
            self._process.kill()
            self._listening.join()

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: OnDelivery) -> object:
        assert self._process.stdin is not None
        self._waiting[value.decode()] = on_delivery
        return self._process.stdin.write(f"{key.decode()} {value.decode()}\n")

    def poll(self, timeout: float) -> object:
        return None

    def flush(self, timeout: float) -> int:
        return len(self._waiting)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                word, value, *why = line.split(maxsplit=2)
                on_delivery = self._waiting.pop(value)
                on_delivery(None if word == "ok" else " ".join(why), Delivered(value.encode()))


class LineMember(Member):
    def __init__(self, program: Callable[[], Sequence[str]], servers: str, group: str) -> None:
        self._program = program
        super().__init__(servers, group)

    def read(self) -> None:
        process = _start(self._program(), "read", self.servers, TOPIC, self.group)
        assert process.stdin is not None
        with self.hearing(process, process.stdin.close) as said:
            for line in said:
                self._hear(line)
        if process.returncode:
            self.errors.append(f"the program ended with {process.returncode}")

    def _hear(self, line: str) -> None:
        word, *words = line.split(maxsplit=3)
        if word == "read":
            partition, offset, value = words
            self.take(int(partition), int(offset), value.encode())
        elif word == "has":
            self.assigned = frozenset(map(int, " ".join(words).split()))
        elif word == "anew":
            self.joined_anew += 1
        else:
            self.errors.append(line.strip())
