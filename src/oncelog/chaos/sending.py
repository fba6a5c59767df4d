"""The producer of an experiment, in a process of its own, so that it can be killed.

    CHAOS_ORDER='{"client": "oncelog", "servers": "127.0.0.1:9092", ...}' python -m oncelog.chaos.sending

Message n is the number n as text, and goes to partition n modulo their number. What was confirmed is told on standard
output (`sender_report.py`). With a `state` file the position is saved twice a second: with oncelog's client together
with the producer's identity, so that the next life goes on without a duplicate; with any other client alone, as
applications do that have nothing else to save.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from oncelog.chaos.order_variable import told
from oncelog.chaos.sender_report import MOST_NUMBERS, Report, pack
from oncelog.clock import monotonic_s, wall_s

TELL_EVERY_S: Final = 0.05
SAVE_EVERY_S: Final = 0.5
POLL_EVERY: Final = 500  # messages
TIMED_EVERY: Final = 100  # messages
SHORTEST_PAUSE_S: Final = 0.002
PATIENCE_S: Final = 600.0  # in which the last messages must be stored
# A client's own pauses after a cut would be most of a run: up to ten seconds each.
RECONNECT: Final = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200}


@dataclass(frozen=True, slots=True)
class Order:
    client: str
    servers: str
    topic: str
    partitions: int
    messages: int
    is_idempotent: bool = True
    linger_ms: int = 5
    state: str = ""  # the file to save to, and to go on from
    rate: int = 0  # messages a second at most
    until_s: float = 0.0  # since 1970: then nothing more is sent
    kafka_libs: str = ""  # where the jars of Kafka's Java client are
    login: Mapping[str, str] = field(default_factory=dict, repr=False)  # properties by which one gets in

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def properties(self) -> dict[str, Any]:
        return {
            **self.login,
            "bootstrap.servers": self.servers,
            "enable.idempotence": self.is_idempotent,
            "linger.ms": self.linger_ms,
            "acks": "all",
            **RECONNECT,
        }


class Teller:
    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._confirmed: list[int] = []
        self._told_s = 0.0
        self._sent_s: dict[int, float] = {}  # of messages whose time is taken
        self._slowest_ms = 0.0
        self.sent = 0
        self.failed = 0

    def on_delivery(self, error: object, message: Any) -> None:
        if error is None:
            number = int(message.value())
            self.confirms(number)
            if number % TIMED_EVERY == 0 and (sent_s := self._sent_s.pop(number, None)) is not None:
                self._slowest_ms = max(self._slowest_ms, (monotonic_s() - sent_s) * 1000)
        else:
            self.failed += 1

    def confirms(self, number: int) -> None:
        self._confirmed.append(number)

    def sends(self, number: int) -> None:
        self.sent = number + 1
        if number % TIMED_EVERY == 0:
            self._sent_s[number] = monotonic_s()

    def tell(self, *, now: bool = False) -> None:
        if not now and monotonic_s() - self._told_s < TELL_EVERY_S:
            return
        self._told_s = monotonic_s()
        numbers, self._confirmed = np.array(self._confirmed, np.int64), []
        for first in range(0, max(1, len(numbers)), MOST_NUMBERS):
            self._write(pack(Report(self.sent, self.failed, self._slowest_ms, numbers[first : first + MOST_NUMBERS])))
            self._slowest_ms = 0.0


class Client:
    """The part that both clients have in common, since ours follows librdkafka's."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def begin(self, topic: str) -> None:
        """There is no identity to save."""

    def saved(self) -> str:
        return ""

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Callable[..., None]) -> bool:
        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
        except BufferError:
            return False
        return True

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        return int(self._producer.flush(timeout_s))


class Saved(Client):
    """Ours, where it is to be killed."""

    def saved(self) -> str:
        return str(self._producer.saved().to_json())

    def begin(self, topic: str) -> None:
        self._producer.pin(topic)


def client_of(order: Order, saved: str | None) -> Client:
    if order.client == "librdkafka":
        from confluent_kafka import Producer as Stock

        return Client(Stock({**order.properties, "log_level": 0}))
    from oncelog.client import Producer

    producer = Producer(order.properties, saved=saved or None)
    return Saved(producer) if order.state and order.is_idempotent else Client(producer)


class Life:
    """One life of the producer: from where the last one was saved, or from the beginning, to the end."""

    def __init__(self, order: Order, write: Callable[[bytes], object]) -> None:
        self._order = order
        self._teller = Teller(write)
        self._due_s = self._saved_s = monotonic_s()
        state = read_state(order.state)
        self._first = state["next"] if state else 0
        self._client = client_of(order, state["producer"] if state else None)
        if order.state and state is None:
            self._client.begin(order.topic)
            self._save(0)

    def run(self) -> int:
        order = self._order
        for number in range(self._first, order.messages):
            self._produce(number)
            pause_s = self._pause_s()
            if number % POLL_EVERY == 0 or pause_s:
                self._client.poll(pause_s)
                self._teller.tell()
                if order.state and monotonic_s() - self._saved_s > SAVE_EVERY_S:
                    self._flush()
                    self._save(number + 1)
                if order.until_s and wall_s() > order.until_s:
                    break
        self._flush()
        self._teller.tell(now=True)
        return 0

    def _pause_s(self) -> float:
        """The time until the next message is due. Missed ones are not made up for by a burst."""
        if not self._order.rate:
            return 0.0
        now_s = monotonic_s()
        self._due_s = max(self._due_s, now_s - TELL_EVERY_S) + 1 / self._order.rate
        early_s = self._due_s - now_s
        return early_s if early_s > SHORTEST_PAUSE_S else 0.0

    def _produce(self, number: int) -> None:
        order, value = self._order, b"%d" % number
        self._teller.sends(number)
        while not self._client.produce(order.topic, value, number % order.partitions, self._teller.on_delivery):
            self._client.poll(TELL_EVERY_S)
            self._teller.tell()

    def _flush(self) -> None:
        end_s = monotonic_s() + PATIENCE_S
        while self._client.flush(TELL_EVERY_S):
            self._teller.tell()
            if monotonic_s() > end_s:
                raise TimeoutError(f"messages were not stored within {PATIENCE_S:g} s")

    def _save(self, position: int) -> None:
        self._teller.tell(now=True)  # nobody tells again what lies before the position
        write_state(self._order.state, {"next": position, "producer": self._client.saved()})
        self._saved_s = monotonic_s()


def read_state(path: str) -> dict[str, Any] | None:
    if not path or not Path(path).exists():
        return None
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def write_state(path: str, state: dict[str, Any]) -> None:
    """Write the state in one step: a process that is killed leaves the old one or the new one."""
    beside = f"{path}.new"
    Path(beside).write_text(json.dumps(state))
    os.replace(beside, path)


def to_stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def main() -> int:
    return Life(Order(**told()), to_stdout).run()


if __name__ == "__main__":
    sys.exit(main())
