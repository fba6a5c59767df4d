"""`./dev run`: a server, a million records through a stock client, connections cut at random, and the count.

The client is librdkafka with `enable.idempotence` and nothing else that is special. Between it and the server stands a
proxy that cuts connections. Each record carries its own number, so that the audit can name what is missing or twice.
The exit code is the verdict.
"""

import argparse
import signal
import sys
import time
from dataclasses import dataclass, field
from types import FrameType

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from bench.cutting_proxy import CuttingProxy

TOPIC = "demo"
PARTITIONS = 4
SILENCE_SECONDS = 60  # so long without a confirmation or a record means that something hangs
PROGRESS_SECONDS = 0.1
BAR_WIDTH = 30
KIB = 1024
ALL_TROUBLE_RECORDS = 1_000_000
NUMBER_BYTES = 8
PATIENCE = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}  # the default waits up to 10 s after a cut


@dataclass(frozen=True, slots=True)
class Trouble:
    """How much a connection may carry before it is cut, and how much the client may ask it to carry at once.

    The fewer the records, the less: else a short run would fit into one connection and see no cut. What is asked for
    at once must fit into what a connection carries, or nothing would ever arrive.
    """

    sending_bytes: tuple[int, int]
    reading_bytes: tuple[int, int]  # more, since librdkafka's consumer takes a second to come back after a cut
    batch_bytes: int
    fetch_bytes: int  # of each partition

    @classmethod
    def of(cls, records: int) -> "Trouble":
        part = min(1.0, records / ALL_TROUBLE_RECORDS)
        return cls(
            sending_bytes=(_share(64 * KIB, part, 2 * KIB), _share(1024 * KIB, part, 8 * KIB)),
            reading_bytes=(_share(1024 * KIB, part, 16 * KIB), _share(8192 * KIB, part, 64 * KIB)),
            batch_bytes=_share(64 * KIB, part, KIB),
            fetch_bytes=_share(256 * KIB, part, 2 * KIB),
        )

    def __str__(self) -> str:
        least, most, later_least, later_most = (each // KIB for each in (*self.sending_bytes, *self.reading_bytes))
        return f"a proxy cuts every connection after {least:,} to {most:,} KiB, later {later_least:,} to {later_most:,}"


def _share(whole_bytes: int, part: float, least_bytes: int) -> int:
    return max(least_bytes, int(whole_bytes * part))


@dataclass(slots=True)
class Audit:
    """What became of the records 0 ... expected-1."""

    expected: int
    confirmed: int = 0
    failed: int = 0
    received: int = 0
    foreign: int = 0
    times_seen: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.times_seen = bytearray(self.expected)

    def on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self.failed += 1

    def on_record(self, value: bytes | None) -> None:
        self.received += 1
        number = int.from_bytes(value or b"\xff" * NUMBER_BYTES, "big")
        if number >= self.expected:
            self.foreign += 1
        elif self.times_seen[number] < 255:
            self.times_seen[number] += 1

    @property
    def missing(self) -> int:
        return self.times_seen.count(0)

    @property
    def unique(self) -> int:
        return self.expected - self.missing

    @property
    def duplicates(self) -> int:
        return self.received - self.foreign - self.unique

    @property
    def is_right(self) -> bool:
        return self.confirmed == self.received == self.unique == self.expected

    def lines(self) -> list[str]:
        counts = {
            "confirmed": self.confirmed,
            "received": self.received,
            "unique": self.unique,
            "duplicates": self.duplicates,
            "missing": self.missing,
        }
        counts |= {name: count for name, count in (("failed", self.failed), ("foreign", self.foreign)) if count}
        return [f"  {name:<12}{count:>12,}" for name, count in counts.items()]


class Interrupt:
    """Ctrl-C is noted, and obeyed between two calls: raised inside of librdkafka's calls or of a weak reference's
    callback, a KeyboardInterrupt is lost or comes out as another error. A second one is raised at once."""

    def __init__(self) -> None:
        self.is_wanted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True

    def obey(self) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt


class Progress:
    """One line that is drawn over itself on a terminal, and printed once at the end elsewhere."""

    def __init__(self, what: str, total: int, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._what = what
        self._total = total
        self._started = time.monotonic()
        self._drawn = 0.0
        self._moved = self._started
        self._done = -1

    def show(self, done: int, note: str = "") -> None:
        self._interrupt.obey()
        now = time.monotonic()
        if done != self._done:
            self._done, self._moved = done, now
        elif now - self._moved > SILENCE_SECONDS:
            raise TimeoutError(f"{self._what.strip()}: nothing moved for {SILENCE_SECONDS} s at {done:,}")
        if sys.stdout.isatty() and now - self._drawn > PROGRESS_SECONDS:
            self._drawn = now
            full = BAR_WIDTH * done // self._total
            print(f"\r  {self._what:<12}{'█' * full}{'░' * (BAR_WIDTH - full)} {done:>9,}  {note}", end="", flush=True)

    def end(self, note: str) -> None:
        seconds = time.monotonic() - self._started
        clear = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{clear}  {self._what:<12}{self._done:,} records in {seconds:.1f} s; {note}", flush=True)


def send(
    bootstrap_servers: str,
    audit: Audit,
    proxy: CuttingProxy,
    trouble: Trouble,
    interrupt: Interrupt,
    *,
    idempotent: bool,
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "batch.size": trouble.batch_bytes,
            "log_level": 0,
            **PATIENCE,
        }
    )
    progress = Progress("sending", audit.expected, interrupt)
    for number in range(audit.expected):
        value = number.to_bytes(NUMBER_BYTES, "big")
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=audit.on_delivery)
                break
            except BufferError:
                producer.poll(PROGRESS_SECONDS)
                progress.show(audit.confirmed, f"{proxy.cuts} connections cut")
        if number % 1000 == 0:
            producer.poll(0)
            progress.show(audit.confirmed, f"{proxy.cuts} connections cut")
    while producer.flush(PROGRESS_SECONDS):
        progress.show(audit.confirmed, f"{proxy.cuts} connections cut")
    progress.show(audit.confirmed)
    progress.end(f"{proxy.cuts} connections cut, {proxy.answers_lost} of them with an answer under way")


