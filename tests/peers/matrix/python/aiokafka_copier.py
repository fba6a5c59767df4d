"""aiokafka, which copies a topic in transactions; what it is about to commit, it aborts first.

python -m tests.peers.matrix.python.aiokafka_copier SERVERS FROM TO NAME
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.peers.copier import AT_ONCE


async def copy(servers: str, source: str, target: str, name: str) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=name,
        group_instance_id=name,  # who is started again goes on at once
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=20_000)
    await producer.start()
    await consumer.start()
    while True:
        read = await consumer.getmany(timeout_ms=500, max_records=AT_ONCE)
        some = [message for messages in read.values() for message in messages]
        for is_committed in (False, True) if some else ():
            await producer.begin_transaction()
            for each in some:
                await producer.send(target, each.value, each.key, each.partition)
            if is_committed:
                offsets = {place: messages[-1].offset + 1 for place, messages in read.items()}
                await producer.send_offsets_to_transaction(offsets, name)
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:]))
