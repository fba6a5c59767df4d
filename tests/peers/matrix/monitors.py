"""Programs that watch a cluster, and tell Prometheus: what they tell is compared with what was done."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oncelog.client import Consumer, Producer, TopicPartition
from tests.cluster.stock.doors import TOPIC
from tests.cluster.writing import PARTITIONS
from tests.peers.matrix.installing import on_path
from tests.peers.matrix.services import PATIENCE_S, Service, in_two_lives
from tests.peers.matrix.steps import AT_ONCE, Step, World
from tests.waiting import until

GROUP: Final = "watched"
BEHIND: Final = 60  # records of each partition
ROUND_TRIPS: Final = 10
Figures = dict[tuple[str, ...], float]


def figures(page: str, name: str, *labels: str) -> Figures:
    """Of each series of that name, by what it says of these."""
    found: Figures = {}
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match is not None:
            said = dict(re.findall(r'(\w+)="([^"]*)"', match[1] or ""))
            found[tuple(said[each] for each in labels)] = float(match[2])
    return found


def of_ours(found: Figures, *ours: str) -> dict[int, float]:
    """By partition, which is named last."""
    return {int(names[-1]): figure for names, figure in found.items() if names[:-1] == ours}


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    program: str
    command: Callable[[World, int], list[str]]  # behind the program; the port on which it tells
    variables: Callable[[World, int], dict[str, str]] = lambda world, port: {}
    ends: tuple[str, ...]  # a name, and its labels
    lags: tuple[str, ...]
    also: Callable[[str], bool] = lambda page: True

    def watch(self, world: World) -> None:
        world.make_topics(TOPIC)
        service = Service("monitor", world.folder)
        command = [on_path(self.program), *self.command(world, service.port)]
        variables = self.variables(world, service.port)

        def work(life: int) -> None:
            end = (life + 1) * AT_ONCE // PARTITIONS
            write(world.servers, AT_ONCE)
            commit(world.servers, end - BEHIND)
            expected = dict.fromkeys(range(PARTITIONS), float(end)), dict.fromkeys(range(PARTITIONS), float(BEHIND))

            def is_told() -> bool:
                page = service.ask("/metrics")
                ends = of_ours(figures(page, *self.ends), TOPIC)
                lags = of_ours(figures(page, *self.lags), GROUP, TOPIC)
                return (ends, lags) == expected and self.also(page)

            until(is_told, f"{expected} to be told", give_up_seconds=PATIENCE_S)

        in_two_lives(service, lambda: service.live(command, "/metrics", variables), work)


def write(servers: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    producer.flush(PATIENCE_S)


def commit(servers: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        places = [TopicPartition(TOPIC, index, offset) for index in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def goes_round(page: str) -> bool:
    """Its own records come back to it, and it says how large the topic is on the disk."""
    received = figures(page, "kminion_end_to_end_messages_received_total", "partition_id")
    sizes = figures(page, "kminion_kafka_topic_log_dir_size_total_bytes", "topic_name")
    return sum(received.values()) >= ROUND_TRIPS and sizes.get((TOPIC,), 0) > 0


KMINION: Final = Monitor(
    program="kminion",
    command=lambda world, port: [],
    variables=lambda world, port: {
        "KAFKA_BROKERS": world.servers,
        "EXPORTER_HOST": "127.0.0.1",
        "EXPORTER_PORT": str(port),
        "MINION_CONSUMERGROUPS_SCRAPEMODE": "offsetsTopic",  # it reads what groups have committed itself
        "MINION_ENDTOEND_ENABLED": "true",
        "MINION_ENDTOEND_TOPICMANAGEMENT_REPLICATIONFACTOR": "1",
    },
    ends=("kminion_kafka_topic_partition_high_water_mark", "topic_name", "partition_id"),
    lags=("kminion_kafka_consumer_group_topic_partition_lag", "group_id", "topic_name", "partition_id"),
    also=goes_round,
)
KAFKA_EXPORTER: Final = Monitor(
    program="kafka_exporter",
    command=lambda world, port: [f"--kafka.server={world.servers}", f"--web.listen-address=127.0.0.1:{port}"],
    ends=("kafka_topic_partition_current_offset", "topic", "partition"),
    lags=("kafka_consumergroup_lag", "consumergroup", "topic", "partition"),
)
WATCHED: Final = "tells how far topics and a group are"
BY_KMINION: Final = Step(
    f"{WATCHED}, from `__consumer_offsets` itself, and how long its own records take; started again meanwhile",
    KMINION.watch,
)
BY_EXPORTER: Final = Step(f"{WATCHED}; started again meanwhile", KAFKA_EXPORTER.watch)
