"""One owner at a time for what a group has committed.

OffsetCommit has no compare-and-set, and two copies of a job that start at once would both find nothing, take an
identity each and write everything twice. Kafka's static members give one: who joins with the same `group.instance.id`
fences the one before, whose commits fail from then on. So an owner joins once, looks whether the group still holds what
it started from, and commits as that member. Whoever is fenced looks again: if nothing was committed meanwhile it goes
on, otherwise another copy has taken over. So every commit builds upon the one before, whoever made it.

Nobody beats its heart for this: a commit counts as one, the session is as long as brokers allow, and an owner whose
session ended joins and looks again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable
from oncelog.client.net import retry
from oncelog.client.saving.committed import DEFAULT_LIMIT_BYTES, LIMIT_SETTING, Committed, Entry, put_in, take_out
from oncelog.client.saving.errors import BadSavedProducer, TakenOver
from oncelog.client.saving.saved import SavedProducer

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

INSTANCE_ID: Final = "oncelog.saved-producer"
PROTOCOL: Final = "oncelog"  # not "consumer": then Kafka would forget offsets of topics that nobody subscribed to
SESSIONS_MS: Final = (1_800_000, 300_000, 30_000)  # the longest that the broker takes
JOIN_PURPOSE: Final = "own"
JOIN_TIMEOUT_MS: Final = 60_000

INVALID_SESSION_TIMEOUT: Final = 26
OFFSET_METADATA_TOO_LARGE: Final = 12
NOT_A_MEMBER: Final = frozenset({22, 25, 27, 82})  # illegal generation, unknown member, rebalance, fenced instance


class NotMember(Exception):
    """The session ended, or somebody else joined in our place."""


class _Ask:
    """Questions to one group's coordinator, asked again while it moves, loads or cannot be reached."""

    def __init__(self, brokers: "Brokers", group: str) -> None:
        self._brokers = brokers
        self._group = group

    async def __call__(self, name: str, build: Any, versions: tuple[int, int], *, purpose: str = "") -> Any:
        coordinator = await self._brokers.coordinator(self._group)
        return await self._brokers.request(
            coordinator, name, build, versions=versions, timeout_ms=JOIN_TIMEOUT_MS, purpose=purpose
        )


async def fetch_committed(brokers: "Brokers", group: str) -> Committed:
    """What the group holds now: positions, producer, number of the save."""

    async def ask() -> list[Entry]:
        answer = await _Ask(brokers, group)(
            "offset_fetch",
            lambda schema: schema.new("OffsetFetchRequest", group_id=group, topics=None, require_stable=True),
            (2, 7),
        )
        _raise(int(answer.error_code))
        entries = []
        for topic in answer.topics:
            for each in topic.partitions:
                _raise(int(each.error_code))
                epoch = int(getattr(each, "committed_leader_epoch", -1))
                if each.committed_offset >= 0:
                    offset = each.committed_offset
                    entries.append(Entry(topic.name, each.partition_index, offset, each.metadata or "", epoch))
        return entries

    return take_out(await retry.ask(ask, retry.Patience()))


