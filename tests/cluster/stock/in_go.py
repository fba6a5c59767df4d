"""franz-go: a small program, built once with Go's module proxy into the user's cache, and told what to do by lines."""

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.cluster.stock.doors import JOIN_S, TOPIC, Delivered, Member, OnDelivery
from tests.peers.jars import MissingPeer, cache_folder

SOURCES: Final = Path(__file__).parent / "franz"
BUILD_S: Final = 600


def program() -> Path:
    """Of these sources: others are another program."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:16]
    built = cache_folder() / f"franz-{digest}"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise MissingPeer("there is no `go` on the path, with which franz-go is built; install Go 1.21 or newer")
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f"{built.name}.building-{os.getpid()}")
    caches = {"GOMODCACHE": cache_folder() / "go-modules", "GOCACHE": cache_folder() / "go-build"}
    environment = os.environ | {name: str(folder) for name, folder in caches.items()}
    order = [go, "build", "-modcacherw", "-mod=readonly", "-buildvcs=false", "-o", str(fresh), "."]
    try:
        done = subprocess.run(
            order, cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        if done.returncode:
            raise MissingPeer(f"Go could not build franz-go's program: {done.stderr[-600:]}")
        fresh.rename(built)
    finally:
        fresh.unlink(missing_ok=True)
    return built


def _start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(program()), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def getting_in(config: Mapping[str, str], mechanism: str) -> dict[str, str]:
    """As the program's environment says it, of librdkafka's properties."""
    return {
        "FRANZ_AUTHORITY": config["ssl.ca.location"],
        "FRANZ_MECHANISM": mechanism,
        "FRANZ_USER": config["sasl.username"],
        "FRANZ_PASSWORD": config["sasl.password"],
    }


class FranzSender:
    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._waiting: dict[str, OnDelivery] = {}
        self._listening = threading.Thread(target=self._listen, name="franz-go")

    def __enter__(self) -> Self:
        self._process = _start("send", self._servers, TOPIC)
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


class FranzMember(Member):
    def read(self) -> None:
        process = _start("read", self.servers, TOPIC, self.group)
        assert process.stdin is not None and process.stdout is not None
        ending = self.at_end(process.stdin.close)
        try:
            with process.stdout as said:
                for line in said:
                    self._hear(line)
            if process.wait(JOIN_S):
                self.errors.append(f"franz-go ended with {process.returncode}")
        finally:
            process.kill()
            process.wait()
            self._ending.set()
            ending.join()

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
