"""One experiment: a server, a proxy, a producer of numbered messages, what is killed meanwhile, and the audit."""

import select
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oncelog.chaos.audit import NOT_A_NUMBER, Audit, Result
from oncelog.chaos.faults import in_words
from oncelog.chaos.plan import CONFIRMED, ON_THE_WIRE, Event, Target, faults_of, kills_of, schedule
from oncelog.chaos.processes import ProducerLives, ServerLives
from oncelog.chaos.proxy import FaultProxy
from oncelog.chaos.sending import Order
from oncelog.chaos.telling import Report, Reports
from oncelog.client import Admin, Consumer, NewTopic
from oncelog.client.consumer.ranges import read_range
from oncelog.client.types import TopicPartition
from oncelog.clock import monotonic_s, wall_s

SILENCE_S: Final = 180.0  # so long without a confirmation means that something hangs
SAMPLE_S: Final = 0.25
OUR_SETTINGS: Final[Mapping[str, str]] = {"auto.create.topics.enable": "false"}


class Verdict(IntEnum):
    """The exit code."""

    EXACT = 0
    NOT_EXACT = 1
    INCONCLUSIVE = 2  # a kind of fault that was asked for never hit anything


@dataclass(frozen=True, slots=True)
class Options:
    folder: Path  # for what the experiment keeps while it runs
    messages: int
    topic: str = "chaos"
    partitions: int = 1
    client: str = "oncelog"
    is_idempotent: bool = True
    linger_ms: int = 5
    targets: frozenset[Target] = frozenset()
    every: int = 10_000
    seed: int = 1
    servers: str = ""  # an own Kafka; where empty, a server of ours is started
    rate: int = 0  # messages a second at most; 0 for as fast as it goes
    seconds: float = 0.0  # then nothing more is sent; 0 for until all were


@dataclass(frozen=True, slots=True)
class Killed:
    """An event as it came about."""

    target: Target
    planned_at: int
    confirmed: int  # by then
    in_flight: int  # messages sent and not confirmed, or requests not answered
    seconds: float
    words: str

    @property
    def hit_work(self) -> bool:
        return self.in_flight > 0


class Sample(NamedTuple):
    seconds: float
    confirmed: int  # by then
    slowest_ms: float  # from a message's sending to its confirmation, since the sample before


@dataclass(frozen=True, slots=True)
class Outcome:
    options: Options
    planned: list[Event]
    happened: list[Killed]
    result: Result
    failed: int  # messages that the client gave up
    seconds: float
    samples: list["Sample"] = field(default_factory=list)

    @property
    def idle_targets(self) -> list[Target]:
        """What was asked for and never hit work."""
        hit = {each.target for each in self.happened if each.hit_work}
        return sorted(self.options.targets - hit)

    @property
    def verdict(self) -> Verdict:
        if not self.result.is_exact:
            return Verdict.NOT_EXACT
        return Verdict.INCONCLUSIVE if self.idle_targets else Verdict.EXACT


@dataclass(slots=True)
class Progress:
    """What a display may look at while it runs."""

    sent: int = 0
    confirmed: int = 0
    failed: int = 0
    faults: Counter[Target] = field(default_factory=Counter)
    seconds: float = 0.0


Watch = Callable[[Progress], None]


class Hangs(RuntimeError):
    """Nothing moved for too long."""


class ProducerFailed(RuntimeError):
    """The producer ended by itself, and not well."""


def run(options: Options, watch: Watch = lambda progress: None) -> Outcome:
    if options.servers:
        return _Experiment(options, options.servers, None, watch).run()
    with ServerLives(options.folder / "server", OUR_SETTINGS) as server:
        return _Experiment(options, server.servers, server, watch).run()


