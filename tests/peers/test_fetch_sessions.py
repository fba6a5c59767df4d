"""Stock consumers read through fetch sessions what there is, once and in order: while partitions come, go and are
paused, and while a topic is deleted and made anew."""

import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from kafka import KafkaConsumer, TopicPartition

from oncelog.embedded import Server
from oncelog.server.errors import ErrorCode
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.raw import RawConnection, Rec, batch
from tests.waiting import until

READING = Path(__file__).parent / "reading" / "Reading.java"
PATIENCE_S = 60
Place = tuple[str, int]
Read = tuple[str, int, int, str]


class Reader(Protocol):
    """A consumer that does what it is told; what it reads comes by a queue."""

    read: "queue.Queue[Read]"

    def order(self, what: str, offsets: dict[Place, int]) -> None:
        """Assigned partitions, and those that are sought, are read from these on. Returns once it is done."""
        ...


class JavaReader:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.read: queue.Queue[Read] = queue.Queue()
        self._process = process
        self._done: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[0] == "read":
                self.read.put((words[1], int(words[2]), int(words[3]), words[4]))
            else:
                self._done.put(line)

    def order(self, what: str, offsets: dict[Place, int]) -> None:
        words = [what, *(f"{topic} {index} {offset}" for (topic, index), offset in offsets.items())]
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        assert self._done.get(timeout=PATIENCE_S) == "done\n"


@contextmanager
def java(servers: str) -> Iterator[Reader]:
    try:
        command = kafka_java(str(READING), servers)
    except MissingPeer as missing:
        need_or_skip(missing)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield JavaReader(process)
    finally:
        process.communicate("end\n", timeout=PATIENCE_S)


class PythonReader:
    def __init__(self, consumer: Any) -> None:
        self.read: queue.Queue[Read] = queue.Queue()
        self._consumer = consumer
        self._orders: queue.Queue[tuple[Callable[[], None], threading.Event] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            while not self._consumer.assignment() or not self._orders.empty():
                order = self._orders.get()
                if order is None:
                    return
                order[0]()
                order[1].set()
            for records in self._consumer.poll(timeout_ms=50).values():
                for each in records:
                    self.read.put((each.topic, each.partition, each.offset, each.value.decode()))

    def order(self, what: str, offsets: dict[Place, int]) -> None:
        partitions = {TopicPartition(*place): offset for place, offset in offsets.items()}

        def obey() -> None:
            if what == "assign":
                self._consumer.assign(list(partitions))
            if what in ("assign", "seek"):
                for partition, offset in partitions.items():
                    self._consumer.seek(partition, offset)
            else:
                getattr(self._consumer, what)(*partitions)

        done = threading.Event()
        self._orders.put((obey, done))
        assert done.wait(PATIENCE_S)

    def end(self) -> None:
        self._orders.put(None)
        self._thread.join(PATIENCE_S)


@contextmanager
def python(servers: str) -> Iterator[Reader]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", metadata_max_age_ms=500, fetch_max_wait_ms=50
    )
    reader = PythonReader(consumer)
    try:
        yield reader
    finally:
        reader.end()
        consumer.close()


class Writer:
    def __init__(self, raw: RawConnection) -> None:
        self.raw = raw
        self.next: dict[Place, int] = {}

    def make(self, topic: str, partitions: int) -> None:
        assert self.raw.create_topic(topic, partitions) is ErrorCode.none
        self.next |= {(topic, index): 0 for index in range(partitions)}

    def write(self, *places: Place) -> set[Read]:
        """Two records to each."""
        written = set()
        for topic, index in places:
            for _ in range(2):
                offset = self.next[topic, index]
                self.next[topic, index] += 1
                answer = self.raw.produce(topic, index, batch([Rec(value=f"{topic}-{index}-{offset}".encode())]))
                assert (answer.error_code, answer.base_offset) == (ErrorCode.none, offset)
                written.add((topic, index, offset, f"{topic}-{index}-{offset}"))
        return written

    def ends(self, *places: Place) -> dict[Place, int]:
        return {place: self.next[place] for place in places}


def heard(reader: Reader, wanted: set[Read]) -> None:
    """These, and nothing else before them."""
    found = [reader.read.get(timeout=PATIENCE_S) for _ in wanted]
    assert sorted(found) == sorted(wanted)
    for place in {each[:2] for each in found}:
        offsets = [each[2] for each in found if each[:2] == place]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("client", [python, pytest.param(java, marks=pytest.mark.thorough)])
def test_a_session_shows_what_there_is(client: Any) -> None:
    a, b = [("a", index) for index in range(3)], [("b", index) for index in range(2)]
    no_auto = {"auto.create.topics.enable": "false"}  # clients ask for the topic that is gone
    with Server(settings=no_auto) as server, RawConnection(server.bootstrap_servers) as raw:
        writer = Writer(raw)
        writer.make("a", 3)
        writer.make("b", 2)
        with client(server.bootstrap_servers) as reader:
            reader.order("assign", writer.ends(*a, b[0]))
            heard(reader, writer.write(*a, b[0]))
            until(lambda: len(server.broker.fetch_sessions) == 1, "a session")
            reader.order("pause", writer.ends(a[0]))
            held = writer.write(a[0])
            heard(reader, writer.write(a[1], b[0]))
            reader.order("resume", writer.ends(a[0]))
            heard(reader, held)
            for assigned in ([*a[:2], *b], [*a, *b], [b[1], a[2]], [*b, *a]):
                reader.order("assign", writer.ends(*assigned))
                heard(reader, writer.write(*assigned))
            raw.delete_topic("b")
            heard(reader, writer.write(*a))
            writer.make("b", 2)
            reader.order("seek", writer.ends(*b))
            heard(reader, writer.write(*a, *b))
            heard(reader, writer.write(*a, *b))
            assert reader.read.empty()
            assert server.call(lambda: len(server.broker.fetch_sessions)) == 1
