"""What an experiment kills and when, without its processes: only what has something under way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from oncelog.chaos.experiment import Experiment
from oncelog.chaos.guard import Guard
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.outcome import Options
from oncelog.chaos.plan import Target
from oncelog.chaos.sender_report import Report, pack
from oncelog.clock import monotonic_s

CONFIRMED, SENT = 400, 500


class Producer:
    """Each life confirms the first messages, and at first says nothing."""

    def __init__(self) -> None:
        self.lives = 0
        self.has_told = False
        self.killed_when_it_had_told: list[bool] = []
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.has_told = False
        told = pack(Report(SENT, 0, 0.0, np.arange(CONFIRMED)))
        self._to_come: Iterator[bytes | None] = iter([b"", b"", told, b"", None, None])

    def wait(self, seconds: float) -> None:
        """There is always something."""

    def read(self) -> bytes | None:
        said = next(self._to_come)
        self.has_told = self.has_told or bool(said)
        return said

    def kill(self) -> None:
        self.killed_when_it_had_told.append(self.has_told)

    def exit_code(self) -> int:
        return 0


class Server:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.killed_when_something_was_sent: list[bool] = []

    def kill(self) -> None:
        self.killed_when_something_was_sent.append(self._producer.has_told)

    def start(self) -> None:
        pass


class Proxy:
    happened: tuple[Any, ...] = ()
    in_flight = 1

    def count(self, counter: str, by: int) -> None:
        pass


@pytest.mark.parametrize("seed", range(5))
def test_what_is_due_while_a_producer_starts_waits_until_it_sends(tmp_path: Path, seed: int) -> None:
    """What its former life had under way is under way no more."""
    producer, proxy = Producer(), Proxy()
    server = Server(producer)
    targets = frozenset({Target.PRODUCER, Target.SERVER})
    options = Options(messages=CONFIRMED, targets=targets, every=50, seed=seed)
    experiment = Experiment(options, tmp_path, Guard(), Kafka("nobody:1"), cast(Any, server), lambda progress: None)
    experiment.moved_s = monotonic_s()
    experiment.drive(cast(Any, proxy), cast(Any, producer))
    assert len(producer.killed_when_it_had_told) == producer.lives - 1 > 1
    assert server.killed_when_something_was_sent
    assert all(producer.killed_when_it_had_told), "a life that had sent nothing was killed"
    assert all(server.killed_when_something_was_sent), "the server was killed when nobody sent"
    assert all(each.hit_work for each in experiment.killed)


def test_of_a_run_by_the_clock_only_what_it_came_to_counts_as_planned(tmp_path: Path) -> None:
    targets = frozenset({Target.RESPONSES, Target.DRIVER})
    options = Options(messages=1_000_000, targets=targets, every=50, seconds=60)
    experiment = Experiment(options, tmp_path, Guard(), Kafka("nobody:1"), None, lambda progress: None)
    experiment.progress.confirmed, experiment.progress.written = 2_000, 1_000
    planned = experiment.planned_until_now()
    assert [each for each in planned if each.target is Target.RESPONSES][-1].at in range(1_800, 2_001)
    assert [each for each in planned if each.target is Target.DRIVER][-1].at in range(800, 1_001)
