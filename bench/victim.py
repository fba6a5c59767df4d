"""Another client while somebody attacks: it sends a record, waits for the answer, pauses, and keeps what each took."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tests.raw import RawConnection, batch

TOPIC = "of-the-others"
PAUSE_S = 0.002
PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Waits:
    """What the answers took, in milliseconds."""

    count: int
    p50_ms: float
    p999_ms: float
    worst_ms: float


def waits(took_s: list[float]) -> Waits:
    ordered = sorted(took_s)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 for part in (0.5, 0.999)]
    return Waits(len(ordered), at[0], at[1], ordered[-1] * 1000)


def live(port: int, orders: Connection) -> None:
    """A process of its own, so that the attacker's work does not stand between the answer and the clock."""
    record = batch([b"x" * 100])
    with RawConnection(port, timeout_s=PATIENCE_S) as connection:
        took: list[float] = []
        connection.produce(TOPIC, 0, record)
        orders.send("ready")
        while True:
            while not took or not orders.poll():
                begun = time.perf_counter()
                connection.produce(TOPIC, 0, record)
                took.append(time.perf_counter() - begun)
                time.sleep(PAUSE_S)
            if orders.recv() is None:
                return
            orders.send(took)
            took = []


class Victim:
    def __init__(self, orders: Connection) -> None:
        self._orders = orders

    def waits(self) -> Waits:
        """Since this was last asked."""
        self._orders.send("tell")
        return waits(self._orders.recv())


@contextmanager
def victim(port: int) -> Iterator[Victim]:
    with RawConnection(port) as connection:
        connection.create_topic(TOPIC)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=live, args=(port, there), daemon=True)
    process.start()
    here.recv()
    try:
        yield Victim(here)
    finally:
        here.send(None)
        process.join(PATIENCE_S)
