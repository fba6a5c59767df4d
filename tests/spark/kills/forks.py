"""Sinks and copies without Spark: each attempt of a task, and each commit of a driver, is a process of its own, which
is killed, stopped or doubled at random. A batch costs seconds less than on Spark, so more kills fit into an hour.

What is done with them is what Spark does: a task that ends badly is tried again, of two attempts the first to end well
counts, a driver that dies leaves its tasks behind and runs the batch again, and so does one whose own note of the
commit was lost. All reach the server through a proxy that loses answers and cuts connections.
"""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Final

import numpy as np

from oncelog.chaos.faults import Direction, Fault, Kind
from oncelog.chaos.proxy import FaultProxy
from oncelog.spark.options import sink_options
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.lane import LaneTask
from oncelog.spark.sink.lane_writer import write_lane
from oncelog.spark.sink.transactional_driver import commit_transaction
from tests.lives.stored import Numbers, numbers
from tests.peers.committed import all_committed
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.copying.support import Copy
from tests.spark.kills.inputs import make_topics, write_integers
from tests.spark.sink.support import table
from tests.waiting import until

DIRECT, TRANSACTIONAL, COPY = "direct", "transactional", "copy"
IN = "in"  # of the copy
KINDS: Final = (DIRECT, TRANSACTIONAL, COPY)
KILLED = "killed"
WEIGHTS: Final = {"kill": 6, "stop": 3, "double": 3, "answers": 4, "connection": 3, "server": 0.25, "driver": 1}
PARTITIONS = 3
PIECE = 200  # rows
MOST_ROWS = 3000  # of a task in a batch
PIECE_S = 0.02
LOOK_S = 0.02
FIRST_S = 2.0
MOST_RUNS = 60  # of one batch
MOST_ATTEMPTS = 12  # of one task in a run of it, by Spark
ENDS_S = 90.0
SHORT = {"kafka.delivery.timeout.ms": "30000"}
OPTIONS: Final[dict[str, dict[str, str]]] = {
    DIRECT: SHORT,
    TRANSACTIONAL: SHORT | {"transactional.batches": "true", "kafka.transaction.timeout.ms": "60000"},
}


@dataclass(frozen=True)
class Work:
    """Of one task in one batch; each run of it yields the same numbers, in the place of the batch."""

    servers: str
    kind: str
    topic: str
    batch: int
    lane: int
    attempt: int
    first: int
    count: int
    seed: int  # of how fast it is

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "topic": self.topic, **OPTIONS[self.kind]}

    def __call__(self) -> Any:
        place = LaneTask(f"query-of-{self.topic}", self.batch, self.lane, self.attempt)
        return write_lane(sink_options(self.options), place, self._pieces())

    def _pieces(self) -> Iterator[Any]:
        random = Random(self.seed)
        for at in range(self.first, self.first + self.count, PIECE):
            rows = range(at, min(at + PIECE, self.first + self.count))
            time.sleep(random.random() * PIECE_S)
            yield table(
                (b"%d" % (number % 97 if self.kind == DIRECT else random.random() * 97), b"%d" % number)
                for number in rows
            )


@dataclass(frozen=True)
class Committing:
    options: dict[str, str]
    kind: str
    batch: int
    messages: list[Any]

    def __call__(self) -> None:
        commit = commit_transaction if self.kind == TRANSACTIONAL else commit_batch
        commit(sink_options(self.options), self.messages, self.batch)


@dataclass(frozen=True)
class Copying:
    servers: str
    read: str
    write: str
    attempt: str

    def __call__(self) -> None:
        Copy(self.servers, self.read, self.write, fetch_bytes=20_000, batch_size=5_000).run(self.attempt)


def _tell(channel: Connection, work: Callable[[], Any]) -> None:
    try:
        answer = (work(), "")
    except Exception as error:
        answer = (None, f"{type(error).__name__}: {error}")
    channel.send(answer)


