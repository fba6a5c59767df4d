"""The client: producer, consumer and admin, for oncelog and for any Kafka."""

from typing import TYPE_CHECKING

from oncelog.client.lazy_names import lazily

if TYPE_CHECKING:
    from oncelog.client.admin import Admin as Admin
    from oncelog.client.admin import AdminClient as AdminClient
    from oncelog.client.consumer.asynchronous import AsyncConsumer as AsyncConsumer
    from oncelog.client.consumer.consumer import Consumer as Consumer
    from oncelog.client.consumer.message import Message as Message
    from oncelog.client.consumer.operations import ConsumerGroupMetadata as ConsumerGroupMetadata
    from oncelog.client.errors import KafkaError as KafkaError
    from oncelog.client.errors import KafkaException as KafkaException
    from oncelog.client.producer.asynchronous import AsyncProducer as AsyncProducer
    from oncelog.client.producer.producer import Producer as Producer
    from oncelog.client.saving.saved import SavedProducer as SavedProducer
    from oncelog.client.types import OFFSET_BEGINNING as OFFSET_BEGINNING
    from oncelog.client.types import OFFSET_END as OFFSET_END
    from oncelog.client.types import OFFSET_INVALID as OFFSET_INVALID
    from oncelog.client.types import OFFSET_STORED as OFFSET_STORED
    from oncelog.client.types import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
    from oncelog.client.types import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
    from oncelog.client.types import TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE
    from oncelog.client.types import NewPartitions as NewPartitions
    from oncelog.client.types import NewTopic as NewTopic
    from oncelog.client.types import TopicPartition as TopicPartition

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "admin": "Admin AdminClient",
        "consumer.asynchronous": "AsyncConsumer",
        "consumer.consumer": "Consumer",
        "consumer.message": "Message",
        "consumer.operations": "ConsumerGroupMetadata",
        "errors": "KafkaError KafkaException",
        "producer.asynchronous": "AsyncProducer",
        "producer.producer": "Producer",
        "saving.saved": "SavedProducer",
        "types": "NewPartitions NewTopic TopicPartition "
        "OFFSET_BEGINNING OFFSET_END OFFSET_INVALID OFFSET_STORED "
        "TIMESTAMP_CREATE_TIME TIMESTAMP_LOG_APPEND_TIME TIMESTAMP_NOT_AVAILABLE",
    },
)
