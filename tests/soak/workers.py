"""Clients under fire. Each writes down what the server acknowledged, and nothing more; the audit compares later."""

import threading
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from kio.schema.errors import ErrorCode

from tests.raw import RawConnection, Rec, batch

RECORDS = "records"  # written by librdkafka and by leased producers
SHORT = "short"  # the same, with retention by size
KEYED = "keyed"  # compacted
GROUP = "soak"
PARTITIONS = 3
KEYS = 40

MOST_QUEUED = 500  # messages that librdkafka may hold: a kill should find it in the middle, not far behind

# How long a client keeps trying before it calls the server lost.
PATIENCE_S = 60


@dataclass
class Ledger:
    """What was acknowledged. What is in it is touched by one thread only.

    A record is the name of its producer and a number, which begins at 0.
    """

    acknowledged: dict[str, dict[str, list[int]]] = field(default_factory=lambda: {RECORDS: {}, SHORT: {}})  # by topic
    sent: dict[str, dict[str, int]] = field(default_factory=lambda: {RECORDS: {}, SHORT: {}})  # how many
    newest_of_key: dict[str, int] = field(default_factory=dict)  # acknowledged version
    tried_of_key: dict[str, int] = field(default_factory=dict)
    committed: int = -1
    tried_commit: int = -1
    granted: list[int] = field(default_factory=list)
    leased: list[int] = field(default_factory=list)
    topics_made: set[str] = field(default_factory=set)
    topics_gone: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def acknowledge(self, topic: str, producer: str, number: int) -> None:
        self.acknowledged[topic].setdefault(producer, []).append(number)

    def acknowledged_count(self) -> int:
        return sum(len(numbers) for topic in self.acknowledged.values() for numbers in list(topic.values()))


class Worker(threading.Thread):
    """Does one step after the other until told to stop; a lost connection is mended, anything else is a complaint."""

    def __init__(self, port: int, ledger: Ledger, seed: int) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.port = port
        self.ledger = ledger
        self.random = Random(f"{seed}-{self.name}")
        self.stopping = threading.Event()
        self._connection: RawConnection | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.guarded_step()
            self.finish()
        except Exception as error:
            self.ledger.complaints.append(f"{self.name}: {type(error).__name__}: {error}")

    def guarded_step(self) -> None:
        try:
            self.step()
        except (OSError, EOFError):
            self.disconnected()
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self.stopping.wait(0.02)

    def connection(self) -> RawConnection:
        if self._connection is None:
            self._connection = RawConnection(self.port, timeout_s=10)
        return self._connection

    def step(self) -> None:
        raise TypeError("each worker has its own step")

    def disconnected(self) -> None:
        """What a worker must forget with its connection."""

    def finish(self) -> None:
        """Once, after the last step, with the server alive."""

    def complain(self, text: str) -> None:
        self.ledger.complaints.append(f"{self.name}: {text}")


