"""The options of source and sink: read, refused with the nearest known name, and checked against each other.

Every name is looked at without its case, as Spark does. What is refused is refused in the words of Spark's own source
where that refuses it too.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from oncelog.client.door import EARLIEST, LATEST
from oncelog.references import resolved
from oncelog.settings import Setting, SettingsError, nearest
from oncelog.slots import AnyPlace
from oncelog.spark import kafka_properties
from oncelog.spark.kafka_properties import PREFIX, BadProperty
from oncelog.spark.option import READ, SINK, STREAM, WRITE, BadOption, value_of
from oncelog.spark.option_table import BY_NAME, NOT_FOR_A_STREAM, SOURCE, TARGET
from oncelog.spark.source.bounds import (
    FROM_EARLIEST,
    FROM_LATEST,
    Bound,
    Offsets,
    Time,
    Times,
)

__all__ = ["BadOption", "SinkOptions", "SourceOptions", "check_source_options", "sink_options", "source_options"]

_log: Final = logging.getLogger("oncelog.spark")
_CHOICES: Final = "subscribe, subscribePattern, assign"
_IGNORED: Final = "%s option ignored in batch queries"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    client: dict[str, str] = field(repr=False)  # a password may be among them
    group_id: str | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[AnyPlace, ...] | None = None
    start: Bound = FROM_EARLIEST
    end: Bound = FROM_LATEST
    no_match: str = "error"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    patience_ms: int = 120_000
    offset_retries: int = 3
    offset_retry_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    client: dict[str, str] = field(repr=False)  # a password may be among them
    topic: str | None = None
    sink_name: str | None = None
    first_batch: int | None = None
    transactional_batches: bool = False
    job_id: str | None = None
    checkpoint_location: str | None = None
    query_name: str | None = None
    async_progress_tracking: bool = False


def source_options(given: Mapping[str, str], *, is_streaming: bool = False) -> SourceOptions:
    values, kafka = _read(given, STREAM if is_streaming else READ, SOURCE)
    chosen = [name for name in ("topics", "pattern", "partitions") if name in values]
    if not chosen:
        raise BadOption(f"One of the following options must be specified for Kafka source: {_CHOICES}.")
    if len(chosen) > 1:
        raise BadOption(f"Only one of the following options can be specified for Kafka source: {_CHOICES}.")
    # The order in which Spark prefers them.
    start = _first(values, "start_time", "start_times", "start") or (FROM_LATEST if is_streaming else FROM_EARLIEST)
    end = _first(values, "end_time", "end_times", "end") or FROM_LATEST
    if is_streaming:
        _check_limits(values)
    else:
        _check_bounds(start, end)
    group_id = kafka.get("group.id")
    client = _client(kafka_properties.for_reading, kafka)
    client.pop("group.id", None)
    known = {each.name for each in fields(SourceOptions)}
    kept = {name: value for name, value in values.items() if name in known}
    return SourceOptions(**kept | {"client": client, "group_id": group_id, "start": start, "end": end})


def check_source_options(given: Mapping[str, str]) -> None:
    """Refuses what can be meant neither for a stream nor for a batch."""
    try:
        source_options(given, is_streaming=True)
    except BadOption:
        source_options(given)


def sink_options(given: Mapping[str, str], *, is_streaming: bool = True) -> SinkOptions:
    values, kafka = _read(given, SINK if is_streaming else WRITE, TARGET)
    return SinkOptions(client=_client(kafka_properties.for_writing, kafka), **values)


def _client(translate: Any, kafka: Mapping[str, str]) -> dict[str, str]:
    try:
        client: dict[str, str] = translate(kafka)
        return client
    except BadProperty as error:
        raise BadOption(str(error)) from None


def _read(given: Mapping[str, str], role: str, mine: tuple[Setting, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by attribute, and the `kafka.*` properties without their prefix."""
    values: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    for written, value in given.items():
        name = written.lower()
        if name.startswith(PREFIX):
            kafka[name.removeprefix(PREFIX)] = _resolved(written, value)
            continue
        known = BY_NAME.get(name)
        if known is None or known not in mine:
            raise BadOption(_unknown(written, known, role, mine))
        _check_role(known, role)
        values[known.key] = value_of(known, value)
    return values, kafka