class _Experiment:
    def __init__(self, options: Options, servers: str, server: ServerLives | None, watch: Watch) -> None:
        self._options = options
        self._servers = servers
        self._server = server
        self._watch = watch
        self._planned = schedule(options.seed, options.targets, every=options.every, messages=options.messages)
        self._kills = kills_of(self._planned)[::-1]  # the next one last
        self._killed: list[Killed] = []
        self._audit = Audit(options.messages)
        self._progress = Progress()
        self._samples: list[Sample] = []
        self._slowest_ms = 0.0
        self._began_s = self._moved_s = 0.0
        self._lost_failures = 0  # of producers that were killed

    def run(self) -> Outcome:
        options = self._options
        create_topic(self._servers, options.topic, options.partitions)
        self._began_s = self._moved_s = monotonic_s()
        with FaultProxy(self._servers, faults_of(self._planned)) as proxy:
            order = Order(
                client=options.client,
                servers=proxy.bootstrap_servers,
                topic=options.topic,
                partitions=options.partitions,
                messages=options.messages,
                is_idempotent=options.is_idempotent,
                linger_ms=options.linger_ms,
                state=str(options.folder / "producer.json") if Target.PRODUCER in options.targets else "",
                rate=options.rate,
                until_s=wall_s() + options.seconds if options.seconds else 0.0,
            )
            with ProducerLives(options.folder, order) as producer:
                self._drive(proxy, producer)
            wire = _on_the_wire(proxy, self._planned)
        seconds = monotonic_s() - self._began_s
        self._sample(is_last=True)
        for partition in range(options.partitions):
            for numbers in stored_numbers(self._servers, options.topic, partition):
                self._audit.take(partition, numbers)
        happened = sorted([*wire, *self._killed], key=lambda each: each.seconds)
        result = self._audit.result(sent=self._progress.sent)
        return Outcome(options, self._planned, happened, result, self._progress.failed, seconds, self._samples)

    def _drive(self, proxy: FaultProxy, producer: ProducerLives) -> None:
        reports = Reports()
        while True:
            select.select([producer], [], [], SAMPLE_S)
            data = producer.read()
            if data is None:
                if producer.exit_code():
                    raise ProducerFailed(f"the producer ended by itself:\n{producer.last_words()}")
                return
            for report in reports.take(data):
                self._take(report, proxy)
            if self._kill_what_is_due(producer):
                for data in iter(producer.read, None):  # what it said before it was killed
                    for report in reports.take(data):
                        self._take(report, proxy)
                self._lost_failures = self._progress.failed
                reports = Reports()
                producer.start()
            self._look()

    def _take(self, report: Report, proxy: FaultProxy) -> None:
        progress = self._progress
        new = self._audit.confirm(report.confirmed)
        progress.sent = max(progress.sent, report.sent)
        progress.failed = self._lost_failures + report.failed
        self._slowest_ms = max(self._slowest_ms, report.slowest_ms)
        if new:
            progress.confirmed += new
            proxy.count(CONFIRMED, new)
            self._moved_s = monotonic_s()
        for happened in proxy.happened[sum(progress.faults[each] for each in ON_THE_WIRE) :]:
            progress.faults[_target_of(happened.number, self._planned)] += 1

    def _kill_what_is_due(self, producer: ProducerLives) -> bool:
        """True where the producer was killed."""
        is_killed = False
        while self._kills and self._kills[-1].at <= self._progress.confirmed:
            event = self._kills.pop()
            self._note(event)
            if event.target is Target.SERVER:
                assert self._server is not None, "only a server of our own is killed"
                self._server.kill()
                self._server.start()
                self._moved_s = monotonic_s()
            elif event.target is Target.PRODUCER and not is_killed:
                producer.kill()
                is_killed = True
        return is_killed

    def _note(self, event: Event) -> None:
        progress = self._progress
        self._killed.append(
            Killed(
                target=event.target,
                planned_at=event.at,
                confirmed=progress.confirmed,
                in_flight=max(0, progress.sent - progress.confirmed - progress.failed),
                seconds=monotonic_s() - self._began_s,
                words=event.in_words(),
            )
        )
        progress.faults[event.target] += 1

    def _look(self) -> None:
        self._sample()
        if monotonic_s() - self._moved_s > SILENCE_S:
            raise Hangs(f"nothing was confirmed for {SILENCE_S:g} s, at {self._progress.confirmed:,} messages")

    def _sample(self, *, is_last: bool = False) -> None:
        seconds = monotonic_s() - self._began_s
        if is_last or not self._samples or seconds - self._samples[-1].seconds >= SAMPLE_S:
            self._samples.append(Sample(round(seconds, 3), self._progress.confirmed, round(self._slowest_ms, 1)))
            self._slowest_ms = 0.0
            self._progress.seconds = seconds
            self._watch(self._progress)


def _target_of(number: int, planned: list[Event]) -> Target:
    return [event for event in planned if event.fault is not None][number].target


def _on_the_wire(proxy: FaultProxy, planned: list[Event]) -> list[Killed]:
    return [
        Killed(
            target=_target_of(each.number, planned),
            planned_at=each.fault.at,
            confirmed=each.counts.get(CONFIRMED, 0),
            in_flight=each.in_flight,
            seconds=each.seconds,
            words=in_words(each.fault),
        )
        for each in proxy.happened
    ]


def create_topic(servers: str, topic: str, partitions: int) -> None:
    with Admin({"bootstrap.servers": servers}) as admin:
        failure = admin.create_topics([NewTopic(topic, partitions, -1)])[topic].exception()
    if failure is not None:
        raise failure


def stored_numbers(servers: str, topic: str, partition: int) -> Iterator[NDArray[np.int64]]:
    """What stands in a partition, portion by portion, in the order of the log; -1 for what is no number."""
    found = read_range(
        {"bootstrap.servers": servers},
        topic,
        partition,
        0,
        _end_offset(servers, topic, partition),
        columns=frozenset({"value"}),
        on_loss=lambda words: None,  # what is gone is missing, which the audit tells message by message
    )
    for rows in found:
        yield numbers_of(rows.column("value"))


def _end_offset(servers: str, topic: str, partition: int) -> int:
    with Consumer({"bootstrap.servers": servers}) as consumer:
        marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
    assert marks is not None  # it is None only where `cached` is asked for
    return marks[1]


def numbers_of(values: pa.Array) -> NDArray[np.int64]:
    is_number = pc.match_substring_regex(values, r"^[0-9]{1,18}$")
    if not pc.all(is_number.fill_null(False)).as_py():
        values = pc.if_else(is_number.fill_null(False), values, pa.scalar(b"%d" % NOT_A_NUMBER, values.type))
    found: NDArray[np.int64] = pc.cast(values.cast(pa.string()), pa.int64()).to_numpy(zero_copy_only=False)
    return found
