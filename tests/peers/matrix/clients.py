"""Libraries, behind the doors of tests/cluster/stock: a topic, records, a group, transactions."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Final

import confluent_kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

from tests.cluster.stock.at_once import ToolMember, ToolSender
from tests.cluster.stock.by_lines import LineMember, LineSender
from tests.cluster.stock.doors import TOPIC
from tests.cluster.stock.in_c import LibrdkafkaMember, LibrdkafkaSender
from tests.cluster.stock.in_go import SOURCES as FRANZ
from tests.cluster.stock.in_go import program as franz_program
from tests.cluster.stock.in_java import JavaMember
from tests.cluster.stock.in_python import AiokafkaMember, AiokafkaSender, KafkaPythonMember, KafkaPythonSender
from tests.peers.jars import kafka_jars, kafka_java
from tests.peers.matrix.installing import go, go_version, java_version, node, node_version, on_path
from tests.peers.matrix.steps import Peer, Step, copied, created, sent_and_read

TOOL_S: Final = 60


def by_lines(
    program: Callable[[], list[str]], codec: str, *, is_idempotent: bool = True, transacts: bool = True
) -> tuple[Step, ...]:
    def create(servers: str, topic: str, partitions: int) -> None:
        order = [*program(), "create", servers, topic, str(partitions)]
        subprocess.run(order, check=True, timeout=TOOL_S, stdin=subprocess.DEVNULL)

    return (
        created(create),
        *sent_and_read(
            lambda servers, codec: LineSender(program(), servers, codec),
            partial(LineMember, program),
            codec,
            is_idempotent=is_idempotent,
        ),
        *([copied(lambda *words: [*program(), "copy", *words])] if transacts else []),
    )


def of_module(name: str) -> Step:
    return copied(lambda *words: [sys.executable, "-m", name, *words])


# --- Python -----------------------------------------------------------------------------------------------------------


def nothing() -> None:
    """It is there wherever these tests run."""


def create_by_librdkafka(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def create_by_aiokafka(servers: str, topic: str, partitions: int) -> None:
    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.create_topics([AiokafkaTopic(topic, partitions, 1)])
        await admin.close()

    asyncio.run(create())


def create_by_kafka_python(servers: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([KafkaPythonTopic(topic, partitions, 1)])
    admin.close()


# --- Kafka's own tools, and kcat --------------------------------------------------------------------------------------


def create_by_java(servers: str, topic: str, partitions: int) -> None:
    order = kafka_java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers, "--create")
    order += ["--topic", topic, "--partitions", str(partitions), "--replication-factor", "1"]
    subprocess.run(order, check=True, capture_output=True, timeout=TOOL_S)


def sending_java(servers: str, codec: str) -> list[str]:
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    order = kafka_java("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", servers, "--topic", TOPIC)
    return [*order, "--compression-codec", codec, *keys]


def copying_java(servers: str, source: str, target: str, name: str) -> list[str]:
    return kafka_java(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", servers, "--transactional-id", name, "--consumer-group", name),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transaction-size", "20", "--enable-random-aborts", "--use-group-metadata", "--group-mode"),
    )


def kcat() -> str:
    return on_path("kcat", " (`apt-get install kcat`)")


def sending_kcat(servers: str, codec: str) -> list[str]:
    return [kcat(), "-q", "-P", "-b", servers, "-t", TOPIC, "-K:", "-z", codec, "-X", "enable.idempotence=true"]


def reading_kcat(servers: str, group: str) -> list[str]:
    how = ("-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=200")
    return [kcat(), "-q", "-u", "-b", servers, *how, "-f", "%p %o %s\\n", "-G", group, TOPIC]


PLATFORMATIC: Final = "@platformatic/kafka"
CLIENTS: Final = (
    Peer(
        name="librdkafka, through confluent-kafka",
        version=lambda: f"{confluent_kafka.libversion()[0]}, {version('confluent-kafka')}",
        install=nothing,
        steps=(
            created(create_by_librdkafka),
            *sent_and_read(LibrdkafkaSender, LibrdkafkaMember, "zstd"),
            of_module("tests.peers.copier"),
        ),
    ),
    Peer(
        name="aiokafka",
        version=lambda: version("aiokafka"),
        install=nothing,
        steps=(
            created(create_by_aiokafka),
            *sent_and_read(AiokafkaSender, AiokafkaMember, "snappy"),
            of_module("tests.peers.matrix.python.aiokafka_copier"),
        ),
    ),
    Peer(
        name="kafka-python",
        version=lambda: version("kafka-python"),
        install=nothing,
        steps=(
            created(create_by_kafka_python),
            *sent_and_read(KafkaPythonSender, KafkaPythonMember, "lz4"),
            of_module("tests.peers.matrix.python.kafka_python_copier"),
        ),
    ),
    Peer(
        name="Java client, through Kafka's tools",
        version=lambda: java_version("kafka", "kafka-tools"),
        install=kafka_jars,
        steps=(
            created(create_by_java),
            *sent_and_read(partial(ToolSender, sending_java), JavaMember, "lz4"),
            copied(copying_java),
        ),
    ),
    Peer(
        name="franz-go",
        version=lambda: go_version("github.com/twmb/franz-go", FRANZ),
        install=franz_program,
        steps=by_lines(lambda: [str(franz_program())], "zstd"),
    ),
    Peer(
        name="sarama",
        version=lambda: go_version("github.com/IBM/sarama"),
        install=lambda: go("sarama"),
        steps=by_lines(lambda: go("sarama"), "zstd"),
    ),
    Peer(
        name="kafka-go of segmentio",
        version=lambda: go_version("github.com/segmentio/kafka-go"),
        install=lambda: go("segmentio"),
        steps=by_lines(lambda: go("segmentio"), "lz4", is_idempotent=False, transacts=False),
    ),
    Peer(
        name="kafkajs",
        version=lambda: node_version("kafkajs"),
        install=lambda: node("kafkajs"),
        steps=by_lines(lambda: node("kafkajs"), "gzip"),
    ),
    Peer(
        name=PLATFORMATIC,
        version=lambda: node_version(PLATFORMATIC),
        install=lambda: node("platformatic"),
        steps=by_lines(lambda: node("platformatic"), "gzip"),
    ),
    Peer(
        name="confluent-kafka-go",
        version=lambda: go_version("github.com/confluentinc/confluent-kafka-go/v2"),
        install=lambda: go("confluent"),
        steps=by_lines(lambda: go("confluent"), "zstd"),
        is_quick=False,  # it brings a librdkafka for every kind of machine: hundreds of megabytes
    ),
    Peer(
        name="kcat",
        version=lambda: "1.7",
        install=kcat,
        steps=sent_and_read(partial(ToolSender, sending_kcat), partial(ToolMember, reading_kcat), "zstd"),
        is_quick=False,
    ),
)
