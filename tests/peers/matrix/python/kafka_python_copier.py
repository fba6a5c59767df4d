"""kafka-python, which copies a topic in transactions; what it is about to commit, it aborts first.

python -m tests.peers.matrix.python.kafka_python_copier SERVERS FROM TO NAME
"""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from tests.peers.copier import AT_ONCE


def copy(servers: str, source: str, target: str, name: str) -> None:
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=name,
        group_instance_id=name,  # who is started again goes on at once
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=20_000)
    producer.init_transactions()
    while True:
        read = consumer.poll(timeout_ms=500, max_records=AT_ONCE)
        for is_committed in (False, True) if read else ():
            producer.begin_transaction()
            for messages in read.values():
                for each in messages:
                    producer.send(target, each.value, each.key, partition=each.partition)
            if is_committed:
                offsets = {place: OffsetAndMetadata(some[-1].offset + 1, "", -1) for place, some in read.items()}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
            else:
                producer.abort_transaction()


if __name__ == "__main__":
    copy(*sys.argv[1:])