class Ownership:
    """What one producer knows of the group that it is saved in."""

    def __init__(
        self,
        brokers: "Brokers",
        group: str,
        started_from: SavedProducer | None,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._ask = _Ask(brokers, group)
        self._limit_bytes = limit_bytes
        self._last = started_from  # what the group must hold, or somebody else has committed
        self._save: int | None = None  # its number; None until it was looked up
        self._member_id = ""
        self._generation = -1
        self._turn = asyncio.Lock()

    async def commit(self, positions: Sequence[Entry], saved: SavedProducer, *, may_add: bool = True) -> None:
        """Store positions and producer in one OffsetCommit, or raise with nothing stored. `may_add`: this cluster has
        the output topics too."""

        def entries(save: int) -> list[Entry]:
            return put_in(positions, saved, save, limit_bytes=self._limit_bytes, may_add=may_add)

        async with self._turn:
            entries((self._save or 0) + 1)  # refuse what does not fit before joining
            await retry.ask(lambda: self._commit_once(entries, saved), retry.Patience())

    async def _commit_once(self, entries: Callable[[int], list[Entry]], saved: SavedProducer) -> None:
        if not self._member_id and await self._look(saved):
            return
        assert self._save is not None
        save = self._save + 1
        try:
            await self._send(entries(save))
        except NotMember:
            self._member_id = ""
            raise KafkaException(KafkaError(KafkaError._WAIT_COORD, retriable=True)) from None
        except KafkaException:
            self._member_id = ""  # whether it was stored is seen when we look
            raise
        self._last, self._save = saved, save

    async def _look(self, saved: SavedProducer) -> bool:
        """Become the owner, and see what the group holds; True when a commit whose answer was lost stands there."""
        await self._join()
        held = await fetch_committed(self._brokers, self._group)
        if held.saved == self._last and self._save in (None, held.save):
            self._save = held.save
            return False
        if self._save is not None and held.save == self._save + 1 and held.saved == saved:
            self._last, self._save = saved, held.save
            return True
        self._member_id = ""
        raise TakenOver(
            f"group {self._group!r} holds save {held.save} of a producer that this one was not started from: another "
            "copy of the job has committed meanwhile. Nothing was stored; stop this copy, or load again and start anew"
        )

    async def _join(self) -> None:
        for session_ms in SESSIONS_MS:
            joined = await self._ask(
                "join_group", lambda schema, ms=session_ms: self._join_request(schema, ms), (5, 7), purpose=JOIN_PURPOSE
            )
            if int(joined.error_code) != INVALID_SESSION_TIMEOUT:
                break
        _raise(int(joined.error_code))
        synced = await self._ask(
            "sync_group", lambda schema: self._sync_request(schema, joined), (3, 5), purpose=JOIN_PURPOSE
        )
        code = int(synced.error_code)
        if code in NOT_A_MEMBER:
            raise KafkaException(KafkaError(code, retriable=True))
        _raise(code)
        self._member_id, self._generation = joined.member_id, joined.generation_id

    def _join_request(self, schema: Any, session_ms: int) -> Any:
        return schema.new(
            "JoinGroupRequest",
            group_id=self._group,
            session_timeout=timedelta(milliseconds=session_ms),
            rebalance_timeout=timedelta(milliseconds=JOIN_TIMEOUT_MS),
            member_id="",
            group_instance_id=INSTANCE_ID,
            protocol_type=PROTOCOL,
            protocols=(schema.new("JoinGroupRequestProtocol", name=PROTOCOL, metadata=b""),),
        )

    def _sync_request(self, schema: Any, joined: Any) -> Any:
        is_leader = joined.leader == joined.member_id
        alone = (schema.new("SyncGroupRequestAssignment", member_id=joined.member_id, assignment=b""),)
        return schema.new(
            "SyncGroupRequest",
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=INSTANCE_ID,
            protocol_type=PROTOCOL,
            protocol_name=PROTOCOL,
            assignments=alone if is_leader else (),
        )

    async def _send(self, entries: Iterable[Entry]) -> None:
        by_topic: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            by_topic[entry.topic].append(entry)

        def build(schema: Any) -> Any:
            topics = tuple(
                schema.new(
                    "OffsetCommitRequestTopic",
                    name=name,
                    partitions=tuple(
                        schema.new(
                            "OffsetCommitRequestPartition",
                            partition_index=each.partition,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            committed_metadata=each.metadata,
                        )
                        for each in entries
                    ),
                )
                for name, entries in by_topic.items()
            )
            return schema.new(
                "OffsetCommitRequest",
                group_id=self._group,
                generation_id_or_member_epoch=self._generation,
                member_id=self._member_id,
                group_instance_id=INSTANCE_ID,
                topics=topics,
            )

        answer = await self._ask("offset_commit", build, (7, 8))
        codes = {int(each.error_code) for topic in answer.topics for each in topic.partitions} - {0}
        if codes & NOT_A_MEMBER:
            raise NotMember
        if OFFSET_METADATA_TOO_LARGE in codes:
            raise BadSavedProducer(
                f"the brokers allow less metadata to an entry than the {self._limit_bytes} bytes that were counted on: "
                f"set `oncelog.{LIMIT_SETTING}` to the brokers' {LIMIT_SETTING}. The save is incomplete and is refused "
                "when it is loaded; commit again"
            )
        for code in sorted(codes):
            _raise(code)


def _raise(code: int) -> None:
    if code in NOT_A_MEMBER:
        raise KafkaException(KafkaError(code, retriable=True))
    if code:
        error = error_of(code)
        raise KafkaException(KafkaError(code, error.str(), retriable=is_retriable(code)))
