"""Every option of the format `oncelog`, once: what reads them and the page docs/spark-options.md are made from it."""

import re
from typing import Any, Final

from oncelog.settings import LONG_MAX, Kind, Setting
from oncelog.spark.option import READ, SINK, STREAM, WRITE, BadOption
from oncelog.spark.source import bounds

_BOTH_READ: Final = (READ, STREAM)
_BOTH_WRITE: Final = (WRITE, SINK)
_JSON_OFFSETS: Final = 'JSON, `{"topicA":{"0":23,"1":-2}}`'
_JSON_TIMES: Final = 'JSON, `{"topicA":{"0":1700000000000}}`'
# Options that a stream does not take, in Spark's words.
NOT_FOR_A_STREAM: Final = {
    "endingOffsets": "ending offset not valid in streaming queries",
    "endingTimestamp": "ending timestamp not valid in streaming queries",
    "endingOffsetsByTimestamp": "ending timestamp not valid in streaming queries",
}


def _topics(value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
    if not found:
        raise BadOption(f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'")
    return found


def _pattern(pattern: str) -> str:
    if not pattern:
        raise BadOption(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{pattern}'"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadOption(f"Option 'subscribePattern' is no regular expression: {error}: '{pattern}'") from None
    return pattern


def _option(
    name: str, attribute: str, roles: tuple[str, ...], doc: str, kind: Kind = Kind.TEXT, **more: Any
) -> Setting:
    return Setting(name=name, attribute=attribute, kind=kind, roles=roles, doc=doc, **{"default": None, **more})


def _truth(name: str, attribute: str, roles: tuple[str, ...], default: bool, doc: str) -> Setting:
    return _option(name, attribute, roles, doc, Kind.BOOLEAN, default=default)


def _count(name: str, attribute: str, roles: tuple[str, ...], doc: str, low: int = 0, **more: Any) -> Setting:
    return _option(name, attribute, roles, doc, Kind.INTEGER, low=low, high=LONG_MAX, **more)


SOURCE: Final = (
    _option(
        "subscribe", "topics", _BOTH_READ, "The topics to read.", convert=_topics, takes="topics with commas between"
    ),
    _option(
        "subscribePattern",
        "pattern",
        _BOTH_READ,
        "Read the topics whose whole name matches. A stream also reads those that come to be later, from their "
        "beginning. Kafka's own topics are left out.",
        convert=_pattern,
        takes="a regular expression",
    ),
    _option(
        "assign",
        "partitions",
        _BOTH_READ,
        "Read these partitions. One of `assign`, `subscribe` and `subscribePattern` is needed.",
        convert=bounds.read_partitions,
        takes='JSON, `{"topicA":[0,1]}`',
    ),
    _option(
        "startingOffsets",
        "start",
        _BOTH_READ,
        "Where to begin; for a stream, when it begins: restarted it goes on where it was. In JSON -2 is earliest, -1 "
        "latest, and all partitions must be named.",
        convert=bounds.read_offsets,
        takes=f"`earliest`, `latest`, or {_JSON_OFFSETS}",
        default_doc="`earliest` for a batch, `latest` for a stream",
    ),
    _option(
        "startingTimestamp",
        "start_time",
        _BOTH_READ,
        "Begin at the first record of this time or later. Goes before the other two ways to say where to begin.",
        convert=bounds.read_time,
        takes="milliseconds since 1970",
    ),
    _option(
        "startingOffsetsByTimestamp",
        "start_times",
        _BOTH_READ,
        "The same for each partition. Goes before `startingOffsets`.",
        convert=bounds.read_times,
        takes=_JSON_TIMES,
    ),
    _option(
        "startingOffsetsByTimestampStrategy",
        "no_match",
        _BOTH_READ,
        "What to do in a partition without any record of that time or later.",
        Kind.CHOICE,
        words={"error": "error", "latest": "latest"},
        default="error",
    ),
    _option(
        "endingOffsets",
        "end",
        (READ,),
        "Where a batch ends, this offset not included.",
        convert=bounds.read_offsets,
        takes=f"`latest`, or {_JSON_OFFSETS}",
        default="latest",
    ),
    _option(
        "endingTimestamp",
        "end_time",
        (READ,),
        "End before the first record of this time or later.",
        convert=bounds.read_time,
        takes="milliseconds since 1970",
    ),
    _option(
        "endingOffsetsByTimestamp",
        "end_times",
        (READ,),
        "The same for each partition.",
        convert=bounds.read_times,
        takes=_JSON_TIMES,
    ),
    _truth(
        "failOnDataLoss",
        "fail_on_data_loss",
        _BOTH_READ,
        True,
        "Whether it is an error when records that were to be read are gone (retention, a deleted topic, a truncated "
        "log). With `false` it is a warning in the log, and what is there is read.",
    ),
    _truth("includeHeaders", "include_headers", _BOTH_READ, False, "Whether there is a column `headers`."),
    _count(
        "minPartitions",
        "min_partitions",
        _BOTH_READ,
        "Cut the larger partitions so that there are about this many tasks. The parts of one partition are then read "
        "at the same time, so what is written from them is not in the order of the partition.",
        low=1,
        default_doc="one task for each partition",
    ),
    _count(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        _BOTH_READ,
        "Cut partitions so that no task has more records than this.",
        low=1,
    ),
    _count(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        (STREAM,),
        "The most records of a micro-batch, shared among partitions by what waits in each.",
        low=1,
    ),
    _count(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        (STREAM,),
        "Wait for this number of records, at most for `maxTriggerDelay`. Says nothing with `availableNow`.",
    ),
    _option("maxTriggerDelay", "max_trigger_delay_ms", (STREAM,), "See above.", Kind.DURATION, default="15m"),
    _option(
        "groupIdPrefix",
        "group_id_prefix",
        _BOTH_READ,
        "Read and of no effect: nothing here joins a group. `kafka.group.id` names the group to which positions are "
        "committed.",
    ),
    _count(
        "kafkaConsumer.pollTimeoutMs",
        "patience_ms",
        _BOTH_READ,
        "For how long a task, or a query that runs, waits for a broker that does not answer before it fails.",
        low=1,
        default=120000,
        takes="milliseconds",
    ),
    _count(
        "fetchOffset.numRetries",
        "offset_retries",
        _BOTH_READ,
        "How often offsets are asked for again that cannot be true, because they are below those that were read.",
        default=3,
    ),
    _count(
        "fetchOffset.retryIntervalMs",
        "offset_retry_ms",
        _BOTH_READ,
        "How long to wait before that.",
        default=1000,
        takes="milliseconds",
    ),
)

TARGET: Final = (
    _option(
        "topic",
        "topic",
        _BOTH_WRITE,
        "Where all rows go. It goes before the column.",
        takes="a topic",
        default_doc="the column `topic` of each row",
    ),
    _option(
        "sink.name",
        "sink_name",
        (SINK,),
        "The name of the sink, under which its state is kept in the topic `oncelog.sink.NAME`.",
        default_doc="the id of the query",
    ),
    _count(
        "sink.first.batch",
        "first_batch",
        (SINK,),
        "Lets a new sink begin with this batch, for a checkpoint that was another sink's.",
    ),
    _truth(
        "transactional.batches",
        "transactional_batches",
        (SINK,),
        False,
        "Whether each batch is a transaction of its own, written by one task: readers of committed records see all of "
        "it or nothing (docs/spark-transactions.md).",
    ),
    _option(
        "job.id",
        "job_id",
        (WRITE,),
        "The name of a batch job: run twice, written once. Without it a job that is run again writes again.",
    ),
    _option(
        "checkpointLocation",
        "checkpoint_location",
        (SINK,),
        "Spark's: where the query keeps its progress.",
        takes="a path",
    ),
    _option("queryName", "query_name", (SINK,), "Spark's: the name of the query."),
    _truth(
        "asyncProgressTrackingEnabled",
        "async_progress_tracking",
        (SINK,),
        False,
        "Spark's. Only `false` is possible here: a batch that Spark does not write down in time would be run twice.",
    ),
)

OPTIONS: Final = (*SOURCE, *TARGET)
BY_NAME: Final = {each.name.lower(): each for each in OPTIONS}
