"""The sink's topic: `oncelog.sink.NAME` on the destination cluster, which keeps its register.

What its records come to is `sink_register.py`'s.
"""

from typing import Final

from oncelog.client.door import Brokers, RegisterKind, TopicKeeper, topic_keeper
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import topic_of
from oncelog.spark.sink.sink_register import SinkRegister

StateTopic = TopicKeeper[SinkRegister]

KIND: Final = RegisterKind(
    what="the sink's state",
    refused=SinkRefused,
    missing=MayPass,
    config={"segment.bytes": str(32 << 20), "delete.retention.ms": "3600000"},
    too_large="there are too many lanes for this number of partitions; use fewer tasks (coalesce) or fewer topics",
    cut=(
        "It cannot be told which rows of the batch under way are there already. If none is, go on with a `sink.name` "
        "(for a job a `job.id`) that was never used and `sink.first.batch` = the batch that the checkpoint runs; else "
        "begin with a new checkpoint, `sink.name` and output topic"
    ),
)


def state_topic(brokers: Brokers, sink: str, patience_ms: int) -> StateTopic:
    return topic_keeper(brokers, topic_of(sink), KIND, SinkRegister, patience_ms)
