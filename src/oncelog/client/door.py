"""The client's inner parts for those that build upon it (Spark, flows): these names and no others.

They take everything else from `oncelog.client`, by its public names; import-linter holds that. What is here: asking a
cluster again while a failure passes, topics and their configurations, saved producers with what stands in a log
already, columns, and the tables of settings. Each name is imported when it is first used: asking for an offset
loads no numba.
"""

from typing import TYPE_CHECKING

from oncelog.client.lazy_names import lazily

if TYPE_CHECKING:
    from oncelog.client.admin.configs import describe_configs as describe_configs
    from oncelog.client.admin.timeouts import Timeouts as Timeouts
    from oncelog.client.admin.topics import create_topics as create_topics
    from oncelog.client.admin.topics import delete_topics as delete_topics
    from oncelog.client.admin.topics import topic_sizes as topic_sizes
    from oncelog.client.admin.values import ConfigEntry as ConfigEntry
    from oncelog.client.admin.values import ConfigResource as ConfigResource
    from oncelog.client.admin.values import ConfigSource as ConfigSource
    from oncelog.client.admin.values import ResourceType as ResourceType
    from oncelog.client.consumer.arrow import PartitionColumns as PartitionColumns
    from oncelog.client.consumer.decoding import DECODING_LOOPS as DECODING_LOOPS
    from oncelog.client.consumer.inputs import Input as Input
    from oncelog.client.consumer.inputs import Inputs as Inputs
    from oncelog.client.consumer.ranges import DataLost as DataLost
    from oncelog.client.consumer.ranges import Range as Range
    from oncelog.client.consumer.ranges import read_batches as read_batches
    from oncelog.client.consumer.ranges import read_columns as read_columns
    from oncelog.client.errors import error_of as error_of
    from oncelog.client.errors import exception_of as exception_of
    from oncelog.client.errors import is_retriable as is_retriable
    from oncelog.client.fetching.values import EARLIEST as EARLIEST
    from oncelog.client.fetching.values import LATEST as LATEST
    from oncelog.client.fetching.values import OffsetFound as OffsetFound
    from oncelog.client.groups.commits import ToCommit as ToCommit
    from oncelog.client.groups.commits import commit_to_group as commit_to_group
    from oncelog.client.groups.coordinator import Group as Group
    from oncelog.client.net.brokers import Brokers as Brokers
    from oncelog.client.net.loop_thread import LoopThread as LoopThread
    from oncelog.client.net.metadata import Metadata as Metadata
    from oncelog.client.net.offsets import end_offsets as end_offsets
    from oncelog.client.net.offsets import offsets_at as offsets_at
    from oncelog.client.net.retry import UNKNOWN as UNKNOWN
    from oncelog.client.net.retry import NoAnswer as NoAnswer
    from oncelog.client.net.retry import Patience as Patience
    from oncelog.client.net.retry import ask as ask
    from oncelog.client.net.retry import until_heard as until_heard
    from oncelog.client.net.tasks import Tasks as Tasks
    from oncelog.client.net.transaction import Transaction as Transaction
    from oncelog.client.net.transaction import TransactionName as TransactionName
    from oncelog.client.net.transaction import begin_transaction as begin_transaction
    from oncelog.client.net.warm_connections import Warm as Warm
    from oncelog.client.net.warm_connections import cool as cool
    from oncelog.client.net.warm_connections import warm as warm
    from oncelog.client.partition_loops import KEYLESS as KEYLESS
    from oncelog.client.partition_loops import partitions_of as partitions_of
    from oncelog.client.partitioners import KeylessCounter as KeylessCounter
    from oncelog.client.partitioners import Partitioner as Partitioner
    from oncelog.client.partitioners import partitioner as partitioner
    from oncelog.client.producer.buffers import Buffers as Buffers
    from oncelog.client.producer.bulk import BulkSend as BulkSend
    from oncelog.client.producer.encoding import BatchEncoder as BatchEncoder
    from oncelog.client.producer.encoding import fetch_compiled_loops as fetch_compiled_loops
    from oncelog.client.producer.requests import Requests as Requests
    from oncelog.client.producer.requests import take_ids as take_ids
    from oncelog.client.properties import ProducerSettings as ProducerSettings
    from oncelog.client.properties import consumer_settings as consumer_settings
    from oncelog.client.properties import producer_settings as producer_settings
    from oncelog.client.properties.common import CONSUMER as CONSUMER
    from oncelog.client.properties.common import PRODUCER as PRODUCER
    from oncelog.client.properties.table import ALIASES as ALIASES
    from oncelog.client.properties.table import HONOURED as HONOURED
    from oncelog.client.properties.table import PROPERTIES as PROPERTIES
    from oncelog.client.properties.table import for_role as for_role
    from oncelog.client.register.partition import TopicLog as TopicLog
    from oncelog.client.register.topic import RegisterKind as RegisterKind
    from oncelog.client.register.topic import TopicKeeper as TopicKeeper
    from oncelog.client.register.topic import topic_keeper as topic_keeper
    from oncelog.client.saving.errors import BadSavedProducer as BadSavedProducer
    from oncelog.client.saving.errors import CannotResume as CannotResume
    from oncelog.client.saving.errors import ReplayDiffers as ReplayDiffers
    from oncelog.client.saving.errors import TopicGone as TopicGone
    from oncelog.client.saving.errors import TopicMissing as TopicMissing
    from oncelog.client.saving.fencing import kafka_pid as kafka_pid
    from oncelog.client.saving.look_up import look_up as look_up
    from oncelog.client.saving.look_up import reach as reach
    from oncelog.client.saving.memory import forgotten_after_ms as forgotten_after_ms
    from oncelog.client.saving.memory import remembered_or_none as remembered_or_none
    from oncelog.client.saving.memory import surely_remembered_ms as surely_remembered_ms
    from oncelog.client.saving.read_back import slots as slots
    from oncelog.client.saving.read_back import stored_batches as stored_batches
    from oncelog.client.saving.resume import check_metadata as check_metadata
    from oncelog.client.saving.saved_topics import SavedTopic as SavedTopic

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        # Asking a cluster, again while a failure passes.
        "errors": "error_of exception_of is_retriable",
        "fetching.values": "EARLIEST LATEST OffsetFound",
        "groups.commits": "ToCommit commit_to_group",
        "groups.coordinator": "Group",
        "net.brokers": "Brokers",
        "net.loop_thread": "LoopThread",
        "net.metadata": "Metadata",
        "net.offsets": "end_offsets offsets_at",
        "net.retry": "NoAnswer Patience UNKNOWN ask until_heard",
        "net.warm_connections": "Warm cool warm",
        "net.tasks": "Tasks",
        "net.transaction": "Transaction TransactionName begin_transaction",
        # Topics: made, described, configured.
        "admin.configs": "describe_configs",
        "admin.timeouts": "Timeouts",
        "admin.topics": "create_topics delete_topics topic_sizes",
        "admin.values": "ConfigEntry ConfigResource ConfigSource ResourceType",
        # Producers as they are saved, and what stands in a log already.
        "saving.errors": "BadSavedProducer CannotResume ReplayDiffers TopicGone TopicMissing",
        "producer.requests": "Requests take_ids",
        "saving.fencing": "kafka_pid",
        "saving.look_up": "look_up reach",
        "saving.memory": "forgotten_after_ms remembered_or_none surely_remembered_ms",
        "saving.read_back": "slots stored_batches",
        "saving.resume": "check_metadata",
        "saving.saved_topics": "SavedTopic",
        # Registers.
        "register.partition": "TopicLog",
        "register.topic": "RegisterKind TopicKeeper topic_keeper",
        # Columns: read, and placed in partitions.
        "consumer.arrow": "PartitionColumns",
        "consumer.decoding": "DECODING_LOOPS",
        "consumer.inputs": "Input Inputs",
        "consumer.ranges": "DataLost Range read_batches read_columns",
        "partition_loops": "KEYLESS partitions_of",
        "partitioners": "KeylessCounter Partitioner partitioner",
        "producer.buffers": "Buffers",
        "producer.bulk": "BulkSend",
        "producer.encoding": "BatchEncoder fetch_compiled_loops",
        # Settings.
        "properties": "ProducerSettings consumer_settings producer_settings",
        "properties.common": "CONSUMER PRODUCER",
        "properties.table": "ALIASES HONOURED PROPERTIES for_role",
    },
)
