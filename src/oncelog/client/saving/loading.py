"""Positions and producer, as a group holds them."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from oncelog.client.errors import invalid_argument
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.properties import consumer_settings
from oncelog.client.saving.committed import Savable
from oncelog.client.saving.ownership import fetch_committed
from oncelog.client.types import TopicPartition

S = TypeVar("S", bound=Savable)


def load(properties: Mapping[str, Any], decode: Callable[[bytes], S]) -> tuple[list[TopicPartition], S | None]:
    thread = LoopThread("oncelog-load")
    try:
        return thread.run(load_async(properties, decode))
    finally:
        thread.stop()


async def load_async(
    properties: Mapping[str, Any], decode: Callable[[bytes], S]
) -> tuple[list[TopicPartition], S | None]:
    settings = consumer_settings(properties)
    if not settings.group_id:
        raise invalid_argument("a saved producer is loaded from a group: `group.id` must be set")
    brokers = Brokers(settings)
    await brokers.start()
    try:
        held = await fetch_committed(brokers, settings.group_id, decode)
    finally:
        await brokers.close()
    positions = [
        TopicPartition(each.topic, each.partition, each.offset, each.metadata or None, each.leader_epoch)
        for each in held.positions
    ]
    return positions, held.saved
