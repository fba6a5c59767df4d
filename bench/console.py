"""What the page costs: `python -m bench.console`.

An idempotent producer writes to a server in short slices that take turns, as a machine drifts by more than the
difference that is looked for: with the page switched on against without it (two servers, nobody looks), and with
somebody who looks against nobody (one server). Who comes first is swapped from pair to pair. Told are the median of the
pairs' ratios and its confidence interval by order statistics; the goal is that at most 2 % of the rate is lost. Beside
it stands how much more processor time the server took for a request, which others on the machine disturb less.

Whoever looks is a process that asks as the page does, once a second. A browser on the same machine takes more for
itself than it takes from the server; that is not counted, since it can be elsewhere.
"""

import http.client
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from math import comb
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click

from bench.load import ProduceLoad
from bench.process import cpu_seconds, machine
from tests.console.served import Served
from tests.console.stage import Stage
from tests.peers.oncelog_process import OncelogProcess

RESULTS = Path(__file__).parent / "results"
TOPIC = "load"
RECORDS = 10
DEPTH = 16
PERIOD_S = 1.0
GOAL = 0.98
CONFIDENCE = 0.95
# What the page asks for while it shows these.
LOOKS = {
    "overview": ("/api/overview",),
    "messages of the topic written to": (f"/api/topic?topic={TOPIC}", f"/api/messages?topic={TOPIC}"),
    "producers": ("/api/producers", f"/api/partition-producers?topic={TOPIC}&partition=0"),
}
IDLE = "switched on, nobody looks"


@dataclass(frozen=True, slots=True)
class Slice:
    requests_per_s: float
    cpu_s_per_request: float


@dataclass(frozen=True, slots=True)
class Side:
    """A load on a server."""

    load: ProduceLoad
    pid: int

    def run(self, seconds: float) -> Slice:
        before_s, sent = cpu_seconds(self.pid), self.load.sent_records
        rate = self.load.run_for(seconds, DEPTH)
        requests = (self.load.sent_records - sent) // RECORDS
        return Slice(rate.requests_per_s, (cpu_seconds(self.pid) - before_s) / requests)


@dataclass(frozen=True, slots=True)
class Cost:
    """Ratios of pairs: with the page by without it."""

    name: str
    rates: list[float]
    cpu: list[float]

    def line(self) -> str:
        met = "yes" if median(self.rates) >= GOAL else "**no**"
        lost = _percent([1 - ratio for ratio in self.rates])
        return f"| {self.name} | {lost} | ≤ 2 % | {met} | {_percent([ratio - 1 for ratio in self.cpu])} |"


def _percent(parts: list[float]) -> str:
    low, high = interval_of_median(parts)
    return f"{100 * median(parts):.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """By order statistics: the innermost pair of values between which the median lies with at least the confidence."""
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < count // 2:
        outside += 2 * comb(count, rank) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    lowest = max(0, rank - 1)
    return ordered[lowest], ordered[count - 1 - lowest]


def look(port: int, orders: Connection) -> None:
    """A process of its own: asks for what it was last told to show, once a second."""
    paths: tuple[str, ...] | None = ()
    while True:
        if orders.poll(PERIOD_S if paths else None):
            paths = orders.recv()
            if paths is None:
                return
        for path in paths or ():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path)
            connection.getresponse().read()
            connection.close()


@contextmanager
def looker(port: int) -> Iterator[Connection]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=look, args=(port, there), daemon=True)
    process.start()
    try:
        yield here
    finally:
        here.send(None)
        process.join()


def filled(server: OncelogProcess, stack: ExitStack, partitions: int) -> Side:
    stage = Stage(server.port)
    stage.topic("wide", partitions)
    stage.quarrel()
    stage.topic(TOPIC, 1, retention_bytes=str(256 << 20), segment_bytes=str(64 << 20))
    stage.close()
    load = ProduceLoad(server.port, TOPIC, RECORDS)
    stack.callback(load.close)
    return Side(load, server.pid)


def pairs_of(name: str, pairs: int, run: Callable[[bool], Slice]) -> Cost:
    """`run` is told whether it is with the page."""
    cost = Cost(name, [], [])
    for number in range(pairs):
        slices = {with_page: run(with_page) for with_page in ((True, False) if number % 2 == 0 else (False, True))}
        cost.rates.append(slices[True].requests_per_s / slices[False].requests_per_s)
        cost.cpu.append(slices[True].cpu_s_per_request / slices[False].cpu_s_per_request)
    print(cost.line(), flush=True)
    return cost


def measure(pairs: int, seconds: float, partitions: int) -> list[Cost]:
    with TemporaryDirectory(prefix="oncelog-bench-") as folder, ExitStack() as stack:
        served = stack.enter_context(Served(Path(folder) / "with"))
        plain = stack.enter_context(OncelogProcess(Path(folder) / "without"))
        with_page, without = filled(served, stack, partitions), filled(plain, stack, partitions)
        for side in (with_page, without):
            side.run(seconds)  # warm
        costs = [pairs_of(IDLE, pairs, lambda is_with: (with_page if is_with else without).run(seconds))]
        orders = stack.enter_context(looker(served.console_port))

        def run(name: str, is_watched: bool) -> Slice:
            orders.send(LOOKS[name] if is_watched else ())
            return with_page.run(seconds)

        costs += [pairs_of(name, pairs, partial(run, name)) for name in LOOKS]
        orders.send(())
        return costs


@click.command(help=__doc__)
@click.option("--pairs", default=20)
@click.option("--seconds", default=3.0, help="Of one slice.")
@click.option("--partitions", default=200, help="Of a topic beside the one that is written to.")
@click.option("--keep/--no-keep", default=True, help="Write all values to bench/results/.")
def main(pairs: int, seconds: float, partitions: int, keep: bool) -> None:
    load_average = os.getloadavg()[0]
    titles = "| somebody looks at | lost of the rate: median (95 %) | goal | met | more processor time for a request |"
    print(f"{titles}\n|---|--:|---|---|--:|", flush=True)
    costs = measure(pairs, seconds, partitions)
    if keep:
        when = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}"
        about = {"machine": machine(), "when": when, "pairs": pairs, "seconds": seconds, "load": load_average}
        found = {"about": about, "costs": [asdict(cost) for cost in costs]}
        (RESULTS / f"console-{when}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
