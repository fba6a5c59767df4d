"""One experiment: a server, a proxy, a producer of numbered messages, what is killed meanwhile, and the audit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event as Waiting
from typing import Final

import numpy as np

from oncelog.chaos.audit import Audit, Numbers
from oncelog.chaos.brokers import Brokers, compared
from oncelog.chaos.faults import in_words
from oncelog.chaos.gaps import put_down_to
from oncelog.chaos.guard import Guard
from oncelog.chaos.kafka_login import Kafka, behind_proxy
from oncelog.chaos.outcome import Killed, Options, Outcome, Progress, Sample, Verdict
from oncelog.chaos.pipeline_watch import PipelineWatch
from oncelog.chaos.plan import (
    CONFIRMED,
    OF_BROKERS,
    ON_THE_WIRE,
    ORPHANS,
    Event,
    Target,
    faults_of,
    kills_of,
    next_kill,
    schedule,
)
from oncelog.chaos.processes import ProducerLives, ServerLives
from oncelog.chaos.proxy import FaultProxy
from oncelog.chaos.sender_report import Report, Reports
from oncelog.chaos.sending import Order
from oncelog.chaos.sinks import FLOW
from oncelog.chaos.stopped import Stopped
from oncelog.chaos.topics import check_reach, create_topic, delete_topics, stored_numbers
from oncelog.client.errors import KafkaException
from oncelog.client.net.tls import tls_context
from oncelog.client.properties import admin_settings
from oncelog.clock import monotonic_s, wall_s

SILENCE_S: Final = 180.0  # so long without a confirmation means that something hangs
SAMPLE_S: Final = 0.25
LOOK_FOR_WORK_S: Final = 0.0005
LOOKS_FOR_WORK: Final = 400
STILL_S: Final = 2.0  # without another row of a pipeline that is through: an orphan may still write
IN_THE_PIPELINE: Final = ORPHANS | {Target.DRIVER, Target.EXECUTOR}
WAIT: Final = Waiting()  # never set: a wait that Ctrl-C ends
OUR_SETTINGS: Final[Mapping[str, str]] = {"auto.create.topics.enable": "false"}

Watch = Callable[[Progress], None]


def _watching(sink: str) -> type[PipelineWatch]:
    """The watch of a sink. That of flows is imported for flows alone: it needs msgspec, which the extra `[flow]`
    brings."""
    if sink != FLOW:
        return PipelineWatch
    from oncelog.chaos.flow_watch import FlowWatch

    return FlowWatch


class Hangs(Stopped):
    """Nothing moved for too long."""


class ProducerFailed(Stopped):
    """The producer ended by itself, and not well."""


def run(
    options: Options,
    folder: Path,
    watch: Watch = lambda progress: None,
    *,
    serve_with: Sequence[str] = (),
    is_folder_removed: bool = False,
) -> Outcome:
    """`folder` is for what the experiment keeps while it runs, `serve_with` more arguments of its server. The folder
    can be removed in the end, whatever kind of end that is."""
    with Guard(folder if is_folder_removed else None) as guard:
        if options.servers:
            experiment = Experiment(options, folder, guard, Kafka(options.servers, options.login), None, watch)
            return experiment.run_and_tidy()
        if options.brokers:
            watch(Progress(phase="starting the brokers"))
            own = folder / "cluster"
            are_links_cut = Target.PARTITION in options.targets
            with Brokers(
                guard, own, options.brokers, OUR_SETTINGS, options.seed, are_links_cut=are_links_cut
            ) as brokers:
                experiment = Experiment(options, folder, guard, Kafka(brokers.servers), None, watch, brokers)
                outcome = experiment.run()
            experiment.enter("comparing the replicas")
            return replace(outcome, replicas=compared(own))
        watch(Progress(phase="starting the server"))
        with ServerLives(guard, folder / "server", OUR_SETTINGS, serve_with) as server:
            return Experiment(options, folder, guard, Kafka(server.servers), server, watch).run()


class Experiment:
    def __init__(
        self,
        options: Options,
        folder: Path,
        guard: Guard,
        kafka: Kafka,
        server: ServerLives | None,
        watch: Watch,
        brokers: Brokers | None = None,
    ) -> None:
        self._guard = guard
        self._folder = folder
        self._options = options
        self._kafka = kafka
        self._server = server
        self._brokers = brokers
        self._watch = watch
        self._planned = schedule(options.seed, options.targets, every=options.every, messages=options.messages)
        kills = kills_of(self._planned)[::-1]  # the next one last
        self._kills = [event for event in kills if event.target not in IN_THE_PIPELINE]
        self._pipeline_kills = [event for event in self._planned if event.target in IN_THE_PIPELINE]
        self._pipeline: PipelineWatch | None = None
        self.killed: list[Killed] = []
        self._confirmed_s: dict[int, float] = {}  # when each partition had its last confirmation
        self._audit = Audit(options.messages)
        self.progress = Progress()
        self._samples: list[Sample] = []
        self._slowest_ms = 0.0
        self._began_s = self.moved_s = 0.0
        self._lost_failures = 0  # of producers that were killed
        self._sent_in_this_life = 0  # of the producer; what a former one had under way is under way no more
        self._wire_targets = [event.target for event in self._planned if event.fault is not None]
        self._unreadable: Sequence[str] = ()  # what the proxy could not pass on
        self._made: list[str] = []  # topics

    def run(self) -> Outcome:
        options = self._options
        create_topic(self._kafka, options.topic, options.partitions)
        self._made = [options.topic]
        self._began_s = self.moved_s = monotonic_s()
        if options.spark is None:
            return self._send()
        kills, folder = self._pipeline_kills, self._folder / "pipeline"
        with _watching(options.spark.sink)(
            self._guard, folder, self._kafka, options, options.spark, kills
        ) as self._pipeline:
            self.progress.is_spark_starting = True
            sent = self._send()
            self.enter("the pipeline catches up")
            expected = self._expected()
            self._pipeline.expect(expected.confirmed)
            while not self._pipeline.is_through() or monotonic_s() - self.moved_s < STILL_S:
                WAIT.wait(self._pace_s)
                self._look()
            restarts = self._pipeline.restarts
        self.enter("counting")
        for part, numbers in self._pipeline.stored():
            expected.take(part, numbers)
        happened = sorted({*sent.happened, *self.killed}, key=lambda each: each.seconds)
        seconds = monotonic_s() - self._began_s
        return replace(
            sent,
            planned=self.planned_until_now(),
            written=expected.result(),
            timers=self._pipeline.timers,
            restarts=restarts,
            happened=happened,
            seconds=seconds,
        )

    def run_and_tidy(self) -> Outcome:
        """A Kafka of the user's is left as it was found, unless there is something to look at."""
        check_reach(self._kafka)
        try:
            outcome = self.run()
        except Stopped as stopped:
            left = f"\nleft on {self._kafka.servers}: {', '.join(self.topics)}" if self.topics else ""
            raise Stopped(f"{stopped}{left}") from stopped
        except BaseException:  # Ctrl-C, or the Kafka refuses something
            with suppress(KafkaException):
                self._tidy()
            raise
        is_looked_at = outcome.verdict is Verdict.NOT_EXACT
        return replace(outcome, left=tuple(self.topics if is_looked_at else self._tidy()))

    @property
    def topics(self) -> list[str]:
        """The topics that were made."""
        return self._made + (self._pipeline.topics if self._pipeline is not None else [])

    def _tidy(self) -> list[str]:
        """Delete the topics, unless they are to be kept; those that are left."""
        if self._options.is_kept or not self.topics:
            return self.topics
        return delete_topics(self._kafka, self.topics)

    def enter(self, phase: str) -> None:
        self.progress.phase = phase
        self._watch(self.progress)

    @property
    def _pace_s(self) -> float:
        return SAMPLE_S if self._pipeline is None else min(SAMPLE_S, self._pipeline.pace_s)

    def _expected(self) -> Audit:
        """The rows that the pipeline has to write."""
        assert self._pipeline is not None
        expected = Audit(self._pipeline.most_rows)
        for _, numbers in stored_numbers(self._kafka, self._options.topic, self._options.partitions):
            expected.confirm(self._pipeline.due_of(numbers))
        return expected

    def _send(self) -> Outcome:
        options = self._options
        tls = tls_context(admin_settings(self._kafka.client))
        with FaultProxy(self._kafka.servers, faults_of(self._planned), tls=tls) as proxy:
            self._unreadable = proxy.unreadable
            order = Order(
                client=options.client,
                servers=proxy.bootstrap_servers,
                topic=options.topic,
                partitions=options.partitions,
                messages=options.messages,
                is_idempotent=options.is_idempotent,
                linger_ms=options.linger_ms,
                state=str(self._folder / "producer.json") if Target.PRODUCER in options.targets else "",
                rate=options.rate,
                until_s=wall_s() + options.seconds if options.seconds else 0.0,
                kafka_libs=options.kafka_libs,
                login=behind_proxy(self._kafka.login),
            )
            with ProducerLives(self._guard, self._folder, order) as producer:
                self.enter("sending")
                self.drive(proxy, producer)
                self._let_them_meet()
            wire = self._on_the_wire(proxy)
        seconds = monotonic_s() - self._began_s
        self._sample(is_last=True)
        self.enter("counting")
        for partition, numbers in stored_numbers(self._kafka, options.topic, options.partitions):
            self._audit.take(partition, numbers)
        happened = sorted([*wire, *self.killed], key=lambda each: each.seconds)
        result = self._audit.result(sent=self.progress.sent)
        planned = self.planned_until_now()
        return Outcome(options, planned, happened, result, self.progress.failed, seconds, self._samples)

    def planned_until_now(self) -> list[Event]:
        """A run by the clock has a plan for far more messages than it comes to."""
        done = self.progress
        if not self._options.seconds:
            return self._planned
        return [
            event
            for event in self._planned
            if event.at <= (done.written if event.target in IN_THE_PIPELINE else done.confirmed)
        ]

    def drive(self, proxy: FaultProxy, producer: ProducerLives) -> None:
        reports = Reports()
        while True:
            producer.wait(self._pace_s)
            data = producer.read()
            if data is None:
                if producer.exit_code():
                    raise ProducerFailed(f"the producer ended by itself:\n{producer.last_words()}")
                return
            for report in reports.take(data):
                self._take(report, proxy)
            if self._kill_what_is_due(producer, proxy):
                for data in iter(producer.read, None):  # what it said before it was killed
                    for report in reports.take(data):
                        self._take(report, proxy)
                self._lost_failures = self.progress.failed
                self._sent_in_this_life = 0
                reports = Reports()
                producer.start()
            self._look()

    def _take(self, report: Report, proxy: FaultProxy) -> None:
        progress = self.progress
        new = self._audit.confirm(report.confirmed)
        self._sent_in_this_life = report.sent
        progress.sent = max(progress.sent, report.sent)
        progress.failed = self._lost_failures + report.failed
        self._slowest_ms = max(self._slowest_ms, report.slowest_ms)
        if new:
            progress.confirmed += new
            self._note_gap(report.confirmed)
            proxy.count(CONFIRMED, new)
            self.moved_s = monotonic_s()
        for happened in proxy.happened[sum(progress.faults[each] for each in ON_THE_WIRE) :]:
            self._tell(self._wire_targets[happened.number], in_words(happened.fault))

    def _kill_what_is_due(self, producer: ProducerLives, proxy: FaultProxy) -> bool:
        """True where the producer was killed. What is due while one only starts waits until it sends: there would be
        nothing to hit."""
        while (event := self._next_kill()) is not None:
            self._kills.remove(event)
            under_way = self._under_way(proxy)
            if event.target in OF_BROKERS:
                assert self._brokers is not None
                self._note(event, under_way, self._brokers.hurt(event, self._options.topic))
                continue
            self._note(event, under_way)
            if event.target is Target.PRODUCER:
                producer.kill()
                return True
            assert self._server is not None, "only a server of our own is killed"
            self._server.kill()
            self._server.start()
            self.moved_s = monotonic_s()
        return False

    def _next_kill(self) -> Event | None:
        if not self._sent_in_this_life:
            return None
        is_busy = self._brokers is not None and self._brokers.is_busy
        return next_kill(reversed(self._kills), self.progress.confirmed, is_busy=is_busy)

    def _let_them_meet(self) -> None:
        if self._brokers is None or not self._brokers.is_busy:
            return
        self.enter("the brokers meet again")
        while self._brokers.is_busy:
            WAIT.wait(SAMPLE_S)
            self._look()

    def _under_way(self, proxy: FaultProxy) -> int:
        """Messages that were sent and not confirmed; of a client that does not tell what it sends, requests. A request
        is waited for, a little: what is killed between two of them loses nothing."""
        for _ in range(LOOKS_FOR_WORK):
            if proxy.in_flight:
                break
            WAIT.wait(LOOK_FOR_WORK_S)
        progress = self.progress
        return max(self._sent_in_this_life - progress.confirmed - progress.failed, proxy.in_flight)

    def _note(self, event: Event, in_flight: int, whom: str = "") -> None:
        progress = self.progress
        words = f"{event.in_words()}: {whom}" if whom else event.in_words()
        self.killed.append(
            Killed(
                target=event.target,
                planned_at=event.at,
                confirmed=progress.confirmed,
                in_flight=in_flight,
                seconds=monotonic_s() - self._began_s,
                words=words,
                gap_s=0.0,
            )
        )
        self._tell(event.target, words)

    def _note_gap(self, confirmed: Numbers) -> None:
        now_s = monotonic_s()
        for partition in np.unique(confirmed % self._options.partitions).tolist():
            since_s = self._confirmed_s.get(partition, now_s)
            self._confirmed_s[partition] = now_s
            if not self.killed:
                continue
            at = put_down_to([each.seconds for each in self.killed], since_s - self._began_s)
            if now_s - since_s > (self.killed[at].gap_s or 0.0):
                self.killed[at] = replace(self.killed[at], gap_s=now_s - since_s)

    def _tell(self, target: Target, words: str) -> None:
        progress = self.progress
        progress.faults[target] += 1
        progress.last_fault = f"{words}, at {progress.confirmed:,}"
        progress.happened.append((target, progress.last_fault))

    def _look(self) -> None:
        self._sample()
        if self._pipeline is not None:
            killed = list(self._pipeline.look())
            if self._pipeline.written > self.progress.written:
                self.progress.written = self._pipeline.written
                self.progress.is_spark_starting = False
                self.moved_s = monotonic_s()
            for event, in_flight in killed:
                self._note(event, in_flight)
                self.progress.is_spark_starting |= event.target is Target.DRIVER
        if self._brokers is not None and (how := self._brokers.look()) is not None:
            at = max(index for index, each in enumerate(self.killed) if each.target in OF_BROKERS)
            self.killed[at] = replace(self.killed[at], words=f"{self.killed[at].words}, {how}")
            self.moved_s = monotonic_s()
        if monotonic_s() - self.moved_s > SILENCE_S:
            where = f"{self.progress.confirmed:,} messages and {self.progress.written:,} rows of a pipeline"
            raise Hangs(f"nothing moved for {SILENCE_S:g} s, at {where}{self._why()}")

    def _why(self) -> str:
        """Possible causes, for a message."""
        found = [f"\nthe proxy could not pass on: {self._unreadable[-1]}"] if self._unreadable else []
        said = self._pipeline.last_words() if self._pipeline is not None else ""
        return "".join([*found, f"\nthe pipeline said at last:\n{said}" if said else ""])

    def _sample(self, *, is_last: bool = False) -> None:
        seconds = monotonic_s() - self._began_s
        if is_last or not self._samples or seconds - self._samples[-1].seconds >= SAMPLE_S:
            progress = self.progress
            slowest_ms, self._slowest_ms = round(self._slowest_ms, 1), 0.0
            self._samples.append(Sample(round(seconds, 3), progress.confirmed, slowest_ms, progress.written))
            progress.seconds = seconds
            self._watch(progress)

    def _on_the_wire(self, proxy: FaultProxy) -> list[Killed]:
        return [
            Killed(
                target=self._wire_targets[each.number],
                planned_at=each.fault.at,
                confirmed=each.counts.get(CONFIRMED, 0),
                in_flight=each.in_flight,
                seconds=each.seconds,
                words=in_words(each.fault),
            )
            for each in proxy.happened
        ]
