"""A register that the committed offsets of a group keep: of its facts only the last one stands.

OffsetCommit has no compare-and-set. Kafka's static members give one: a process that joins with the same
`group.instance.id` fences the one before, whose commits fail from then on. So a writer joins once, looks at what the
group holds, and commits as that member; one that is fenced looks again. So every commit builds upon the one before,
whatever process made it.

Nobody beats its heart for this: a commit counts as one, the session is as long as brokers allow, and a writer whose
session ended joins and looks again. Each method asks once; whether again is for the plan to decide.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable
from oncelog.client.groups.commits import ToCommit, commit_to_group
from oncelog.client.groups.membership_steps import Member
from oncelog.client.net.coordinators import has_moved
from oncelog.client.register.entry import Entry
from oncelog.error_codes import ErrorCodes as Code

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

PROTOCOL: Final = "oncelog"  # not "consumer": then Kafka would forget offsets of topics without a subscriber
LEAVE_VERSIONS: Final = (3, 5)  # by instance id
SESSIONS_MS: Final = (1_800_000, 300_000, 30_000)  # the longest that the broker takes
JOIN_PURPOSE: Final = "own"
JOIN_TIMEOUT_MS: Final = 60_000
ANSWER_MS: Final = 20_000  # a third of what a caller waits in all: a coordinator that hangs leaves time to ask another

NOT_A_MEMBER: Final = frozenset(
    {Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS, Code.FENCED_INSTANCE_ID}
)


class MetadataTooLarge(Exception):
    """The brokers allow less to an entry. Its neighbours were stored."""


class OffsetsKeeper:
    """One group's committed offsets. `instance_id`: the same for all that write to such registers."""

    def __init__(self, brokers: "Brokers", group: str, instance_id: str) -> None:
        self.group = group
        self._brokers = brokers
        self._instance_id = instance_id
        self._member: Member | None = None

    @property
    def is_member(self) -> bool:
        return self._member is not None

    def forget(self) -> None:
        """Forget what was known of the group: the next commit looks before it writes."""
        self._member = None

    async def _ask(self, name: str, build: Any, versions: tuple[int, int], *, purpose: str = "") -> Any:
        async with self._brokers.coordinators.at(self.group) as coordinator:
            answer = await self._brokers.request(
                coordinator, name, build, versions=versions, timeout_ms=ANSWER_MS, purpose=purpose
            )
            if has_moved(int(answer.error_code)):
                raise_unless_ok(int(answer.error_code))
            return answer

    # --- reading

    async def held(self) -> list[Entry]:
        answer = await self._ask(
            "offset_fetch",
            lambda spoken: spoken.new("OffsetFetchRequest", group_id=self.group, topics=None, require_stable=True),
            (2, 7),
        )
        raise_unless_ok(int(answer.error_code))
        entries = []
        for topic in answer.topics:
            for each in topic.partitions:
                raise_unless_ok(int(each.error_code))
                epoch = int(getattr(each, "committed_leader_epoch", -1))
                if each.committed_offset >= 0:
                    offset = each.committed_offset
                    entries.append(Entry(topic.name, each.partition_index, offset, each.metadata or "", epoch))
        return entries

    # --- writing

    async def join(self) -> None:
        """Nobody who joined before can commit from here on."""
        for session_ms in SESSIONS_MS:
            joined = await self._ask(
                "join_group", lambda spoken, ms=session_ms: self._join_request(spoken, ms), (5, 7), purpose=JOIN_PURPOSE
            )
            if int(joined.error_code) != Code.INVALID_SESSION_TIMEOUT:
                break
        raise_unless_ok(int(joined.error_code))
        synced = await self._ask(
            "sync_group", lambda spoken: self._sync_request(spoken, joined), (3, 5), purpose=JOIN_PURPOSE
        )
        raise_unless_ok(int(synced.error_code))
        self._member = Member(joined.generation_id, joined.member_id, self._instance_id)

    async def commit(self, entries: Iterable[Entry]) -> None:
        """All entries are committed in one OffsetCommit, as the member that joined last, or none is."""
        assert self._member is not None, "it joins first"
        offsets = {
            (each.topic, each.partition): ToCommit(each.offset, each.leader_epoch, each.metadata) for each in entries
        }
        try:
            found = await commit_to_group(self._brokers, self.group, offsets, self._member, timeout_ms=ANSWER_MS)
            codes = set(found.values()) - {0}
            if codes & NOT_A_MEMBER:
                raise KafkaException(KafkaError(KafkaError._WAIT_COORD, retriable=True))
            if Code.OFFSET_METADATA_TOO_LARGE in codes:
                raise MetadataTooLarge
            for code in sorted(codes):
                raise_unless_ok(code)
        except (KafkaException, asyncio.CancelledError):
            self.forget()  # whether it was stored, or is yet to be, is seen when we look
            raise

    async def leave(self) -> None:
        """Leave the group, so that it has no member: then it may be deleted, and users may reset its offsets. By both
        ids, so that a fenced process takes nobody along. What is under way is refused, as for a fenced one; looking
        decides."""
        member, self._member = self._member, None
        if member is None:
            return

        def build(spoken: Any) -> Any:
            gone = spoken.new(
                "MemberIdentity",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                reason="the producer that is saved here was closed",
            )
            return spoken.new("LeaveGroupRequest", group_id=self.group, members=(gone,))

        answer = await self._ask("leave_group", build, LEAVE_VERSIONS)
        for code in (answer.error_code, *(each.error_code for each in answer.members)):
            raise_unless_ok(int(code))

    def _join_request(self, spoken: Any, session_ms: int) -> Any:
        return spoken.new(
            "JoinGroupRequest",
            group_id=self.group,
            session_timeout=timedelta(milliseconds=session_ms),
            rebalance_timeout=timedelta(milliseconds=JOIN_TIMEOUT_MS),
            member_id="",
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL,
            protocols=(spoken.new("JoinGroupRequestProtocol", name=PROTOCOL, metadata=b""),),
        )

    def _sync_request(self, spoken: Any, joined: Any) -> Any:
        is_leader = joined.leader == joined.member_id
        alone = (spoken.new("SyncGroupRequestAssignment", member_id=joined.member_id, assignment=b""),)
        return spoken.new(
            "SyncGroupRequest",
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL,
            protocol_name=PROTOCOL,
            assignments=alone if is_leader else (),
        )


def raise_unless_ok(code: int) -> None:
    if code in NOT_A_MEMBER:
        raise KafkaException(KafkaError(code, retriable=True))
    if code:
        error = error_of(code)
        raise KafkaException(KafkaError(code, error.str(), retriable=is_retriable(code)))
