"""Answers that only brokers have: the partitions that there are, and the offset of a bound in each."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import LATEST, UNKNOWN, OffsetFound, Patience, cool, error_of, exception_of, offsets_at, warm
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace
from oncelog.spark.option import BadOption
from oncelog.spark.options import SourceOptions
from oncelog.spark.source.bounds import Bound, Offsets, Time, Word
from oncelog.spark.source.errors import SourceError, in_words
from oncelog.spark.source.group import Commits

PAUSE_S: Final = 0.1  # a topic that was just made is not known to its leader yet


class Ends(NamedTuple):
    at: dict[AnyPlace, int]
    topic_ids: dict[str, str]  # as they were before the ends were asked for: a topic that came between is another one


class NoSuchTopic(SourceError):
    def __init__(self, what: str, servers: str) -> None:
        super().__init__(f"there is no {what} on {servers}")


class _Unknown(KafkaException):
    """Topics or partitions that were named and are not there, or not known there yet."""

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        super().__init__(error_of(KafkaError.UNKNOWN_TOPIC_OR_PART))
        self.what = f"{kind} {', '.join(sorted(names))}"


class Planner:
    """Asks the cluster of one source, for as long as it is worth waiting. `close` gives its connections back."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        with in_words():
            self._client = warm(options.client)
        self.servers = self._client.servers
        self._commits = None if options.group_id is None else Commits(self._client, options.group_id)
        self._patience = Patience(options.patience_ms / 1000)
        lag_s = options.offset_retries * options.offset_retry_ms / 1000
        self._lagging = Patience(options.patience_ms / 1000, lag_s=min(lag_s, options.patience_ms / 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        cool(self._client)

    def pause(self, pause_s: float) -> None:
        self._client.thread.run(asyncio.sleep(pause_s))

    def commit(self, at: Mapping[AnyPlace, int]) -> None:
        """Commit to the group, if one is named; this is not waited for."""
        if self._commits is not None:
            self._commits.begin(at)

    # --- partitions

    def partitions(self, *, or_fewer: bool = False) -> set[AnyPlace]:
        """The partitions that are to be read. One that was named and is not there is an error, or left out
        (`or_fewer`)."""
        try:
            with in_words():
                return self._client.ask(lambda: self._partitions(or_fewer=or_fewer), self._lagging)
        except SourceError as failure:
            if isinstance(failure.__cause__, _Unknown):
                raise NoSuchTopic(failure.__cause__.what, self.servers) from None
            raise

    async def _partitions(self, *, or_fewer: bool) -> set[AnyPlace]:
        options = self._options
        brokers = self._client.brokers
        if options.pattern is not None:
            metadata = await brokers.refresh(None)
            pattern = re.compile(options.pattern)
            names = {name for name, each in metadata.topics.items() if not each.is_internal and pattern.fullmatch(name)}
            return self._known(names, or_fewer=True)
        names = set(options.topics or {topic for topic, _ in options.partitions or ()})
        await brokers.refresh(names)
        found = self._known(names, or_fewer=or_fewer)
        if options.partitions is None:
            return found
        missing = set(options.partitions) - found
        if missing and not or_fewer:
            raise _Unknown("partition", (f"{topic}-{index}" for topic, index in missing))
        return set(options.partitions) - missing

    def _known(self, names: set[str], *, or_fewer: bool) -> set[AnyPlace]:
        topics = self._client.brokers.metadata.topics
        unknown = {name for name in names if name not in topics or topics[name].error_code in UNKNOWN}
        if unknown and not or_fewer:
            raise _Unknown("topic", unknown)
        for name in names - unknown:
            if topics[name].error_code:
                raise exception_of(topics[name].error_code, f"topic {name}")
        return {(name, index) for name in names - unknown for index in topics[name].partitions}

    def topic_ids(self, partitions: Iterable[AnyPlace]) -> dict[str, str]:
        """The topics' ids, as the cluster said when it was last asked for partitions; brokers before Kafka 2.8 have
        none."""
        topics = self._client.brokers.metadata.topics
        ids = {name: topics[name].topic_id for name, _ in partitions if name in topics}
        return {name: str(topic_id) for name, topic_id in ids.items() if topic_id is not None}

    # --- offsets

    def ends(self, *, or_fewer: bool) -> Ends:
        """The ends of all that are to be read. A topic may be deleted between the two questions, so where its leader
        does not know it either, both are asked again."""
        until_s = monotonic_s() + self._patience.total_s
        while True:
            partitions = self.partitions(or_fewer=or_fewer)
            ids = self.topic_ids(partitions)
            try:
                return Ends(self.offsets(dict.fromkeys(partitions, LATEST), self._lagging), ids)
            except SourceError as failure:
                cause = failure.__cause__
                is_unknown = isinstance(cause, KafkaException) and cause.error.code() in UNKNOWN
                if not is_unknown or monotonic_s() >= until_s:
                    raise
            self.pause(PAUSE_S)

    def offsets(self, asked: Mapping[AnyPlace, int], patience: Patience | None = None) -> dict[AnyPlace, int]:
        """The offset of LATEST, EARLIEST or a time in each partition; -1 where no record is of that time or later."""
        if not asked:
            return {}
        patience = patience or self._patience
        brokers = self._client.brokers
        read_committed = self._client.settings.isolation_level == "read_committed"

        async def ask() -> dict[AnyPlace, OffsetFound]:
            return await offsets_at(brokers, asked, patience, read_committed=read_committed)

        with in_words():
            found = self._client.ask(ask, patience)
        return {partition: each.offset for partition, each in found.items()}

    def bound(self, bound: Bound, partitions: set[AnyPlace], *, is_start: bool) -> dict[AnyPlace, int]:
        """A bound of the options as offsets."""
        if isinstance(bound, Word):
            return self.offsets(dict.fromkeys(partitions, bound.offset))
        if isinstance(bound, Offsets):
            _check_all_named(set(bound.of), partitions, "startingOffsets" if is_start else "endingOffsets")
            return dict(bound.of) | self.offsets({each: offset for each, offset in bound.of.items() if offset < 0})
        if isinstance(bound, Time):
            return self._at_times(dict.fromkeys(partitions, bound.timestamp_ms), is_start=is_start)
        _check_all_named(set(bound.of), partitions, "starting/endingOffsetsByTimestamp")
        return self._at_times(dict(bound.of), is_start=is_start)

    def _at_times(self, times: dict[AnyPlace, int], *, is_start: bool) -> dict[AnyPlace, int]:
        found = self.offsets(times)
        none = [each for each, offset in found.items() if offset < 0]
        if none and is_start and self._options.no_match == "error":
            topic, index = min(none)
            raise BadOption(
                f"No offset matched from request of topic-partition {topic}-{index} and timestamp "
                f"{times[topic, index]}."
            )
        return found | self.offsets(dict.fromkeys(none, LATEST))


def _check_all_named(named: set[AnyPlace], there: set[AnyPlace], option: str) -> None:
    if named != there:
        raise BadOption(
            f"If {option} contains specific offsets, you must specify all TopicPartitions. Use -1 for latest, -2 for "
            f"earliest. Specified: {_list(named)} Assigned: {_list(there)}"
        )


def _list(partitions: set[AnyPlace]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
