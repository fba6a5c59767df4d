"""FastStream: what it reads it publishes, acknowledged by hand.

FLOW_... python faststream_copying.py
"""

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

broker = KafkaBroker(os.environ["FLOW_SERVERS"], enable_idempotence=True)
app = FastStream(broker)


@broker.subscriber(
    os.environ["FLOW_IN"],
    group_id=os.environ["FLOW_APP"],
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def copy(message: KafkaMessage) -> None:
    await broker.publish(message.body, os.environ["FLOW_OUT"], key=message.raw_message.key)


if __name__ == "__main__":
    asyncio.run(app.run())
