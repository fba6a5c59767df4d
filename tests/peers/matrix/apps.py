"""Frameworks: an application that is started, ended and started again, beside which records arrive."""

import os
import subprocess
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from bench.flow_contestant import Work
from bench.process import ROOT
from oncelog.chaos.life import Life
from oncelog.client import Consumer, Producer, TopicPartition
from tests.cluster.writing import PARTITIONS
from tests.peers.matrix.steps import AT_ONCE, Step, World
from tests.waiting import until

KEYS: Final = 7
PATIENCE_S: Final = 120
Found = dict[bytes | None, list[int]]
Command = Callable[[Work], list[str]]


class Watching:
    """What is committed in the topic that an application writes to, by key."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "watch", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition("out", index, 0) for index in range(PARTITIONS)])
        self.found: Found = defaultdict(list)

    def until(self, is_there: Callable[[Found], bool], what: str) -> None:
        def look() -> bool:
            self.look()
            return is_there(self.found)

        until(look, what, give_up_seconds=PATIENCE_S)

    def look(self) -> int:
        """How many have come."""
        some = self._consumer.consume(1000, 0.2)
        for message in some:
            assert message.error() is None, message.error()
            self.found[message.key()].append(int(message.value() or b""))
        return len(some)

    def close(self) -> None:
        self._consumer.close()


def send(servers: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(first, first + AT_ONCE):
        producer.produce("in", b"%d" % number, b"key %d" % (number % KEYS))
    producer.flush(PATIENCE_S)


def counted(sent: int) -> dict[bytes, list[int]]:
    """How often each key has come, each time."""
    return {b"key %d" % key: list(range(1, len(range(key, sent, KEYS)) + 1)) for key in range(KEYS)}


def copied(sent: int) -> dict[bytes, list[int]]:
    return {b"key %d" % key: list(range(key, sent, KEYS)) for key in range(KEYS)}


def application(
    said: str,
    command: Command,
    wanted: Callable[[int], dict[bytes, list[int]]],
    *,
    is_exact: bool,
) -> Step:
    """Where it is not exact, a record may be there again, but none is missing and none is wrong."""

    def do(world: World) -> None:
        world.make_topics("in", "out")
        watching = Watching(world.servers)
        try:
            for life in range(2):
                send(world.servers, life * AT_ONCE)
                live(command, world, watching, wanted((life + 1) * AT_ONCE))
            until(lambda: watching.look() == 0, "the rest to be read")
        finally:
            watching.close()
        if is_exact:
            assert watching.found == wanted(2 * AT_ONCE)

    return Step(f"{said}, started again, each record {'once' if is_exact else 'at least once'}", do)


def live(command: Command, world: World, watching: Watching, wanted: dict[bytes, list[int]]) -> None:
    state = world.folder / "state"
    work = Work("count", "app", world.servers, "in", "out", state, "between", PARTITIONS, PARTITIONS)
    variables = {**os.environ, **work.variables(), "PYTHONPATH": str(ROOT)}
    app = Life("application", world.folder / "application.log")
    app.launch(command(work), cwd=world.folder, env=variables, stdin=subprocess.PIPE)  # which does not end
    try:
        watching.until(lambda found: _once(found) == wanted, "all to be written")
        app.stop()
    except AssertionError as error:
        error.add_note(app.last_words())
        raise
    finally:
        app.kill()


def _once(found: Found) -> dict[bytes | None, list[int]]:
    return {key: sorted(set(numbers)) for key, numbers in found.items()}