def _resolved(written: str, value: str) -> str:
    """Spark asks for a reader or a writer on the driver, and only there is it read where a secret stands: the plan, and
    what Spark shows of it, have no more than the reference."""
    try:
        return resolved(written, value)
    except SettingsError as refusal:
        raise BadOption(f"Option {refusal}") from None


def _unknown(written: str, known: Setting | None, role: str, mine: tuple[Setting, ...]) -> str:
    if known is not None:
        return _belongs_elsewhere(known, role)
    names = {each.name.lower(): each.name for each in mine}
    names |= {f"{PREFIX}{name}": f"{PREFIX}{name}" for name in kafka_properties.KNOWN}
    names |= {name: f"{PREFIX}{name}" for name in kafka_properties.KNOWN}
    near = nearest(written.lower(), names)
    return f"No such option: '{written}'; the nearest known one is '{near and names[near]}'"


def _check_role(known: Setting, role: str) -> None:
    if known.is_for(role):
        return
    if role == READ:
        _log.warning(_IGNORED, known.name)
    elif known.name in NOT_FOR_A_STREAM:
        raise BadOption(NOT_FOR_A_STREAM[known.name])
    else:
        raise BadOption(_belongs_elsewhere(known, role))


def _belongs_elsewhere(known: Setting, role: str) -> str:
    return f"Option '{known.name}' belongs to {' and '.join(known.roles)}, not to {role}"


def _first(values: Mapping[str, Any], *names: str) -> Bound | None:
    return next((values[name] for name in names if name in values), None)


def _check_limits(values: Mapping[str, Any]) -> None:
    least, most = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        raise BadOption(f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most}).")


def _check_bounds(start: Bound, end: Bound) -> None:
    """Refuse bounds that a batch cannot begin or end with."""
    if start == FROM_LATEST:
        raise BadOption("starting offset can't be latest for batch queries on Kafka")
    if end == FROM_EARLIEST:
        raise BadOption("ending offset can't be earliest for batch queries on Kafka")
    for partition, offset in start.of.items() if isinstance(start, Offsets) else ():
        if offset == LATEST:
            raise BadOption(f"startingOffsets for {_named(partition)} can't be latest for batch queries on Kafka")
    for partition, offset in end.of.items() if isinstance(end, Offsets) else ():
        if offset == EARLIEST:
            raise BadOption(f"ending offset for {_named(partition)} can't be earliest for batch queries on Kafka")
    if isinstance(start, Offsets) and isinstance(end, Offsets):
        _check_order(start.of, end.of, "offset")
    elif isinstance(start, Times) and isinstance(end, Times):
        _check_order(start.of, end.of, "timestamp")
    elif isinstance(start, Time) and isinstance(end, Time) and start.timestamp_ms > end.timestamp_ms:
        raise BadOption(f"startingTimestamp {start.timestamp_ms} is greater than endingTimestamp {end.timestamp_ms}")


def _check_order(start: Mapping[AnyPlace, int], end: Mapping[AnyPlace, int], what: str) -> None:
    if start.keys() != end.keys():
        only = ", ".join(_named(each) for each in sorted(start.keys() ^ end.keys()))
        raise BadOption(f"the starting and the ending {what}s name different partitions: {only} only in one of them")
    for partition, first in start.items():
        last = end[partition]
        if first > last and first >= 0 and last >= 0:
            raise BadOption(
                f"the starting {what} {first} of {_named(partition)} is greater than the ending {what} {last}"
            )


def _named(partition: AnyPlace) -> str:
    return f"{partition[0]}-{partition[1]}"
