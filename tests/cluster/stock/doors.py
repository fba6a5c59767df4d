"""What a test asks of a client, whichever it is."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Protocol, Self

TOPIC: Final = "orders"
IMPATIENT_MS: Final = 5_000  # a client waits as long as this for a broker that hangs, whoever leads meanwhile
SESSION_MS: Final = 20_000
COMMIT_MS: Final = 200
JOIN_S: Final = 60

OnDelivery = Callable[[Any, Any], None]


class Read(NamedTuple):
    partition: int
    offset: int
    number: int


class Delivered:
    """Of what a client says about a record, what `Writing` asks for."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value


class Sender(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: OnDelivery) -> object: ...

    def poll(self, timeout: float) -> object: ...

    def flush(self, timeout: float) -> int: ...


class Member:
    """Reads from the beginning in a thread of its own, and commits by itself, until it is closed."""

    def __init__(self, servers: str, group: str) -> None:
        self.servers = servers
        self.group = group
        self.seen: list[Read] = []
        self.assigned: frozenset[int] = frozenset()
        self.errors: list[str] = []
        self.joined_anew = 0  # by the client's own decision: what it had not committed, it reads again
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"member of {group}")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def at_end(self, work: Callable[[], object]) -> threading.Thread:
        """Done by a thread once it `is_ending`, for who waits for something else."""

        def wait() -> None:
            self._ending.wait()
            work()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    @contextmanager
    def hearing(self, process: "subprocess.Popen[str]", end: Callable[[], object]) -> Iterator[IO[str]]:
        """What it says, until it has ended, as `end` asks it to once this one is to."""
        assert process.stdout is not None
        ending = self.at_end(end)
        try:
            with process.stdout as said:
                yield said
            process.wait(JOIN_S)
        finally:
            process.kill()
            process.wait()
            self._ending.set()
            ending.join()

    def close(self) -> None:
        """It commits where it is, and leaves the group."""
        self._ending.set()
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            self.errors.append(f"did not end within {JOIN_S} s")

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def take(self, partition: int, offset: int, value: bytes | None) -> None:
        self.seen.append(Read(partition, offset, int(value or b"-1")))

    def read(self) -> None:
        """Until `is_ending`."""
        raise TypeError("each client has its own way")

    def _work(self) -> None:
        try:
            self.read()
        except Exception as error:  # whatever it is, an application would have seen it
            self.errors.append(repr(error))
