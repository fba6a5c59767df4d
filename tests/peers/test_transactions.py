"""Stock clients in transactions against our brokers, which are killed as they are: Kafka Streams, the Java client's
copier, librdkafka, franz-go."""

import itertools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from tests.cluster.stock.in_go import program as franz_program
from tests.peers.committed import all_committed, committed
from tests.peers.jars import MissingPeer, java, kafka_java, need_or_skip, streams_jars
from tests.peers.living import living
from tests.peers.oncelog_process import OncelogProcess

STREAMS = Path(__file__).parent / "streams" / "ExactlyOnce.java"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS, KEYS = 1_500, 7
PORTIONS = 6  # of the records, each of which is there when somebody is killed
Kill = Callable[[], None]


@contextmanager
def serving(brokers: int, folder: Path) -> Iterator[tuple[str, Kill]]:
    """Their addresses, and what kills one of them, another each time, and starts it again."""
    if brokers == 1:
        with OncelogProcess(folder / "server") as alone:

            def again() -> None:
                alone.kill()
                alone.start()

            yield alone.bootstrap_servers, again
        return
    with oncelog.Server(brokers=brokers) as server:
        turns = itertools.cycle(range(1, brokers + 1))

        def another() -> None:
            broker = next(turns)
            server.kill(broker)
            server.start(broker)

        yield server.bootstrap_servers, another


def make_topics(servers: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, partitions) for topic in ("in", "out")]).values():
        made.result()


def fed(servers: str, partitions: int, keys: int, kills: tuple[Kill, Kill]) -> dict[bytes | None, list[Message]]:
    """What stands in `out` in the end, by key, of what was written into `in` a portion at a time. With each but the
    first, client and server are killed in turn."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def produce(portion: int) -> None:
        size = RECORDS // PORTIONS
        for number in range(portion * size, (portion + 1) * size):
            key = number % keys
            producer.produce("in", b"%d" % number, key=b"%d" % key, partition=key % partitions)
        assert producer.flush(60) == 0

    produce(0)
    killing = itertools.cycle(kills)
    for number, _ in enumerate(committed(servers, "out", partitions, RECORDS), 1):
        portion, rest = divmod(number, RECORDS // PORTIONS)
        if rest == RECORDS // PORTIONS // 2 and portion + 1 < PORTIONS:
            produce(portion + 1)
            next(killing)()
    found: dict[bytes | None, list[Message]] = defaultdict(list)
    for each in all_committed(servers, "out", partitions):
        found[each.key()].append(each)
    return found


@pytest.mark.thorough
@pytest.mark.timeout(600)  # where the members of the group before are waited for
@pytest.mark.parametrize("brokers", [1, 3])
def test_kafka_streams_counts_exactly_once_while_it_and_brokers_are_killed(brokers: int, tmp_path: Path) -> None:
    try:
        folder = streams_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with serving(brokers, tmp_path) as (servers, kill_broker):
        make_topics(servers, 2)
        state = str(tmp_path / "state")
        command = [java(), "-Xmx300m", "-cp", f"{folder}/*", str(STREAMS), servers, "app", state, "in", "out"]
        with living(*command, log=tmp_path / "streams.log") as kill_client:
            found = fed(servers, 2, KEYS, (kill_client, kill_broker))
    counts = {key: [int(each.value() or b"") for each in some] for key, some in found.items()}
    assert counts == {b"%d" % key: list(range(1, len(range(key, RECORDS, KEYS)) + 1)) for key in range(KEYS)}


def javas_copier(servers: str, *more: str) -> list[str]:
    names = ("--transactional-id", "copier", "--consumer-group", "g", "--input-topic", "in", "--output-topic", "out")
    where = ("--broker-list", servers, "--input-partition", "0")
    return kafka_java(COPIER, *where, *names, "--enable-random-aborts", "--use-group-metadata", *more)


def test_javas_copier_is_exact_though_it_aborts_at_random() -> None:
    with oncelog.Server() as server:
        servers = server.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        for number in range(RECORDS):
            producer.produce("in", b"%d" % number)
        producer.flush()
        try:
            copier = javas_copier(servers, "--group-mode", "--transaction-size", "50", "--max-messages", str(RECORDS))
        except MissingPeer as missing:
            need_or_skip(missing)
        subprocess.run(copier, check=True, capture_output=True, timeout=90)
        found = [int(each.value() or b"") for each in committed(servers, "out", 1, RECORDS)]
        assert sorted(found) == list(range(RECORDS))


def test_librdkafka_commits_aborts_and_is_fenced() -> None:
    with oncelog.Server() as server:
        servers = server.bootstrap_servers
        first = Producer({"bootstrap.servers": servers, "transactional.id": "id"})
        first.init_transactions(30)
        for number in range(6):
            first.begin_transaction()
            first.produce("out", b"%d" % number)
            first.flush()
            if number % 2:
                first.abort_transaction(30)
            else:
                first.commit_transaction(30)
        assert [each.value() for each in committed(servers, "out", 1, 3)] == [b"0", b"2", b"4"]
        second = Producer({"bootstrap.servers": servers, "transactional.id": "id"})
        second.init_transactions(30)
        first.begin_transaction()
        first.produce("out", b"zombie")
        with pytest.raises(KafkaException) as fenced:
            first.commit_transaction(30)
        assert fenced.value.args[0].fatal()


def librdkafka(servers: str) -> list[str]:
    return [sys.executable, "-m", "tests.peers.copier", servers, "in", "out", "copier"]


def franz_go(servers: str) -> list[str]:
    return [str(franz_program()), "copy", servers, "in", "out", "copier"]


def javas(servers: str) -> list[str]:
    return javas_copier(servers, "--transaction-size", "20")


@pytest.mark.thorough
@pytest.mark.timeout(600)  # where franz-go is built first
@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize(("client", "partitions"), [(librdkafka, 2), (franz_go, 2), (javas, 1)])
def test_a_copy_is_exact_though_its_client_and_brokers_are_killed(
    client: Callable[[str], list[str]], partitions: int, brokers: int, tmp_path: Path
) -> None:
    """Key by key in order, and each record once."""
    with serving(brokers, tmp_path) as (servers, kill_broker):
        make_topics(servers, partitions)
        try:
            command = client(servers)
        except MissingPeer as missing:
            need_or_skip(missing)
        with living(*command, log=tmp_path / "copier.log") as kill_client:
            found = fed(servers, partitions, 2, (kill_client, kill_broker))
    values = {key: [int(each.value() or b"") for each in some] for key, some in found.items()}
    assert values == {b"%d" % key: list(range(key, RECORDS, 2)) for key in range(2)}
