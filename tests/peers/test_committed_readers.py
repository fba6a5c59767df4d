"""`oncelog consume` of committed records while it and the server are killed: it goes on behind its last whole line, and
its lines are what was committed."""

import itertools
import os
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.chaos.life import Life
from tests.cluster.transacting import PATIENCE_S, Step, again, transact
from tests.peers.committed import all_committed
from tests.peers.oncelog_process import OncelogProcess
from tests.waiting import until

ROUNDS, AT_ONCE, EVERY = 25, 50, 4
Line = tuple[int, bytes]


class Reading:
    """Of one partition, life after life, each with a file of its own."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.lines: list[Line] = []
        self._folder = folder
        self._servers = servers
        self._numbers = itertools.count()
        self._life = Life("consume", folder / "consume.log")
        self._file = folder / "lines"
        self.begin()

    def begin(self) -> None:
        self._file = self._folder / f"lines-{next(self._numbers)}"
        at = str(self.lines[-1][0] + 1) if self.lines else "beginning"
        what = ("-b", self._servers, "-t", "written", "-p", "0", "-o", at, "-u", "-q", "-f", "%o %s\\n")
        order = [sys.executable, "-m", "oncelog", "consume", *what, "-X", "isolation.level=read_committed"]
        with self._file.open("wb") as output:
            self._life.launch(order, cwd=self._folder, env=dict(os.environ), stdout=output)

    def end(self) -> None:
        """Killed, wherever it is."""
        self._life.kill()
        self.lines = self.so_far()

    def restart(self) -> None:
        self.end()
        self.begin()

    def so_far(self) -> list[Line]:
        whole = self._file.read_bytes().rpartition(b"\n")[0].splitlines()
        return self.lines + [(int(offset), value) for offset, _, value in (line.partition(b" ") for line in whole)]

    def await_lines(self, count: int) -> None:
        try:
            until(lambda: len(self.so_far()) >= count, f"{count} lines", give_up_seconds=3 * PATIENCE_S)
        except AssertionError as failure:
            failure.add_note(self._life.last_words())
            raise


@pytest.mark.thorough
@pytest.mark.timeout(600)  # where many work beside it
def test_consume_prints_what_was_committed_once_though_it_and_the_server_are_killed(tmp_path: Path) -> None:
    """Every third transaction is aborted, its records are in the log. Kills come while one is open."""
    with OncelogProcess(tmp_path / "server") as server:
        servers = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("written", 1)])["written"].result()
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "writer", "log_level": 0})
        again(lambda: producer.init_transactions(PATIENCE_S))
        reading, expected = Reading(tmp_path, servers), list[int]()

        def restart_server() -> None:
            server.kill()
            server.start()

        kills = itertools.cycle((reading.restart, restart_server))
        try:
            for place in range(ROUNDS):
                numbers, is_kept = range(place * AT_ONCE, (place + 1) * AT_ONCE), place % 3 != 2

                def kill(step: Step, place: int = place) -> None:
                    if step is Step.SENT and place % EVERY == EVERY - 1:
                        next(kills)()

                transact(
                    producer, [("written", 0, b"%d" % number) for number in numbers], is_kept=is_kept, meanwhile=kill
                )
                if is_kept:
                    expected += numbers
                if place % EVERY == 1:  # it reads before it is killed, and is behind when the server is
                    reading.await_lines(len(expected))
            reading.await_lines(len(expected))
        finally:
            reading.end()
        assert [int(value) for _, value in reading.lines] == expected
        assert reading.lines == [(each.offset(), each.value()) for each in all_committed(servers, "written", 1)]
        assert reading.lines[-1][0] >= (ROUNDS - 1) * AT_ONCE, "what was aborted is in the log"
