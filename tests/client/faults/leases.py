"""Leases that end every two seconds, under load: is every record there once, and does anybody wait for a change?

    python -m tests.client.faults.leases --seconds 60 --lifetime-ms 2000 --line-ms 10

The line delays each way, so that a round trip stands out of what a busy machine does. A change of leases lets what is
under way come back first, so acknowledgements may pause for one round trip; a producer that asked for its next lease
only then would pause for two.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from oncelog.chaos.life import free_ports
from oncelog.client.producer.producer import Producer
from tests.client.faults.audit import Audit, audit, read_log
from tests.client.faults.case import PATIENCE_S, Case
from tests.client.faults.line import Line
from tests.client.faults.sending import Told, number_in, value_of
from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection

TOPIC: Final = "leased"
TICK_S: Final = 0.001  # one record for each partition


@dataclass(slots=True)
class Heard:
    """What the reports say, by number."""

    told: Told
    sent_s: NDArray[np.float64]
    done_s: NDArray[np.float64]
    pid: NDArray[np.int64]

    @classmethod
    def about(cls, records: int) -> "Heard":
        return cls(Told.about(records), np.zeros(records), np.zeros(records), np.zeros(records, np.int64))

    def note(self, error: Any, message: Any) -> None:
        self.told.note(error, message)
        if error is None:
            number = number_in(message.value())
            self.done_s[number] = self.sent_s[number] + (message.latency() or 0.0)
            self.pid[number] = message.pid()


@dataclass(frozen=True, slots=True)
class Result:
    records: int
    audit: Audit
    errors: list[str]
    leases: int  # changes of them, in all partitions
    gaps_ms: NDArray[np.float64]  # between acknowledgements of a partition
    change_gaps_ms: NDArray[np.float64]  # those where the lease changed in between
    latency_ms: NDArray[np.float64]

    @property
    def is_exact(self) -> bool:
        return self.audit.is_exact and not self.errors

    def __str__(self) -> str:
        return (
            f"{self.records:,} records, {self.audit}, errors {self.errors[:3]}, {self.leases} changes of leases; "
            f"ms between acknowledgements: {_figures(self.gaps_ms)}; where the lease changed: "
            f"{_figures(self.change_gaps_ms)}; latency: {_figures(self.latency_ms)}"
        )


def _figures(values: NDArray[np.float64]) -> str:
    if not len(values):
        return "none"
    p50, p99 = np.percentile(values, (50, 99))
    return f"p50 {p50:.1f}, p99 {p99:.1f}, max {values.max():.1f}"


def experiment(folder: Path, *, seconds: float, lifetime_ms: int, line_ms: float, partitions: int) -> Result:
    port = free_ports(1)[0]
    with Line(port, line_ms) as line:
        settings = {
            "oncelog.lease.lifetime.ms": str(lifetime_ms),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{line.port}",
        }
        with OncelogProcess(folder, settings=settings, port=port) as server:
            with RawConnection(port) as raw:
                assert raw.create_topic(TOPIC, partitions) == 0
            heard = load(f"127.0.0.1:{line.port}", seconds, partitions)
            logs = read_log(server.bootstrap_servers, TOPIC, partitions)
    records = len(heard.told.reports)
    case = Case(way="by hand", partitions=partitions, records=records)
    return _result(heard, audit(case, logs, heard.told), partitions)


def load(servers: str, seconds: float, partitions: int) -> Heard:
    heard = Heard.about(int(seconds / TICK_S + 1) * partitions)
    case = Case(partitions=partitions)
    properties = {**case.properties(servers), "linger.ms": 0, "socket.timeout.ms": 10_000}
    number = 0
    with Producer(properties) as producer:
        # The first records wait for metadata and a first lease; they are no part of the measurement.
        began_s = tick_s = time.monotonic()
        while tick_s < began_s + seconds and number < len(heard.sent_s):
            for partition in range(partitions):
                heard.sent_s[number] = time.monotonic()
                producer.produce(TOPIC, value_of(number), partition=partition, on_delivery=heard.note)
                number += 1
            tick_s += TICK_S
            left_s = tick_s - time.monotonic()
            producer.poll(max(0.0, left_s))
            left_s = tick_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
        heard.told.left = producer.flush(PATIENCE_S)
    told = heard.told
    told.partition, told.offset, told.reports = told.partition[:number], told.offset[:number], told.reports[:number]
    return Heard(told, heard.sent_s[:number], heard.done_s[:number], heard.pid[:number])


def _result(heard: Heard, found: Audit, partitions: int) -> Result:
    gaps, changes = [], []
    warm_up = int(0.5 / TICK_S)  # records
    for partition in range(partitions):
        done_s, pid = heard.done_s[partition::partitions][warm_up:], heard.pid[partition::partitions][warm_up:]
        all_gaps = np.diff(done_s) * 1000
        gaps.append(all_gaps)
        changes.append(all_gaps[np.diff(pid) != 0])
    change_gaps = np.concatenate(changes)
    latency = (heard.done_s - heard.sent_s)[warm_up * partitions :] * 1000
    told = heard.told
    errors = told.errors + [f"{told.left} without a report"] * (told.left > 0)
    return Result(len(told.reports), found, errors, len(change_gaps), np.concatenate(gaps), change_gaps, latency)


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--lifetime-ms", default=2000, show_default=True)
@click.option("--line-ms", default=10.0, show_default=True, help="Delay of each way; a round trip is twice that.")
@click.option("--partitions", default=4, show_default=True)
def main(seconds: float, lifetime_ms: int, line_ms: float, partitions: int) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-leases-") as name:
        result = experiment(
            Path(name), seconds=seconds, lifetime_ms=lifetime_ms, line_ms=line_ms, partitions=partitions
        )
    click.echo(f"leases of {lifetime_ms} ms, round trip {2 * line_ms:g} ms: {result}")
    sys.exit(0 if result.is_exact else 1)


if __name__ == "__main__":
    main()
