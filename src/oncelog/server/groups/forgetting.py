"""Outdated entries go from the log and from memory: expired offsets, those of deleted topics, void
groups. Another broker does it for the groups that it coordinates.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from oncelog.clock import MINUTE_MS, Now
from oncelog.log.work_steps import Pauses
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.offsets import TopicPartition, expired
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.groups.store import AnyGroup, GroupStore
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

logger = logging.getLogger(__name__)

REMOVED_AT_A_TIME = 500  # offsets: a millisecond or two

Stale = tuple[str, str, Mapping[int, CommittedOffset]]  # topic, group, and what it has committed by partition


class Forgetting:
    def __init__(self, settings: Settings, topics: Topics, store: GroupStore, is_running: Callable[[], bool]) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store
        self._is_running = is_running
        # Offsets of deleted topics that the disk refused to take out, by topic and group.
        self._refused: dict[tuple[str, str], Mapping[int, CommittedOffset]] = {}
        self._missing: set[str] = set()  # topics, at the last look

    def keep_house(self, now: Now) -> Pauses:
        yield from self._forget([(*place, committed) for place, committed in self._refused.items()], now)
        yield from self.of_missing_topics(now)
        refusal: KafkaError | None = None
        for group in list(self._store.groups.values()):
            try:
                yield from self._keep_group(group, now)
            except KafkaError as refused:
                refusal = refused
        if refusal is not None:
            logger.warning("expired offsets stay until the next look: %s", refusal)

    def of_topic(self, topic: str, now: Now) -> Pauses:
        yield from self._forget(self._committed_for(topic), now)
        yield from self._forget_pending(topic, now)

    def of_missing_topics(self, now: Now) -> Pauses:
        """A crash may have come between the end of a topic and that of its offsets. Where its records are still there,
        it was not deleted: what knows of it may be put back. A broker among others may hear late of a topic that was
        made, so there it must have been missing at the last look, too."""
        seen, self._missing = self._missing, set()
        for name in dict.fromkeys((*self._store.offsets.topics(), *self._store.pending.topics())):
            if self._topics.get(name) is None and not self._topics.is_stray(name):
                self._missing.add(name)
                if name in seen or not self._topics.is_replicated:
                    # As they are now: another topic of that name may be there before this ends.
                    yield from self._forget(list(self._committed_for(name)), now)
                    yield from self._forget_pending(name, now)
            yield

    # Below

    def _keep_group(self, group: AnyGroup, now: Now) -> Pauses:
        group_id, store = group.group_id, self._store
        is_pending = store.pending.is_pending
        retention_ms = self._settings.offsets_retention_minutes * MINUTE_MS

        def is_there() -> bool:
            """Whether it is there; if not it is gone, or nothing can be taken away there now."""
            is_well = self._is_running() and store.refusal(group_id) is ErrorCode.none
            return is_well and store.groups.get(group_id) is group

        yield
        for places in store.offsets.pieces(group_id, REMOVED_AT_A_TIME):
            if not is_there():
                return
            found = expired(group, store.offsets, places, retention_ms, now.wall_ms)
            # One by one where many transactions may have to be asked.
            for some in [[each] for each in found] if store.pending.has_any(group_id) else [found]:
                if not is_there():
                    return
                gone = expired(group, store.offsets, some, retention_ms, now.wall_ms)
                store.remove_offsets(group_id, [each for each in gone if not is_pending(group_id, *each)], now)
                yield
        is_void = group.is_empty and not store.has_offsets(group_id) and not group.has_pending_ids
        if is_void and is_there():
            store.remove_group(group_id, now)

    def _committed_for(self, topic: str) -> Iterator[Stale]:
        return ((topic, *each) for each in self._store.offsets.of_topic(topic))

    def _forget(self, stale: Iterable[Stale], now: Now) -> Pauses:
        """Forget these. Where the disk refuses it for one group, the others go on."""
        refusal: KafkaError | None = None
        for topic, group_id, committed in stale:
            self._refused.pop((topic, group_id), None)
            try:
                yield from self._forget_of_group(group_id, topic, committed, now)
            except KafkaError as refused:
                refusal = refused
                self._refused[topic, group_id] = committed
        if refusal is not None:
            logger.warning("offsets of deleted topics stay until the next look: %s", refusal)

    def _forget_pending(self, topic: str, now: Now) -> Pauses:
        """The same, after that, for what is committed in transactions that have not ended. Where a group has committed
        something again, it is for the next topic of that name, and goes before what an end brings. What the disk
        refuses stays until the next look, if the topic is still missing then."""
        store = self._store
        for group_id, places in store.pending.of_topic(topic, REMOVED_AT_A_TIME):
            left = [each for each in places if store.offsets.get(group_id, *each) is None]
            if left and self._is_running():
                try:
                    store.remove_offsets(group_id, left, now)
                except KafkaError as refused:
                    logger.warning("offsets of deleted topics stay until the next look: %s", refused)
            yield

    def _forget_of_group(self, group_id: str, topic: str, committed: Mapping[int, CommittedOffset], now: Now) -> Pauses:
        offsets = self._store.offsets
        partitions = list(committed)
        for start in range(0, len(partitions), REMOVED_AT_A_TIME):
            yield
            if not self._is_running():
                return
            some = partitions[start : start + REMOVED_AT_A_TIME]
            old = [each for each in some if offsets.get(group_id, topic, each) is committed[each]]
            self._store.remove_offsets(group_id, [TopicPartition(topic, each) for each in old], now)
