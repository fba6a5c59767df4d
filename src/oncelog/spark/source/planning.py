"""What only brokers know: which partitions there are, and which offset a bound is in each."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

from oncelog.client.consumer import asking
from oncelog.client.errors import KafkaError, KafkaException, exception_of, is_retriable
from oncelog.client.net.warm import cool, warm
from oncelog.spark.option import BadOption
from oncelog.spark.options import SourceOptions
from oncelog.spark.source.bounds import EARLIEST, LATEST, Bound, Offsets, Partition, Time, Word

T = TypeVar("T")

# A server that nobody has reached yet is more likely a wrong address than one that is away for a moment.
FIRST_CONTACT_S: Final = 20.0
PAUSE_S: Final = 0.1
_UNKNOWN: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})


class NoSuchTopic(Exception):
    def __init__(self, names: Iterable[str], servers: str) -> None:
        self.names = sorted(names)
        super().__init__(f"there is no topic {', '.join(map(repr, self.names))} on {servers}")


class Planner:
    """Asks the cluster of one source. Belongs to one thread; `close` gives its connections back."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = warm(options.client)
        self._has_reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        cool(self._client)

    @property
    def servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._client.settings.bootstrap_servers)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._client.thread.run(coroutine)

    # --- partitions

    def partitions(self) -> set[Partition]:
        """Those that are to be read; raises NoSuchTopic where one that was named is not there."""
        return self.run(self._patiently(self._partitions))

    async def _partitions(self) -> set[Partition]:
        options = self._options
        brokers = self._client.brokers
        if options.pattern is not None:
            metadata = await brokers.refresh(None)
            pattern = re.compile(options.pattern)
            names = {name for name, each in metadata.topics.items() if not each.is_internal and pattern.fullmatch(name)}
        else:
            names = set(options.topics or {topic for topic, _ in options.partitions or ()})
            await brokers.refresh(names)
        found = self._known(names)
        if options.partitions is not None:
            if missing := set(options.partitions) - found:
                named = ", ".join(f"{topic}-{index}" for topic, index in sorted(missing))
                raise BadOption(f"Option 'assign' names partitions that are not there: {named}")
            return set(options.partitions)
        return found

    def _known(self, names: set[str]) -> set[Partition]:
        topics = self._client.brokers.metadata.topics
        unknown = {name for name in names if name not in topics or topics[name].error_code in _UNKNOWN}
        if unknown:
            raise NoSuchTopic(unknown, self.servers)
        for name in names:
            if topics[name].error_code:
                raise exception_of(topics[name].error_code, f"topic {name}")
        return {(name, index) for name in names for index in topics[name].partitions}

    # --- offsets

    def offsets(self, asked: Mapping[Partition, int]) -> dict[Partition, int]:
        """What LATEST, EARLIEST or a time is in each partition; -1 where no record is of that time or later."""
        if not asked:
            return {}
        return self.run(self._patiently(lambda: self._offsets(asked)))

    async def _offsets(self, asked: Mapping[Partition, int]) -> dict[Partition, int]:
        brokers = self._client.brokers
        by_leader: dict[int, list[tuple[Partition, int, int]]] = {}
        for partition, time in asked.items():
            leader, epoch = brokers.metadata.leader(*partition)
            if leader < 0:
                await brokers.refresh([partition[0]])
                leader, epoch = brokers.metadata.leader(*partition)
            if leader < 0:
                raise exception_of(KafkaError.LEADER_NOT_AVAILABLE, f"{partition[0]}-{partition[1]}")
            by_leader.setdefault(leader, []).append((partition, epoch, time))
        read_committed = self._client.settings.isolation_level == "read_committed"
        answers = await asyncio.gather(
            *(
                asking.list_offsets(brokers, node, wanted, read_committed=read_committed)
                for node, wanted in by_leader.items()
            )
        )
        found: dict[Partition, int] = {}
        for each in (one.found for many in answers for one in many):
            if each.error_code:
                await brokers.refresh([each.partition[0]])
                raise exception_of(each.error_code, f"{each.partition[0]}-{each.partition[1]}")
            found[each.partition] = each.offset
        return found

    def bound(self, bound: Bound, partitions: set[Partition], *, is_start: bool) -> dict[Partition, int]:
        """A bound of the options as offsets."""
        if isinstance(bound, Word):
            return self.offsets(dict.fromkeys(partitions, bound.offset))
        if isinstance(bound, Offsets):
            _check_all_named(set(bound.of), partitions, "startingOffsets" if is_start else "endingOffsets")
            asked = {each: offset for each, offset in bound.of.items() if offset < 0}
            return dict(bound.of) | self.offsets(asked)
        if isinstance(bound, Time):
            times = dict.fromkeys(partitions, bound.timestamp_ms)
        else:
            _check_all_named(set(bound.of), partitions, "starting/endingOffsetsByTimestamp")
            times = dict(bound.of)
        found = self.offsets(times)
        none = [each for each, offset in found.items() if offset < 0]
        if none and is_start and self._options.no_match == "error":
            topic, index = min(none)
            raise BadOption(
                f"No offset matched from request of topic-partition {topic}-{index} and timestamp "
                f"{times[topic, index]}."
            )
        return found | self.offsets(dict.fromkeys(none, LATEST))

    # --- patience

    async def _patiently(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Asked again while the failure is one that passes, and not for ever."""
        loop = asyncio.get_running_loop()
        options = self._options
        patience_s = options.patience_ms / 1000 if self._has_reached else FIRST_CONTACT_S
        began_s = loop.time()
        settle_s = min(patience_s, options.offset_retries * options.offset_retry_ms / 1000)
        while True:
            left_s = began_s + patience_s - loop.time()
            try:
                async with asyncio.timeout(left_s):
                    found = await ask()
                self._has_reached = True
                return found
            except NoSuchTopic:
                # It may have been made a moment ago.
                self._has_reached = True
                if loop.time() >= began_s + settle_s:
                    raise
            except TimeoutError:
                raise self._too_late(patience_s) from None
            except KafkaException as failure:
                if not failure.error.retriable() and not is_retriable(failure.error.code()):
                    raise
                self._client.trouble = failure.error
                if loop.time() >= began_s + patience_s:
                    raise self._too_late(patience_s) from None
            await asyncio.sleep(PAUSE_S)

    def _too_late(self, patience_s: float) -> KafkaException:
        trouble = self._client.trouble
        why = f": {trouble.str()}" if trouble is not None else ""
        words = f"{self.servers} did not answer within {patience_s:g} s{why}"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))


def _check_all_named(named: set[Partition], there: set[Partition], option: str) -> None:
    if named != there:
        raise BadOption(
            f"If {option} contains specific offsets, you must specify all TopicPartitions. Use -1 for latest, -2 for "
            f"earliest. Specified: {_list(named)} Assigned: {_list(there)}"
        )


def _list(partitions: set[Partition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))


__all__ = ["EARLIEST", "LATEST", "NoSuchTopic", "Planner"]