def read_back(
    bootstrap_servers: str, audit: Audit, proxy: CuttingProxy, trouble: Trouble, interrupt: Interrupt
) -> None:
    cuts_before = proxy.cuts
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo-audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "max.partition.fetch.bytes": trouble.fetch_bytes,
            **PATIENCE,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        progress = Progress("reading", audit.expected, interrupt)
        at_end: set[int | None] = set()
        while len(at_end) < PARTITIONS:
            for message in consumer.consume(num_messages=10_000, timeout=PROGRESS_SECONDS):
                error = message.error()
                if error is None:
                    audit.on_record(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                elif not error.retriable() and error.code() >= 0:
                    raise KafkaException(error)
            progress.show(audit.received, f"{proxy.cuts - cuts_before} connections cut")
        progress.end(f"{proxy.cuts - cuts_before} connections cut")
    finally:
        consumer.close()


def make_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(SILENCE_SECONDS)


def say_how_to_go_on(bootstrap_servers: str, interrupt: Interrupt) -> None:
    print(
        """
Go on
  .venv/bin/oncelog serve                a server of your own, on 127.0.0.1:9092; point any Kafka client at it
  with oncelog.Server() as server: ...   the same inside a Python process or a test (README.md)
  ./dev test                             every promise, checked
""",
        flush=True,
    )
    if sys.stdout.isatty() and sys.stdin.isatty():
        print(f"This server stays up at {bootstrap_servers} (topic {TOPIC!r}, no more cuts) until Ctrl-C.", flush=True)
        while not interrupt.is_wanted:
            time.sleep(PROGRESS_SECONDS)
        print()


def run(records: int, seed: int, interrupt: Interrupt, *, idempotent: bool) -> Audit:
    started = time.monotonic()
    audit, trouble = Audit(records), Trouble.of(records)
    with CuttingProxy(seed=seed, carries_bytes=trouble.sending_bytes) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with oncelog.Server(settings=settings) as server:
            proxy.connect_to("127.0.0.1", server.broker.ports["PLAINTEXT"])
            bootstrap_servers = server.bootstrap_servers  # what it advertises: the proxy
            up_ms = (time.monotonic() - started) * 1000
            version = confluent_kafka.libversion()[0]
            print(f"  server      oncelog {oncelog.__version__}, up in {up_ms:.0f} ms, data in {server.data_dir}")
            print(f"  client      librdkafka {version}, enable.idempotence={str(idempotent).lower()}")
            print(f"  trouble     {trouble} (seed {seed})\n")
            sys.stdout.flush()
            interrupt.obey()
            make_topic(bootstrap_servers)
            send(bootstrap_servers, audit, proxy, trouble, interrupt, idempotent=idempotent)
            proxy.carries_bytes = trouble.reading_bytes
            read_back(bootstrap_servers, audit, proxy, trouble, interrupt)
            proxy.cutting = False
            if not proxy.cuts:
                print("\n  No connection was cut: so few records fit into the first one. Try --records 10000.")
            print("\n" + "\n".join(audit.lines()))
            verdict = "Every record is there, once." if audit.is_right else "WRONG: see the counts."
            if not idempotent and audit.duplicates:
                verdict += " (Expected: what was sent again is there twice, which enable.idempotence prevents.)"
            print(f"\n{verdict}", flush=True)
            say_how_to_go_on(bootstrap_servers, interrupt)
    return audit


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev run", description="See it work; the exit code is the verdict.")
    parser.add_argument("--records", type=positive, default=1_000_000, help="how many to send (default: a million)")
    parser.add_argument("--seed", type=int, default=1, help="decides where connections are cut (default: 1)")
    parser.add_argument(
        "--not-idempotent", action="store_true", help="the same without enable.idempotence: see what it is good for"
    )
    options = parser.parse_args()
    interrupt = Interrupt()
    print(
        f"oncelog: {options.records:,} records through a stock Kafka client while its connections are cut\n", flush=True
    )
    audit: Audit | None = None
    try:
        audit = run(options.records, options.seed, interrupt, idempotent=not options.not_idempotent)
    except KeyboardInterrupt:
        print("\nEnded by hand.", flush=True)
        return 130
    return 0 if audit.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