class StockProducer(Worker):
    """librdkafka, idempotent; it outlives every kill and may neither lose nor repeat anything."""

    def __init__(self, port: int, ledger: Ledger, seed: int, topic: str, codec: str) -> None:
        super().__init__(port, ledger, seed)
        self.topic = topic
        self.name = f"stock-{topic}-{codec}"
        self._count = 0
        self.delivered = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 0,  # never given up: `finish` says how long is too long
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "on_delivery": self._delivered,
                "error_cb": self._failed,
                "log_level": 0,
            }
        )

    def step(self) -> None:
        if len(self._producer) > MOST_QUEUED:
            self._producer.poll(0.02)
            return
        for _ in range(self.random.choice((1, 20, 60))):
            value = f"{self.name}:{self._count}".encode()
            self._count += 1
            self.ledger.sent[self.topic][self.name] = self._count
            self._producer.produce(self.topic, value, partition=self.random.randrange(PARTITIONS))
        self._producer.poll(0.01)

    def finish(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.complain(f"{left} messages were never acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        name = (message.value() or b"").decode()
        if error is None:
            self.ledger.acknowledge(self.topic, self.name, int(name.rpartition(":")[2]))
            self.delivered.set()
        else:
            self.complain(f"{name} failed: {error}")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.complain(f"fatal: {error}")


class LeasedProducer(Worker):
    """A producer by `lease_pid` that is thrown away with every lost connection and resumed by `resume_pid`."""

    def __init__(self, port: int, ledger: Ledger, seed: int, partition: int) -> None:
        super().__init__(port, ledger, seed)
        self.partition = partition
        self.name = f"leased-{partition}"
        self._pid = -1
        self._generation = 0
        self._next = 0  # the sequence of the next record that is not known to be in the log
        self._renamed = 0
        self._used = 0
        self._resume = False

    def step(self) -> None:
        connection = self.connection()
        if self._pid < 0:
            self._lease(connection)
        elif self._resume:
            self._take_up(connection)
        elif self._used > 3000:
            self._pid = -1  # a new lease now and then
        else:
            self._produce(connection)

    def disconnected(self) -> None:
        self._resume = self._pid >= 0

    def _lease(self, connection: RawConnection) -> None:
        topics = [{"name": RECORDS, "partitions": [self.partition]}]
        part = connection.call("lease_pid", 0, topics=topics).topics[0].partitions[0]
        if part.error_code is not ErrorCode.none:
            self.stopping.wait(0.02)
            return
        self.ledger.leased.append(part.producer_id)
        self._pid, self._generation, self._next = part.producer_id, part.generation, part.sequence
        self._renamed += 1
        self._used = 0

    def _take_up(self, connection: RawConnection) -> None:
        generation = (self._generation + 1) % 2**15
        self._generation = generation
        topics = [{"name": RECORDS, "partitions": [self.partition]}]
        producers = [{"producer_id": self._pid, "generation": generation, "topics": topics}]
        answer = connection.call("resume_pid", 0, timeout=5_000, producers=producers)
        part = answer.producers[0].topics[0].partitions[0]
        if part.error_code is ErrorCode.unknown_producer_id and self._next == 0:
            self._resume = False  # nothing of it ever came in: it goes on from 0
            return
        if part.error_code is not ErrorCode.none:
            self.complain(f"resume_pid of {self._pid}: {part.error_code.name}")
            self._pid, self._resume = -1, False
            return
        accepted = part.last_sequence + 1
        if accepted < self._next:
            self.complain(f"acknowledged up to {self._next - 1}, but the log knows only {part.last_sequence}")
        for sequence in range(self._next, accepted):
            self.ledger.acknowledge(RECORDS, self._producer(), sequence)
        self._next = accepted
        self._resume = False

    def _produce(self, connection: RawConnection) -> None:
        many = self.random.choice((1, 3, 20))
        depth = 1 if self._next == 0 else self.random.choice((1, 4))
        at = self._next
        for _ in range(depth):
            values = [f"{self._producer()}:{at + i}" for i in range(many)]
            sent_before = self.ledger.sent[RECORDS].get(self._producer(), 0)
            self.ledger.sent[RECORDS][self._producer()] = max(sent_before, at + many)
            sent = batch(
                [value.encode() for value in values],
                pid=self._pid,
                epoch=self._generation,
                sequence=at,
                codec=self.random.randrange(5),
            )
            connection.ask_produce(RECORDS, self.partition, sent)
            at += many
        for _ in range(depth):
            answer = connection.produce_answer()
            if answer.error_code is not ErrorCode.none:
                self.complain(f"sequence {self._next} of {self._pid}: {answer.error_code.name}")
                self._resume = True
                continue
            for _i in range(many):
                self.ledger.acknowledge(RECORDS, self._producer(), self._next)
                self._next += 1
                self._used += 1

    def _producer(self) -> str:
        return f"{self.name}:{self._renamed}"


class KeyWriter(Worker):
    """Rewrites a few keys for ever; compaction may drop all but the newest version of each."""

    def step(self) -> None:
        key = f"key-{self.random.randrange(KEYS)}"
        version = self.ledger.tried_of_key.get(key, 0) + 1
        self.ledger.tried_of_key[key] = version
        record = Rec(f"{version}".encode() + b" " * 200, key.encode())
        answer = self.connection().produce(KEYED, 0, batch([record]))
        if answer.error_code is ErrorCode.none:
            self.ledger.newest_of_key[key] = version
        else:
            self.complain(f"{key}: {answer.error_code.name}")
            self.stopping.wait(0.05)


class Committer(Worker):
    """Commits ever higher offsets and looks, after every lost connection, whether they went back."""

    def step(self) -> None:
        connection = self.connection()
        if self._look_first:
            self._look(connection)
            self._look_first = False
        offset = self.ledger.tried_commit + 1
        self.ledger.tried_commit = offset
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": f"note {offset}"}
        answer = connection.call("offset_commit", 7, group_id=GROUP, generation_id_or_member_epoch=-1, **_topics(part))
        error = answer.topics[0].partitions[0].error_code
        if error is ErrorCode.none:
            self.ledger.committed = offset
        elif error not in COMING_UP:
            self.complain(f"commit of {offset}: {error.name}")
        if error is not ErrorCode.none:
            self.stopping.wait(0.02)

    _look_first = True

    def disconnected(self) -> None:
        self._look_first = True

    def _look(self, connection: RawConnection) -> None:
        found = committed_offset(connection, self.stopping)
        if found is not None and not self.ledger.committed <= found <= self.ledger.tried_commit:
            self.complain(f"committed {self.ledger.committed}, found {found}")


COMING_UP = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator)


def _topics(part: dict[str, object]) -> dict[str, Any]:
    return {"topics": [{"name": RECORDS, "partitions": [part]}]}


def committed_offset(connection: RawConnection, stopping: threading.Event) -> int | None:
    wanted = [{"name": RECORDS, "partition_indexes": [0]}]
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        answer = connection.call("offset_fetch", 7, group_id=GROUP, topics=wanted)
        if answer.error_code is ErrorCode.none:
            offset: int = answer.topics[0].partitions[0].committed_offset
            return offset
        if stopping.wait(0.02):
            return None
    raise TimeoutError("the committed offsets were not to be had")


class Granter(Worker):
    """Takes producer ids of both kinds; none may come twice."""

    def step(self) -> None:
        connection = self.connection()
        answer = connection.call("init_producer_id", 4, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)
        if answer.error_code is ErrorCode.none:
            self.ledger.granted.append(answer.producer_id)
        topics = [{"name": RECORDS, "partitions": [0]}]
        part = connection.call("lease_pid", 0, topics=topics).topics[0].partitions[0]
        if part.error_code is ErrorCode.none:
            self.ledger.leased.append(part.producer_id)
        self.stopping.wait(0.005)


class TopicMaker(Worker):
    """Makes and deletes topics: what was acknowledged stays made, or gone."""

    def step(self) -> None:
        connection = self.connection()
        name = f"made-{len(self.ledger.topics_made) + len(self.ledger.topics_gone)}-{self.random.randrange(10**9)}"
        if connection.create_topic(name, 2, wait=False) is ErrorCode.none:
            self.ledger.topics_made.add(name)
        if len(self.ledger.topics_made) > 5:
            oldest = sorted(self.ledger.topics_made)[0]
            self.ledger.topics_made.discard(oldest)  # from here on it may be there or not
            if connection.delete_topic(oldest) is ErrorCode.none:
                self.ledger.topics_gone.add(oldest)
        self.stopping.wait(0.03)
