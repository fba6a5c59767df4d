"""Every option of the format `oncelog`, once: what reads them and the page docs/spark-options.md are made from it."""

import re
from collections.abc import Callable
from typing import Any, Final

from oncelog.spark import option
from oncelog.spark.option import READ, SINK, STREAM, WRITE, BadOption, Option
from oncelog.spark.source import bounds

_BOTH_READ: Final = (READ, STREAM)
_BOTH_WRITE: Final = (WRITE, SINK)
_ENDS: Final = ((STREAM, "ending offset not valid in streaming queries"),)
_END_TIMES: Final = ((STREAM, "ending timestamp not valid in streaming queries"),)
_JSON_OFFSETS: Final = 'JSON, `{"topicA":{"0":23,"1":-2}}`'
_JSON_TIMES: Final = 'JSON, `{"topicA":{"0":1700000000000}}`'


def _topics(name: str, value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
    if not found:
        raise BadOption(f"No topics to subscribe to as specified value for option '{name}' is '{value}'")
    return found


def _pattern(name: str, value: str) -> str:
    pattern = value.strip()
    if not pattern:
        raise BadOption(f"Pattern to subscribe is empty as specified value for option '{name}' is '{value}'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadOption(f"Option '{name}' is no regular expression: {error}: '{pattern}'") from None
    return pattern


def _bound(read: Callable[[str], Any]) -> Callable[[str, str], Any]:
    def parse(name: str, value: str) -> Any:
        try:
            return read(value)
        except bounds.BadBound as error:
            raise BadOption(f"Option '{name}': {error}") from None

    return parse


def _option(
    name: str,
    attribute: str,
    takes: str,
    parse: Callable[[str, str], Any],
    used_by: tuple[str, ...],
    default: str,
    doc: str,
    is_refused_by: tuple[tuple[str, str], ...] = (),
) -> Option:
    return Option(
        name=name,
        attribute=attribute,
        takes=takes,
        parse=parse,
        used_by=used_by,
        default=default,
        doc=doc,
        is_refused_by=is_refused_by,
    )


SOURCE: Final = (
    _option("subscribe", "topics", "topics with commas between", _topics, _BOTH_READ, "", "The topics to read."),
    _option(
        "subscribePattern",
        "pattern",
        "a regular expression",
        _pattern,
        _BOTH_READ,
        "",
        "Read the topics whose whole name matches. A stream also reads those that come to be later, from their "
        "beginning. Kafka's own topics are left out.",
    ),
    _option(
        "assign",
        "partitions",
        'JSON, `{"topicA":[0,1]}`',
        _bound(bounds.read_partitions),
        _BOTH_READ,
        "",
        "Read these partitions. One of `assign`, `subscribe` and `subscribePattern` is needed.",
    ),
    _option(
        "startingOffsets",
        "start",
        f"`earliest`, `latest`, or {_JSON_OFFSETS}",
        _bound(bounds.read_offsets),
        _BOTH_READ,
        "`earliest` for a batch, `latest` for a stream",
        "Where to begin; for a stream, when it begins: restarted it goes on where it was. In JSON -2 is earliest, -1 "
        "latest, and all partitions must be named.",
    ),
    _option(
        "startingTimestamp",
        "start_time",
        "milliseconds since 1970",
        _bound(bounds.read_time),
        _BOTH_READ,
        "",
        "Begin at the first record of this time or later. Goes before the other two ways to say where to begin.",
    ),
    _option(
        "startingOffsetsByTimestamp",
        "start_times",
        _JSON_TIMES,
        _bound(bounds.read_times),
        _BOTH_READ,
        "",
        "The same for each partition. Goes before `startingOffsets`.",
    ),
    _option(
        "startingOffsetsByTimestampStrategy",
        "no_match",
        "`error`, `latest`",
        option.one_of("error", "latest"),
        _BOTH_READ,
        "`error`",
        "What to do in a partition without any record of that time or later.",
    ),
    _option(
        "endingOffsets",
        "end",
        f"`latest`, or {_JSON_OFFSETS}",
        _bound(bounds.read_offsets),
        (READ,),
        "`latest`",
        "Where a batch ends, this offset not included.",
        _ENDS,
    ),
    _option(
        "endingTimestamp",
        "end_time",
        "milliseconds since 1970",
        _bound(bounds.read_time),
        (READ,),
        "",
        "End before the first record of this time or later.",
        _END_TIMES,
    ),
    _option(
        "endingOffsetsByTimestamp",
        "end_times",
        _JSON_TIMES,
        _bound(bounds.read_times),
        (READ,),
        "",
        "The same for each partition.",
        _END_TIMES,
    ),
    _option(
        "failOnDataLoss",
        "fail_on_data_loss",
        "`true`, `false`",
        option.truth,
        _BOTH_READ,
        "`true`",
        "Whether it is an error when records that were to be read are gone (retention, a deleted topic, a truncated "
        "log). With `false` it is a warning in the log, and what is there is read.",
    ),
    _option(
        "includeHeaders",
        "include_headers",
        "`true`, `false`",
        option.truth,
        _BOTH_READ,
        "`false`",
        "Whether there is a column `headers`.",
    ),
    _option(
        "minPartitions",
        "min_partitions",
        "a number",
        option.positive,
        _BOTH_READ,
        "one task for each partition",
        "Cut the larger partitions so that there are about this many tasks. The parts of one partition are then read "
        "at the same time, so what is written from them is not in the order of the partition.",
    ),
    _option(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        "a number",
        option.positive,
        _BOTH_READ,
        "",
        "Cut partitions so that no task has more records than this.",
    ),
    _option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        "a number",
        option.positive,
        (STREAM,),
        "",
        "The most records of a micro-batch, shared among partitions by what waits in each.",
    ),
    _option(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        "a number",
        option.whole_number,
        (STREAM,),
        "",
        "Wait until so many records are there, at most for `maxTriggerDelay`. Says nothing with `availableNow`.",
    ),
    _option("maxTriggerDelay", "max_trigger_delay_ms", "a time", option.duration_ms, (STREAM,), "`15m`", "See above."),
    _option(
        "groupIdPrefix",
        "group_id_prefix",
        "text",
        option.text,
        _BOTH_READ,
        "",
        "Read and of no effect: nothing here joins a group. `kafka.group.id` names the group to which positions are "
        "committed.",
    ),
    _option(
        "kafkaConsumer.pollTimeoutMs",
        "patience_ms",
        "milliseconds",
        option.positive,
        _BOTH_READ,
        "`120000`",
        "For how long a task, or a query that runs, waits for a broker that does not answer before it fails.",
    ),
    _option(
        "fetchOffset.numRetries",
        "offset_retries",
        "a number",
        option.whole_number,
        _BOTH_READ,
        "`3`",
        "How often offsets are asked for again that cannot be true, because they are below those that were read.",
    ),
    _option(
        "fetchOffset.retryIntervalMs",
        "offset_retry_ms",
        "milliseconds",
        option.whole_number,
        _BOTH_READ,
        "`1000`",
        "How long to wait before that.",
    ),
)

TARGET: Final = (
    _option(
        "topic",
        "topic",
        "a topic",
        option.text,
        _BOTH_WRITE,
        "the column `topic` of each row",
        "Where all rows go. It goes before the column.",
    ),
    _option(
        "sink.name",
        "sink_name",
        "text",
        option.text,
        (SINK,),
        "the id of the query",
        "The name of the sink, under which its state is kept in the topic `oncelog.sink.NAME`.",
    ),
    _option(
        "sink.first.batch",
        "first_batch",
        "a number",
        option.whole_number,
        (SINK,),
        "",
        "Lets a new sink begin with this batch, for a checkpoint that was another sink's.",
    ),
    _option(
        "job.id",
        "job_id",
        "text",
        option.text,
        (WRITE,),
        "",
        "The name of a batch job: run twice, written once. Without it a job that is run again writes again.",
    ),
    _option(
        "checkpointLocation",
        "checkpoint_location",
        "a path",
        option.text,
        (SINK,),
        "",
        "Spark's: where the query keeps its progress.",
    ),
    _option("queryName", "query_name", "text", option.text, (SINK,), "", "Spark's: the name of the query."),
    _option(
        "asyncProgressTrackingEnabled",
        "async_progress_tracking",
        "`true`, `false`",
        option.truth,
        (SINK,),
        "`false`",
        "Spark's. Only `false` is possible here: a batch that Spark does not write down in time would be run twice.",
    ),
)

OPTIONS: Final = (*SOURCE, *TARGET)
