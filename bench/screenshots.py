"""The pictures of docs/console.md: `python -m bench.screenshots`.

A server with its page is filled as the tests fill it, producers write while a headless Chromium looks on, and some of
them repeat themselves, so that there are duplicates to be refused.
"""

import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from oncelog.client import Consumer
from oncelog.console.faults import Fault
from tests.console.browser import Browser
from tests.console.served import Served
from tests.console.stage import Stage

FOLDER = Path(__file__).parents[1] / "docs" / "img"
SCREEN = (960, 620)
PHONE = (390, 700)
SETTINGS = {"oncelog.lease.lifetime.ms": "30000"}  # so that a ring has leases of every age
SINK = "oncelog.sink.orders-by-customer"
# Name, size, scheme, view, what is there when it has been answered.
PICTURES = (
    ("topic", SCREEN, "dark", "topic?topic=orders", "as they come"),
    ("producers", SCREEN, "light", "producers?topic=payments&partition=0", "duplicates refused"),
    ("spark", SCREEN, "light", f"sink?topic={SINK}", "goes on at"),
    ("phone", PHONE, "dark", "producers?topic=payments&partition=0", "duplicates refused"),
)
WRITES_A_SECOND = 40


class Traffic:
    """Somebody writes, now more and now less, while the pictures are made."""

    def __init__(self, servers: str) -> None:
        self._stage = Stage(servers)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        pid, generation = self._stage.lease("orders")
        sequence = 0
        for number in range(10**9):
            if self._over.wait(1 / WRITES_A_SECOND):
                return
            if number % 24 == 0:
                self._stage.payment(number)
            count = 20 + number % 160 // 4 + (60 if number // 90 % 2 else 0)
            records = [self._stage.order(number) for _ in range(count)]
            self._stage.send("orders", records, pid=pid, epoch=generation, sequence=sequence)
            sequence += count

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._stage.close()


def fill(served: Served) -> None:
    stage = Stage(served.port)
    stage.now_ms = time.time_ns() // 1_000_000
    stage.orders()
    stage.quarrel("payments", producers=8)
    stage.topic("totals", 4)
    stage.sink()
    stage.group("billing", "orders", {partition: 40 - 6 * partition for partition in range(6)})
    stage.close()


def take(served: Served, folder: Path, profile: Path, seconds: float) -> None:
    with Browser(profile) as browser:
        browser.resize(SCREEN)
        browser.open(f"{served.page}#/overview")
        for part, words in ((0.35, "the connection, cut within a request"), (0.7, "the answer, cut after 812 bytes")):
            browser.wait(f"performance.now() > {part * seconds * 1000}", "a part of the time", seconds)
            served.faults.add(Fault(at_ms=time.time_ns() // 1_000_000, kind="connections", words=words))
        browser.wait(f"performance.now() > {seconds * 1000}", "something to be seen", seconds)
        browser.screenshot(folder / "console-overview.png")
        for name, size, scheme, view, words in PICTURES:
            browser.resize(size)
            browser.prefer(scheme)
            browser.open("about:blank")
            browser.open(f"{served.page}#/{view}")
            browser.sees(words)
            if name == "topic":
                browser.wait("document.querySelectorAll('#messages a')[2]", "messages")
                browser.run("document.querySelectorAll('#messages a')[2].click()")
                browser.sees("in a batch of")
            browser.screenshot(folder / f"console-{name}.png")
        assert not browser.errors, browser.errors


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER)
@click.option("--seconds", default=36.0, help="How long the plots of the overview are.")
def main(folder: Path, seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="oncelog-screenshots-") as temporary,
        Served(Path(temporary) / "server", SETTINGS) as served,
    ):
        fill(served)
        reader = Consumer({"bootstrap.servers": served.bootstrap_servers, "group.id": "dashboard"})
        reader.subscribe(["orders"])
        traffic = Traffic(served.bootstrap_servers)
        try:
            reader.poll(5)
            take(served, folder, Path(temporary) / "profile", seconds)
        finally:
            traffic.end()
            reader.close()
    for picture in sorted(folder.glob("console-*.png")):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