class Life:
    """One process that does one piece of work."""

    def __init__(self, work: Callable[[], Any]) -> None:
        ours, theirs = _context.Pipe(duplex=False)
        self.channel = ours
        self.process = _context.Process(target=_tell, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid or 0
        self.began_s = time.monotonic()
        self.goes_on_s = 0.0  # where it was stopped

    def outcome(self) -> tuple[Any, str] | None:
        """What it came to; None as long as it is at work."""
        if self.channel.poll():
            try:
                found: tuple[Any, str] = self.channel.recv()
                return found
            except (EOFError, ConnectionError):
                return None, KILLED
        return None if self.process.is_alive() else (None, KILLED)

    def kill(self) -> None:
        self.process.kill()

    def stop_for(self, seconds: float) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.goes_on_s = time.monotonic() + seconds

    def go_on_when_due(self, *, at_once: bool = False) -> None:
        if self.goes_on_s and (at_once or time.monotonic() >= self.goes_on_s):
            self.goes_on_s = 0.0
            if self.process.is_alive():
                os.kill(self.pid, signal.SIGCONT)


_context = multiprocessing.get_context("forkserver")


@dataclass
class Outcome:
    hurts: Counter[str] = field(default_factory=Counter)
    why: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"batches {dict(self.batches)}, rows {dict(self.rows)}"
        yield f"{sum(self.hurts.values())} times something was hurt: {dict(sorted(self.hurts.items()))}"
        for words, count in self.why.most_common():
            yield f"  {count} times: {words}"
        yield from (f"WRONG: {each}" for each in self.wrong)


class Attempts:
    """Of one task in one run of its batch."""

    def __init__(self, work: Callable[[int], Any], most: int) -> None:
        self._work, self._most = work, most
        self._count = 0
        self.lives: list[Life] = []
        self.answer: Any = None
        self.is_done = False
        self.took_s = 0.0
        self.begin()

    def begin(self) -> None:
        self.lives.append(Life(self._work(self._count)))
        self._count += 1

    @property
    def may_double(self) -> bool:
        return self._most > 1

    def look(self, failed: Callable[[str], None]) -> bool:
        """False where it has failed too often."""
        for life in [*self.lives]:
            life.go_on_when_due()
            outcome = life.outcome()
            if outcome is None:
                continue
            self.lives.remove(life)
            answer, failure = outcome
            if not failure:
                self.answer, self.is_done, self.took_s = answer, True, time.monotonic() - life.began_s
                return True
            failed(failure)
        if self.lives:
            return True
        if self._count >= self._most:
            return False
        self.begin()
        return True


class Forks:
    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.outcome = Outcome()
        self._server, self._random = server, Random(seed)
        self._address = server.bootstrap_servers
        self._left: list[Life] = []
        self._name = f"forks-{seed}"
        self._takes_s = FIRST_S  # an attempt that ends well, on the average: about one thing happens in that time

    def run(self, goes_on: Callable[[], bool], kinds: tuple[str, ...] = KINDS) -> Outcome:
        """`goes_on` is asked before each batch."""
        _context.set_forkserver_preload([__name__])
        written = dict.fromkeys(kinds, 0)
        make_topics(self._address, {self._topic(kind): PARTITIONS for kind in (*kinds, IN)})
        with FaultProxy(self._address) as self._proxy:
            while goes_on():
                kind = self._random.choice(kinds)
                written[kind] += self._batch(kind, self.outcome.batches[kind], written[kind])
                self.outcome.batches[kind] += 1
            self._end_all()
        for kind in kinds:
            self._count(kind, written[kind])
        return self.outcome

    def _topic(self, kind: str) -> str:
        return f"{self._name}-{kind}"

    # --- batches

    def _batch(self, kind: str, batch: int, first: int) -> int:
        """Run again and again until it is written; how many rows it has."""
        lanes = self._random.randint(1, 4) if kind == DIRECT else 1
        counts = [self._random.randint(0, MOST_ROWS) for _ in range(lanes)]
        if kind == COPY:
            write_integers(self._address, self._topic(IN), PARTITIONS, first, first + sum(counts))
        for run in range(MOST_RUNS):
            is_written = self._copied(batch, run) if kind == COPY else self._ran(kind, batch, first, counts)
            if is_written and self._random.random() > 0.1:  # else Spark's own note is lost, and it is run again
                return sum(counts)
        raise AssertionError(f"{kind}: batch {batch} does not get through: {self.outcome.why.most_common(5)}")

    def _ran(self, kind: str, batch: int, first: int, counts: list[int]) -> bool:
        """One run of a batch; False where its driver died, or ended by itself."""
        servers, topic = self._proxy.bootstrap_servers, self._topic(kind)

        def work(lane: int, attempt: int) -> Work:
            at, seed = first + sum(counts[:lane]), self._random.getrandbits(32)
            return Work(servers, kind, topic, batch, lane, attempt, at, counts[lane], seed)

        messages = self._tasks([partial(work, lane) for lane in range(len(counts))], MOST_ATTEMPTS)
        if messages is None:
            return False
        committing = Committing(work(0, 0).options, kind, batch, messages)
        return self._tasks([lambda attempt: committing], 1) is not None

    def _copied(self, batch: int, run: int) -> bool:
        def work(attempt: int) -> Copying:
            name = f"b{batch}r{run}a{attempt}"
            return Copying(self._proxy.bootstrap_servers, self._topic(IN), self._topic(COPY), name)

        return self._tasks([work], MOST_ATTEMPTS) is not None

    def _tasks(self, works: list[Callable[[int], Any]], most_attempts: int) -> list[Any] | None:
        """What each of them came to; None where one failed too often, or the driver died."""
        every = [Attempts(work, most_attempts) for work in works]
        try:
            while at_work := [each for each in every if not each.is_done]:
                time.sleep(LOOK_S)
                goes_on = [each.look(self._failed) for each in at_work]
                if not all(goes_on):
                    return None
                if self._random.random() < LOOK_S / self._takes_s and self._has_driver_died(at_work):
                    return None
        finally:
            self._leave([life for each in every for life in each.lives])
        for each in every:
            self._takes_s += (each.took_s - self._takes_s) / 4
        return [each.answer for each in every]

    def _failed(self, failure: str) -> None:
        if failure != KILLED:
            self.outcome.why[failure.replace(self._name, "")[:160]] += 1

    def _leave(self, lives: list[Life]) -> None:
        """What is still at work is killed, or goes on behind the back of what follows."""
        for life in lives:
            if self._random.random() < 0.5:
                life.kill()
            else:
                self._left.append(life)
        for life in [*self._left]:
            life.go_on_when_due()
            if life.outcome() is not None:
                life.kill()
                self._left.remove(life)

    def _end_all(self) -> None:
        give_up_s = time.monotonic() + ENDS_S
        for life in self._left:
            life.go_on_when_due(at_once=True)
        for life in self._left:
            life.process.join(max(0.0, give_up_s - time.monotonic()))
            life.kill()

    # --- what is hurt

    def _has_driver_died(self, at_work: list[Attempts]) -> bool:
        """Something happens to one of those at work."""
        random = self._random
        whose = random.choice(at_work)
        (what,) = random.choices([*WEIGHTS], [*WEIGHTS.values()])
        if not whose.lives or (what == "double" and not whose.may_double):
            return False
        life = random.choice(whose.lives)
        self.outcome.hurts[what] += 1
        match what:
            case "kill":
                life.kill()
            case "stop":
                life.stop_for(random.uniform(0.1, 5.0))
            case "answers":
                self._proxy.inject(Fault(kind=Kind.SWALLOW, counter="", at=0, frames=random.randint(1, 3)))
            case "connection":
                direction = random.choice((Direction.UP, Direction.DOWN))
                self._proxy.inject(Fault(kind=Kind.CUT, counter="", at=0, direction=direction, part=random.random()))
            case "server":
                self._server.kill()
                self._server.start()
                until(self._is_led, "the server to lead its partitions", give_up_seconds=ENDS_S)
        if what in ("double", "stop") and whose.may_double:
            whose.begin()
        return what == "driver"

    def _is_led(self) -> bool:
        with RawConnection(self._address) as raw:
            return all(raw.offset_at(self._topic(IN), each, -1).error_code == 0 for each in range(PARTITIONS))

    # --- what stands there

    def _count(self, kind: str, written: int) -> None:
        parts = self._committed() if kind == TRANSACTIONAL else self._stored(kind)
        found = np.concatenate(parts)
        self.outcome.rows[kind] = len(found)
        if kind == COPY and not all(map(np.array_equal, parts, self._stored(IN))):
            self.outcome.wrong.append("the copy is not what was copied")
        values, times = np.unique(found, return_counts=True)
        missing, twice = np.setdiff1d(np.arange(written), values), values[times > 1]
        if len(missing) or len(found) != written:
            words = f"{kind}: {len(found):,} of {written:,} rows; missing {len(missing)} {missing[:5]}, "
            self.outcome.wrong.append(words + f"twice {len(twice)} {twice[:5]}")

    def _stored(self, kind: str) -> list[Numbers]:
        return [numbers(self._address, self._topic(kind), each) for each in range(PARTITIONS)]

    def _committed(self) -> list[Numbers]:
        messages = all_committed(self._address, self._topic(TRANSACTIONAL), PARTITIONS)
        return [np.array([int(each.value() or b"") for each in messages], np.int64)]
