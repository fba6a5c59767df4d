"""Makes partition_table.json: what the real librdkafka and the real Java producer do with a few hundred keys.

`python -m tests.client.partition_table` writes it anew. librdkafka sends to a server; Java is asked in a jshell with
Kafka's own jar. Both are asked, not calculated.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

import oncelog
from tests.peers.jars import kafka_jars

PARTITIONS = 7
NAMES = ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
FILE = Path(__file__).parent / "partition_table.json"


def some_keys() -> list[bytes]:
    chance = random.Random(20240607)
    texts = [f"user-{number}".encode() for number in range(100)]
    odd = [chance.randbytes(length) for length in (*range(40), 63, 64, 65, 127) for _ in range(4)]
    high = [bytes([255]) * length for length in range(1, 20)] + [bytes([128]) * length for length in range(1, 20)]
    return list(dict.fromkeys([*texts, *odd, *high, "clé-été-☃".encode()]))


def of_librdkafka(name: str, keys: list[bytes]) -> list[int | None]:
    found: dict[bytes | None, int | None] = {}

    def placed(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        found[message.value()] = message.partition()

    with oncelog.Server(settings={"num.partitions": str(PARTITIONS)}) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "partitioner": name, "linger.ms": 1})
        for key in keys:
            producer.produce("keys", key=key, value=key, on_delivery=placed)
        assert producer.flush(30) == 0
    return [found[key] for key in keys]


def of_java(keys: list[bytes], count: int) -> list[int]:
    """What BuiltInPartitioner.partitionForKey says, in the order of the keys."""
    class_path = ":".join(str(jar) for jar in kafka_jars().glob("*.jar"))
    place = f"BuiltInPartitioner.partitionForKey(java.util.HexFormat.of().parseHex(hex), {count})"
    lines = [
        "import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;",
        f'String keys = "{",".join(key.hex() for key in keys)}";',
        f'for (String hex : keys.split(",", -1)) System.out.println(hex + " " + {place});',
        "/exit",
    ]
    answer = subprocess.run(
        ["jshell", "--class-path", class_path, "-s", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    rows = [line.rpartition(" ") for line in answer.splitlines() if " " in line]
    found = {key: int(place) for key, _, place in rows}
    return [found[key.hex()] for key in keys]


def main() -> None:
    keys = some_keys()
    table = {
        "partitions": PARTITIONS,
        "keys": [key.hex() for key in keys],
        "librdkafka": {name: of_librdkafka(name, keys) for name in NAMES},
        "java": {str(count): of_java(keys, count) for count in (7, 50)},
    }
    FILE.write_text(json.dumps(table) + "\n")
    sys.stdout.write(f"{len(keys)} keys\n")


if __name__ == "__main__":
    main()
