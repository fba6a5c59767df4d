"""The client: producer, consumer and admin, for oncelog and for any Kafka."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.client.admin import Admin, AdminClient
    from oncelog.client.consumer.asynchronous import AsyncConsumer
    from oncelog.client.consumer.consumer import Consumer
    from oncelog.client.consumer.message import Message
    from oncelog.client.consumer.operations import ConsumerGroupMetadata
    from oncelog.client.errors import KafkaError, KafkaException
    from oncelog.client.producer.asynchronous import AsyncProducer
    from oncelog.client.producer.producer import Producer
    from oncelog.client.saving.saved import SavedProducer
    from oncelog.client.types import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        OFFSET_STORED,
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        NewPartitions,
        NewTopic,
        TopicPartition,
    )

_HOMES = {
    "OFFSET_BEGINNING": "oncelog.client.types",
    "OFFSET_END": "oncelog.client.types",
    "OFFSET_INVALID": "oncelog.client.types",
    "OFFSET_STORED": "oncelog.client.types",
    "TIMESTAMP_CREATE_TIME": "oncelog.client.types",
    "TIMESTAMP_LOG_APPEND_TIME": "oncelog.client.types",
    "TIMESTAMP_NOT_AVAILABLE": "oncelog.client.types",
    "AdminClient": "oncelog.client.admin",
    "ConsumerGroupMetadata": "oncelog.client.consumer.operations",
    "Admin": "oncelog.client.admin",
    "AsyncConsumer": "oncelog.client.consumer.asynchronous",
    "AsyncProducer": "oncelog.client.producer.asynchronous",
    "Consumer": "oncelog.client.consumer.consumer",
    "KafkaError": "oncelog.client.errors",
    "KafkaException": "oncelog.client.errors",
    "Message": "oncelog.client.consumer.message",
    "NewPartitions": "oncelog.client.types",
    "NewTopic": "oncelog.client.types",
    "Producer": "oncelog.client.producer.producer",
    "SavedProducer": "oncelog.client.saving.saved",
    "TopicPartition": "oncelog.client.types",
}

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Admin",
    "AdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerGroupMetadata",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "Producer",
    "SavedProducer",
    "TopicPartition",
]


def __getattr__(name: str) -> object:
    """Each is imported when it is first used: a program that only produces does not pay for the rest."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
